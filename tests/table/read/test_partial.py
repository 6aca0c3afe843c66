"""Records that do not say all columns are merged as folding them one by one, column by column, merges them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.read.merge import HoleRule, LogBatch, match_base, merge_log, merge_rows

KEYS = [f"k{n}" for n in range(4)]
COLUMNS = ("v", "w")
_value = st.one_of(st.none(), st.integers(0, 9))
_record = st.tuples(st.sampled_from(KEYS), st.integers(0, 4), _value, _value)
_block = st.one_of(
    st.lists(_record, max_size=6),
    st.lists(st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 4))), max_size=4),
)
_base = st.dictionaries(st.sampled_from(KEYS), st.tuples(st.integers(0, 4), _value, _value))
SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("v", pa.int64()), ("w", pa.int64())])


def table(entries: list[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, entry, strict=True)) for entry in entries], SCHEMA)


def batch(entries: list[tuple[Any, ...]], rule: HoleRule, absent: tuple[str, ...]) -> LogBatch:
    keys, values = pa.array([e[0] for e in entries], pa.string()), pa.array([e[1] for e in entries], pa.int64())
    if entries and len(entries[0]) == 2:
        natural = values.is_null().to_numpy(zero_copy_only=False)
        return LogBatch(keys, None, values, np.ones(len(keys), np.bool_), natural)
    rows, none = table(entries), np.zeros(len(keys), np.bool_)
    return LogBatch(keys, rows, values, none, none, rule.holes(rows, absent))


def fold(
    base: dict[str, Any], blocks: list[Any], event_time: bool, rule: HoleRule, absent: tuple[str, ...]
) -> dict[str, Any]:
    """Key -> its row, the rules word by word: the log to one record a key, then this and the base file's row."""
    log: dict[str, dict[str, Any]] = {}
    for block in blocks:
        for entry in block:
            new = (
                {"deleted": True, "ts": entry[1]}
                if len(entry) == 2
                else dict(zip(SCHEMA.names[1:], entry[1:], strict=True))
            )
            if "deleted" not in new:
                new |= {"hole": {c for c in COLUMNS if c in absent or (rule.nulls and new[c] is None)}}
            old = log.get(entry[0])
            log[entry[0]] = new if old is None else pick(old, new, event_time, rule)
    found = {key: dict(zip(SCHEMA.names[1:], row, strict=True)) for key, row in base.items()}
    for key, new in log.items():
        if key in found:
            held = found[key] | {"hole": {c for c in COLUMNS if rule.nulls and found[key][c] is None}}
            new = pick(held, new, event_time, rule)
        found.pop(key, None)
        if "deleted" not in new:
            found[key] = {n: None if n in new["hole"] else new[n] for n in SCHEMA.names[1:]}
    return found


def pick(old: dict[str, Any], new: dict[str, Any], event_time: bool, rule: HoleRule) -> dict[str, Any]:
    """The winner of two versions, with its holes filled from the loser where neither is a delete."""
    natural = "deleted" in new and new["ts"] is None
    wins = not event_time or natural or old.get("ts") is None or new["ts"] >= old["ts"]
    high, low = (dict(new), old) if wins else (dict(old), new)
    if "deleted" not in high and "deleted" not in low and (wins or rule.both_ways):
        for name in high["hole"] - low["hole"]:
            high[name] = low[name]
        high["hole"] = high["hole"] & low["hole"]
    return high


@given(_base, st.lists(_block, max_size=5), st.booleans(), st.sampled_from([HoleRule(nulls=True), HoleRule()]))
def test_merge_is_the_fold(base: dict[str, Any], blocks: list[Any], event_time: bool, rule: HoleRule) -> None:
    absent = () if rule.nulls else ("w",)
    log = merge_log([batch(block, rule, absent) for block in blocks], event_time, rule.both_ways)
    rows = table([(key, *values) for key, values in base.items()])
    orderings = rows["ts"].combine_chunks() if event_time else None
    placed = np.zeros(len(log.keys), np.bool_)
    matched = match_base(rows["k"].combine_chunks(), orderings, log)
    found = merge_rows(rows, *matched, log, placed, rule).to_pylist()
    if log.rows is not None:
        found += log.rows.take(pa.array(log.row[(log.row >= 0) & ~placed])).to_pylist()
    by_key = {row.pop("k"): row for row in found}
    assert len(by_key) == len(found)
    assert by_key == folded(base, blocks, event_time, rule, absent)


def folded(base: dict[str, Any], blocks: list[Any], event_time: bool, rule: HoleRule, absent: tuple[str, ...]) -> Any:
    """The fold, but that a winner which nothing in the base file may beat is not compared with it."""
    if not event_time:
        return fold(base, blocks, event_time, rule, absent)
    unbeaten = {entry[0] for block in blocks for entry in block if len(entry) == 2 and entry[1] is None}
    lowered = {key: (-1, *row[1:]) if key in unbeaten else row for key, row in base.items()}
    return fold(lowered, blocks, event_time, rule, absent)


def test_a_marker_is_filled_from_the_base_file_and_kept_where_there_is_none() -> None:
    rule = HoleRule(marker="?")
    schema = pa.schema([("k", pa.string()), ("t", pa.string()), ("b", pa.binary()), ("n", pa.int64())])
    rows = pa.Table.from_pylist(
        [{"k": "a", "t": "?", "b": b"?", "n": 1}, {"k": "b", "t": "new", "b": None, "n": 2}], schema
    )
    none = np.zeros(2, np.bool_)
    log = merge_log([LogBatch(rows["k"].combine_chunks(), rows, None, none, none, rule.holes(rows))], False, True)
    base = pa.Table.from_pylist(
        [{"k": "a", "t": "old", "b": b"x", "n": 0}, {"k": "b", "t": "old", "b": b"y", "n": 0}], schema
    )
    placed = np.zeros(2, np.bool_)
    found = merge_rows(base, *match_base(base["k"].combine_chunks(), None, log), log, placed, rule).to_pylist()
    assert found == [{"k": "a", "t": "old", "b": b"x", "n": 1}, {"k": "b", "t": "new", "b": None, "n": 2}]
    assert placed.all()
