"""Merge-on-read: upserts and deletes of a file group go into a new log file over its newest slice."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.fields import has_field, type_of
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.log.block import avro_data_block, data_block
from tagstream.table.file_group.log.delete_block import delete_blocks
from tagstream.table.file_group.log.writer import write_log_file
from tagstream.table.file_group.names import log_file_name
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.encode.column_ranges import ranges_of_rows, ranges_to_json
from tagstream.table.ordering import tuples
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.timeline.write_status import FileKind, WriteStat, WriteStatus
from tagstream.table.write.data_file import begin_data_file
from tagstream.table.write.write_context import WriteContext
from tagstream.table.write.write_rows import ORDERING, new_rows, split_inserts


def append(
    table: HoodieTable, ctx: WriteContext, file_slice: FileSlice, upserts: pa.Table, deletes: pa.Table, first_row: int
) -> WriteStatus:
    """Stage one log file: data blocks of the upserts, then delete blocks. Returns its status.

    ``file_slice`` is the group's newest slice, or for a new group an empty one that begins with this instant.
    """
    storage, partition, file_id = table.storage, file_slice.partition_path, file_slice.file_id
    own = table.config.names_logs_by_commit  # then no other commit has a log file of this time
    version = 1 if own else file_slice.next_log_version
    time = ctx.instant if own else file_slice.base_instant
    name = log_file_name(file_id, time, version, ctx.write_token)
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
        base_file=file_slice.base_file.name if file_slice.base_file and not own else "",
        log_files=(name,),
    )
    begins = file_slice.base_file is None and not file_slice.log_files
    columns = ctx.options.range_columns
    ranges = ranges_to_json(ranges_of_rows(rows, columns)) if columns else None
    return WriteStatus(stat, FileKind.APPEND, begins, ranges)


def _needs_avro(table: HoodieTable, ctx: WriteContext) -> bool:
    """True when data blocks must be Avro: with a text ordering column, Hudi 1.2 loses updates in Parquet blocks.

    Its Spark reader remembers a record's ordering text by its place in a buffer that the next record overwrites, and
    then compares with the wrong one; in its own tables too. It copies the texts of Avro blocks.
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
    """Dates as days: Hudi 1.2 compares a row's date, a number of days, with the wrapper's: a DateWrapper fails its query."""
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
