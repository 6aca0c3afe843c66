"""What other writers' commits did to the table, and to rows of this stream that they did not see.

A writer without locks may read the table, be paused while this stream commits a batch, and then complete. The slice
that it writes is built on the slice before that batch, so the batch's rows of that file group are lost. The timeline
guard waits for pending writes, so this can only happen with a writer that begins between the guard's last check and
this stream's commit. It is detected by the slice that the other writer built on: ``prevCommit`` of its write stats, or
the files in its plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tagstream.state.checkpoint import same_stream
from tagstream.streaming.batch.commit_record import CommitRecord, all_extra_metadata, parse
from tagstream.table.file_group.names import parse_base_file_name, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.plans import is_planned_here
from tagstream.table.timeline.avro_timeline import PlannedSlice, requested_name
from tagstream.table.timeline.commit_metadata import NO_PREVIOUS, SCHEMA_KEY, CommitMetadata
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.operation import WriteOperationType
from tagstream.table.timeline.timeline import FileGroupId, Timeline

_PLANNED_AS = ("compaction", "clustering", "replacecommit")


@dataclass(frozen=True)
class ForeignWork:
    """What a completed commit did. ``groups``: all file groups that it wrote to or replaced. ``adds_keys``: it may have
    record keys, or deletes of keys, that the table did not have, or had in another file group. ``schema``: Avro JSON, None
    where it has none.
    """

    groups: frozenset[FileGroupId]
    adds_keys: bool
    schema: str | None


@dataclass(frozen=True)
class Swallowed:
    """A commit of this stream whose rows in ``groups`` were removed by another writer's commit ``by``."""

    instant: str
    record: CommitRecord
    by: str
    groups: frozenset[FileGroupId]


def work_of(metadata: CommitMetadata) -> ForeignWork:
    """What a commit did, according to its metadata."""
    stats = metadata.all_stats()
    groups = {(s.partition_path, s.file_id) for s in stats}
    groups |= {(partition, file_id) for partition, ids in metadata.replaced.items() for file_id in ids}
    rewrites = metadata.is_compaction
    adds = not rewrites and any(s.num_inserts or (s.num_writes and s.prev_commit == NO_PREVIOUS) for s in stats)
    record = parse(metadata.extra)
    adds = adds or (record is not None and bool(record.deletes))  # also of keys without a row
    return ForeignWork(
        frozenset(groups), adds or metadata.operation == WriteOperationType.CLUSTER, metadata.extra.get(SCHEMA_KEY)
    )


def is_of_stream(metadata: CommitMetadata, stream_id: str) -> bool:
    """Whether this stream wrote the commit as one of its batches."""
    record = parse(metadata.extra)
    return record is not None and same_stream(record.stream_id, stream_id)


def is_of_another_stream(metadata: CommitMetadata, stream_id: str) -> bool:
    """Whether another stream of this project wrote the commit as one of its batches."""
    record = parse(metadata.extra)
    return record is not None and not same_stream(record.stream_id, stream_id)


def is_planned_service(table: HoodieTable, timeline: Timeline, time: str) -> bool:
    """Whether a completed write is a compaction or a clustering that this project planned, and its plan still exists."""
    instant = next((i for i in timeline.completed_writes if i.time == time), None)
    if instant is None:
        return False
    planned = _plan_of(table, timeline, instant, timeline.metadata(table.storage, instant))
    return planned is not None and is_planned_here(table, requested_name(planned))


def find_swallowed(
    table: HoodieTable, timeline: Timeline, instants: tuple[str, ...], stream_id: str
) -> tuple[Swallowed, ...]:
    """Commits of stream ``stream_id`` that the commits ``instants`` of other writers did not see, oldest first."""
    found: list[Swallowed] = []
    for instant in timeline.completed_writes:
        if instant.time in instants:
            found += _swallowed_by(table, timeline, instant, stream_id)
    return tuple(sorted(found, key=lambda s: (s.instant, s.by)))


