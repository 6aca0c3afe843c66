"""Changes of table services and rollbacks in the metadata table.

A service writes new base files and their keys to the metadata table. ``with_metadata_stats`` says which statistics it
needs from them. When a write is rolled back, its entries in the metadata table are rolled back, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.file_group.base_file import read_keys
from tagstream.table.file_group.names import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.changes import KEYS, Changes, PartitionChange, WrittenFile, written_by
from tagstream.table.metadata.column_ranges import Ranges, read_file_stats
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
from tagstream.table.steps import Step
from tagstream.table.timeline.commit_metadata import CommitMetadata, WriteStatus
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.write_context import WriterOptions

Places = Callable[[], Iterable[pa.Table]]

_LOOKED_AT: Final = 4  # commits that are read, and files of each


def forget_in_metadata_table(
    table: HoodieTable,
    failed: str,
    instant: str,
    deleted: Mapping[str, Sequence[str]],
    blocks: Mapping[str, Mapping[str, int]],
) -> None:
    """Write to the metadata table, if there is one, that ``failed`` is rolled back by ``instant``. It can be repeated.

    ``deleted``: paths of deleted files. ``blocks``: sizes by path of log files with rollback blocks, and of the log
    files that they roll back. Both are by partition path. Up to version 7 a delta commit records this, and a rollback
    of the metadata table removes the failed one; from version 8 on there is only the rollback. MetadataCompactedError
    for a completed write that the metadata table has compacted.
    """
    writer = MetadataWriter.open(table)
    if writer is None:
        return
    times = fresh_times(table, writer, lambda: 0)  # a rollback has no clock and uses the next free millisecond
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


def is_in_metadata_table(table: HoodieTable, instant: str) -> bool:
    """Whether the metadata table has an action of this instant, completed or not."""
    writer = MetadataWriter.open(table)
    return writer is not None and writer.timeline().find(instant) is not None


def range_columns(writer: MetadataWriter, schema: pa.Schema | None = None) -> tuple[str, ...]:
    """The columns with statistics in the metadata table. ``schema``: the user columns, by default of the newest commit."""
    if schema is None:
        avro = writer.table.schema_json()
        schema = avro_to_arrow(avro) if avro is not None else pa.schema([])
    columns = tuple(kept_columns(writer.table, schema))
    if writer.has_completion_times or COLUMN_STATS_PARTITION not in writer.partitions:
        return columns
    return _recorded_columns(writer, columns)


def _recorded_columns(writer: MetadataWriter, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that have statistics in the newest files with statistics; all columns when no file has any.

    Up to version 7 nothing else says which columns a table's writers chose. A column with statistics in only some files
    would look like one without values in the others.
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
                recorded = {keys[key] for key in found}
                return tuple(column for column in columns if column in recorded)
    return tuple(columns)


def overlooked_files(
    table: HoodieTable, timeline: Timeline, services: Mapping[Instant, CommitMetadata]
) -> dict[str, tuple[str, ...]]:
    """Files whose ranges the range of their partition may not include, by partition path.

    ``services``: completed compactions and clusterings of other writers. Hudi 1.2.0 replaces the range of a partition
    with that of the files that the service's plan saw. A write that was completed after the plan and before the service
    has added its ranges before, and they are lost.
    """
    found: dict[str, set[str]] = {}
    for service, done in services.items():
        if service.completion_time is None:
            continue
        partitions = {*done.stats, *done.replaced}
        for write in timeline.completed_writes:
            if write.completion_time is None or not service.time < write.completion_time < service.completion_time:
                continue
            for stat in timeline.metadata(table.storage, write).all_stats():
                if stat.partition_path in partitions:
                    found.setdefault(stat.partition_path, set()).add(stat.file_name)
    return {path: tuple(sorted(names)) for path, names in sorted(found.items())}


def older_ranges(
    table: HoodieTable, files: Mapping[str, Sequence[str]], columns: Collection[str], schema: pa.Schema
) -> dict[str, list[Ranges]]:
    """The ranges of these files by partition path, without files that a clean has deleted. ``schema``: the table's."""
    found: dict[str, list[Ranges]] = {}
    for path, names in files.items():
        there = frozenset(table.storage.names(path))
        found[path] = [
            read_file_stats(table.storage, join(path, name), columns, schema)[0] for name in names if name in there
        ]
    return found


def with_metadata_stats(table: HoodieTable, files: WriterOptions, schema: pa.Schema | None = None) -> WriterOptions:
    """The options with which base files return all statistics that the metadata table needs, if there is one.

    ``schema``: the user columns of the rows; None: those of the newest commit, which a new table does not have.
    """
    writer = MetadataWriter.open(table)
    if writer is None:
        return files
    has_ranges = COLUMN_STATS_PARTITION in writer.partitions or PARTITION_STATS_PARTITION in writer.partitions
    columns = frozenset(range_columns(writer, schema)) if has_ranges else frozenset()
    return replace(files, range_columns=columns, returns_bloom=BLOOM_FILTERS_PARTITION in writer.partitions)


def update_metadata(
    table: HoodieTable,
    instant: str,
    statuses: Sequence[WriteStatus],
    clock_ms: Callable[[], int],
    check: Callable[[], None],
    reach: Callable[[str], None],
    places: Places | None = None,
    deleted_keys: Callable[[], Iterable[pa.Table]] | None = None,
) -> str | None:
    """Write the new files to the metadata table.

    ``places``: new places of keys in other file groups (tables of ``PLACES``); a compaction moves none.
    ``deleted_keys``: keys of deleted rows (tables of ``KEYS``), without those that ``places`` has. Both are called only
    if there is a record index. Returns the time after which the data's action must be completed; None without a
    metadata table, and up to table version 7.
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
    reach(Step.METADATA_COMPLETED)
    return completed.completion_time


def _names(tables: Sequence[pa.Table], by_partition: bool) -> pa.Array:
    """The identity of rows in a record index: the key, or partition and key. Paths have no control character."""
    rows = pa.concat_tables([KEYS.empty_table(), *tables]).combine_chunks()
    keys = pa.concat_arrays(rows["record_key"].chunks or [pa.array([], pa.string())])
    if not by_partition:
        return keys
    paths = pa.concat_arrays(rows["partition_path"].chunks or [pa.array([], pa.string())])
    return pc.binary_join_element_wise(paths, keys, "\0")


def new_places(table: HoodieTable, instant: str, statuses: Sequence[WriteStatus]) -> Iterator[pa.Table]:
    """The places of the keys of new base files (tables of ``PLACES``), from one column of each file."""
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
