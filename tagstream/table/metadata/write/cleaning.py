"""Cleaning of a metadata table, after a compaction: of each file group the newest slices stay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tagstream.table.file_group.names import parse_base_file_name, parse_log_file_name
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, Times
from tagstream.table.timeline.avro_schemas import parsed_schema
from tagstream.table.timeline.avro_timeline import read_record, write_parsed
from tagstream.table.timeline.instant import CLEAN, Instant, State
from tagstream.table.timeline.timeline import Timeline

KEPT_VERSIONS = 2

_SUFFIX = "002"  # of a cleaning's own instant, up to version 7
_POLICY = "KEEP_LATEST_FILE_VERSIONS"


def clean(writer: MetadataWriter, times: Times, kept_versions: int = KEPT_VERSIONS) -> tuple[str, ...]:
    """Delete slices older than the ``kept_versions`` newest of their groups; returns the deleted files' paths.

    One that was cut off is carried out first. Nothing is written where nothing is to be deleted.
    """
    timeline = writer.timeline()
    begun = next((i for i in timeline.pending if i.action == CLEAN), None)
    if begun is not None:
        return _carry_out(writer, begun.time, times)
    old = {
        partition: names
        for partition in writer.partitions
        if (names := _old(writer, timeline, partition, kept_versions))
    }
    newest = timeline.newest_completed
    if not old or newest is None:
        return ()
    instant = times() if writer.has_completion_times else f"{newest[:17]}{_SUFFIX}"
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
    return _carry_out(writer, instant, times)


def _old(writer: MetadataWriter, timeline: Timeline, partition: str, kept_versions: int) -> list[str]:
    """Names of the files of old slices. A slice begins at a base file; logs from before the first are a slice, too."""
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


def _carry_out(writer: MetadataWriter, instant: str, times: Times) -> tuple[str, ...]:
    storage = writer.storage
    rel = writer.rel(Instant(instant, CLEAN, State.REQUESTED))
    data = storage.read(rel)
    plan = read_record(data, storage.where(rel))
    # Before version 8 the inflight file holds the plan once more.
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
