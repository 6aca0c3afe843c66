"""Plans of compactions and clusterings on the timeline, by Hudi on Spark, Flink, or this project. ``planned`` carries
them out.

A compaction's plan has operations (``read_operations``), a clustering's has groups of file slices
(``read_clustering``): HoodieRequestedReplaceMetadata of ``T.clustering.requested`` (``T.replacecommit.requested``
up to version 7), as Hudi 0.15.0 and 1.2.0 write it. Its paths of files are whole, and its log files are named
newest first.

A file group that a pending plan names may be in no other plan (``planned_otherwise``). A compaction's plan that
takes every slice with logs says so in its extra metadata: the next plan looks only at file groups that later delta
commits name (``groups_with_logs``). Without such a plan, or where a later commit has been archived, the table is
listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tagstream.table.buckets.resize import children_of_group
from tagstream.table.errors import CorruptFileError, InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.fs_view import BaseFile, FileSlice, LogFile
from tagstream.table.file_group.names import join, parse_base_file_name, parse_log_file_name
from tagstream.table.keys.consistent_hash import HashingNode
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.options import MIB
from tagstream.table.timeline.avro_timeline import parsed_schema, read_record, requested_name, write_parsed
from tagstream.table.timeline.instant import (
    CLUSTERING,
    COMMIT,
    COMPACTION,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    Instant,
    State,
)
from tagstream.table.timeline.operation import WriteOperationType
from tagstream.table.timeline.timeline import FileGroupId, Timeline

# In a plan's extra metadata: this project made it.
PLANNED_BY, PLANNER = "tagstream.planned.by", "tagstream"
# In a plan's extra metadata: no slice had logs of an older write that the plan did not take.
TAKEN_BEFORE = "tagstream.compaction.taken.before"
SORT_COLUMNS = "hoodie.clustering.plan.strategy.sort.columns"
EXECUTION = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
# What these do with a plan is what is done here: rows of a group's slices, sorted, into as many files as the plan says.
_EXECUTIONS = (
    "SparkSortAndSizeExecutionStrategy", "JavaSortAndSizeExecutionStrategy", "SparkSingleFileSortExecutionStrategy",
)  # fmt: skip
RESIZE_EXECUTION = "org.apache.hudi.client.clustering.run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
# These distribute the rows of a group over the new buckets of its extra metadata.
_RESIZES = ("SparkConsistentBucketClusteringExecutionStrategy", "SingleSparkJobConsistentHashingExecutionStrategy")


@dataclass(frozen=True)
class Operation:
    """The compaction of one file group. Files are names without folders, log files in their order.

    ``base_file`` is None for a slice that has logs alone. ``io_mib``: read and written, as the plan estimates; 0 where
    it does not.
    """

    partition_path: str
    file_id: str
    base_instant: str
    base_file: str | None
    log_files: tuple[str, ...]
    io_mib: float = field(default=0.0, compare=False)

    @property
    def base_path(self) -> str | None:
        """The base file relative to the table's base path."""
        return None if self.base_file is None else join(self.partition_path, self.base_file)

    def file_slice(self, without: frozenset[str] = frozenset()) -> FileSlice:
        """What is to be merged: exactly the plan's files, but for those that are gone."""
        base = None
        if self.base_file is not None:
            parsed = parse_base_file_name(self.base_file)
            base = BaseFile(self.base_file, self.file_id, parsed.instant if parsed else self.base_instant, 0)
        logs = []
        for name in self.log_files:
            log = parse_log_file_name(name)
            if log is not None and name not in without:
                logs.append(LogFile(name, self.file_id, log.base_instant, log.version, log.write_token, 0))
        ordered = tuple(sorted(logs, key=lambda log: log.order))
        return FileSlice(self.partition_path, self.file_id, self.base_instant, base, ordered)


def read_operations(table: HoodieTable, instant: str) -> list[Operation]:
    """The operations of the plan of ``instant``, in its order.

    InstantConflictError when there is no such plan, CorruptFileError for one with invalid file names.
    """
    rel = table.instant_path(Instant(instant, COMPACTION, State.REQUESTED))
    where = table.storage.where(rel)
    try:
        record = read_record(table.storage.read(rel), where)
    except FileNotFoundError:
        raise InstantConflictError(
            f"{where} is not there: no compaction was planned at {instant}; `timeline().pending` has those that are"
        ) from None
    return [_operation(each, where) for each in record.get("operations") or ()]


