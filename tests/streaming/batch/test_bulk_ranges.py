"""Ranges of a global sort: against sorted lists of the same records."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.streaming.batch.bulk_ranges import Ranges, by_range, make_sample_function, places_of, ranges_of
from tagstream.streaming.source.packed import pack

PATHS = st.sampled_from(["", "a", "a/b", "b", "é"])
KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=4)
ROWS = st.lists(st.tuples(PATHS, KEYS), max_size=60)
DISTINCT = st.lists(st.tuples(PATHS, KEYS), min_size=1, max_size=200, unique=True)


def rows_of(rows: list[tuple[str, str]]) -> pa.Table:
    """Keyed records; their state keys are those of a global index."""
    parts = pa.array([path for path, _ in rows], pa.string())
    return pa.table({"part": parts, "skey": pa.array([b"g" + key.encode() for _, key in rows], pa.binary())})


def joined(rows: list[tuple[str, str]]) -> list[bytes]:
    return [path.encode() + b"\0g" + key.encode() for path, key in rows]


def sample_of(*tables: pa.Table, row_bytes: float = 1.0) -> pa.Table:
    """The sample of a task that has these rows."""
    values = [value for table in tables for value in pack(table)]
    batches = [pa.RecordBatch.from_pydict({"rows": pa.array([value], pa.binary())}) for value in values]
    return pa.Table.from_batches(make_sample_function(lambda _: row_bytes)(batches))


def ranges(sample: pa.Table, max_file_bytes: int = 1 << 30, most: int = 100) -> Ranges:
    return ranges_of(sample, max_file_bytes=max_file_bytes, most=most)


@given(ROWS, ROWS)
def test_a_row_goes_to_the_range_of_its_place(rows: list[tuple[str, str]], bounds: list[tuple[str, str]]) -> None:
    limits = sorted(set(joined(bounds)))
    lanes = by_range(rows_of(rows), pa.array(limits, pa.binary()))
    assert lanes.tolist() == [bisect_right(limits, place) for place in joined(rows)]


@given(DISTINCT, st.integers(1, 8))
def test_there_are_at_most_as_many_ranges_as_write_tasks(rows: list[tuple[str, str]], count: int) -> None:
    table = rows_of(rows)
    sample = sample_of(table)
    assert sample.column("place").to_pylist() == joined(rows)
    found = ranges(sample, max_file_bytes=1, most=count)
    assert found.bounds.to_pylist() == sorted(set(found.bounds.to_pylist()))
    sizes = Counter(by_range(table, found.bounds).tolist())
    assert max(sizes) < count
    assert max(sizes.values()) <= 2 * (len(rows) / count + 1), "files of up to that share are put together"


@given(DISTINCT, st.integers(1, 20))
def test_a_range_has_whole_files(rows: list[tuple[str, str]], rows_a_file: int) -> None:
    table = rows_of(rows)
    found = ranges(sample_of(table, row_bytes=1 / 1.05), max_file_bytes=rows_a_file, most=10_000)
    in_range = Counter(zip(by_range(table, found.bounds).tolist(), (path for path, _ in rows), strict=True))
    files = Counter(path for path, _ in rows)
    assert len(in_range) == len({lane for lane, _ in in_range}), "no range has rows of two partitions"
    for path, count in files.items():
        wanted = -(-count // rows_a_file)
        sizes = [n for (_, each), n in in_range.items() if each == path]
        assert len(sizes) == wanted
        assert max(sizes) - min(sizes) <= 1


def test_small_partitions_share_a_range() -> None:
    table = rows_of([(f"p{i:02d}", f"k{j:03d}") for i in range(30) for j in range(100)])
    found = ranges(sample_of(table), most=4)
    assert found.bounds.to_pylist() == [b"p07\0", b"p15\0", b"p22\0"]
    assert found.row_bytes == pytest.approx(1.05)


def test_a_large_partition_has_several_ranges() -> None:
    table = rows_of([("a", f"k{j:03d}") for j in range(900)] + [("b", f"k{j:03d}") for j in range(90)])
    found = ranges(sample_of(table), max_file_bytes=340)
    sizes = Counter(by_range(table, found.bounds).tolist())
    assert sorted(sizes) == [0, 1, 2, 3]
    assert [sizes[3], *(round(sizes[i], -2) for i in range(3))] == [90, 300, 300, 300]


def test_nothing_but_bad_records() -> None:
    table = pa.table({"part": pa.array([None], pa.string()), "skey": pa.array([None], pa.binary())})
    found = ranges(sample_of(table, row_bytes=0.0))
    assert (found.bounds.to_pylist(), found.row_bytes) == ([], 0.0)
    assert ranges(pa.table({"place": [b""], "weight": [1.0], "row_bytes": [0.0]}).slice(0, 0)).bounds.to_pylist() == []


def test_a_sample_stands_for_all_rows_of_its_task() -> None:
    sample = sample_of(rows_of([("p", f"k{i:05d}") for i in range(5_001)]))
    assert sample.num_rows == 193  # each 26th
    assert sum(sample.column("weight").to_pylist()) == pytest.approx(5_001)


def test_a_sample_of_a_task_with_many_rows_is_limited() -> None:
    sample = sample_of(*(rows_of([("p", f"k{i:02d}{j:06d}") for j in range(200_000)]) for i in range(15)))
    assert 1_000 < sample.num_rows <= 2_000
    assert sum(sample.column("weight").to_pylist()) == pytest.approx(3_000_000)
    found = ranges(sample, max_file_bytes=1_200_000, most=3)
    tables = [int(bound[4:6]) for bound in found.bounds.to_pylist()]
    assert len(tables) == 2
    assert abs(tables[0] - 5) <= 1
    assert abs(tables[1] - 10) <= 1


def test_a_record_without_a_partition_has_a_range() -> None:
    """Bad records have neither partition nor state key, and any task may quarantine them."""
    table = pa.table({"part": pa.array([None, "a", None]), "skey": pa.array([None, b"gk", None], pa.binary())})
    assert places_of(table).to_pylist() == [b"", b"a\0gk", b""]
    assert by_range(table, pa.array([b"a"], pa.binary())).tolist() == [0, 1, 0]
