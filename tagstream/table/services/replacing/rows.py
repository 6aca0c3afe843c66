"""The rows that take the place of others: kept as they come, then one a key, by partition.

Of the records of a key counts the one with the greatest ordering value, of equal ones the later. Where that is a delete, the
key is not written. Memory: keys, ordering values and a few numbers a record; the rows up to a limit, beyond it they lie in
temporary files that are mapped into memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table import chunks
from tagstream.table.schema.conform import as_schema
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.services.spill import RowKeeper

Rows = npt.NDArray[np.int64]
_STEP_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Records:
    """Some records in the order of the input. ``rows``: user columns; ``ordering``: int64 or binary in their order, None
    where the table has no ordering field. ``unordered``: deletes without an ordering value, which come after all others.
    """

    rows: pa.Table
    keys: pa.Array
    partitions: pa.Array
    ordering: pa.Array | None
    deleted: npt.NDArray[np.bool_]
    unordered: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class NewRows:
    """Rows to be written, one a key, and :data:`RECORD_KEY` beside their columns. ``partitions``: numbers of the rows in the
    order of their keys. To be used as long as the keeper is open. ``records``: how many there were, ``deletes``: keys whose
    newest record is a delete.
    """

    rows: pa.Table
    partitions: Mapping[str, Rows]
    records: int
    deletes: int

    @property
    def count(self) -> int:
        """Rows of all partitions."""
        return sum(map(len, self.partitions.values()))

    @property
    def keys(self) -> pa.Array:
        """The keys (large strings) of all partitions."""
        numbers = np.concatenate([*self.partitions.values(), np.zeros(0, np.int64)])
        keys = self.rows.column(RECORD_KEY).cast(pa.large_string()).combine_chunks()
        return keys.take(pa.array(numbers))

    def part(self, partition: str, number: int, parts: int) -> Iterator[pa.Table]:
        """The rows of one of ``parts`` files of a partition, some at a time."""
        numbers = self.partitions[partition]
        first, last = len(numbers) * number // parts, len(numbers) * (number + 1) // parts
        step = max(1, self.rows.num_rows * _STEP_BYTES // max(self.rows.nbytes, 1))
        for start in range(first, last, step):
            yield chunks.gather(self.rows, numbers[start : min(last, start + step)])


class RowsByKey:
    """Takes records and finds the rows that count. To be used inside the keeper's block."""

    def __init__(self, schema: pa.Schema, keeper: RowKeeper, *, global_keys: bool) -> None:
        """``schema``: the user columns. ``global_keys``: a key is there once in the table, else once in a partition."""
        columns = [field.with_nullable(True) for field in schema]  # of a delete all but the key may be null
        self._schema = pa.schema([*columns, pa.field(RECORD_KEY, pa.string())])
        self._keeper, self._global = keeper, global_keys
        self._rows: list[pa.Table] = []
        self._columns: list[pa.Table] = []
        self._paths: dict[str, int] = {}

    def add(self, records: Records) -> None:
        """Take some records."""
        count = records.rows.num_rows
        rows = records.rows.append_column(RECORD_KEY, records.keys.cast(pa.string()))
        self._rows.append(self._keeper.keep(as_schema(rows, self._schema)))
        paths = records.partitions.dictionary_encode()
        # A loop over the partitions of a block, not over records.
        own = np.array([self._paths.setdefault(p, len(self._paths)) for p in paths.dictionary.to_pylist()], np.int64)
        self._columns.append(
            pa.table(
                {
                    "part": own[paths.indices.to_numpy()] if count else np.zeros(0, np.int64),
                    "key": records.keys.cast(pa.large_binary()),
                    "unordered": records.unordered,
                    "ordering": records.ordering if records.ordering is not None else np.zeros(count, np.int64),
                    "deleted": records.deleted,
                }
            )
        )

    def chosen(self) -> NewRows:
        """The rows that count of all records so far."""
        rows = pa.concat_tables([*self._rows, self._schema.empty_table()])
        if not rows.num_rows:
            return NewRows(rows, {}, 0, 0)
        found = pa.concat_tables(self._columns).append_column("row", pa.array(np.arange(rows.num_rows)))
        same = ["key"] if self._global else ["part", "key"]
        by = [(name, "ascending") for name in (*same, "unordered", "ordering", "row")]
        order = pc.sort_indices(found, sort_keys=by)
        last = np.zeros(rows.num_rows, np.bool_)
        last[-1] = True
        for name in same:
            column = found.column(name).combine_chunks().take(order)
            last[:-1] |= pc.not_equal(column[:-1], column[1:]).to_numpy(zero_copy_only=False)
        newest: Rows = order.to_numpy()[last].astype(np.int64)
        stays = ~found.column("deleted").to_numpy()[newest]
        written = newest[stays]
        parts = found.column("part").to_numpy()[written]
        by_part = np.argsort(parts, kind="stable")
        written, parts = written[by_part], parts[by_part]
        names = list(self._paths)
        codes, starts = np.unique(parts, return_index=True)
        ends = [*starts[1:], len(parts)] if len(codes) else []
        partitions = {names[c]: written[s:e] for c, s, e in zip(codes.tolist(), starts, ends, strict=True)}
        return NewRows(rows, dict(sorted(partitions.items())), rows.num_rows, int((~stays).sum()))
