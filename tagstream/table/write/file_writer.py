"""One entry point for writing a file group, whatever the table's type."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import MissingSliceError
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.timeline.write_status import WriteStatus
from tagstream.table.write.append import append
from tagstream.table.write.upsert import write_base_file
from tagstream.table.write.write_context import WriteContext
from tagstream.table.write.write_rows import IS_INSERT, ORDERING


def write_file_group(
    table: HoodieTable,
    ctx: WriteContext,
    partition_path: str,
    file_id: str,
    file_slice: FileSlice | None,
    upserts: pa.Table,
    deletes: pa.Table,
    first_row: int = 0,
) -> list[WriteStatus]:
    """Stage the files of one file group and return a status for each.

    ``file_slice``: the group's newest one as of ``ctx.as_of``, None for a group that has none. ``upserts``: the user
    columns, ``_hoodie_record_key`` (unique) and ``_is_insert``. ``deletes``: ``_hoodie_record_key`` and ``_ordering`` (null:
    natural order, always deletes). Every row counts: late ones have been left out before. ``first_row``: rows this task has
    written before in this commit, so that sequence numbers stay unique.
    """
    _check_columns(upserts, deletes)
    if not upserts.num_rows and not deletes.num_rows:
        return []
    _check_current(table, ctx, partition_path, file_id, file_slice, upserts, deletes)
    if not table.config.is_merge_on_read or _goes_to_base_file(ctx, file_slice, upserts):
        return [write_base_file(table, ctx, partition_path, file_id, file_slice, upserts, deletes, first_row)]
    if file_slice is None:
        file_slice = FileSlice(partition_path, file_id, ctx.instant, None)
    return [append(table, ctx, file_slice, upserts, deletes, first_row)]


def _goes_to_base_file(ctx: WriteContext, file_slice: FileSlice | None, upserts: pa.Table) -> bool:
    """On merge-on-read: inserts make or merge a base file where asked for, but never one that has logs over it."""
    if file_slice is None:
        return ctx.options.inserts_to_base_files or ctx.options.groups_begin_with_base_files
    if not ctx.options.inserts_to_base_files:
        return False
    has_logs = bool(file_slice.log_files) or file_slice.base_file is None
    is_pending = (file_slice.partition_path, file_slice.file_id) in ctx.timeline.pending_compactions
    return not has_logs and not is_pending and bool(pc.any(upserts.column(IS_INSERT)).as_py())


def _check_current(
    table: HoodieTable,
    ctx: WriteContext,
    partition_path: str,
    file_id: str,
    file_slice: FileSlice | None,
    upserts: pa.Table,
    deletes: pa.Table,
) -> None:
    """MissingSliceError when the index believes in a file group that is not there (any more)."""
    if file_slice is not None:
        return
    known = deletes.num_rows > 0 or not pc.all(upserts.column(IS_INSERT)).as_py()
    if known or (partition_path, file_id) in ctx.timeline.replaced:
        raise MissingSliceError(
            f"file group {file_id} of partition {partition_path!r} in {table.base_path} has no slice at {ctx.as_of}, "
            "but the index has rows in it: another writer replaced it, or its files were lost; the index must be brought "
            "together with the table first"
        )


def _check_columns(upserts: pa.Table, deletes: pa.Table) -> None:
    missing = [name for name in (RECORD_KEY, IS_INSERT) if name not in upserts.column_names]
    missing += [name for name in (RECORD_KEY, ORDERING) if name not in deletes.column_names]
    if missing:
        raise ValueError(f"rows to write lack the columns {', '.join(missing)}")
