"""Rows in several chunks: the same rows as in one, and no chunk too large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.table import chunks

ROW = pa.struct([("n", pa.int64()), ("doc", pa.string()), ("tags", pa.list_(pa.string()))])
LIMIT = 1500


def table_of(sizes: list[int], first: int = 0) -> pa.Table:
    rows = [
        None if n % 5 == 4 else {"n": first + n, "doc": "x" * size, "tags": ["a"] * (n % 3)}
        for n, size in enumerate(sizes)
    ]
    return pa.table(
        {"key": pa.array([f"k{first + n}" for n in range(len(sizes))], pa.string()), "row": pa.array(rows, ROW)}
    )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", LIMIT)


def largest(table: pa.Table) -> int:
    return max(batch.nbytes for batch in table.to_batches() if batch.num_rows > 1)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 900), max_size=12), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
    st.lists(st.integers(0, 100), max_size=5),
)
def test_rows_taken_are_the_same_as_of_one_piece(sizes: list[list[int]], rng: Any, gaps: list[int]) -> None:
    tables, first = [], 0
    for each in sizes:
        tables.append(table_of(each, first))
        first += len(each)
    whole = pa.concat_tables(tables).combine_chunks()
    order: list[int | None] = list(range(whole.num_rows))
    rng.shuffle(order)
    order = order[: rng.randint(0, len(order))]
    for gap in gaps:
        order.insert(gap % (len(order) + 1), None)
    numbers = pa.array(order, pa.int64())
    expected = whole.take(numbers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", LIMIT)
        rows = chunks.combined(tables)
        assert rows.equals(whole)
        found = chunks.take(rows, numbers)
    assert found.schema == whole.schema
    assert found.equals(expected)


@pytest.mark.usefixtures("small")
def test_no_chunk_is_too_large() -> None:
    tables = [table_of([10] * 7, 7 * i) for i in range(20)]
    rows = chunks.combined(tables)
    assert 1 < rows["row"].num_chunks < 20
    assert largest(rows) <= LIMIT
    order = np.random.default_rng(1).permutation(rows.num_rows)
    assert largest(chunks.take(rows, order)) <= LIMIT
    # large rows that come to stand together
    uneven = chunks.combined([table_of([1] * 5 + [600], 6 * i) for i in range(20)])
    by_size = np.array(sorted(range(uneven.num_rows), key=lambda n: n % 6 == 5), np.int64)
    found = chunks.take(uneven, by_size)
    assert largest(found) <= LIMIT
    assert found.equals(pa.concat_tables([uneven]).combine_chunks().take(by_size))


def test_small_tables_are_in_one_piece() -> None:
    rows = chunks.combined([table_of([1, 2]), table_of([3], 2)])
    assert [column.num_chunks for column in rows.columns] == [1, 1]
    taken = chunks.take(rows, pa.array([2, None, 0], pa.int64()))
    assert taken["key"].to_pylist() == ["k2", None, "k0"]
    assert [column.num_chunks for column in taken.columns] == [1, 1]
    assert chunks.take(rows, np.zeros(0, np.int64)).num_rows == 0


@pytest.mark.parametrize("count", [0, 1, 7])
def test_rows_are_gathered_from_many_pieces(count: int) -> None:
    rows = pa.concat_tables([table_of([10] * 5, 5 * i) for i in range(6)])
    numbers = np.random.default_rng(3).permutation(rows.num_rows)[:count].astype(np.int64)
    assert chunks.gather(rows, numbers).equals(rows.combine_chunks().take(numbers))
    assert chunks.gather(rows.slice(0, 0), np.zeros(0, np.int64)).num_rows == 0