def newest_own_commit(table: HoodieTable, timeline: Timeline, stream_id: str) -> str | None:
    """The newest completed commit of the stream, archived or not; None when it has none."""
    for time, extra in all_extra_metadata(table, timeline):
        record = parse(extra)
        if record is not None and same_stream(record.stream_id, stream_id):
            return time
    return None


def _swallowed_by(table: HoodieTable, timeline: Timeline, by: Instant, stream_id: str) -> Iterator[Swallowed]:
    metadata = timeline.metadata(table.storage, by)
    if parse(metadata.extra) is not None:
        return  # a commit of this project, made by the writer that held the lease
    planned = _planned(table, timeline, by, metadata)
    built_on = {} if planned else _built_on(metadata)
    if not planned and not built_on:
        return
    oldest = min([*built_on.values(), *(_base_instant(s) for s in planned)])
    for own in reversed(timeline.completed_writes):
        if own.time <= oldest:
            return
        if own.time == by.time:
            continue
        content = timeline.metadata(table.storage, own)
        record = parse(content.extra)
        if record is None:
            continue
        groups = frozenset(
            (stat.partition_path, stat.file_id)
            for stat in content.all_stats()
            if _is_unseen(own.time, by.time, built_on.get((stat.partition_path, stat.file_id)))
            or any(_is_left_out(s, (stat.partition_path, stat.file_id), stat.file_name, own, by) for s in planned)
        )
        if groups and same_stream(record.stream_id, stream_id):
            yield Swallowed(own.time, record, by.time, groups)


def _built_on(metadata: CommitMetadata) -> dict[FileGroupId, str]:
    """For each file group whose base file was written on top of an earlier slice: that slice's base instant."""
    return {
        (stat.partition_path, stat.file_id): stat.prev_commit
        for stat in metadata.all_stats()
        if stat.log_version is None and stat.prev_commit not in (NO_PREVIOUS, "")
    }


def _is_unseen(own: str, by: str, built_on: str | None) -> bool:
    return built_on is not None and built_on < own < by


def _planned(table: HoodieTable, timeline: Timeline, by: Instant, metadata: CommitMetadata) -> tuple[PlannedSlice, ...]:
    """The slices that a compaction or a clustering read, from its plan, whose file remains next to the completed
    instant.
    """
    planned = _plan_of(table, timeline, by, metadata)
    # A log compaction keeps files that its plan does not name. An archived plan was checked when it was new.
    return () if planned is None else timeline.plan(table.storage, planned).rewrites


def _plan_of(table: HoodieTable, timeline: Timeline, by: Instant, metadata: CommitMetadata) -> Instant | None:
    """The plan of a completed compaction or clustering; None for other writes, and where the plan's file does not
    exist.
    """
    if not metadata.is_compaction and metadata.operation != WriteOperationType.CLUSTER:
        return None
    names = set(table.storage.names(timeline.folder))
    plans = (Instant(by.time, action, by.state) for action in _PLANNED_AS)
    return next((planned for planned in plans if requested_name(planned) in names), None)


def _is_left_out(planned: PlannedSlice, group: FileGroupId, name: str, own: Instant, by: Instant) -> bool:
    """Whether ``own`` wrote a file of the planned slice, or of a newer slice that was replaced with it, which the plan
    lacks.
    """
    if group != (planned.partition_path, planned.file_id) or name in planned.files:
        return False
    if own.time <= _base_instant(planned):
        return False  # a file of an earlier slice, whose rows are in the planned slice
    log = parse_log_file_name(name)
    if log is None:
        return own.time < by.time  # a later base file begins a newer slice
    # A log of the slice that the compaction begins is in that slice: by its name, from version 8 on by its completion.
    return (own.completion_time or log.base_instant) < by.time


def _base_instant(planned: PlannedSlice) -> str:
    """The instant that the planned slice began with; empty where its plan names no file."""
    instants = []
    for name in planned.files:
        log, base = parse_log_file_name(name), parse_base_file_name(name)
        instants += [found.base_instant for found in (log,) if found is not None]
        instants += [found.instant for found in (base,) if found is not None]
    return min(instants, default="")
