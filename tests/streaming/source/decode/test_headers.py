"""Headers of Kafka messages: those of bad records go along to the quarantine."""

from __future__ import annotations

import base64
import json

import pyarrow as pa

from tests.streaming.source.decode.test_key_decoder import batch, decoder

TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_the_headers_of_bad_records_alone_are_kept() -> None:
    raw = batch(b'{"id":"k1","day":"d","ts":5}', b"rubbish", b"rubbish")
    headers = pa.array(
        [[("a", b"1")], [("trace", b"\xff\x00"), ("none", None), ("trace", b"2")], None], TYPE
    )  # fmt: skip
    found = decoder().keys(raw.append_column("headers", headers)).to_pylist()
    assert [row["headers"] for row in found][::2] == [None, None]
    kept = json.loads(found[1]["headers"])
    assert [(name, None if v is None else base64.b64decode(v)) for name, v in kept] == [
        ("trace", b"\xff\x00"), ("none", None), ("trace", b"2"),
    ]  # fmt: skip
