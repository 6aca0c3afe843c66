"""A clean's plan and its outcome as Hudi's Avro records (HoodieCleanerPlan, HoodieCleanMetadata).

The plan names absolute paths by partition, the outcome file names: from these the metadata table of Hudi's own takes what is
gone. What was not there counts as deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.services.cleaning.plan import CleanPlan
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.avro_schemas import parsed_schema
from tagstream.table.timeline.avro_timeline import read_record, write_parsed
from tagstream.table.timeline.instant import COMPLETED_ACTION

_PATHS_VERSION = 2  # of both records: from here on a plan names paths


@dataclass(frozen=True)
class StoredPlan:
    """A plan of any writer: file names by partition path, and the partitions that go with their folders."""

    policy: str
    earliest: str | None
    newest: str
    files: Mapping[str, tuple[str, ...]]
    partitions: tuple[str, ...]
    extra: Mapping[str, str]


def plan_bytes(storage: Storage, plan: CleanPlan) -> bytes:
    """The content of ``T.clean.requested``."""
    earliest = None
    if plan.earliest is not None:
        action = COMPLETED_ACTION.get(plan.earliest.action, plan.earliest.action)
        earliest = {"timestamp": plan.earliest.time, "action": action, "state": "COMPLETED"}
    record = {
        "earliestInstantToRetain": earliest,
        "lastCompletedCommitTimestamp": plan.newest,
        "policy": plan.policy.value,
        "filesToBeDeletedPerPartition": {},
        "version": _PATHS_VERSION,
        "filePathsToBeDeletedPerPartition": {
            partition: [
                {"filePath": storage.where(join(partition, file.name)), "isBootstrapBaseFile": False} for file in files
            ]
            for partition, files in plan.files.items()
        },
        "partitionsToBeDeleted": list(plan.partitions),
        "extraMetadata": dict(plan.extra),
    }
    return write_parsed(parsed_schema("HoodieCleanerPlan"), record)


def read_plan(data: bytes, where: str) -> StoredPlan:
    """The plan of any writer; the table may have been copied elsewhere since. CorruptFileError as ``read_record``."""
    record = read_record(data, where)
    files: dict[str, list[str]] = {
        p: list(names) for p, names in (record.get("filesToBeDeletedPerPartition") or {}).items()
    }
    for partition, paths in (record.get("filePathsToBeDeletedPerPartition") or {}).items():
        if any(path.get("isBootstrapBaseFile") for path in paths):
            raise CorruptFileError(
                f"{where} wants to delete files of a bootstrap, which this table has none of: remove it"
            )
        files.setdefault(partition, []).extend(path["filePath"] for path in paths)
    names = {p: tuple(dict.fromkeys(path.rsplit("/", 1)[-1] for path in paths)) for p, paths in files.items()}
    return StoredPlan(
        record.get("policy") or "",
        (record.get("earliestInstantToRetain") or {}).get("timestamp") or None,
        record.get("lastCompletedCommitTimestamp") or "",
        names,
        tuple(record.get("partitionsToBeDeleted") or ()),
        record.get("extraMetadata") or {},
    )


def done_bytes(instant: str, plan: StoredPlan, partitions: tuple[str, ...], took_ms: int) -> bytes:
    """The content of the completed clean. ``partitions``: those that are gone with their folders."""
    metadata = {
        "startCleanTime": instant,
        "timeTakenInMillis": took_ms,
        "totalFilesDeleted": sum(map(len, plan.files.values())),
        "earliestCommitToRetain": plan.earliest or "",
        "lastCompletedCommitTimestamp": plan.newest,
        "partitionMetadata": {
            partition: _partition(partition, plan, partition in partitions)
            for partition in sorted({*plan.files, *partitions})
        },
        "version": _PATHS_VERSION,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": dict(plan.extra),
    }
    return write_parsed(parsed_schema("HoodieCleanMetadata"), metadata)


def _partition(partition: str, plan: StoredPlan, whole: bool) -> dict[str, Any]:
    names = list(plan.files.get(partition, ()))
    return {
        "partitionPath": partition,
        "policy": plan.policy,
        "deletePathPatterns": names,
        "successDeleteFiles": names,
        "failedDeleteFiles": [],
        "isPartitionDeleted": whole,
    }
