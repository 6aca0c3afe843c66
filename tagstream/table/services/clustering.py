"""A clustering's plan, ours or Hudi's, carried out with exactly its groups and files; or taken back.

1. ``begin_clustering``: the inflight file; what a dead execution has left is removed first.
2. The tasks of ``clustering_tasks`` stage new base files, in any order.
3. ``complete_clustering``: the files get their names and go into the metadata table with the keys' new places, and
   the replace commit appears, which names the old file groups.

If it is cut off, the same calls do it again from the start: a reader counts none of the new files before 3 has
ended. The old files stay until they are cleaned. The plan stays, too. Only the process with the lease may carry it
out, and nobody may write to the plan's file groups meanwhile. Once a plan is taken back they may be written to
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tagstream.table.errors import CorruptFileError, InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.names import join, new_file_id, parse_base_file_name, seqnos, write_token
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader, check_mergeable
from tagstream.table.schema.schema import COMMIT_SEQNO, COMMIT_TIME, avro_to_arrow
from tagstream.table.services.clustering_plan import SORTED_BY
from tagstream.table.services.compaction import newest_before, table_schema_json, withdraw
from tagstream.table.services.compaction_plan import claim
from tagstream.table.services.failed_writes import RollbackRequest
from tagstream.table.services.merged_rows import GatheredRows, RowKeeper
from tagstream.table.services.metadata_changes import new_places, tell_metadata, told_to_metadata
from tagstream.table.services.planned import ClusteringGroup, ClusteringPlan, pending_action, read_clustering
from tagstream.table.services.rollback import RollbackResult, roll_back_clustering
from tagstream.table.timeline.avro_timeline import CLUSTER
from tagstream.table.timeline.commit_metadata import SCHEMA_KEY, CommitMetadata, WriteStatus
from tagstream.table.timeline.instant import REPLACE_COMMIT, Instant, State, write_inflight
from tagstream.table.timeline.lease import is_alive
from tagstream.table.write.commit import complete, publish_files
from tagstream.table.write.file_writer import write_new_group
from tagstream.table.write.markers import begin_markers, delete_markers, unstage
from tagstream.table.write.upsert import copied_rows
from tagstream.table.write.write_context import WriteContext, WriterOptions


@dataclass(frozen=True)
class ClusteringTask:
    """The clustering of one group: picklable, and done again with the same result.

    ``context``: the write; its ``task_partition`` is the number of the group in the plan, and its ``as_of`` the newest
    instant whose log blocks count. ``run_id``: tells this execution of the plan from others in file names. ``max_memory``:
    bytes of rows held, what is more lies in temporary files of the machine.
    """

    table: HoodieTable
    context: WriteContext
    group: ClusteringGroup
    sort_columns: tuple[str, ...]
    keeps_meta: bool
    run_id: int
    max_memory: int

    @property
    def weight(self) -> int:
        """What the work is proportional to, compared with other tasks: files that are read."""
        return sum(1 + len(each.log_files) for each in self.group.slices)

    def run(self, attempt: int = 0) -> list[WriteStatus]:
        """Stage the new base files; none where all rows were deleted. ``attempt``: attempts that may run at once (Spark's)
        must have different ones.

        InstantConflictError when the clustering is not inflight any more.
        """
        ctx = replace(self.context, write_token=write_token(self.context.task_partition, self.run_id, attempt))
        schema = ctx.file_schema
        reader = SliceReader(self.table, ctx.timeline, ctx.as_of or ctx.instant, schema, tuple(schema.names))
        with RowKeeper(self.max_memory) as keeper:
            rows = GatheredRows(reader, self.group.slices, self.sort_columns, keeper, self.max_memory)
            parts = min(self.group.outputs, rows.num_rows)
            return [self._write(ctx, rows.part(number, parts), number) for number in range(parts)]

    def _write(self, ctx: WriteContext, rows: Iterator[pa.Table], number: int) -> WriteStatus:
        file_id = new_file_id("clustering", ctx.instant, ctx.task_partition, number)
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


DEFAULT_MEMORY = 1 << 30

Check = Callable[[], None]
Reach = Callable[[str], None]
Execute = Callable[[Sequence[ClusteringTask]], Iterable[WriteStatus]]


@dataclass(frozen=True)
class ClusteringResult:
    """A plan that was carried out: its instant, the completed one, the file groups that are gone, and the new files."""

    instant: str
    completed: Instant
    replaced: dict[str, tuple[str, ...]]
    statuses: tuple[WriteStatus, ...]


def one_by_one(tasks: Sequence[ClusteringTask]) -> Iterator[WriteStatus]:
    """Carry the tasks out here, in their order."""
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
) -> ClusteringResult:
    """Carry out the plan of ``instant``, whoever made it and however far it had come; all steps in one call.

    ``check`` (the lease's) is called before each step that cannot be taken back; ``reach`` is told of the steps
    ``clustering_inflight``, ``clustering_files``, ``clustering_published``, ``metadata_begun``, ``metadata_files``,
    ``metadata_completed`` and ``clustering_completed``. InstantConflictError when it is completed already.
    """
    begin_clustering(table, instant, clock_ms, check, reach)
    tasks = clustering_tasks(table, instant, clock_ms() // 1000 % 2**31, max_memory, files)
    statuses = tuple(execute(tasks))
    reach("clustering_files")
    return complete_clustering(table, instant, statuses, clock_ms, check, reach)


def begin_clustering(
    table: HoodieTable,
    instant: str,
    clock_ms: Callable[[], int],
    check: Check = lambda: None,
    reach: Reach = lambda _: None,
) -> None:
    """Say that the plan is being carried out, once nothing is left of an execution before.

    InstantConflictError when it is completed, is not there, or another process gives signs of carrying it out;
    UnsupportedTableError when the table's records cannot be merged here, CorruptFileError when a file of the plan is not
    there.
    """
    check_mergeable(table)
    plan = read_clustering(table, instant)
    check_pending(table, instant)
    storage, rel = table.storage, _inflight(table, instant)
    if is_alive(storage, instant, clock_ms()):
        raise InstantConflictError(
            f"clustering {instant} of {table.base_path} is being carried out by another process, which beats in "
            ".hoodie/.heartbeat: let it end, or wait until its beats are old"
        )
    _check_files(table, instant, plan)
    check()
    if storage.exists(rel):
        unstage(table, instant, pending_action(table))
        storage.delete_many(new_files(table, instant, plan))
        delete_markers(storage, instant)
    begin_markers(storage, instant)
    claim(storage, instant)
    write_inflight(storage, table.config.timeline_folder, instant, pending_action(table))
    reach("clustering_inflight")


def clustering_tasks(
    table: HoodieTable,
    instant: str,
    run_id: int,
    max_memory: int = DEFAULT_MEMORY,
    files: WriterOptions | None = None,
) -> list[ClusteringTask]:
    """The tasks of a plan that was begun. ``run_id``: 0 or more, other than that of any execution before (seconds do).

    ``files``: how base files are written; what the metadata table asks of them is added here.
    """
    timeline = table.timeline()
    schema_json = table_schema_json(table, timeline)
    schema = avro_to_arrow(schema_json)
    writing = told_to_metadata(table, files or WriterOptions())
    plan, action = read_clustering(table, instant), pending_action(table)
    as_of = newest_before(table, timeline, instant)
    return [
        ClusteringTask(
            table,
            WriteContext(instant, action, number, "", schema, schema_json, as_of, timeline, writing),
            group,
            plan.sort_columns,
            plan.keeps_meta,
            run_id,
            max_memory,
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
    """Publish the staged files and complete the plan.

    InstantConflictError when another process was first, or the plan was taken back: then nothing of these files is left.
    """
    table = table.reload()
    plan, action = read_clustering(table, instant), pending_action(table)
    check()
    try:
        check_pending(table, instant)
        publish_files(table, instant, statuses)
        reach("clustering_published")
        after = tell_metadata(
            table, instant, statuses, clock_ms, check, reach, lambda: new_places(table, instant, statuses)
        )
        timeline = table.timeline()
        extra = {SCHEMA_KEY: table_schema_json(table, timeline), SORTED_BY: ",".join(plan.sort_columns)}
        built = CommitMetadata.build(statuses, {}, extra[SCHEMA_KEY], CLUSTER)
        metadata = CommitMetadata(built.stats, {**built.extra, **extra}, CLUSTER, replaced=plan.replaced)
        # The file that is completed is a replace commit's, whatever the plan is called.
        completed = complete(table, instant, action, metadata, check, clock_ms, after)
    except InstantConflictError:
        withdraw(table, instant, action, statuses)
        raise
    reach("clustering_completed")
    return ClusteringResult(instant, completed, plan.replaced, tuple(statuses))


def new_files(table: HoodieTable, instant: str, plan: ClusteringPlan) -> list[str]:
    """Paths of the base files of this instant that are there in the plan's partitions."""
    found = []
    for partition in sorted(plan.replaced):
        for name in table.storage.names(partition):
            base = parse_base_file_name(name)
            if base is not None and base.instant == instant:
                found.append(join(partition, name))
    return found


def _check_files(table: HoodieTable, instant: str, plan: ClusteringPlan) -> None:
    """CorruptFileError when a file that the plan names is not there, InstantConflictError when its group was replaced."""
    timeline = table.timeline()
    for partition in sorted(plan.replaced):
        there = frozenset(table.storage.names(partition))
        for each in (s for group in plan.groups for s in group.slices if s.partition_path == partition):
            if (partition, each.file_id) in timeline.replaced:
                raise InstantConflictError(
                    f"clustering {instant} of {table.base_path} is to replace file group {each.file_id} of partition "
                    f"{partition!r}, which is replaced already: take the plan back"
                )
            names = [*([each.base_file.name] if each.base_file else []), *(log.name for log in each.log_files)]
            missing = [name for name in names if name not in there]
            if missing:
                raise CorruptFileError(
                    f"{table.storage.where(join(partition, missing[0]))} is missing, which the clustering {instant} is to "
                    "read: restore the file, or take the plan back"
                )


def check_pending(table: HoodieTable, instant: str) -> None:
    """InstantConflictError when the clustering is completed, UnsupportedTableError when the instant is something else."""
    found = table.timeline().find(instant)
    if found is not None and found.is_completed:
        raise InstantConflictError(
            f"clustering {instant} of {table.base_path} is completed already: another run carried it out"
        )
    if found is None or found.action not in (pending_action(table), REPLACE_COMMIT):
        raise UnsupportedTableError(f"instant {instant} of {table.base_path} is no pending clustering")


def _inflight(table: HoodieTable, instant: str) -> str:
    return f"{table.config.timeline_folder}/{Instant(instant, pending_action(table), State.INFLIGHT).file_name()}"


def rollback_clustering(
    table: HoodieTable, instant: str, rollback_instant: str, check: Callable[[], None] = lambda: None
) -> RollbackResult:
    """Take the clustering back, as a rollback action, however far its execution has come.

    InstantConflictError when it is completed or is none.
    """

    def base_files(table: HoodieTable, failed: Instant) -> list[RollbackRequest]:
        found = []
        for rel in new_files(table, failed.time, read_clustering(table, failed.time)):
            partition, _, name = rel.rpartition("/")
            parsed = parse_base_file_name(name)
            found.append(RollbackRequest(partition, parsed.file_id if parsed else "", failed.time, files=(rel,)))
        return found

    check()
    return roll_back_clustering(table, instant, rollback_instant, base_files)


def unschedule_clustering(
    table: HoodieTable,
    instant: str,
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
) -> None:
    """Remove the plan ``instant`` from the timeline as if it had never been made, with the files that tasks have staged.

    For the process that carries it out, before it publishes any: then no reader, and no metadata table, knows of the plan
    but by its name. Cut off in between, a plan is left that is not begun. ``reach`` is told of ``clustering_stopped``, when
    that is so. InstantConflictError when it is completed, or files of it are there: :func:`rollback_clustering` takes these.
    """
    check_pending(table, instant)
    published = new_files(table, instant, read_clustering(table, instant))
    if published:
        raise InstantConflictError(
            f"{table.storage.where(published[0])} is there already: clustering {instant} must be rolled back"
        )
    folder, action = table.config.timeline_folder, pending_action(table)
    check()
    table.storage.delete(f"{folder}/{Instant(instant, action, State.INFLIGHT).file_name()}")
    unstage(table, instant, action)
    reach("clustering_stopped")
    table.storage.delete(f"{folder}/{Instant(instant, action, State.REQUESTED).file_name()}")
    delete_markers(table.storage, instant)
