"""Compact the metadata table: the logs of a file group are merged into a new base file, and old slices are cleaned.

It runs at the start of a write of the data, before that write's delta commit. Base files must not get entries of an
action that is not completed on the data's timeline: in that case there is no compaction now. After a compaction the
newest slices of each file group are kept, and older ones are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.names import join, parse_base_file_name, parse_log_file_name
from tagstream.table.metadata.compaction_merge import MergeCounts, merged_entries
from tagstream.table.metadata.delta_commit import delta_content, write_base_file
from tagstream.table.metadata.metadata_table import FOLDER, MetadataTable
from tagstream.table.metadata.metadata_writer import MetadataWriter, Times
from tagstream.table.metadata.rollback import forget_undone, newest_compaction
from tagstream.table.timeline.avro_timeline import parsed_schema, read_record, write_parsed
from tagstream.table.timeline.commit_metadata import NO_PREVIOUS, WriteStat
from tagstream.table.timeline.instant import CLEAN, COMMIT, COMPACTION, DELTA_COMMIT, Instant, State
from tagstream.table.timeline.operation import WriteOperationType
from tagstream.table.timeline.timeline import Timeline

MAX_DELTA_COMMITS = 10  # Hudi's hoodie.metadata.compact.max.delta.commits

_COMPACTION_SUFFIX = "001"  # of the instant of a compaction, up to version 7
_NAMES_ONLY = 2  # version of a plan that has file names, not paths


@dataclass(frozen=True)
class CompactionTask:
    """The compaction of one file group: a pure function of its fields, picklable, and repeatable with the same result.

    It has the entries of the group's logs in memory, and a part of the base file.
    """

    writer: MetadataWriter
    data_timeline: Timeline
    instant: str
    file_slice: FileSlice

    @property
    def weight(self) -> int:
        """Bytes to read, for comparing tasks."""
        base = self.file_slice.base_file
        return (base.size if base else 0) + sum(log.size for log in self.file_slice.log_files)

    def run(self) -> WriteStat | None:
        """Write the new base file; None when the group has no entries."""
        metadata = MetadataTable.open(self.writer.table, self.data_timeline)
        if metadata is None:
            raise CorruptFileError(
                f"table {self.writer.table.config.name} at {self.writer.table.base_path} has a pending compaction in "
                f"{FOLDER}, but no metadata table in its properties; drop the metadata table"
            )
        found, base, counts = self.file_slice, self.file_slice.base_file, MergeCounts()
        stat = write_base_file(
            self.writer, found.partition_path, found.file_id, self.instant,
            merged_entries(metadata, found, counts, self.writer.forms.records),
            found.base_instant if base is not None else NO_PREVIOUS, base.name if base is not None else None,
        )  # fmt: skip
        return None if stat is None else _counted(stat, found, counts)


def _counted(stat: WriteStat, found: FileSlice, counts: MergeCounts) -> WriteStat:
    """The stat with the counters of Hudi's compactions."""
    of_logs = {
        "totalLogRecords": counts.log_entries,
        "totalLogFilesCompacted": len(found.log_files),
        "totalLogSizeCompacted": sum(log.size for log in found.log_files),
        "totalUpdatedRecordsCompacted": counts.log_keys,
        "totalLogBlocks": counts.log_blocks,
    }
    return replace(
        stat, num_inserts=counts.inserts, num_updates=counts.updates, num_deletes=counts.deletes, other=of_logs
    )


Execute = Callable[[Sequence[CompactionTask]], Iterable[WriteStat | None]]


def one_by_one(tasks: Sequence[CompactionTask]) -> Iterator[WriteStat | None]:
    """Run the tasks in this process, in their order."""
    return (task.run() for task in tasks)


def compact(
    writer: MetadataWriter,
    times: Times,
    max_delta_commits: int = MAX_DELTA_COMMITS,
    execute: Execute = one_by_one,
) -> str | None:
    """Compact after ``max_delta_commits`` completed delta commits since the last compaction; returns the instant.

    An unfinished compaction is executed first and returned. None: too few delta commits, or an action is pending.
    ``execute`` runs the tasks, one for each file group, in this process or in others, in any order.
    """
    timeline = writer.timeline()
    begun = [i.time for i in timeline.pending if i.action == COMPACTION]
    # A plan for slices that a newer compaction has replaced: its driver was paused while its successor compacted, and
    # wrote the plan afterwards. It must not be executed.
    stale = [time for time in begun if time < (newest_compaction(timeline) or "")]
    for time in stale:
        _withdraw(writer, time)
    if stale:
        timeline, begun = writer.timeline(), [time for time in begun if time not in stale]
    if begun:
        instant = begun[0]
    else:
        planned = _plan(writer, timeline, times, max_delta_commits)
        if planned is None:
            return None
        instant, plan = planned
        writer.begin(instant, COMPACTION, plan)
    _carry_out_compaction(writer, instant, times, execute)
    return instant


