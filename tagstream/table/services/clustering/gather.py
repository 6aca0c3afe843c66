"""The rows of a group's slices, in the order of the new files: read once, kept, and taken out file by file.

Memory: the rows up to a limit, beyond it they lie in temporary files that are mapped into memory; the columns that they are
sorted by and a number a row are held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table import chunks
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.services.compaction.merge import Counts, merged_rows
from tagstream.table.services.spill import RowKeeper

_STEP_BYTES = 64 * 1024 * 1024
_LOG_SHARE = 4  # of the memory, for the log rows of one slice while it is merged


class GatheredRows:
    """All live rows of some slices. To be used inside the keeper's block."""

    def __init__(
        self,
        reader: SliceReader,
        slices: Sequence[FileSlice],
        sort_columns: Sequence[str],
        keeper: RowKeeper,
        memory: int,
    ) -> None:
        self.counts = Counts()
        kept, keys = [], []
        for each in slices:
            for rows in merged_rows(reader, each, "", self.counts, max(1, memory // _LOG_SHARE)):
                if not rows.num_rows:
                    continue
                keys.append(_copied(rows.select(list(sort_columns))))
                kept.append(keeper.keep(rows))
        self._rows = pa.concat_tables([*kept, reader.file_schema.empty_table()])
        self._order = _order(keys) if sort_columns and keys else None

    @property
    def num_rows(self) -> int:
        """Live rows of all slices."""
        return int(self._rows.num_rows)

    def part(self, number: int, parts: int) -> Iterator[pa.Table]:
        """The rows of one of ``parts`` files of equal length, some at a time."""
        total = self.num_rows
        first, last = total * number // parts, total * (number + 1) // parts
        step = max(1, total * _STEP_BYTES // max(self._rows.nbytes, 1))
        for start in range(first, last, step):
            end = min(last, start + step)
            if self._order is None:
                yield self._rows.slice(start, end - start)
            else:
                yield chunks.gather(self._rows, self._order[start:end])


def _order(keys: list[pa.Table]) -> npt.NDArray[np.int64]:
    """Where the rows are in their new order: nulls first, equal ones as they came."""
    table = pa.concat_tables(keys)
    row = "row number of the slices"
    table = table.append_column(row, pa.array(np.arange(table.num_rows)))
    by = [(name, "ascending", "at_start") for name in table.column_names]
    found: npt.NDArray[np.int64] = pc.sort_indices(table, sort_keys=by).to_numpy().astype(np.int64)
    return found


def _copied(columns: pa.Table) -> pa.Table:
    """Columns that hold on to nothing but themselves: a slice of a batch would keep the whole batch."""
    return pa.Table.from_arrays([pa.concat_arrays(each.chunks) for each in columns.columns], schema=columns.schema)
