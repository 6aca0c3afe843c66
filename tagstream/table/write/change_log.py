"""The change file of a base file that is written: what its write changes, record by record, in bounded blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table import chunks
from tagstream.table.file_group.change_file import LoggingMode, change_block, change_file_name, changes_of
from tagstream.table.file_group.names import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.write.markers import begin_data_file
from tagstream.table.write.write_context import WriteContext

_BLOCK_BYTES = 64 << 20
_Rows = npt.NDArray[np.int64]


class ChangeLog:
    """Collects the changes of one base file and writes them to its staged change file.

    ``path`` is the file's final path, ``size`` its bytes after :meth:`close`. Memory: one block of changes.
    """

    def __init__(self, out: pa.NativeFile, path: str, mode: LoggingMode, avro_json: str, instant: str) -> None:
        """``avro_json``: the schema of the rows without meta columns."""
        self.path, self.size = path, 0
        self._out, self._mode, self._avro_json, self._instant = out, mode, avro_json, instant
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._blocks = 0

    def inserted(self, rows: pa.Table) -> None:
        """The rows had no earlier version. All rows have ``_hoodie_record_key``."""
        step = max(1, rows.num_rows * _BLOCK_BYTES // max(rows.nbytes, 1))
        for start in range(0, rows.num_rows, step):
            self._put("i", None, rows.slice(start, step))

    def updated(self, before: pa.Table, after: pa.Table) -> None:
        """Rows with their new versions, in the same order."""
        self._put("u", before, after)

    def deleted(self, rows: pa.Table) -> None:
        """The rows are no longer in the file group."""
        self._put("d", rows, None)

    def merged(self, old: pa.Table, gone: _Rows, at: _Rows, after: pa.Table) -> None:
        """Rows of a batch of the base file before: ``gone`` were deleted, ``after`` are new versions of those at ``at``."""
        if len(gone):
            self.deleted(chunks.take(old, gone))
        if len(at):
            self.updated(chunks.take(old, at), after)

    def _put(self, op: str, before: pa.Table | None, after: pa.Table | None) -> None:
        rows = before if before is not None else after
        assert rows is not None
        if not rows.num_rows:
            return
        keys = pc.cast(chunks.flat(rows.column(RECORD_KEY)), pa.string())
        changes = changes_of(op, keys, before, after, self._avro_json)
        self._held.append(changes)
        self._held_bytes += changes.nbytes
        if self._held_bytes >= _BLOCK_BYTES:
            self._write_block()

    def _write_block(self) -> None:
        nothing = changes_of("i", pa.array([], pa.string()), None, None, self._avro_json)
        changes = pa.concat_tables([nothing, *self._held])
        self.size += self._out.write(change_block(self._mode, changes, self._avro_json, self._instant))
        self._held, self._held_bytes, self._blocks = [], 0, self._blocks + 1

    def close(self) -> None:
        """Write the rest. A file has a block even if nothing changed: readers refuse a new base file without changes."""
        if self._held or not self._blocks:
            self._write_block()


@contextmanager
def change_log(table: HoodieTable, ctx: WriteContext, partition_path: str, file_id: str) -> Iterator[ChangeLog | None]:
    """The staged change file of a base file that replaces another one; None if the table logs no changes.

    The caller closes it, as the base file's writer: then its size is known.
    InstantConflictError when the instant was rolled back.
    """
    mode = table.config.change_logging
    if mode is None:
        yield None
        return
    name = change_file_name(file_id, ctx.instant, ctx.write_token)
    staged = begin_data_file(table, ctx, partition_path, name)
    with table.storage.open_output(staged) as out:
        log = ChangeLog(out, join(partition_path, name), mode, ctx.avro_json, ctx.instant)
        yield log
