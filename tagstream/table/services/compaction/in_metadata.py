"""The metadata table beside a service: what it asks of new base files, and how it is told of them and of their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.file_group.base_file import read_keys
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.encode.locations import PLACES, instant_ms
from tagstream.table.metadata.metadata_table import (
    BLOOM_FILTERS_PARTITION,
    COLUMN_STATS_PARTITION,
    PARTITION_STATS_PARTITION,
    RECORD_INDEX_PARTITION,
)
from tagstream.table.metadata.write.changes import KEYS, Changes, written_by
from tagstream.table.metadata.write.delta import delta_commit
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.services.metadata_rollback import range_columns
from tagstream.table.timeline.write_status import WriteStatus
from tagstream.table.write.write_context import WriterOptions


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
