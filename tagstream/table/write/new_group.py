"""The first base file of a new file group, from rows that have their meta columns already."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from tagstream.table.file_group.base_file import BaseFileWriter
from tagstream.table.file_group.names import base_file_name
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.encode.column_ranges import ranges_of_footer, ranges_to_json
from tagstream.table.timeline.write_status import NO_PREVIOUS, FileKind, WriteStat, WriteStatus
from tagstream.table.write.data_file import begin_data_file
from tagstream.table.write.write_context import WriteContext


def write_new_group(
    table: HoodieTable,
    ctx: WriteContext,
    partition_path: str,
    file_id: str,
    rows: Callable[[str], Iterator[pa.Table]],
) -> WriteStatus:
    """Stage the base file; ``rows`` gives all of its rows for the file's name, a bounded number at a time.

    InstantConflictError when the instant was rolled back.
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
    return WriteStatus(stat, FileKind.CREATE, True, ranges, result.bloom if options.tells_bloom else None)
