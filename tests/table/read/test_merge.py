"""The vectorised merge gives what folding the log record by record gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.fields import tuples
from tagstream.table.read.merge import LogBatch, merge_base, merge_log

KEYS = [f"k{n}" for n in range(5)]
ordering = st.one_of(st.none(), st.integers(-3, 3))
record = st.tuples(st.sampled_from(KEYS), ordering, st.just("row"))
delete = st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(-3, 3)), st.just("delete"))
block = st.one_of(
    st.lists(record, max_size=6, unique_by=lambda r: r[0]), st.lists(delete, max_size=6, unique_by=lambda r: r[0])
)


def batches(blocks: list[list[tuple[str, int | None, str]]]) -> list[LogBatch]:
    made = []
    for n, entries in enumerate(blocks):
        keys = pa.array([key for key, _, _ in entries], pa.string())
        values = pa.array([value for _, value, _ in entries], pa.int64())
        is_delete = bool(entries) and entries[0][2] == "delete"
        rows = None if is_delete else pa.table({"k": keys, "v": values, "at": pa.array([n] * len(entries), pa.int64())})
        deleted = np.full(len(entries), is_delete)
        natural = values.is_null().to_numpy(zero_copy_only=False) & is_delete
        made.append(LogBatch(keys, rows, values, deleted, natural))
    return made


def fold(
    base: dict[str, int | None], blocks: list[list[tuple[str, int | None, str]]], event_time: bool
) -> dict[str, Any]:
    """Key -> (where it comes from, ordering) of the rows that live; the rules word by word."""
    state: dict[str, tuple[str, Any, Any]] = {key: ("row", value, "base") for key, value in base.items()}
    for n, entries in enumerate(blocks):
        for key, value, kind in entries:
            old = state.get(key)
            natural = kind == "delete" and value is None
            wins = (
                not event_time or old is None or natural or old[0] == "natural" or _rank(value) >= _rank(old[1])
            )  # fmt: skip
            if wins:
                state[key] = ("natural" if natural else kind, value, n)
    return {key: (where, value) for key, (kind, value, where) in state.items() if kind == "row"}


def _rank(value: int | None) -> float:
    return float("-inf") if value is None else value


@given(st.dictionaries(st.sampled_from(KEYS), ordering, max_size=5), st.lists(block, max_size=6), st.booleans())
def test_merge_is_the_fold(base: dict[str, int | None], blocks: list[Any], event_time: bool) -> None:
    log = merge_log(batches(blocks), event_time)
    keys = pa.array(list(base), pa.string())
    orderings = pa.array(list(base.values()), pa.int64())
    keep, lost = merge_base(keys, orderings if event_time else None, log, np.zeros(len(log.keys), dtype=np.bool_))
    found: dict[str, Any] = {key: ("base", base[key]) for key, stays in zip(base, keep, strict=True) if stays}
    if log.rows is not None:
        for row in log.rows.take(pa.array(log.row[(log.row >= 0) & ~lost])).to_pylist():
            assert row["k"] not in found
            found[row["k"]] = (row["at"], row["v"])
    assert found == fold(base, blocks, event_time)


def pairs(values: pa.Array) -> pa.Array:
    """The same order as a pair of fields: neither alone gives it."""
    return tuples([pc.divide(pc.add(values, 9), 2), pc.bit_wise_and(pc.add(values, 9), 1)], ("a", "b"))


@given(st.dictionaries(st.sampled_from(KEYS), ordering, max_size=5), st.lists(block, max_size=6))
def test_several_ordering_fields_merge_as_one_of_the_same_order(base: dict[str, int | None], blocks: list[Any]) -> None:
    found = []
    for turned in (lambda values: values, pairs):
        made = [replace(each, orderings=turned(each.orderings)) for each in batches(blocks)]
        log = merge_log(made, True)
        values = turned(pa.array(list(base.values()), pa.int64()))
        keep, lost = merge_base(pa.array(list(base), pa.string()), values, log, np.zeros(len(log.keys), np.bool_))
        found.append((keep.tolist(), lost.tolist(), log.keys.to_pylist(), log.row.tolist(), log.unconditional.tolist()))
    assert found[0] == found[1]


def test_an_empty_log_changes_nothing() -> None:
    log = merge_log([], True)
    keep, _ = merge_base(pa.array(["a"]), pa.array([1]), log, np.zeros(0, dtype=np.bool_))
    assert keep.all()
    assert log.rows is None