def _plan(writer: MetadataWriter, timeline: Timeline, times: Times, max_delta_commits: int) -> tuple[str, bytes] | None:
    deltas = [i for i in timeline.instants if i.action == DELTA_COMMIT]
    last = newest_compaction(timeline) or ""
    done = [i for i in deltas if i.is_completed and (i.completion_time or i.time) > last]
    if len(done) < max_delta_commits or not _all_done(writer, timeline):
        return None
    if forget_undone(writer, times):
        return _plan(writer, writer.timeline(), times, max_delta_commits)
    # The compaction's instant is later than the completion of all these delta commits, which thus belong to the slice
    # before.
    instant = times() if writer.has_completion_times else f"{max(i.time for i in deltas)}{_COMPACTION_SUFFIX}"
    slices = [
        file_slice
        for partition in writer.partitions
        for file_slice in writer.view(timeline).latest_merged_slices(partition)
        if file_slice.log_files
    ]
    if instant in {i.time for i in timeline.instants} or not slices:
        return None
    record = {
        "operations": [_operation(file_slice) for file_slice in slices], "extraMetadata": {}, "version": _NAMES_ONLY,
        "strategy": None, "preserveHoodieMetadata": False, "missingSchedulePartitions": [],
    }  # fmt: skip
    return instant, write_parsed(parsed_schema("HoodieCompactionPlan"), record)


def _all_done(writer: MetadataWriter, timeline: Timeline) -> bool:
    """Whether the actions of all delta commits are completed in the data; before version 8 also all older actions."""
    deltas = [i for i in timeline.instants if i.action == DELTA_COMMIT]
    if not all(i.is_completed for i in deltas):
        return False
    newest = max(i.time for i in deltas)
    pending = {i.time for i in writer.table.timeline().pending}
    return not pending & {i.time for i in deltas} and (
        writer.has_completion_times or not any(time <= newest for time in pending)
    )


def _operation(file_slice: FileSlice) -> dict[str, Any]:
    base = file_slice.base_file
    return {
        "baseInstantTime": file_slice.base_instant,
        "deltaFilePaths": [log.name for log in file_slice.log_files],
        "dataFilePath": base.name if base is not None else None,
        "fileId": file_slice.file_id,
        "partitionPath": file_slice.partition_path,
        "metrics": {
            "TOTAL_LOG_FILES": float(len(file_slice.log_files)),
            "TOTAL_LOG_FILES_SIZE": float(sum(log.size for log in file_slice.log_files)),
            "TOTAL_IO_READ_MB": 0.0,
            "TOTAL_IO_WRITE_MB": 0.0,
            "TOTAL_IO_MB": 0.0,
        },
        "bootstrapFilePath": None,
    }


def _withdraw(writer: MetadataWriter, instant: str) -> None:
    """Remove a plan and its files, which no reader uses."""
    storage = writer.storage
    for partition in dict.fromkeys(o["partitionPath"] for o in _read_plan(writer, instant).get("operations") or ()):
        bases = ((name, parse_base_file_name(name)) for name in storage.names(partition))
        storage.delete_many(
            join(partition, name) for name, base in bases if base is not None and base.instant == instant
        )
    for state in (State.INFLIGHT, State.REQUESTED):
        storage.delete(writer.rel(Instant(instant, COMPACTION, state)))


def _read_plan(writer: MetadataWriter, instant: str) -> Mapping[str, Any]:
    rel = writer.rel(Instant(instant, COMPACTION, State.REQUESTED))
    return read_record(writer.storage.read(rel), writer.storage.where(rel))


def _carry_out_compaction(writer: MetadataWriter, instant: str, times: Times, execute: Execute) -> None:
    """Write a base file for each operation of the plan, from exactly its files, over files of an earlier attempt."""
    plan = _read_plan(writer, instant)
    writer.write_inflight(instant, COMPACTION)
    view, data_timeline = writer.view(writer.timeline()), writer.table.timeline()
    tasks = []
    for operation in plan.get("operations") or ():
        partition = operation["partitionPath"]
        found = view.latest_slice(partition, operation["fileId"])
        if found is not None and partition in writer.partitions:  # else the partition was dropped
            tasks.append(CompactionTask(writer, data_timeline, instant, _planned(found, operation)))
    stats = sorted((stat for stat in execute(tasks) if stat is not None), key=lambda stat: stat.path)
    content = delta_content(stats, writer.forms, WriteOperationType.COMPACT, compacted=True)
    at = times() if writer.has_completion_times else None
    writer.storage.write_new(writer.rel(Instant(instant, COMMIT, State.COMPLETED, at)), content)


def _planned(found: FileSlice, operation: Mapping[str, Any]) -> FileSlice:
    """The slice with the files of the plan."""
    names = set(operation["deltaFilePaths"] or ())
    logs = tuple(log for log in found.log_files if log.name in names)
    base = found.base_file if found.base_file and found.base_file.name == operation["dataFilePath"] else None
    if len(logs) != len(names) or (base is None) != (operation["dataFilePath"] is None):
        raise CorruptFileError(
            f"the plan of a compaction of the metadata table names files of {found.file_id} in {found.partition_path} that "
            "are not in its newest slice; drop the metadata table"
        )
    return FileSlice(found.partition_path, found.file_id, operation["baseInstantTime"] or "", base, logs)


