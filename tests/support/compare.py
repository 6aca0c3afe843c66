"""Two tables compared row by row: what is lost, what is too much, what came twice, what differs and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

SHOWN = 5


@dataclass(frozen=True)
class Differences:
    """Keys by what is wrong with them, and a few in words. Empty (false) when the tables are equal."""

    lost: int
    unexpected: int
    doubled: int
    changed: dict[str, int]  # column -> rows that differ in it
    examples: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.lost or self.unexpected or self.doubled or self.changed)

    def __str__(self) -> str:
        counts = f"{self.lost} lost, {self.unexpected} unexpected, {self.doubled} doubled, {self.changed} changed"
        return "\n".join([counts, *self.examples])


def compare(expected: pa.Table, found: pa.Table, key: Sequence[str]) -> Differences:
    """Compare `found` with `expected` on the columns of `expected`, matching rows by `key`.

    Types are brought to the expected ones by a cast that must not lose anything, never dropped. Equality is null-safe.
    """
    if found.num_rows == 0 and not found.column_names:
        found = expected.slice(0, 0)
    found = found.select(expected.column_names).cast(expected.schema, safe=True)
    keys = list(key)
    counts = found.group_by(keys).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1)).select(keys)
    here, there = _with_row_number(expected, "expected#"), _with_row_number(found, "found#")
    joined = here.select([*keys, "expected#"]).join(there.select([*keys, "found#"]), keys, join_type="full outer")
    lost = joined.filter(pc.is_null(joined["found#"])).select(keys)
    unexpected = joined.filter(pc.is_null(joined["expected#"])).select(keys)
    both = joined.filter(pc.and_(pc.is_valid(joined["found#"]), pc.is_valid(joined["expected#"])))
    left, right = expected.take(both["expected#"]), found.take(both["found#"])
    changed: dict[str, int] = {}
    examples = [*_named("lost", lost), *_named("unexpected", unexpected), *_named("doubled", twice)]
    for column in expected.column_names:
        differs = _differs(left[column], right[column])
        if wrong := pc.sum(differs).as_py() or 0:
            changed[column] = wrong
            at = pc.index(differs, True).as_py()
            what = {name: left[name][at].as_py() for name in keys}
            examples.append(
                f"{column} of {what}: expected {left[column][at].as_py()!r}, found {right[column][at].as_py()!r}"
            )
    return Differences(lost.num_rows, unexpected.num_rows, twice.num_rows, changed, tuple(examples))


def _with_row_number(table: pa.Table, name: str) -> pa.Table:
    return table.append_column(name, pa.array(range(table.num_rows), pa.int64()))


def _differs(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    """True where the values differ; two nulls are equal."""
    one_null = pc.xor(pc.is_null(left), pc.is_null(right))
    return pc.or_(one_null, pc.fill_null(pc.not_equal(left, right), False))


def _named(what: str, keys: pa.Table) -> list[str]:
    return [f"{what}: {row}" for row in keys.slice(0, SHOWN).to_pylist()]
