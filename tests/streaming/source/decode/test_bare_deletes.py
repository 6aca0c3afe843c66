"""A delete writes no row: of a table with required columns it has to have its key, partition and ordering alone."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tagstream.streaming.source.decode.key_decoder import KeyDecoder
from tagstream.streaming.source.decode.record_format import Facts
from tagstream.table.keys.keys import KeyGenerator

SCHEMA = pa.schema([
    pa.field("id", pa.string(), nullable=False), pa.field("p", pa.string(), nullable=False),
    pa.field("ts", pa.int64(), nullable=False), pa.field("name", pa.string(), nullable=False), pa.field("n", pa.int64()),
])  # fmt: skip
WHOLE = {"id": "1", "p": "a", "ts": 5, "name": "x", "n": 1}


def decode(*records: object, facts: dict[str, Facts] | None = None) -> list[tuple[int, str | None]]:
    """(flags, why it is bad) of records."""
    generator = KeyGenerator.create("SIMPLE", ["id"], ["p"])
    decoder = KeyDecoder(SCHEMA, generator, ("ts",), True, facts, merge_on_read=False)
    values = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
    none = pa.nulls(len(values), pa.binary())
    batch = pa.record_batch({
        "key": none, "value": pa.array(values, pa.binary()), "src": pa.array(["f"] * len(values)),
        "pos_hi": pa.array([0] * len(values), pa.int64()), "pos_lo": pa.array(range(len(values)), pa.int64()),
    })  # fmt: skip
    found = decoder.keys(batch)
    assert found.column("row").type.get_field_index("name") == 3
    return list(zip(found.column("flags").to_pylist(), found.column("reason").to_pylist(), strict=True))


def bare(**more: object) -> dict[str, object]:
    return {"id": "1", "p": "a", "ts": 6, "_hoodie_is_deleted": True, **more}


def test_a_delete_of_key_partition_and_ordering_is_good() -> None:
    found = decode(WHOLE, bare(), WHOLE, bare(n=None), bare(name="x"))
    assert [reason for _, reason in found] == [None] * 5
    assert [flags for flags, _ in found] == [0, 1, 0, 1, 1]


@pytest.mark.parametrize("lost", ["id", "p", "ts"])
def test_what_a_delete_needs_is_asked_for(lost: str) -> None:
    ((flags, reason),) = decode({k: v for k, v in bare().items() if k != lost})
    assert flags == 8 and reason is not None and lost in reason


def test_an_upsert_still_needs_every_required_column() -> None:
    short = {k: v for k, v in WHOLE.items() if k != "name"}
    found = decode(short, {**short, "_hoodie_is_deleted": False}, {**short, "n": "_hoodie_is_deleted"}, WHOLE)
    assert [flags for flags, _ in found] == [8, 8, 8, 0]
    assert "name" in str(found[0][1])


def test_a_delete_that_is_wrong_otherwise_says_why() -> None:
    found = decode(bare(n="no number"), b'{"_hoodie_is_deleted": tru', bare())
    assert [flags for flags, _ in found] == [8, 8, 1]
    assert "n" in str(found[0][1])


def test_aliases_of_columns_change_nothing() -> None:
    found = decode(
        bare(), WHOLE, {k: v for k, v in WHOLE.items() if k != "name"}, facts={"name": Facts(aliases=("label",))}
    )
    assert [flags for flags, _ in found] == [1, 0, 8]
