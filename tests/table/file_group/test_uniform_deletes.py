"""Delete blocks whose records are alike: read as arrays to what a reading record by record gives."""

from __future__ import annotations

import io
from typing import Any
from unittest import mock

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group import delete_block, ordering_wrapper
from tagstream.table.file_group.delete_block import DeleteRecords, decode, read_uniform
from tagstream.table.file_group.log_format import I32
from tests.table.file_group.test_delete_block import VECTORS, content_of

NAMES = list(ordering_wrapper.TYPES)
I64 = st.integers(-(2**62), 2**62)
# Keys and paths with the bytes that lead from one field to the next.
TEXT = st.text(st.sampled_from("\0\1\2\3\4\6k0é𝄞"), max_size=6) | st.text(max_size=5)
VALUES: dict[int, st.SearchStrategy[Any]] = {
    1: st.booleans(),
    2: st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 1, 2]),
    3: I64,
    4: st.floats(width=32, allow_nan=False),
    5: st.floats(allow_nan=False),
    6: st.binary(max_size=4),
    7: TEXT,
    8: st.integers(-(2**20), 2**20),
    10: st.integers(0, 86_399_999_999),
    11: st.integers(-(2**50), 2**50),
}
WANTED = [None, pa.int64(), pa.int32(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us", tz="UTC")]


def content(records: list[tuple[str | None, str | None, int, Any]]) -> bytes:
    """A block's content by fastavro: (key, path, branch of the union or 0, value) of each record."""
    values: list[dict[str, Any]] = [
        {
            "recordKey": key,
            "partitionPath": path,
            "orderingVal": None if branch == 0 else (NAMES[branch - 1], {"value": value}),
        }
        for key, path, branch, value in records
    ]
    out = io.BytesIO()
    fastavro.schemaless_writer(out, delete_block._SCHEMA, values)
    payload = out.getvalue()
    return I32.pack(3) + I32.pack(len(payload)) + payload


def told(block: bytes, wanted: pa.DataType | None) -> tuple[Any, ...] | str:
    """What `decode` gives or why it does not."""
    try:
        found: DeleteRecords = decode(block, "a block", wanted)
    except UnsupportedTableError as error:
        return str(error)
    orderings = None
    if found.orderings is not None:
        kind = found.orderings.type
        # Python has no years beyond 9999.
        plain = found.orderings.view(f"int{kind.bit_width}") if pa.types.is_temporal(kind) else found.orderings
        orderings = (kind, plain.to_pylist())
    return found.keys.to_pylist(), found.partition_paths.to_pylist(), orderings, found.natural.to_pylist()


def one_by_one(block: bytes, wanted: pa.DataType | None) -> tuple[Any, ...] | str:
    with mock.patch.object(delete_block, "read_uniform", return_value=None):
        return told(block, wanted)


@given(st.data(), st.sampled_from(sorted(VALUES)), st.sampled_from(WANTED), TEXT)
def test_alike_records_are_what_they_are_one_by_one(
    data: st.DataObject, branch: int, wanted: pa.DataType | None, path: str
) -> None:
    pairs = data.draw(st.lists(st.tuples(TEXT, VALUES[branch]), min_size=1, max_size=12))
    block = content([(key, path, branch, value) for key, value in pairs])
    assert told(block, wanted) == one_by_one(block, wanted)


RECORDS = st.sampled_from([0, 2, 3, 7]).flatmap(
    lambda branch: st.tuples(
        TEXT | st.none(), st.sampled_from(["", "p", "\2", None]), st.just(branch), VALUES.get(branch, st.none())
    )
)


@given(st.lists(RECORDS, max_size=8), st.sampled_from(WANTED))
def test_records_that_differ_are_read_as_before(
    records: list[tuple[str | None, str | None, int, Any]], wanted: pa.DataType | None
) -> None:
    block = content(records)
    assert told(block, wanted) == one_by_one(block, wanted)


@pytest.mark.parametrize("branch", [2, 3, 4, 5, 8, 10, 11])
def test_what_writers_make_is_read_as_arrays(branch: int) -> None:
    numbers = np.arange(3000)
    rows = [(f"key-{n}", "p=1/q=2", branch, float(n) if branch in (4, 5) else int(n)) for n in numbers]
    found = read_uniform(content(rows)[8:])
    assert found is not None
    assert (found.branch, found.partition_path) == (branch, "p=1/q=2")
    assert found.keys.to_pylist() == [row[0] for row in rows]
    assert found.values.tolist() == numbers.tolist()


def test_of_real_hudis_blocks_the_alike_one_is_read_as_arrays() -> None:
    """The other one, of a vector, has a record of each kind of ordering value."""
    found = read_uniform(content_of("real_v6_delete_sql")[8:])
    assert found is not None
    expected = VECTORS["real_v6_delete_sql"]["records"]
    assert found.keys.to_pylist() == [record["recordKey"] for record in expected]
    assert {found.partition_path} == {record["partitionPath"] for record in expected}
    assert read_uniform(content_of("delete")[8:]) is None


@given(st.binary(max_size=60), st.integers(0, 400), st.integers(0, 255))
def test_damaged_bytes_are_no_other_records(tail: bytes, place: int, byte: int) -> None:
    rows = [(f"k{n}", "p", 3, 1000 + n) for n in range(20)]
    payload = bytearray(content(rows)[8:])
    payload[place % len(payload)] = byte
    for damaged in (bytes(payload), bytes(payload) + tail, tail):
        block = I32.pack(3) + I32.pack(len(damaged)) + damaged
        found = read_uniform(damaged)
        if found is None:
            continue
        try:
            assert one_by_one(block, pa.int64())[0] == found.keys.to_pylist()
        except CorruptFileError:
            pytest.fail("read as arrays what is no Avro")
