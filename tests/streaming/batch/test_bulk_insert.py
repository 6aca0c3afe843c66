"""Ranges of a global sort, and records with one key: against sorted lists and dictionaries of the same records."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.index.base import WRITTEN_SCHEMA
from tagstream.streaming.batch.append import one_place_each
from tagstream.streaming.batch.bulk_insert import by_partition, by_range, places_of, range_bounds, sample_places
from tagstream.streaming.source.packed import pack

PATHS = st.sampled_from(["", "a", "a/b", "b", "é"])
KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=4)
ROWS = st.lists(st.tuples(PATHS, KEYS), max_size=60)


def rows_of(rows: list[tuple[str, str]]) -> pa.Table:
    """Keyed records; their state keys are those of a global index."""
    parts = pa.array([path for path, _ in rows], pa.string())
    return pa.table({"part": parts, "skey": pa.array([b"g" + key.encode() for _, key in rows], pa.binary())})


def joined(rows: list[tuple[str, str]]) -> list[bytes]:
    return [path.encode() + b"\0g" + key.encode() for path, key in rows]


@given(ROWS, ROWS)
def test_a_row_goes_to_the_range_of_its_place(rows: list[tuple[str, str]], bounds: list[tuple[str, str]]) -> None:
    limits = sorted(set(joined(bounds)))
    lanes = by_range(rows_of(rows), pa.array(limits, pa.binary()))
    assert lanes.tolist() == [bisect_right(limits, place) for place in joined(rows)]


@given(st.lists(st.tuples(PATHS, KEYS), min_size=1, max_size=200, unique=True), st.integers(1, 8))
def test_ranges_have_about_the_same_number_of_rows(rows: list[tuple[str, str]], count: int) -> None:
    table = rows_of(rows)
    batch = pa.RecordBatch.from_pydict({"rows": pa.array(list(pack(table)), pa.binary())})
    (sample,) = sample_places([batch])
    assert sample.column("place").to_pylist() == joined(rows)
    bounds = range_bounds(sample.column("place"), sample.column("weight").to_numpy(), count)
    assert bounds.to_pylist() == sorted(bounds.to_pylist())
    sizes = Counter(by_range(table, bounds).tolist())
    assert max(sizes) < count
    assert max(sizes.values()) <= len(rows) / count + 1


def test_a_sample_stands_for_all_rows_of_its_task() -> None:
    table = rows_of([("p", f"k{i:05d}") for i in range(5_001)])
    batch = pa.RecordBatch.from_pydict({"rows": pa.array(list(pack(table)), pa.binary())})
    (sample,) = sample_places([batch])
    assert sample.num_rows == 1_667
    assert sum(sample.column("weight").to_pylist()) == pytest.approx(5_001)


def test_a_record_without_a_partition_has_a_lane() -> None:
    """Bad records have neither partition nor state key, and any task may quarantine them."""
    table = pa.table({"part": pa.array([None, "a", None]), "skey": pa.array([None, b"gk", None], pa.binary())})
    assert places_of(table).to_pylist() == [b"", b"a\0gk", b""]
    assert by_partition(table, 3).tolist()[::2] == [0, 0]
    assert by_range(table, pa.array([b"a"], pa.binary())).tolist() == [0, 1, 0]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from("12")), max_size=30))
@pytest.mark.parametrize("by_path", [False, True])
def test_a_key_has_its_last_place(by_path: bool, rows: list[tuple[str, str, str]]) -> None:
    columns = [pa.array([row[i] for row in rows], pa.string()) for i in range(3)]
    written = pa.Table.from_arrays([*columns, pa.array(np.ones(len(rows), np.bool_))], schema=WRITTEN_SCHEMA)
    expected = {(row[:2] if by_path else row[0]): row for row in rows}
    found = one_place_each(written, by_partition=by_path).select(["record_key", "partition_path", "file_id"])
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == sorted(expected.values())