KEPT_VERSIONS = 2

_CLEAN_SUFFIX = "002"  # of the instant of a clean, up to version 7
_POLICY = "KEEP_LATEST_FILE_VERSIONS"


def clean(writer: MetadataWriter, times: Times, kept_versions: int = KEPT_VERSIONS) -> tuple[str, ...]:
    """Delete all but the ``kept_versions`` newest slices of each file group; returns the deleted files' paths.

    An unfinished clean is executed first. Without files to delete nothing is written.
    """
    timeline = writer.timeline()
    begun = next((i for i in timeline.pending if i.action == CLEAN), None)
    if begun is not None:
        return _carry_out_clean(writer, begun.time, times)
    old = {
        partition: names
        for partition in writer.partitions
        if (names := _old(writer, timeline, partition, kept_versions))
    }
    newest = timeline.newest_completed
    if not old or newest is None:
        return ()
    instant = times() if writer.has_completion_times else f"{newest[:17]}{_CLEAN_SUFFIX}"
    if instant in {i.time for i in timeline.instants}:
        return ()
    paths = {
        partition: [
            {"filePath": writer.storage.where(join(partition, name)), "isBootstrapBaseFile": False} for name in names
        ]
        for partition, names in old.items()
    }
    record: dict[str, Any] = {
        "earliestInstantToRetain": None, "lastCompletedCommitTimestamp": newest, "policy": _POLICY,
        "filesToBeDeletedPerPartition": {}, "version": 2, "filePathsToBeDeletedPerPartition": paths,
        "partitionsToBeDeleted": [], "extraMetadata": {},
    }  # fmt: skip
    plan = write_parsed(parsed_schema("HoodieCleanerPlan"), record)
    writer.storage.write_new(writer.rel(Instant(instant, CLEAN, State.REQUESTED)), plan)
    return _carry_out_clean(writer, instant, times)


def _old(writer: MetadataWriter, timeline: Timeline, partition: str, kept_versions: int) -> list[str]:
    """Names of the files of old slices. A slice begins with a base file; logs before the first one are a slice, too."""
    bases: dict[str, list[tuple[str, str]]] = {}
    logs: dict[str, list[tuple[str, str]]] = {}
    for name in writer.storage.names(partition):
        base, log = parse_base_file_name(name), parse_log_file_name(name)
        if base is not None and timeline.is_valid(base.instant):
            bases.setdefault(base.file_id, []).append((base.instant, name))
        elif log is not None and not writer.has_completion_times:
            logs.setdefault(log.file_id, []).append((log.base_instant, name))
        elif log is not None and timeline.is_valid(log.base_instant):
            logs.setdefault(log.file_id, []).append((writer.completed_at(timeline, log.base_instant), name))
    found: list[str] = []
    for file_id, files in bases.items():
        begins = sorted({instant for instant, _ in files}, reverse=True)
        if len(begins) >= kept_versions:
            oldest = begins[kept_versions - 1]
            found += [name for at, name in [*files, *logs.get(file_id, [])] if at < oldest]
    return sorted(found)


def _carry_out_clean(writer: MetadataWriter, instant: str, times: Times) -> tuple[str, ...]:
    storage = writer.storage
    rel = writer.rel(Instant(instant, CLEAN, State.REQUESTED))
    data = storage.read(rel)
    plan = read_record(data, storage.where(rel))
    # Before version 8 the inflight file has the plan, too.
    writer.write_inflight(instant, CLEAN, b"" if writer.has_completion_times else data)
    files = {
        partition: [found["filePath"].rsplit("/", 1)[-1] for found in paths]
        for partition, paths in (plan.get("filePathsToBeDeletedPerPartition") or {}).items()
    }
    deleted = tuple(join(partition, name) for partition, names in files.items() for name in names)
    storage.delete_many(deleted)
    metadata = {
        "startCleanTime": instant, "timeTakenInMillis": 0, "totalFilesDeleted": len(deleted), "earliestCommitToRetain": "",
        "lastCompletedCommitTimestamp": plan.get("lastCompletedCommitTimestamp") or "",
        "partitionMetadata": {partition: _cleaned(partition, names) for partition, names in files.items()},
        "version": 2, "bootstrapPartitionMetadata": {}, "extraMetadata": {},
    }  # fmt: skip
    writer.complete(instant, CLEAN, write_parsed(parsed_schema("HoodieCleanMetadata"), metadata), times)
    return deleted


def _cleaned(partition: str, names: Iterable[str]) -> dict[str, Any]:
    files = list(names)
    return {
        "partitionPath": partition, "policy": _POLICY, "deletePathPatterns": files, "successDeleteFiles": files,
        "failedDeleteFiles": [], "isPartitionDeleted": False,
    }  # fmt: skip
