"""A table with one commit by this project's own writer: new rows in base files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, TableConfig
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.write import commit
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.write_context import WriteContext, WriterOptions

NewFile = tuple[str, str, pa.Table]  # partition path, file id, rows
_NONE = pa.table({"_hoodie_record_key": pa.array([], pa.string()), "_ordering": pa.array([], pa.int64())})


def one_commit_table(
    folder: str | Path,
    name: str,
    avro: str,
    partition_field: str,
    files: Iterable[NewFile],
    options: WriterOptions,
    *,
    created_ms: int,
    committed_ms: int,
    table_type: str = COPY_ON_WRITE,
) -> HoodieTable:
    """The table in a folder, with record key ``id`` and ordering field ``ts``. ``avro``: the schema of the rows, as JSON."""
    config = TableConfig(
        name=name,
        table_type=table_type,
        record_key_fields=("id",),
        partition_fields=(partition_field,),
        ordering_fields=("ts",),
        create_schema=avro,
    )
    table = HoodieTable.create(str(folder), config, created_ms)
    action = "deltacommit" if table.config.is_merge_on_read else "commit"
    instant, timeline = instant_from_ms(committed_ms, table.config.timezone_utc), table.timeline()
    commit.request(table, instant, action)
    commit.inflight(table, instant, action)
    schema, statuses = avro_to_arrow(avro), []
    for n, (partition, file_id, rows) in enumerate(files):
        rows = rows.append_column("_hoodie_record_key", rows["id"])
        rows = rows.append_column("_is_insert", pa.repeat(True, rows.num_rows))
        ctx = WriteContext(instant, action, n, f"{n}-1-1", schema, avro, None, timeline, options)
        statuses += write_file_group(table, ctx, partition, file_id, None, rows, _NONE)
    commit.publish_files(table, instant, statuses)
    commit.complete(table, instant, action, CommitMetadata.build(statuses, {}, avro))
    return table
