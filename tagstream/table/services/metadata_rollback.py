"""Take back what the metadata table was told of a write, when the write itself is rolled back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

import pyarrow as pa

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import COLUMN_STATS_PARTITION, MetadataTable
from tagstream.table.metadata.name_hash import column_stats_key
from tagstream.table.metadata.write.changes import Changes, PartitionChange, WrittenFile
from tagstream.table.metadata.write.definitions import kept_columns
from tagstream.table.metadata.write.delta import delta_commit
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.metadata.write.rollback import ROLLBACK_SUFFIX, recover, roll_back
from tagstream.table.schema.schema import avro_to_arrow

_LOOKED_AT: Final = 4  # commits, and files of each


def forget_in_metadata_table(
    table: HoodieTable,
    failed: str,
    instant: str,
    deleted: Mapping[str, Sequence[str]],
    blocks: Mapping[str, Mapping[str, int]],
) -> None:
    """Tell the metadata table, if there is one, that ``failed`` is rolled back by ``instant``; may be called again.

    ``deleted``: paths of files that are gone, ``blocks``: sizes by path of log files with rollback blocks and of those that
    the blocks take back, by partition path. Up to version 7 a delta commit says so, and a rollback of the metadata table's
    own takes the failed one away; from version 8 on the rollback is all. A completed write that the metadata table has
    compacted: MetadataCompactedError.
    """
    writer = MetadataWriter.open(table)
    if writer is None:
        return
    times = fresh_times(table, writer, lambda: 0)  # a rollback has no clock: the next free millisecond
    recover(writer, times)
    if writer.has_completion_times:
        roll_back(writer, failed, instant, times)
        return
    names = [(path, tuple(rel.rsplit("/", 1)[-1] for rel in found)) for path, found in deleted.items()]
    gone = {path: found for path, found in names if found}
    grown = {
        path: tuple(WrittenFile(rel.rsplit("/", 1)[-1], size, {}) for rel, size in found.items())
        for path, found in blocks.items()
        if found
    }
    changes = {path: PartitionChange(grown.get(path, ()), gone.get(path, ())) for path in {*gone, *grown}}
    delta_commit(writer, instant, Changes(partitions=changes, columns=range_columns(writer)), times)
    roll_back(writer, failed, f"{instant}{ROLLBACK_SUFFIX}", times)


def range_columns(writer: MetadataWriter, schema: pa.Schema | None = None) -> tuple[str, ...]:
    """The columns that the metadata table has statistics of. ``schema``: the user columns; else of the newest commit."""
    if schema is None:
        avro = writer.table.schema_json()
        schema = avro_to_arrow(avro) if avro is not None else pa.schema([])
    columns = tuple(kept_columns(writer.table, schema))
    if writer.has_completion_times or COLUMN_STATS_PARTITION not in writer.partitions:
        return columns
    return _told_columns(writer, columns)


def _told_columns(writer: MetadataWriter, columns: Sequence[str]) -> tuple[str, ...]:
    """Those of the columns that the newest files with statistics have them of; all where no file has any.

    Up to version 7 nothing else says which columns a table's writers chose: one that is in some files only is taken for a
    column that the other files have no values of.
    """
    timeline = writer.table.timeline()
    metadata = MetadataTable.open(writer.table, timeline)
    writes = reversed(timeline.completed_writes) if metadata is not None else iter(())
    for instant in islice(writes, _LOOKED_AT):
        files = [(s.partition_path, s.file_name) for s in timeline.metadata(writer.table.storage, instant).all_stats()]
        for partition, name in files[:_LOOKED_AT]:
            keys = {column_stats_key(column, partition, name): column for column in columns}
            assert metadata is not None
            found = metadata.lookup(COLUMN_STATS_PARTITION, list(keys))
            if found:
                told = {keys[key] for key in found}
                return tuple(column for column in columns if column in told)
    return tuple(columns)
