"""A clustering's plan of this project or of Hudi, executed with exactly its groups and files; or rolled back.

1. ``begin_clustering``: the inflight file; files of a dead execution are removed first.
2. The tasks of ``clustering_tasks`` write new base files under temporary names, in any order.
3. ``complete_clustering``: the files get their final names, the metadata table gets the files and the keys' new
locations, and the replace commit with the old file groups is written.

After an interruption the same calls start again: a reader sees none of the new files before the end of step 3. The old
files are kept until they are cleaned, and the plan is kept, too. Only the process with the lease may execute it. If
another writer has written to the plan's file groups since it was made, it is not completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tagstream.table.buckets.hashing_metadata import mark_completed, remove_rings, write_resized
from tagstream.table.buckets.resize import BucketRings, refuse_written_twice
from tagstream.table.errors import CorruptFileError, InstantConflictError, PlanOverlapError
from tagstream.table.file_group.names import join, new_file_id, seqnos, write_token
from tagstream.table.locks.lock import Hold, no_lock
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader, check_mergeable
from tagstream.table.schema.schema import COMMIT_SEQNO, COMMIT_TIME
from tagstream.table.services.clustering_options import ResizeOptions
from tagstream.table.services.clustering_plan import SORTED_BY
from tagstream.table.services.failed_writes import RollbackRequest
from tagstream.table.services.merged_rows import GatheredRows, RowKeeper
from tagstream.table.services.metadata_changes import new_places
from tagstream.table.services.planned import (
    Check,
    Groups,
    Reach,
    Service,
    base_files,
    begin,
    check_pending,
    complete_plan,
    plan_file,
    rollback_requests,
    write_context,
)
from tagstream.table.services.plans import ClusteringGroup, ClusteringPlan, pending_action, read_clustering
from tagstream.table.services.retention import names_of
from tagstream.table.services.rollback import RollbackResult, roll_back_clustering
from tagstream.table.steps import Step
from tagstream.table.timeline.commit_metadata import SCHEMA_KEY, CommitMetadata, WriteStatus
from tagstream.table.timeline.instant import REPLACE_COMMIT, Instant, State
from tagstream.table.timeline.operation import WriteOperationType
from tagstream.table.write.file_writer import write_new_group
from tagstream.table.write.markers import delete_markers, unstage
from tagstream.table.write.upsert import copied_rows
from tagstream.table.write.write_context import WriteContext, WriterOptions

DEFAULT_MEMORY = 1 << 30
_BUCKETS = ResizeOptions()


@dataclass(frozen=True)
class ClusteringTask:
    """The clustering of one group: picklable, and repeatable with the same result.

    ``context``: the write; its ``task_partition`` is the number of the group in the plan, and its ``as_of`` the newest
    instant whose log blocks count. ``rings``: of a resize of buckets. ``run_id``: identifies this execution of the plan in
    file names. ``max_memory``: bytes of rows in memory; the rest is spilled to temporary files of the machine.
    """

    table: HoodieTable
    context: WriteContext
    group: ClusteringGroup
    sort_columns: tuple[str, ...]
    keeps_meta: bool
    run_id: int
    max_memory: int
    rings: BucketRings | None = None

    @property
    def weight(self) -> int:
        """The relative size of the work: the number of files that are read."""
        return sum(1 + len(each.log_files) for each in self.group.slices)

    def run(self, attempt: int = 0) -> list[WriteStatus]:
        """Write the new base files under temporary names; none if all rows were deleted. ``attempt``: parallel attempts
        (Spark's) must have different ones.

        InstantConflictError when the clustering is no longer inflight.
        """
        ctx = replace(self.context, write_token=write_token(self.context.task_partition, self.run_id, attempt))
        schema = ctx.file_schema
        reader = SliceReader(self.table, ctx.timeline, ctx.as_of or ctx.instant, schema, tuple(schema.names))
        with RowKeeper(self.max_memory) as keeper:
            rows = GatheredRows(reader, self.group.slices, self.sort_columns, keeper, self.max_memory)
            if self.rings is not None:
                return list(self._by_bucket(ctx, rows, self.rings))
            parts = min(self.group.outputs, rows.num_rows)
            return [self._write(ctx, rows.part(number, parts), number) for number in range(parts)]

    def _by_bucket(self, ctx: WriteContext, rows: GatheredRows, rings: BucketRings) -> Iterator[WriteStatus]:
        """One file for each new bucket that has rows."""
        where = f"partition {self.group.partition_path!r} of {self.table.base_path}"
        at = rings.positions(rows.keys, self.group.file_ids, where)
        for number in np.unique(at).tolist():
            yield self._new_group(ctx, rows.chosen(at == number), rings.after.nodes[number].file_id)

    def _write(self, ctx: WriteContext, rows: Iterator[pa.Table], number: int) -> WriteStatus:
        return self._new_group(ctx, rows, new_file_id("clustering", ctx.instant, ctx.task_partition, number))

    def _new_group(self, ctx: WriteContext, rows: Iterator[pa.Table], file_id: str) -> WriteStatus:
        return write_new_group(
            self.table, ctx, self.group.partition_path, file_id, lambda name: self._named(ctx, rows, name)
        )

    def _named(self, ctx: WriteContext, rows: Iterator[pa.Table], name: str) -> Iterator[pa.Table]:
        written = 0
        for each in rows:
            yield self._with_meta(ctx, copied_rows(each, name), written)
            written += each.num_rows

    def _with_meta(self, ctx: WriteContext, rows: pa.Table, first: int) -> pa.Table:
        if self.keeps_meta:
            return rows
        count = rows.num_rows
        times = pa.repeat(pa.scalar(ctx.instant, pa.string()), count)
        numbers = seqnos(ctx.instant, ctx.task_partition, first, count)
        for name, column in ((COMMIT_TIME, times), (COMMIT_SEQNO, numbers)):
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, rows.schema.field(index), column)
        return rows


Execute = Callable[[Sequence[ClusteringTask]], Iterable[WriteStatus]]


@dataclass(frozen=True)
class ClusteringResult:
    """An executed plan: its instant, the completed one, the replaced file groups, and the new files."""

    instant: str
    completed: Instant
    replaced: dict[str, tuple[str, ...]]
    statuses: tuple[WriteStatus, ...]


def one_by_one(tasks: Sequence[ClusteringTask]) -> Iterator[WriteStatus]:
    """Run the tasks in this process, in their order."""
    return (status for task in tasks for status in task.run())


def cluster(
    table: HoodieTable,
    instant: str,
    clock_ms: Callable[[], int],
    check: Check = lambda: None,
    reach: Reach = lambda _: None,
    execute: Execute = one_by_one,
    max_memory: int = DEFAULT_MEMORY,
    files: WriterOptions | None = None,
    hold: Hold = no_lock,
    resize: ResizeOptions = _BUCKETS,
) -> ClusteringResult:
    """Execute the plan of ``instant`` of any writer, from any state; all steps in one call.

    ``check`` (the lease's) is called before each step that cannot be undone; ``reach`` is called at the steps
    ``clustering_inflight``, ``clustering_files``, ``clustering_published``, ``metadata_begun``, ``metadata_files``,
    ``metadata_completed`` and ``clustering_completed``. InstantConflictError when it is completed already.
    ``hold`` holds the table's lock for the last step. ``resize``: the hash fields of a table with consistent hashing.
    """
    begin_clustering(table, instant, clock_ms, check, reach)
    tasks = clustering_tasks(table, instant, clock_ms() // 1000 % 2**31, max_memory, files, resize)
    statuses = tuple(execute(tasks))
    reach(Step.CLUSTERING_FILES)
    with hold(f"clustering {instant}"):
        return complete_clustering(table, instant, statuses, clock_ms, check, reach)


def begin_clustering(
    table: HoodieTable,
    instant: str,
    clock_ms: Callable[[], int],
    check: Check = lambda: None,
    reach: Reach = lambda _: None,
) -> None:
    """Write the inflight file after the files of an earlier execution are removed.

    InstantConflictError when it is completed or missing, or another process seems to execute it; UnsupportedTableError
    when this version cannot merge the table's records, CorruptFileError when a file of the plan is missing.
    """
    check_mergeable(table)
    plan = read_clustering(table, instant)
    begin(
        table, instant, _service(table), _partitions_of(plan), clock_ms, check, reach,
        check_files=lambda: _check_files(table, instant, plan),
    )  # fmt: skip


def clustering_tasks(
    table: HoodieTable,
    instant: str,
    run_id: int,
    max_memory: int = DEFAULT_MEMORY,
    files: WriterOptions | None = None,
    resize: ResizeOptions = _BUCKETS,
) -> list[ClusteringTask]:
    """The tasks of an inflight plan. ``run_id``: 0 or more, and different from that of earlier executions (seconds will
    do).

    ``files``: how base files are written; the metadata table's needs are added here. ``resize``: see :func:`cluster`.
    """
    context = write_context(table, instant, pending_action(table), files)
    plan = read_clustering(table, instant)
    rings = BucketRings.of(table, table.timeline(), plan.children, resize.hashed(table)) if plan.children else {}
    return [
        ClusteringTask(
            table,
            replace(context, task_partition=number),
            group,
            plan.sort_columns,
            plan.keeps_meta,
            run_id,
            max_memory,
            rings.get(group.partition_path),
        )
        for number, group in enumerate(plan.groups)
    ]


def complete_clustering(
    table: HoodieTable,
    instant: str,
    statuses: Sequence[WriteStatus],
    clock_ms: Callable[[], int],
    check: Check = lambda: None,
    reach: Reach = lambda _: None,
) -> ClusteringResult:
    """Give the files their final names and complete the plan.

    InstantConflictError when another process was first, or the plan was rolled back: then these files are removed.
    PlanOverlapError when a file group of the plan has got files since it was made, or was replaced: then nothing is
    changed.
    """
    table = table.reload()
    plan = read_clustering(table, instant)
    _refuse_changed(table, instant, plan)

    def metadata(schema_json: str) -> CommitMetadata:
        built = CommitMetadata.build(statuses, {}, schema_json, WriteOperationType.CLUSTER)
        extra = {**built.extra, SCHEMA_KEY: schema_json, SORTED_BY: ",".join(plan.sort_columns)}
        return CommitMetadata(built.stats, extra, WriteOperationType.CLUSTER, replaced=plan.replaced)

    if plan.children:
        check()
        write_resized(table, table.timeline(), instant, plan.children)
    try:
        # The completed file is a replace commit's, whatever the plan's action is.
        completed = complete_plan(
            table, instant, _service(table), statuses, metadata, clock_ms, check, reach,
            places=lambda: new_places(table, instant, statuses),
        )  # fmt: skip
    except InstantConflictError:
        found = table.timeline().find(instant)
        if plan.children and (found is None or not found.is_completed):  # it was rolled back
            remove_rings(table, instant)
        raise
    mark_completed(table, instant, plan.children)
    return ClusteringResult(instant, completed, plan.replaced, tuple(statuses))


def _service(table: HoodieTable) -> Service:
    return Service(
        "clustering",
        (pending_action(table), REPLACE_COMMIT),
        inflight=Step.CLUSTERING_INFLIGHT,
        published=Step.CLUSTERING_PUBLISHED,
        completed=Step.CLUSTERING_COMPLETED,
    )


def _partitions_of(plan: ClusteringPlan) -> Groups:
    """New files of a clustering are in new file groups."""
    return dict.fromkeys(plan.replaced)


def _refuse_changed(table: HoodieTable, instant: str, plan: ClusteringPlan) -> None:
    """PlanOverlapError when the newest slice of a file group has not exactly the plan's files, or the group was replaced."""
    timeline = table.timeline()
    found = timeline.find(instant)
    if found is None or found.is_completed:
        return  # the caller looks at this
    planned: dict[str, dict[str, frozenset[str]]] = {}
    for each in (s for group in plan.groups for s in group.slices):
        planned.setdefault(each.partition_path, {})[each.file_id] = frozenset(names_of(each))
    view = table.view(timeline)
    view.look_up(planned)
    for partition, names in sorted(planned.items()):
        gone = next((file_id for file_id in sorted(names) if (partition, file_id) in timeline.replaced), None)
        if gone is not None:
            raise PlanOverlapError(
                f"clustering {instant} of {table.base_path} is not completed: its file group {gone} of partition "
                f"{partition!r} was replaced by {timeline.replaced[partition, gone]} after it was planned, and the replaced "
                f"rows would come back. Roll the plan back (`tagstream table cluster --take-back {instant}`) and plan again"
            )
        for file_id, now in view.latest_slices(partition, list(names)).items():
            new = sorted({*names_of(now)} - names[file_id])
            if new:
                where = table.storage.where(join(partition, new[0]))
                raise PlanOverlapError(
                    f"clustering {instant} of {table.base_path} is not completed: {where} was written to one of "
                    "its file groups after it was planned, and its rows would be lost. Roll the plan back "
                    f"(`tagstream table cluster --take-back {instant}`) and plan again"
                )


def _check_files(table: HoodieTable, instant: str, plan: ClusteringPlan) -> None:
    """CorruptFileError when a file that the plan names is missing, InstantConflictError when its group was replaced."""
    timeline = table.timeline()
    for partition in sorted(plan.replaced):
        there = frozenset(table.storage.names(partition))
        for each in (s for group in plan.groups for s in group.slices if s.partition_path == partition):
            if (partition, each.file_id) in timeline.replaced:
                raise InstantConflictError(
                    f"clustering {instant} of {table.base_path} would replace file group {each.file_id} of partition "
                    f"{partition!r}, which is already replaced: roll the plan back"
                )
            missing = sorted({*names_of(each)} - there)
            if missing:
                raise CorruptFileError(
                    f"{table.storage.where(join(partition, missing[0]))} is missing, but the clustering {instant} "
                    f"must read it: restore the file, or roll the plan back"
                )


def rollback_clustering(
    table: HoodieTable, instant: str, rollback_instant: str, check: Callable[[], None] = lambda: None
) -> RollbackResult:
    """Roll the clustering back with a rollback action, from any state of its execution.

    InstantConflictError when it is completed or is not a clustering, UnsupportedTableError when another writer has
    already written to the new buckets of a resize.
    """

    def requests(table: HoodieTable, failed: Instant) -> list[RollbackRequest]:
        return rollback_requests(table, failed.time, _partitions_of(read_clustering(table, failed.time)))

    refuse_written_twice(table, instant, read_clustering(table, instant).children)
    check()
    return roll_back_clustering(table, instant, rollback_instant, requests)


def unschedule_clustering(
    table: HoodieTable,
    instant: str,
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
) -> None:
    """Remove the plan ``instant`` and the temporary files of its tasks, without a rollback action.

    For the process that executes it, before any file has its final name: then no reader and no metadata table has more
    of the plan than its name. An interruption leaves a requested plan. ``reach`` is called at ``clustering_stopped`` in
    this state. InstantConflictError when it is completed, or has files with final names: use
    :func:`rollback_clustering` for these.
    """
    service = _service(table)
    check_pending(table, instant, service)
    published = base_files(table, instant, _partitions_of(read_clustering(table, instant)))
    if published:
        raise InstantConflictError(
            f"{table.storage.where(published[0])} already exists: clustering {instant} must be rolled back"
        )
    refuse_written_twice(table, instant, read_clustering(table, instant).children)
    check()
    remove_rings(table, instant)
    table.storage.delete(plan_file(table, instant, service, State.INFLIGHT))
    unstage(table, instant, service.action)
    reach(Step.CLUSTERING_STOPPED)
    table.storage.delete(plan_file(table, instant, service, State.REQUESTED))
    delete_markers(table.storage, instant)