def _operation(found: Mapping[str, Any], where: str) -> Operation:
    if found.get("bootstrapFilePath"):
        raise UnsupportedTableError(f"{where} plans to compact a bootstrapped file: run it with Hudi")
    base = _name(found.get("dataFilePath"))
    logs = tuple(name for name in map(_name, found.get("deltaFilePaths") or ()) if name is not None)
    wrong = [name for name in logs if parse_log_file_name(name) is None]
    if base is not None and parse_base_file_name(base) is None:
        wrong.append(base)
    if wrong or not found.get("fileId"):
        raise CorruptFileError(
            f"{where} names {', '.join(wrong) or 'no file id'}, which is not a data file: restore the plan"
        )
    logs = tuple(name for name in logs if not _is_change_file(name))  # Hudi's plans have them, too
    io_mib = (found.get("metrics") or {}).get("TOTAL_IO_MB") or 0.0
    partition, instant = found.get("partitionPath") or "", found.get("baseInstantTime") or ""
    return Operation(partition, found["fileId"], instant, base, logs, io_mib)


def _is_change_file(name: str) -> bool:
    """Whether a name is that of a change file, which no reader of rows reads."""
    log = parse_log_file_name(name)
    return log is not None and log.is_cdc


def _name(path: str | None) -> str | None:
    """A file's name: plans of version 1 have whole paths."""
    return path.rsplit("/", 1)[-1] if path else None


@dataclass(frozen=True)
class ClusteringGroup:
    """File slices of one partition whose rows go into ``outputs`` new file groups.

    ``children``: of a resize of buckets, the new nodes of the ring after its first ``seq_no`` resizes.
    """

    partition_path: str
    slices: tuple[FileSlice, ...]
    outputs: int
    children: tuple[HashingNode, ...] = ()
    seq_no: int = 0

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

    @property
    def children(self) -> dict[str, tuple[int, tuple[HashingNode, ...]]]:
        """The resizes by partition path: the number of earlier ones that the plan has seen, and the new nodes."""
        found: dict[str, tuple[int, tuple[HashingNode, ...]]] = {}
        for group in self.groups:
            if group.children:
                before = found.get(group.partition_path, (group.seq_no, ()))[1]
                found[group.partition_path] = (group.seq_no, (*before, *group.children))
        return found


def pending_action(table: HoodieTable) -> str:
    """What a clustering that is not completed is called on this table's timeline."""
    return CLUSTERING if table.config.has_completion_times else REPLACE_COMMIT


def requested_clustering(table: HoodieTable, instant: str) -> Instant:
    """The instant whose file on the timeline is the plan."""
    return Instant(instant, pending_action(table), State.REQUESTED)


def read_clustering(table: HoodieTable, instant: str) -> ClusteringPlan:
    """The plan of ``instant``.

    InstantConflictError when there is no such plan, CorruptFileError for one with invalid file names,
    UnsupportedTableError for one that this version cannot execute.
    """
    rel = table.instant_path(requested_clustering(table, instant))
    where = table.storage.where(rel)
    try:
        data = table.storage.read(rel)
    except FileNotFoundError:
        raise InstantConflictError(
            f"{where} is not there: no clustering was planned at {instant}; `tagstream table health` names those that "
            f"are"
        ) from None
    record = read_record(data, where) if data else {}
    plan = record.get("clusteringPlan") or {}
    if not plan.get("inputGroups") or record.get("operationType") not in (WriteOperationType.CLUSTER, None):
        raise InstantConflictError(
            f"{where} is not a clustering: it is a {record.get('operationType') or 'replace commit'}"
        )
    strategy = plan.get("strategy") or {}
    name = (strategy.get("strategyClassName") or EXECUTION).rsplit(".", 1)[-1]
    if name not in (*_EXECUTIONS, *_RESIZES):
        raise UnsupportedTableError(
            f"{where} asks for {name}, which is not done here: run it with Hudi (run_clustering), or take the plan back"
        )
    columns = (strategy.get("strategyParams") or {}).get(SORT_COLUMNS) or ""
    return ClusteringPlan(
        tuple(_group(each, where, resizes=name in _RESIZES) for each in plan["inputGroups"]),
        tuple(name.strip() for name in columns.split(",") if name.strip()),
        plan.get("preserveHoodieMetadata") is not False,
    )


def _group(found: Mapping[str, Any], where: str, *, resizes: bool) -> ClusteringGroup:
    slices = tuple(_slice(each, where) for each in found.get("slices") or ())
    partitions = {each.partition_path for each in slices}
    if len(partitions) != 1:
        raise CorruptFileError(f"{where} has a group of slices of {len(partitions)} partitions: restore the plan")
    partition, outputs = partitions.pop(), max(1, int(found.get("numOutputFileGroups") or 1))
    if not resizes:
        return ClusteringGroup(partition, slices, outputs)
    seq_no, children = children_of_group(found.get("extraMetadata") or {}, partition, where)
    return ClusteringGroup(partition, slices, outputs, children, seq_no)


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
        elif not log.is_cdc:
            logs.append(LogFile(log_name, file_id, log.base_instant, log.version, log.write_token, 0))
    if wrong or not file_id or (base is None and not logs):
        raise CorruptFileError(
            f"{where} names {', '.join(wrong) or 'no file'} for file id {file_id!r}, which is not a data file: "
            f"restore the plan"
        )
    ordered = tuple(sorted(logs, key=lambda each: each.order))
    begins = base.instant if base is not None else ordered[0].time
    return FileSlice(found.get("partitionPath") or "", file_id, begins, base, ordered)


