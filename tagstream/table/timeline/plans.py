"""What a plan on the timeline will do: the file slices that a compaction, log compaction or clustering was made for.

Sources: Hudi's HoodieCompactionPlan (operations: partitionPath, fileId, baseInstantTime, deltaFilePaths) and
HoodieRequestedReplaceMetadata (operationType, clusteringPlan.inputGroups.slices: dataFilePath, deltaFilePaths).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.instant import CLUSTERING, COMPACTION, LOG_COMPACTION, REPLACE_COMMIT, Instant

CLUSTER = "CLUSTER"
PLANNED = frozenset({COMPACTION, LOG_COMPACTION, CLUSTERING, REPLACE_COMMIT})


@dataclass(frozen=True)
class PlannedSlice:
    """A slice as its plan saw it; ``files`` are the names (no folders) of its base file and log files."""

    partition_path: str
    file_id: str
    files: frozenset[str]


@dataclass(frozen=True)
class Plan:
    """``rewrites``: the slices that the action reads. An insert overwrite or a delete of partitions has none."""

    operation: str
    rewrites: tuple[PlannedSlice, ...]

    @property
    def is_clustering(self) -> bool:
        """A plan that moves rows to other file groups, to be carried out by whoever executes it."""
        return self.operation == CLUSTER


def requested_name(instant: Instant) -> str:
    """The file that holds the plan of an action."""
    return f"{instant.time}.{instant.action}.requested"


def read_plan(data: bytes, action: str, where: str) -> Plan:
    """The plan of a requested file; an empty file (some insert overwrites) plans nothing."""
    if not data:
        return Plan("", ())
    record = read_record(data, where)
    if action in (COMPACTION, LOG_COMPACTION):
        return Plan(action, tuple(_compacted(operation) for operation in record.get("operations") or ()))
    plan = record.get("clusteringPlan") or {}
    groups = plan.get("inputGroups") or ()
    slices = tuple(_clustered(each) for group in groups for each in group.get("slices") or ())
    clusters = action == CLUSTERING or record.get("operationType") == CLUSTER or bool(slices)
    return Plan(CLUSTER if clusters else record.get("operationType") or "", slices)


def _compacted(operation: Mapping[str, Any]) -> PlannedSlice:
    files = [operation.get("dataFilePath"), *(operation.get("deltaFilePaths") or ())]
    return _slice(operation, files)


def _clustered(found: Mapping[str, Any]) -> PlannedSlice:
    return _slice(found, [found.get("dataFilePath"), *(found.get("deltaFilePaths") or ())])


def _slice(found: Mapping[str, Any], files: list[str | None]) -> PlannedSlice:
    names = frozenset(path.rsplit("/", 1)[-1] for path in files if path)
    return PlannedSlice(found.get("partitionPath") or "", found["fileId"], names)
