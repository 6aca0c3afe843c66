"""Messages with damaged bytes: each is decoded or bad, and no other message changes. No byte ends the decoder."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tagstream.state.tag_batch import FLAG_DELETE
from tagstream.streaming.source.decode.key_decoder import FLAG_BAD, FLAG_SKIPPED
from tests.streaming.source.decode.decoding import decoder
from tests.streaming.source.decode.test_captures import TABLES, rules_of
from tests.support import cdc, schema_registry

INSERTED = (
    b"\xff" * 9 + b"\x01", b"\xfe\xff\xff\xff\x0f", b"\0" * 8, b'"', b"{", b"[" * 200, b"1e999", b"null", b"-0",
    b"\\ud800", b"9" * 400,
)  # fmt: skip


@pytest.fixture(scope="module")
def registry() -> Iterator[schema_registry.Registry]:
    with schema_registry.captured() as found:
        yield found


def damaged(data: bytes, rnd: random.Random) -> bytes:
    """Bytes changed, left out, added or repeated at some places."""
    out = bytearray(data or b"x")
    for _ in range(rnd.choice([1, 1, 2, 4])):
        at = rnd.randrange(len(out)) if out else 0
        match rnd.randrange(6):
            case 0:
                out[at : at + 1] = rnd.randbytes(1)
            case 1:
                del out[at:]
            case 2:
                out += rnd.randbytes(rnd.randrange(1, 30))
            case 3:
                out[at:at] = rnd.choice(INSERTED)
            case 4:
                del out[at : at + rnd.randrange(1, 6)]
            case _:
                out[at : at + 1] = bytes([rnd.choice(b'0123456789"{}[]:,tfn')])
    return bytes(out)


@pytest.mark.extended("more tables", first=("shop.items",))
@pytest.mark.parametrize("folder", ["json", "jsonschema", "avro", "flat"])
@pytest.mark.parametrize("table", ["shop.items", "shop.orders", "shop.stock", "shop.carts"])
def test_damaged_bytes(folder: str, table: str, registry: schema_registry.Registry) -> None:
    rnd = random.Random(f"{folder} {table}")
    number, keys, partitions = TABLES[table]
    good = [m for _, found in cdc.phases(folder, table) for m in found]
    decode = decoder(cdc.schema_by_id(number), keys, partitions, rules_of(folder, registry))
    expected = decode.keys(cdc.raw_batch(good)).to_pylist()
    bad = 0
    for _ in range(25):
        at = set(rnd.sample(range(len(good)), min(len(good), rnd.choice([1, 3, 12]))))
        messages = list(good)
        for n in at:
            part = rnd.choice(["key", "value"])
            data = getattr(good[n], part)
            messages[n] = replace(good[n], **{part: damaged(data, rnd)}) if data else good[n]
        found = decode.keys(cdc.raw_batch(messages)).to_pylist()
        assert len(found) == len(good)
        bad += sum(bool(event["flags"] & FLAG_BAD) for event in found)
        for n in set(range(len(good))) - at:
            if expected[n]["flags"] & FLAG_SKIPPED and n - 1 in at:
                continue  # a tombstone that only repeats its delete is a delete itself where the one before is bad
            assert str(found[n]) == str(expected[n])
    assert bad


@pytest.mark.parametrize("folder", ["json", "jsonschema"])
def test_a_message_key_without_the_columns_of_the_record_key(folder: str, registry: schema_registry.Registry) -> None:
    """A connector may have a key of its own. Its deletes name no row, so they are bad; with a schema in the key too."""
    number, keys, partitions = TABLES["shop.stock"]
    messages = [m for _, found in cdc.phases(folder, "shop.stock") for m in found if m.key and m.value]
    names = ((b'"region"', b'"country"'), (b'"item"', b'"thing"'))
    other = [replace(m, key=(m.key or b"").replace(*names[0]).replace(*names[1])) for m in messages]
    decode = decoder(cdc.schema_by_id(number), keys, partitions, rules_of(folder, registry))
    deletes = [bool(event["flags"] & FLAG_DELETE) for event in decode.keys(cdc.raw_batch(messages)).to_pylist()]
    assert any(deletes)
    assert not all(deletes)
    for event, delete in zip(decode.keys(cdc.raw_batch(other)).to_pylist(), deletes, strict=True):
        assert event["reason"] == ("the key of this delete has no column region" if delete else None)
