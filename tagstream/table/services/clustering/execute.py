"""A clustering's plan carried out: any plan, ours or Hudi's, with exactly its groups and files.

1. ``begin_clustering``: the inflight file; what a dead execution has left is removed first.
2. The tasks of ``clustering_tasks`` stage new base files, here or elsewhere, in any order.
3. ``complete_clustering``: the files get their names, the metadata table is told of them and of where the keys are now,
   and the replace commit appears, which names the old file groups.

Cut off anywhere, the same calls do it again from the start: a reader counts none of the new files before 3 has ended. The
old files stay until they are cleaned. The plan stays, too; only one process may carry it out, the one with the lease, and
nobody may write to the plan's file groups meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tagstream.table.errors import CorruptFileError, InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.names import parse_base_file_name
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import check_mergeable
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.services.clustering.groups import ClusteringPlan, pending_action, read_clustering
from tagstream.table.services.clustering.task import ClusteringTask
from tagstream.table.services.clustering.trigger import SORTED_BY
from tagstream.table.services.compaction.claim import claim
from tagstream.table.services.compaction.execute import newest_before, table_schema_json, withdraw
from tagstream.table.services.compaction.in_metadata import new_places, tell_metadata, told_to_metadata
from tagstream.table.timeline.begin import write_inflight
from tagstream.table.timeline.commit_metadata import SCHEMA_KEY, CommitMetadata
from tagstream.table.timeline.heartbeat import is_alive
from tagstream.table.timeline.instant import REPLACE_COMMIT, Instant, State
from tagstream.table.timeline.plans import CLUSTER
from tagstream.table.timeline.write_status import WriteStatus
from tagstream.table.write.commit import complete, publish_files
from tagstream.table.write.markers import begin_markers, delete_markers
from tagstream.table.write.staged import unstage
from tagstream.table.write.write_context import WriteContext, WriterOptions

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
