"""Rows that stay where they were decoded: the tag and write steps get references to them.

With task files (``task_files``), a decoded block of rows is written once. A record carries a reference of 20 bytes through
both shuffles, and the write task takes the values of its rows from the mapped files. Records that may lack values, or whose
values other records need, carry the values: the tag step changes or copies them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.task_files import TaskFile, TaskFiles
from tagstream.table import chunks
from tagstream.table.chunks import flat

# ``task``: the attempt that decoded the row; ``block``: where its block begins in the file; ``row``: its number in the block
REFERENCE = pa.struct([("task", pa.int64()), ("block", pa.int64()), ("row", pa.int32())])
STEP = "keys"  # name of the decoding step's files
_NEED_VALUES = frozenset(["absent", "old"])  # columns of keyed records whose values the tag step uses


def rest(keyed: pa.Table, file: TaskFile | None) -> pa.Table:
    """Keyed records with references in place of their rows, which are written to ``file``. Unchanged without a file,
    and where the tag step needs the values.
    """
    if file is None or not keyed.num_rows or not _NEED_VALUES.isdisjoint(keyed.column_names):
        return keyed
    place = keyed.schema.get_field_index("row")
    rows = flat(keyed.column(place))
    nullable = pa.schema([field.with_nullable(True) for field in rows.type])
    start = file.rest(pa.Table.from_batches([pa.RecordBatch.from_arrays(rows.flatten(), schema=nullable)]))
    n = len(rows)
    columns = [np.full(n, file.attempt), np.full(n, start), np.arange(n, dtype=np.int32)]
    references = pa.StructArray.from_arrays([pa.array(column) for column in columns], fields=list(REFERENCE))
    return keyed.set_column(place, pa.field("row", REFERENCE), references)


class RowValues:
    """The values of located records: in the records, or where their references point.

    ``rows``: the column ``row`` of located records. ``files``: needed for references. TaskFileError when a file is gone.
    """

    def __init__(self, rows: pa.ChunkedArray, files: TaskFiles | None, batch_id: int) -> None:
        self._rows = rows
        self._at: npt.NDArray[np.int64] | None = None
        self._blocks: pa.Table | None = None
        self.bytes_a_row = rows.nbytes / max(1, len(rows))
        if rows.type == REFERENCE:
            assert files is not None, "references are made with files only"
            self._at, self._blocks = _resolved(flat(rows), files, batch_id)
            self.bytes_a_row += self._blocks.nbytes / max(1, self._blocks.num_rows)

    def in_order(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """These row numbers in the order in which their values are stored, which makes taking them faster."""
        if self._at is None:
            return numbers
        return numbers[np.argsort(self._at[numbers], kind="stable")]

    def take(self, numbers: npt.NDArray[np.int64], schema: pa.Schema) -> pa.Table:
        """The values of these rows. ``schema``: of the table, whose fields are nullable."""
        if not len(numbers):
            return schema.empty_table()
        if self._at is None or self._blocks is None:
            taken = chunks.take(pa.table({"row": self._rows}), numbers).column("row")
            parts = [pa.RecordBatch.from_arrays(part.flatten(), schema=schema) for part in taken.chunks]
            return pa.Table.from_batches(parts, schema=schema)
        at = self._at[numbers]
        if self._blocks.nbytes > chunks.CHUNK_BYTES:
            return chunks.gather(self._blocks, at)
        return self._blocks.take(pa.array(at)).combine_chunks()


def _resolved(references: pa.StructArray, files: TaskFiles, batch_id: int) -> tuple[npt.NDArray[np.int64], pa.Table]:
    """The blocks that references name, as one table, and the number of each reference's row in it; -1 for null ones."""
    known = references.is_valid().to_numpy(zero_copy_only=False)
    task, block, row = (pc.fill_null(column, 0).to_numpy().astype(np.int64) for column in references.flatten())
    pairs = np.stack([task, block], axis=1)[known]
    distinct, code = np.unique(pairs, axis=0, return_inverse=True)
    tables = [files.rested(batch_id, STEP, attempt, start) for attempt, start in distinct.tolist()]  # a step a block
    first = np.concatenate(([0], np.cumsum([table.num_rows for table in tables], dtype=np.int64)))
    at = np.full(len(references), -1, np.int64)
    at[known] = first[:-1][code.reshape(-1)] + row[known]
    return at, pa.concat_tables(tables) if tables else pa.table({})
