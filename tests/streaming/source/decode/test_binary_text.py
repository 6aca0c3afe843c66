"""Bytes in texts, column by column, against Python's own."""

from __future__ import annotations

import base64

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tagstream.streaming.source.decode.columns import from_base64, from_hex

RAW = st.lists(st.none() | st.binary(max_size=20), max_size=30)


@given(RAW)
def test_base64_and_hex(raw: list[bytes | None]) -> None:
    texts = pa.array([None if r is None else base64.b64encode(r).decode() for r in raw], pa.string())
    made, wrong = from_base64(texts)
    assert made.to_pylist() == raw
    assert not wrong.any()
    made, wrong = from_hex(pa.array([None if r is None else r.hex() for r in raw], pa.string()))
    assert made.to_pylist() == raw
    assert not wrong.any()


def test_what_is_none() -> None:
    assert from_base64(pa.array(["AQ==", "A", "A=B=", "####", None, "", "=AAA"]))[1].tolist() == [
        False, True, True, True, False, False, True,
    ]  # fmt: skip
    assert from_hex(pa.array(["0g", "012", "FF", None]))[1].tolist() == [True, True, False, False]
