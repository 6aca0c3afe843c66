"""The metadata table of a table of real Hudi, made once more: the same partitions, told of the same files and keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.metadata.changes import KEYS, Changes, written_by
from tagstream.table.metadata.compaction import clean, compact
from tagstream.table.metadata.delta_commit import delta_commit
from tagstream.table.metadata.index_definitions import INDEX_DEFINITIONS, default_columns, defined_columns
from tagstream.table.metadata.metadata_table import RECORD_INDEX_PARTITION, MetadataTable
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.metadata.partitions import create_empty
from tagstream.table.metadata.record_encoding import PLACES, instant_ms
from tagstream.table.metadata.record_index import RecordIndex
from tagstream.table.schema.schema import RECORD_KEY, avro_to_arrow
from tagstream.table.services.metadata_changes import range_columns
from tagstream.table.timeline.commit_metadata import WriteStat, WriteStatus
from tagstream.table.timeline.instant import CLEAN, COMMIT, DELTA_COMMIT, Instant
from tagstream.table.timeline.timeline import Timeline

if TYPE_CHECKING:
    from tests.interop.replay import Replay, Step

BEFORE_MS = 1_798_761_500_000  # before the first commit of a replay
LATER_MS = 1_798_761_700_000  # behind its last


def begin_metadata(both: Replay, timeline: Timeline) -> None:
    """Ours gets the partitions that the real one has, with as many file groups, before its first commit."""
    real, ours = both.real, both.ours
    metadata = MetadataTable.open(real, timeline)
    assert metadata is not None
    counts = {name: len(metadata.slices(name)) for name in metadata.partitions}
    index = RecordIndex.open(metadata)
    partitioned = index is not None and index.is_partitioned
    if partitioned:
        assert index is not None
        (counts[RECORD_INDEX_PARTITION],) = set(index.shard_counts.values())
        both.index_groups = counts[RECORD_INDEX_PARTITION]
    first = timeline.metadata(real.storage, timeline.completed_writes[0]).extra["schema"]
    columns = default_columns(avro_to_arrow(first), real.config.version)
    if real.storage.exists(INDEX_DEFINITIONS):
        columns = defined_columns(real.storage.read(INDEX_DEFINITIONS), INDEX_DEFINITIONS) or columns
    times = fresh_times(ours, None, lambda: BEFORE_MS)
    both.ours = create_empty(ours, counts, columns, times, BEFORE_MS, partitioned_index=partitioned)


def services_before(both: Replay, told: str) -> None:
    """Compact and clean ours where the real one was since the commit before ``told``, an instant of the real one."""
    writer = MetadataWriter.open(both.ours)
    theirs = MetadataTable.open(both.real, both.real.timeline())
    if writer is None or theirs is None:
        return

    def when(instant: Instant) -> str:
        return instant.completion_time or instant.time

    done = sorted((i for i in theirs.timeline.instants if i.is_completed), key=when)
    (end,) = [when(i) for i in done if i.time == told and i.action == DELTA_COMMIT]
    times = fresh_times(both.ours, writer, lambda: LATER_MS)
    for instant in done:
        if instant.action not in (COMMIT, CLEAN) or when(instant) > end or instant.time in both.services:
            continue
        both.services.append(instant.time)
        if instant.action == COMMIT:
            assert compact(writer, times, 1) is not None
        else:
            assert clean(writer, times)


def update_metadata(
    both: Replay, instant: str, statuses: Sequence[WriteStatus], steps: Sequence[tuple[WriteStat, Step]]
) -> str | None:
    """Tell ours, if there is one, of a commit; what the data's completion must be later than."""
    table = both.ours
    writer = MetadataWriter.open(table)
    if writer is None:
        return None
    at = instant_ms(instant, table.config.timezone_utc)
    new, gone = [PLACES.empty_table()], [KEYS.empty_table()]
    for stat, step in steps:
        fresh = step.upserts.filter(step.upserts["_is_insert"])[RECORD_KEY].combine_chunks().cast(pa.string())
        place = (stat.partition_path, both.file_ids[stat.file_id], at)
        columns = [
            pa.repeat(pa.scalar(value, kind), len(fresh)) for value, kind in zip(place, PLACES.types[1:], strict=True)
        ]
        new.append(pa.Table.from_arrays([fresh, *columns], schema=PLACES))
        lost = step.deletes[RECORD_KEY].combine_chunks().cast(pa.string())
        paths = pa.repeat(pa.scalar(stat.partition_path, pa.string()), len(lost))
        gone.append(pa.Table.from_arrays([lost, paths], schema=KEYS))
    put, deleted = pa.concat_tables(new), pa.concat_tables(gone)
    if not writer.has_partitioned_index:  # else a key that moves is another key
        stays = pc.is_in(deleted["record_key"], value_set=put["record_key"].combine_chunks())
        deleted = deleted.filter(pc.invert(stays))
    changes = Changes(written_by(statuses), places=[put], deleted_keys=[deleted], columns=range_columns(writer))
    times = fresh_times(table, writer, lambda: LATER_MS)
    return delta_commit(writer, instant, changes, times, new_index_groups=both.index_groups).completion_time
