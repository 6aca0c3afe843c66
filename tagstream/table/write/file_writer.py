"""Write the files of a file group, for both table types.

Merge-on-read: upserts and deletes are written to a new log file of the group's newest slice. The first base file of a
new group can also be written from rows that have their meta columns already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import MissingSliceError
from tagstream.table.fields import has_field, tuples, type_of
from tagstream.table.file_group.base_file import BaseFileWriter
from tagstream.table.file_group.delete_block import delete_blocks
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.log_file import avro_data_block, data_block
from tagstream.table.file_group.log_format import write_log_file
from tagstream.table.file_group.names import base_file_name, join, log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.column_ranges import ranges_of_footer, ranges_of_rows, ranges_to_json
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.timeline.commit_metadata import NO_PREVIOUS, FileKind, WriteStat, WriteStatus
from tagstream.table.write.markers import begin_data_file
from tagstream.table.write.upsert import IS_INSERT, ORDERING, new_rows, split_inserts, write_base_file
from tagstream.table.write.write_context import WriteContext


def append(
    table: HoodieTable, ctx: WriteContext, file_slice: FileSlice, upserts: pa.Table, deletes: pa.Table, first_row: int
) -> WriteStatus:
    """Stage one log file: data blocks of the upserts, then delete blocks. Returns its status.

    ``file_slice`` is the group's newest slice; for a new group it is an empty slice that begins with this instant.
    """
    storage, partition, file_id = table.storage, file_slice.partition_path, file_slice.file_id
    own = table.config.names_logs_by_commit  # then no other commit has log files with this time
    version = 1 if own else file_slice.next_log_version
    time = ctx.instant if own else file_slice.base_instant
    name = log_file_name(file_id, time, version, ctx.write_token)
    logs_changes = table.config.change_logging is not None
    path = join(partition, name)
    staged = begin_data_file(table, ctx, partition, name)
    rows = new_rows(ctx, upserts, partition, file_id, first_row)
    size = write_log_file(storage, staged, _blocks(ctx, rows, deletes, partition, _needs_avro(table, ctx)))
    inserts, updates = split_inserts(upserts)
    stat = WriteStat(
        file_id=file_id,
        path=path,
        partition_path=partition,
        prev_commit=time,
        num_writes=upserts.num_rows,
        num_inserts=inserts,
        num_updates=updates,
        num_deletes=deletes.num_rows,
        file_size=size,
        total_write_bytes=size,
        log_version=version,
        base_file=file_slice.base_file.name if file_slice.base_file and (logs_changes or not own) else "",
        log_files=(*(log.name for log in file_slice.log_files), name) if logs_changes else (name,),
    )
    begins = file_slice.base_file is None and not file_slice.log_files
    columns = ctx.options.range_columns
    ranges = ranges_to_json(ranges_of_rows(rows, columns)) if columns else None
    return WriteStatus(stat, FileKind.APPEND, begins, ranges)


def _needs_avro(table: HoodieTable, ctx: WriteContext) -> bool:
    """True when data blocks must be Avro: with a text ordering column, Hudi 1.2 loses updates in Parquet blocks.

    Its Spark reader keeps a reference to a record's ordering text in a buffer that the next record overwrites, and then
    compares a wrong text; also in tables of Hudi. It copies the texts of Avro blocks.
    """
    named = [name for name in table.config.ordering_fields if has_field(ctx.schema, name)]
    return any(pa.types.is_string(type_of(ctx.schema, name)) for name in named)


def _blocks(
    ctx: WriteContext, rows: pa.Table, deletes: pa.Table, partition_path: str, as_avro: bool
) -> Iterator[bytes]:
    avro = ctx.file_avro_json
    for part in _parts(rows, ctx.options.data_block_bytes):
        if as_avro:
            yield avro_data_block(part, avro, ctx.instant)
        else:
            yield data_block(part, avro, ctx.instant, ctx.options.codec)
    if not deletes.num_rows:
        return
    orderings = deletes.column(ORDERING).combine_chunks()
    yield from delete_blocks(_keys(deletes), partition_path, _without_dates(orderings), ctx.instant, avro)


def _without_dates(orderings: pa.Array) -> pa.Array:
    """Dates as days. Hudi 1.2 has a row's date as a number of days, and its query fails on a DateWrapper."""
    if pa.types.is_struct(orderings.type):
        return tuples([_without_dates(member) for member in orderings.flatten()], orderings.type.names)
    return orderings.cast(pa.int32()) if pa.types.is_date32(orderings.type) else orderings


