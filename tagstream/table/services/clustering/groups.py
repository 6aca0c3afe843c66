"""A clustering's plan as its file has it, whoever made it: Hudi on Spark, Flink, or this project.

Source: HoodieRequestedReplaceMetadata of ``T.clustering.requested`` (``T.replacecommit.requested`` up to version 7), as Hudi
0.15.0 and 1.2.0 write it: paths of files are whole, log files are named newest first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tagstream.table.errors import CorruptFileError, InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.file_group import BaseFile, FileSlice, LogFile
from tagstream.table.file_group.names import parse_base_file_name, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.instant import CLUSTERING, REPLACE_COMMIT, Instant, State
from tagstream.table.timeline.plans import CLUSTER

SORT_COLUMNS = "hoodie.clustering.plan.strategy.sort.columns"
EXECUTION = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
# What these do with a plan is what is done here: rows of a group's slices, sorted, into as many files as the plan says.
_EXECUTIONS = (
    "SparkSortAndSizeExecutionStrategy", "JavaSortAndSizeExecutionStrategy", "SparkSingleFileSortExecutionStrategy",
)  # fmt: skip


@dataclass(frozen=True)
class ClusteringGroup:
    """File slices of one partition whose rows go into ``outputs`` new file groups."""

    partition_path: str
    slices: tuple[FileSlice, ...]
    outputs: int

    @property
    def file_ids(self) -> tuple[str, ...]:
        """The file groups that are replaced."""
        return tuple(each.file_id for each in self.slices)


@dataclass(frozen=True)
class ClusteringPlan:
    """``keeps_meta``: rows keep the commit times they have."""

    groups: tuple[ClusteringGroup, ...]
    sort_columns: tuple[str, ...]
    keeps_meta: bool

    @property
    def replaced(self) -> dict[str, tuple[str, ...]]:
        """File ids that are replaced, by partition path."""
        found: dict[str, list[str]] = {}
        for group in self.groups:
            found.setdefault(group.partition_path, []).extend(group.file_ids)
        return {path: tuple(ids) for path, ids in found.items()}


def pending_action(table: HoodieTable) -> str:
    """What a clustering that is not completed is called on this table's timeline."""
    return CLUSTERING if table.config.has_completion_times else REPLACE_COMMIT


def plan_path(table: HoodieTable, instant: str) -> str:
    """Where the plan of ``instant`` is."""
    return f"{table.config.timeline_folder}/{Instant(instant, pending_action(table), State.REQUESTED).file_name()}"


def read_clustering(table: HoodieTable, instant: str) -> ClusteringPlan:
    """The plan of ``instant``.

    InstantConflictError when there is no such plan, CorruptFileError for one that names files that are none,
    UnsupportedTableError for one that is not to be carried out here.
    """
    rel = plan_path(table, instant)
    where = table.storage.where(rel)
    try:
        data = table.storage.read(rel)
    except FileNotFoundError:
        raise InstantConflictError(
            f"{where} is not there: no clustering was planned at {instant}; `tagstream table health` names those that are"
        ) from None
    record = read_record(data, where) if data else {}
    plan = record.get("clusteringPlan") or {}
    if not plan.get("inputGroups") or record.get("operationType") not in (CLUSTER, None):
        raise InstantConflictError(
            f"{where} is no clustering: it is a {record.get('operationType') or 'replace commit'}"
        )
    strategy = plan.get("strategy") or {}
    name = (strategy.get("strategyClassName") or EXECUTION).rsplit(".", 1)[-1]
    if name not in _EXECUTIONS:
        raise UnsupportedTableError(
            f"{where} asks for {name}, which is not done here: run it with Hudi (run_clustering), or take the plan back"
        )
    columns = (strategy.get("strategyParams") or {}).get(SORT_COLUMNS) or ""
    return ClusteringPlan(
        tuple(_group(each, where) for each in plan["inputGroups"]),
        tuple(name.strip() for name in columns.split(",") if name.strip()),
        plan.get("preserveHoodieMetadata") is not False,
    )


def _group(found: Mapping[str, Any], where: str) -> ClusteringGroup:
    slices = tuple(_slice(each, where) for each in found.get("slices") or ())
    partitions = {each.partition_path for each in slices}
    if len(partitions) != 1:
        raise CorruptFileError(f"{where} has a group of slices of {len(partitions)} partitions: restore the plan")
    return ClusteringGroup(partitions.pop(), slices, max(1, int(found.get("numOutputFileGroups") or 1)))


def _slice(found: Mapping[str, Any], where: str) -> FileSlice:
    if found.get("bootstrapFilePath"):
        raise UnsupportedTableError(f"{where} plans to cluster a bootstrapped file: run it with Hudi")
    file_id, name = found.get("fileId") or "", _name(found.get("dataFilePath"))
    base, logs, wrong = None, [], []
    if name is not None:
        parsed = parse_base_file_name(name)
        if parsed is None:
            wrong.append(name)
        else:
            base = BaseFile(name, file_id, parsed.instant, 0)
    for path in found.get("deltaFilePaths") or ():
        log_name = _name(path) or ""
        log = parse_log_file_name(log_name)
        if log is None:
            wrong.append(log_name)
        else:
            logs.append(LogFile(log_name, file_id, log.base_instant, log.version, log.write_token, 0))
    if wrong or not file_id or (base is None and not logs):
        raise CorruptFileError(
            f"{where} names {', '.join(wrong) or 'no file'} for file id {file_id!r}, which is no data file: restore the plan"
        )
    ordered = tuple(sorted(logs, key=lambda each: each.order))
    begins = base.instant if base is not None else ordered[0].time
    return FileSlice(found.get("partitionPath") or "", file_id, begins, base, ordered)


def _name(path: str | None) -> str | None:
    return path.rsplit("/", 1)[-1] if path else None