def is_planned_here(table: HoodieTable, planned: str) -> bool:
    """Whether this project made the plan in the timeline's file ``planned``. FileNotFoundError when it is not there."""
    rel = f"{table.config.timeline_folder}/{planned}"
    plan = read_record(table.storage.read(rel), table.storage.where(rel))
    return (plan.get("extraMetadata") or {}).get(PLANNED_BY) == PLANNER


def write_plan(table: HoodieTable, planned: Instant, schema: str, plan: dict[str, Any]) -> None:
    """Write a plan as the requested file of ``planned``. ``schema``: the name of its Avro schema.

    InstantConflictError when the file is there.
    """
    rel = table.instant_path(planned)
    try:
        table.storage.write_new(rel, write_parsed(parsed_schema(schema), plan))
    except FileExistsError:
        raise InstantConflictError(
            f"{table.storage.where(rel)} exists already: another writer works on the table, and only one may"
        ) from None


def metrics_of(file_slice: FileSlice, base_file_bytes: int) -> dict[str, float]:
    """The metrics of a file slice in a plan; whole MiB but for TOTAL_LOG_FILES_SIZE, which is bytes."""
    base = file_slice.base_file.size if file_slice.base_file else 0
    read = (base + log_bytes(file_slice)) // MIB
    write = (base if file_slice.base_file else base_file_bytes) // MIB
    return {
        "TOTAL_LOG_FILES": float(len(file_slice.log_files)),
        "TOTAL_IO_MB": float(read + write),
        "TOTAL_IO_READ_MB": float(read),
        "TOTAL_LOG_FILES_SIZE": float(log_bytes(file_slice)),
        "TOTAL_IO_WRITE_MB": float(write),
    }


def log_bytes(file_slice: FileSlice) -> int:
    """Bytes of a slice's log files."""
    return sum(log.size for log in file_slice.log_files)


def groups_with_logs(table: HoodieTable, timeline: Timeline) -> dict[str, frozenset[str]] | None:
    """File ids by partition path of all groups that may have logs; None: only a listing can tell."""
    since = _taken_before(table, timeline)
    if since is None and not _is_whole(table):
        return None
    if since is not None and (timeline.start is None or timeline.start > since):
        return None
    # Some writers put logs into new file groups by a replace commit; a plain commit is a compaction's, and has none.
    writes = [i for i in timeline.completed_writes if i.action != COMMIT and (since is None or i.time >= since)]
    found: dict[str, set[str]] = {}
    for instant in writes:
        for stat in timeline.metadata(table.storage, instant).all_stats():
            if stat.file_name.startswith("."):
                found.setdefault(stat.partition_path, set()).add(stat.file_id)
    return {partition: frozenset(ids) for partition, ids in sorted(found.items())}


def taken_before(timeline: Timeline, instant: str) -> str:
    """What a plan that takes all says: every write of an earlier time was completed when it was made."""
    return min([instant, *(i.time for i in timeline.pending)])


def planned_otherwise(table: HoodieTable, timeline: Timeline) -> frozenset[FileGroupId]:
    """File groups that a pending compaction, log compaction or clustering is about: no other plan may have them."""
    return frozenset([*timeline.pending_compactions, *timeline.pending_clusterings, *_log_compactions(table, timeline)])


def _log_compactions(table: HoodieTable, timeline: Timeline) -> Iterable[FileGroupId]:
    for instant in timeline.pending:
        if instant.action == LOG_COMPACTION:
            yield from ((s.partition_path, s.file_id) for s in timeline.plan(table.storage, instant).rewrites)


def _taken_before(table: HoodieTable, timeline: Timeline) -> str | None:
    """What the newest plan says that took all logs."""
    plans = (i for i in timeline.instants if i.action == COMPACTION or (i.action == COMMIT and i.is_completed))
    return newest_recorded(table, plans, COMPACTION, TAKEN_BEFORE)


def newest_recorded(table: HoodieTable, instants: Iterable[Instant], action: str, key: str) -> str | None:
    """What the newest of these actions' plans says under a key of its extra metadata, among those that say anything.

    ``instants``: oldest first; ``action``: what their plans' requested files are called. Actions without a plan are
    passed over.
    """
    for instant in reversed(tuple(instants)):
        rel = f"{table.config.timeline_folder}/{requested_name(Instant(instant.time, action, instant.state))}"
        try:
            data = table.storage.read(rel)
        except FileNotFoundError:
            continue
        plan = read_record(data, table.storage.where(rel)) if data else {}
        recorded = (plan.get("extraMetadata") or {}).get(key)
        if recorded:
            return str(recorded)
    return None


def _is_whole(table: HoodieTable) -> bool:
    """Whether the active timeline has every write there ever was."""
    return not any(not name.startswith(".keep") for name in table.storage.names(table.config.history_folder))
