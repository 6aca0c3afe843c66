"""Changes of table services and rollbacks in the metadata table.

A service writes new base files and their keys to it, and asks what it needs of them (``told_to_metadata``). When a
write is rolled back, what the metadata table has of it is rolled back, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.file_group.base_file import read_keys
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.changes import KEYS, Changes, PartitionChange, WrittenFile, written_by
from tagstream.table.metadata.delta_commit import delta_commit
from tagstream.table.metadata.index_definitions import kept_columns
from tagstream.table.metadata.metadata_table import (
    BLOOM_FILTERS_PARTITION,
    COLUMN_STATS_PARTITION,
    PARTITION_STATS_PARTITION,
    RECORD_INDEX_PARTITION,
    MetadataTable,
)
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.metadata.record_encoding import PLACES, instant_ms
from tagstream.table.metadata.records import column_stats_key
from tagstream.table.metadata.rollback import ROLLBACK_SUFFIX, recover, roll_back
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.timeline.commit_metadata import WriteStatus
from tagstream.table.write.write_context import WriterOptions

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


def told_to_metadata(table: HoodieTable, files: WriterOptions, schema: pa.Schema | None = None) -> WriterOptions:
    """How base files are written so that their statuses tell all that the metadata table keeps, if there is one.

    ``schema``: the user columns of the rows; None: those of the newest commit, which a table may not have yet.
    """
    writer = MetadataWriter.open(table)
    if writer is None:
        return files
    has_ranges = COLUMN_STATS_PARTITION in writer.partitions or PARTITION_STATS_PARTITION in writer.partitions
    columns = frozenset(range_columns(writer, schema)) if has_ranges else frozenset()
    return replace(files, range_columns=columns, tells_bloom=BLOOM_FILTERS_PARTITION in writer.partitions)


def tell_metadata(
    table: HoodieTable,
    instant: str,
    statuses: Sequence[WriteStatus],
    clock_ms: Callable[[], int],
    check: Callable[[], None],
    reach: Callable[[str], None],
    places: Callable[[], Iterable[pa.Table]] | None = None,
    deleted_keys: Callable[[], Iterable[pa.Table]] | None = None,
) -> str | None:
    """Tell it of the new files. ``places``: where keys are that have moved to other file groups (tables of ``PLACES``),
    asked only where there is a record index; a compaction moves none. ``deleted_keys``: keys of rows that are no more
    (tables of ``KEYS``), asked likewise; those that ``places`` has are not deleted.

    Returns the time that the completion of the data's action must be later than; None where there is no metadata table, and
    up to table version 7.
    """
    writer = MetadataWriter.open(table)
    if writer is None:
        return None
    check()
    indexed = RECORD_INDEX_PARTITION in writer.partitions
    moved = list(places()) if places is not None and indexed else []
    gone: list[pa.Table] = []
    if deleted_keys is not None and indexed:
        stay = _names([places.select(KEYS.names) for places in moved], writer.has_partitioned_index)
        for rows in deleted_keys():
            again = pc.is_in(_names([rows], writer.has_partitioned_index), value_set=stay)
            gone.append(rows.filter(pc.invert(again)))
    changes = Changes(partitions=written_by(statuses), places=moved, deleted_keys=gone, columns=range_columns(writer))
    completed = delta_commit(writer, instant, changes, fresh_times(table, writer, clock_ms), reach, check=check)
    reach("metadata_completed")
    return completed.completion_time


def _names(tables: Sequence[pa.Table], by_partition: bool) -> pa.Array:
    """What names a row in a record index: its key, or its partition and key. No path has a control character."""
    rows = pa.concat_tables([KEYS.empty_table(), *tables]).combine_chunks()
    keys = pa.concat_arrays(rows["record_key"].chunks or [pa.array([], pa.string())])
    if not by_partition:
        return keys
    paths = pa.concat_arrays(rows["partition_path"].chunks or [pa.array([], pa.string())])
    return pc.binary_join_element_wise(paths, keys, "\0")


def new_places(table: HoodieTable, instant: str, statuses: Sequence[WriteStatus]) -> Iterator[pa.Table]:
    """Where the keys of new base files are (tables of ``PLACES``): one column of each file is read."""
    at = instant_ms(instant, table.config.timezone_utc)
    for status in statuses:
        stat = status.stat
        keys = read_keys(table.storage, stat.path).cast(pa.string())
        count = len(keys)
        yield pa.Table.from_arrays(
            [
                keys,
                pa.repeat(pa.scalar(stat.partition_path, pa.string()), count),
                pa.repeat(pa.scalar(stat.file_id, pa.string()), count),
                pa.repeat(pa.scalar(at, pa.int64()), count),
            ],
            schema=PLACES,
        )
