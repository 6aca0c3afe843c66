"""A compaction's plan, ours or Hudi's, carried out with exactly its operations and files; or taken back.

1. ``begin_compaction``: ``T.compaction.inflight``; what a dead execution has left is removed first.
2. The tasks of ``compaction_tasks`` stage one new base file each, here or in another process, in any order.
3. ``complete_compaction``: the files get their names and go into the metadata table, ``T.commit`` appears.

If it is cut off, the same calls do it again from the start: a reader counts none of the new files before 3 has
ended, and the old slices stay until they are cleaned. The plan stays, too. Only the process with the lease may
carry it out. Writes may continue during 2. A commit of the same process must not happen during 1 or 3: both look
at the timeline, and both write to the metadata table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tagstream.table.errors import InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.names import join, list_partitions, parse_base_file_name, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import check_mergeable
from tagstream.table.read.snapshot import stored_schema
from tagstream.table.schema.schema import arrow_to_avro, avro_json, avro_to_arrow, user_schema
from tagstream.table.services.compaction_plan import claim
from tagstream.table.services.compaction_task import CompactionTask, inputs_of
from tagstream.table.services.failed_writes import RollbackRequest
from tagstream.table.services.metadata_changes import tell_metadata, told_to_metadata
from tagstream.table.services.options import CompactionOptions
from tagstream.table.services.planned import Operation, read_operations
from tagstream.table.services.rollback import RollbackResult, roll_back_execution
from tagstream.table.timeline.commit_metadata import CommitMetadata, WriteStatus
from tagstream.table.timeline.instant import COMPACTION, Instant, State, write_inflight
from tagstream.table.timeline.lease import is_alive
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.commit import complete, publish_files
from tagstream.table.write.markers import begin_markers, delete_markers, unstage
from tagstream.table.write.write_context import WriteContext, WriterOptions

COMPACT = "COMPACT"

Check = Callable[[], None]
Reach = Callable[[str], None]
Execute = Callable[[Sequence[CompactionTask]], Iterable[WriteStatus]]


@dataclass(frozen=True)
class CompactionResult:
    """A plan that was carried out: its instant, the completed one, and the status of each new base file.

    ``passed_over``: operations whose files were replaced or rolled back since the plan was made.
    """

    instant: str
    completed: Instant
    statuses: tuple[WriteStatus, ...]
    passed_over: int = 0


def one_by_one(tasks: Sequence[CompactionTask]) -> Iterator[WriteStatus]:
    """Carry the tasks out here, in their order."""
    return (task.run() for task in tasks)


def compact(
    table: HoodieTable,
    instant: str,
    clock_ms: Callable[[], int],
    check: Check = lambda: None,
    reach: Reach = lambda _: None,
    execute: Execute = one_by_one,
    options: CompactionOptions | None = None,
    files: WriterOptions | None = None,
) -> CompactionResult:
    """Carry out the plan of ``instant``, whoever made it and however far it had come; all steps in one call.

    ``check`` (the lease's) is called before each step that cannot be taken back; ``reach`` is told of the steps
    ``compaction_inflight``, ``compaction_files``, ``compaction_published``, ``metadata_begun``, ``metadata_files``,
    ``metadata_completed`` and ``compaction_completed``. InstantConflictError when it is completed already.
    """
    begin_compaction(table, instant, clock_ms, check, reach)
    run_id = clock_ms() // 1000 % 2**31
    tasks = compaction_tasks(table, instant, run_id, options, files)
    statuses = tuple(execute(tasks))
    reach("compaction_files")
    completed = complete_compaction(table, instant, statuses, clock_ms, check, reach)
    return CompactionResult(instant, completed, statuses, len(read_operations(table, instant)) - len(tasks))


def begin_compaction(
    table: HoodieTable,
    instant: str,
    clock_ms: Callable[[], int],
    check: Check = lambda: None,
    reach: Reach = lambda _: None,
) -> None:
    """Say that the plan is being carried out, once nothing is left of an execution before.

    InstantConflictError when it is completed, is not there, or another process gives signs of carrying it out;
    UnsupportedTableError when the table's records cannot be merged here.
    """
    check_mergeable(table)
    operations = read_operations(table, instant)
    check_pending(table, instant)
    storage, rel = table.storage, _inflight(table, instant)
    if is_alive(storage, instant, clock_ms()):
        raise InstantConflictError(
            f"compaction {instant} of {table.base_path} is being carried out by another process, which beats in "
            ".hoodie/.heartbeat: let it end, or wait until its beats are old"
        )
    check()
    if storage.exists(rel):
        unstage(table, instant, COMPACTION)
        storage.delete_many(base_files_of(table, instant, operations))
        delete_markers(storage, instant)
    begin_markers(storage, instant)
    claim(storage, instant)
    write_inflight(storage, table.config.timeline_folder, instant, COMPACTION)
    reach("compaction_inflight")


def compaction_tasks(
    table: HoodieTable,
    instant: str,
    run_id: int,
    options: CompactionOptions | None = None,
    files: WriterOptions | None = None,
) -> list[CompactionTask]:
    """The tasks of a plan that was begun. ``run_id``: 0 or more, other than that of any execution before (seconds do).

    ``files``: how base files are written; what the metadata table asks of them is added here.
    """
    timeline = table.timeline()
    schema_json = table_schema_json(table, timeline)
    schema = avro_to_arrow(schema_json)
    writing = told_to_metadata(table, files or WriterOptions())
    inputs = inputs_of(table, timeline, instant, read_operations(table, instant))
    as_of = newest_before(table, timeline, instant)
    max_memory = (options or CompactionOptions()).max_memory
    return [
        CompactionTask(
            table,
            WriteContext(instant, COMPACTION, number, "", schema, schema_json, as_of, timeline, writing),
            each,
            run_id,
            max_memory,
        )
        for number, each in enumerate(inputs)
    ]


def complete_compaction(
    table: HoodieTable,
    instant: str,
    statuses: Sequence[WriteStatus],
    clock_ms: Callable[[], int],
    check: Check = lambda: None,
    reach: Reach = lambda _: None,
) -> Instant:
    """Publish the staged files and complete the plan; the completed instant.

    InstantConflictError when another process was first: then nothing of these files is left.
    """
    table = table.reload()
    check()
    try:
        check_pending(table, instant)
        publish_files(table, instant, statuses)
        reach("compaction_published")
        after = tell_metadata(table, instant, statuses, clock_ms, check, reach)
        schema_json = table_schema_json(table, table.timeline())
        metadata = replace(CommitMetadata.build(statuses, {}, schema_json, COMPACT), compacted=True)
        completed = complete(table, instant, COMPACTION, metadata, check, clock_ms, after)
    except InstantConflictError:
        withdraw(table, instant, COMPACTION, statuses)
        raise
    reach("compaction_completed")
    return completed


def base_files_of(table: HoodieTable, instant: str, operations: Iterable[Operation]) -> list[str]:
    """Paths of the base files of this instant that are there in the operations' file groups."""
    wanted: dict[str, set[str]] = {}
    for operation in operations:
        wanted.setdefault(operation.partition_path, set()).add(operation.file_id)
    found = []
    for partition, file_ids in sorted(wanted.items()):
        for name in table.storage.names(partition):
            base = parse_base_file_name(name)
            if base is not None and base.instant == instant and base.file_id in file_ids:
                found.append(join(partition, name))
    return found


def table_schema_json(table: HoodieTable, timeline: Timeline) -> str:
    """The table's Avro schema as of now: rows of older files get nulls for columns that came since."""
    told = table.schema_json(timeline)
    if told is not None:
        return told
    found = user_schema(stored_schema(table, timeline, table.view(timeline)))
    return avro_json(arrow_to_avro(found, table.config.name))


def newest_before(table: HoodieTable, timeline: Timeline, instant: str) -> str:
    """The newest instant whose log blocks count: up to version 7 a log file may have later ones than the plan knew."""
    if table.config.names_logs_by_commit:
        return instant
    return max((i.time for i in timeline.completed_writes if i.time < instant), default=instant)


def check_pending(table: HoodieTable, instant: str) -> None:
    """InstantConflictError when the compaction is completed, UnsupportedTableError when the instant is something else."""
    found = table.timeline().find(instant)
    if found is not None and found.is_completed:
        raise InstantConflictError(
            f"compaction {instant} of {table.base_path} is completed already: another run carried it out"
        )
    if found is None or found.action != COMPACTION:
        raise UnsupportedTableError(f"instant {instant} of {table.base_path} is no pending compaction")


def withdraw(table: HoodieTable, instant: str, action: str, statuses: Sequence[WriteStatus]) -> None:
    """Another process completed the plan: what this one has staged and published goes, but for files that count.

    A second base file of one instant is more than some readers bear. ``action``: of the plan's inflight file.
    """
    timeline = table.timeline()
    found = timeline.find(instant)
    unstage(table, instant, action)
    kept = set()
    if found is not None and found.is_completed:
        kept = {stat.path for stat in timeline.metadata(table.storage, found).all_stats()}
    table.storage.delete_many(s.stat.path for s in statuses if s.stat.path not in kept)
    delete_markers(table.storage, instant)


def _inflight(table: HoodieTable, instant: str) -> str:
    return f"{table.config.timeline_folder}/{Instant(instant, COMPACTION, State.INFLIGHT).file_name()}"


def rollback_compaction(
    table: HoodieTable, instant: str, rollback_instant: str, check: Callable[[], None] = lambda: None
) -> RollbackResult:
    """Take back what an execution of the plan ``instant`` wrote, as a rollback action; the plan stays to be executed.

    Needed only where the plan is not to be executed soon: another execution removes what the one before has left by itself.
    Log files stay: up to version 7 those that are named by the plan hold later writes. InstantConflictError when the plan is
    not being executed, or is completed.
    """

    def base_files(table: HoodieTable, failed: Instant) -> list[RollbackRequest]:
        found = []
        for rel in base_files_of(table, failed.time, read_operations(table, failed.time)):
            partition, _, name = rel.rpartition("/")
            parsed = parse_base_file_name(name)
            found.append(RollbackRequest(partition, parsed.file_id if parsed else "", failed.time, files=(rel,)))
        return found

    check()
    return roll_back_execution(table, instant, rollback_instant, base_files)


def unschedule_compaction(table: HoodieTable, instant: str, check: Callable[[], None] = lambda: None) -> None:
    """Remove the plan ``instant`` from the timeline, as if it had never been made.

    InstantConflictError when it is being executed (see :func:`rollback_compaction`) or completed, and up to version 7 when a
    log file has been written since that is named by the plan: its slice would lose its place.
    """
    operations = read_operations(table, instant)
    check_pending(table, instant)
    folder = table.config.timeline_folder
    if table.storage.exists(f"{folder}/{Instant(instant, COMPACTION, State.INFLIGHT).file_name()}"):
        raise InstantConflictError(
            f"compaction {instant} of {table.base_path} is being executed, or its execution died: roll that back first"
        )
    if not table.config.names_logs_by_commit:
        partitions = {operation.partition_path for operation in operations} & set(list_partitions(table.storage))
        for partition in sorted(partitions):
            for name in table.storage.names(partition):
                log = parse_log_file_name(name)
                if log is not None and log.base_instant == instant:
                    raise InstantConflictError(
                        f"compaction {instant} of {table.base_path} cannot be taken from the timeline: "
                        f"{table.storage.where(partition)}/{name} was written beside it, and is named by it; execute it"
                    )
    check()
    table.storage.delete(f"{folder}/{Instant(instant, COMPACTION, State.REQUESTED).file_name()}")