def _parts(rows: pa.Table, limit: int) -> Iterator[pa.Table]:
    """Slices of the rows of about ``limit`` bytes each."""
    if rows.num_rows == 0:
        return
    step = max(1, rows.num_rows * limit // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _keys(deletes: pa.Table) -> pa.Array:
    keys = deletes.column(RECORD_KEY).combine_chunks()
    return keys if pa.types.is_string(keys.type) else pc.cast(keys, pa.string())


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

    ``file_slice``: the group's newest slice as of ``ctx.as_of``, None for a group without one. ``upserts``: the user
    columns, ``_hoodie_record_key`` (unique) and ``_is_insert``. ``deletes``: ``_hoodie_record_key`` and ``_ordering``
    (null: natural order, which always deletes). Late rows must have been removed before. ``first_row``: number of rows
    that this task has written in this commit, so that sequence numbers are unique.
    """
    _check_columns(upserts, deletes)
    if not upserts.num_rows and not deletes.num_rows:
        return []
    _check_current(table, ctx, partition_path, file_id, file_slice, upserts, deletes)
    if not table.config.is_merge_on_read or _goes_to_base_file(table, ctx, file_slice, upserts):
        return [write_base_file(table, ctx, partition_path, file_id, file_slice, upserts, deletes, first_row)]
    if file_slice is None:
        file_slice = FileSlice(partition_path, file_id, ctx.instant, None)
    return [append(table, ctx, file_slice, upserts, deletes, first_row)]


def _goes_to_base_file(table: HoodieTable, ctx: WriteContext, file_slice: FileSlice | None, upserts: pa.Table) -> bool:
    """For merge-on-read: whether inserts go to a base file. It never replaces a base file that has logs."""
    if file_slice is None:
        logs_changes = (
            table.config.change_logging is not None
        )  # Hudi reads the changes of a log with its base file only
        return logs_changes or ctx.options.inserts_to_base_files or ctx.options.groups_begin_with_base_files
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
    """MissingSliceError when the index has rows in a file group that does not exist (any more)."""
    if file_slice is not None:
        return
    known = deletes.num_rows > 0 or not pc.all(upserts.column(IS_INSERT)).as_py()
    if known or (partition_path, file_id) in ctx.timeline.replaced:
        raise MissingSliceError(
            f"file group {file_id} of partition {partition_path!r} in {table.base_path} has no slice at {ctx.as_of}, "
            "but the index has rows in it: another writer replaced it, or its files were lost; update the index from the "
            "table first"
        )


def _check_columns(upserts: pa.Table, deletes: pa.Table) -> None:
    missing = [name for name in (RECORD_KEY, IS_INSERT) if name not in upserts.column_names]
    missing += [name for name in (RECORD_KEY, ORDERING) if name not in deletes.column_names]
    if missing:
        raise ValueError(f"rows to write lack the columns {', '.join(missing)}")


def write_new_group(
    table: HoodieTable,
    ctx: WriteContext,
    partition_path: str,
    file_id: str,
    rows: Callable[[str], Iterator[pa.Table]],
) -> WriteStatus:
    """Stage the base file of a new file group.

    ``rows`` returns all of its rows for the file's name, in bounded batches. InstantConflictError when the instant was
    rolled back.
    """
    options = ctx.options
    name = base_file_name(file_id, ctx.write_token, ctx.instant)
    staged = begin_data_file(table, ctx, partition_path, name)
    with (
        table.storage.open_output(staged) as out,
        BaseFileWriter(
            out,
            table.storage.where(staged),
            ctx.file_schema,
            ctx.file_avro_json,
            codec=options.codec,
            bloom=options.bloom,
            row_group_bytes=options.row_group_bytes,
        ) as writer,
    ):
        for each in rows(name):
            writer.append(each)
        result = writer.close()
    stat = WriteStat(
        file_id=file_id,
        path=join(partition_path, name),
        partition_path=partition_path,
        prev_commit=NO_PREVIOUS,
        num_writes=result.rows,
        num_inserts=result.rows,
        file_size=result.bytes,
        total_write_bytes=result.bytes,
    )
    columns = options.range_columns
    ranges = ranges_to_json(ranges_of_footer(result.footer, columns)) if columns else None
    return WriteStatus(stat, FileKind.CREATE, True, ranges, result.bloom if options.returns_bloom else None)
