"""Take back what the metadata table was told of a write, when the write itself is rolled back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.write.changes import Changes, PartitionChange, WrittenFile
from tagstream.table.metadata.write.definitions import kept_columns
from tagstream.table.metadata.write.delta import delta_commit
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.metadata.write.rollback import ROLLBACK_SUFFIX, recover, roll_back
from tagstream.table.schema.schema import avro_to_arrow


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
    return tuple(kept_columns(writer.table, schema))
