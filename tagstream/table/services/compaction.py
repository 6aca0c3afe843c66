"""A compaction's plan of this project or of Hudi, executed with exactly its operations and files; or rolled back.

1. ``begin_compaction``: ``T.compaction.inflight``; files of a dead execution are removed first.
2. The tasks of ``compaction_tasks`` each write one new base file under a temporary name, in this or another process, in
any order. 3. ``complete_compaction``: the files get their final names, the metadata table gets the files, and
``T.commit`` is written.

After an interruption the same calls start again: a reader sees none of the new files before the end of step 3. The old
slices are kept until they are cleaned, and the plan is kept, too. Only the process with the lease may execute it.
Writes may continue during step 2. The same process must not commit during steps 1 and 3: both read the timeline, and
both write to the metadata table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tagstream.table.errors import InstantConflictError
from tagstream.table.file_group.names import list_partitions, parse_log_file_name
from tagstream.table.locks.lock import Hold, no_lock
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import check_mergeable
from tagstream.table.services.compaction_task import CompactionTask, inputs_of
from tagstream.table.services.failed_writes import RollbackRequest
from tagstream.table.services.options import CompactionOptions
from tagstream.table.services.planned import (
    Check,
    Reach,
    Service,
    begin,
    check_pending,
    complete_plan,
    plan_file,
    rollback_requests,
    write_context,
)
from tagstream.table.services.plans import Operation, read_operations
from tagstream.table.services.rollback import RollbackResult, roll_back_execution
from tagstream.table.steps import Step
from tagstream.table.timeline.commit_metadata import CommitMetadata, WriteStatus
from tagstream.table.timeline.instant import COMPACTION, Instant, State
from tagstream.table.timeline.operation import WriteOperationType
from tagstream.table.write.write_context import WriterOptions

_SERVICE = Service(
    "compaction",
    (COMPACTION,),
    inflight=Step.COMPACTION_INFLIGHT,
    published=Step.COMPACTION_PUBLISHED,
    completed=Step.COMPACTION_COMPLETED,
)

Execute = Callable[[Sequence[CompactionTask]], Iterable[WriteStatus]]


@dataclass(frozen=True)
class CompactionResult:
    """An executed plan: its instant, the completed one, and the status of each new base file.

    ``passed_over``: operations that were skipped because their files were replaced or rolled back after the plan was
    made.
    """

    instant: str
    completed: Instant
    statuses: tuple[WriteStatus, ...]
    passed_over: int = 0


def one_by_one(tasks: Sequence[CompactionTask]) -> Iterator[WriteStatus]:
    """Run the tasks in this process, in their order."""
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
    hold: Hold = no_lock,
) -> CompactionResult:
    """Execute the plan of ``instant`` of any writer, from any state; all steps in one call.

    ``check`` (the lease's) is called before each step that cannot be undone; ``reach`` is called at the steps
    ``compaction_inflight``, ``compaction_files``, ``compaction_published``, ``metadata_begun``, ``metadata_files``,
    ``metadata_completed`` and ``compaction_completed``. InstantConflictError when it is completed already.
    ``hold`` holds the table's lock for the last step.
    """
    begin_compaction(table, instant, clock_ms, check, reach)
    run_id = clock_ms() // 1000 % 2**31
    tasks = compaction_tasks(table, instant, run_id, options, files)
    statuses = tuple(execute(tasks))
    reach(Step.COMPACTION_FILES)
    with hold(f"compaction {instant}"):
        completed = complete_compaction(table, instant, statuses, clock_ms, check, reach)
    return CompactionResult(instant, completed, statuses, len(read_operations(table, instant)) - len(tasks))


def begin_compaction(
    table: HoodieTable,
    instant: str,
    clock_ms: Callable[[], int],
    check: Check = lambda: None,
    reach: Reach = lambda _: None,
) -> None:
    """Write the inflight file after the files of an earlier execution are removed.

    InstantConflictError when it is completed or missing, or another process seems to execute it; UnsupportedTableError
    when this version cannot merge the table's records.
    """
    check_mergeable(table)
    begin(table, instant, _SERVICE, groups_of(read_operations(table, instant)), clock_ms, check, reach)


def compaction_tasks(
    table: HoodieTable,
    instant: str,
    run_id: int,
    options: CompactionOptions | None = None,
    files: WriterOptions | None = None,
) -> list[CompactionTask]:
    """The tasks of an inflight plan. ``run_id``: 0 or more, and different from that of earlier executions (seconds will
    do).

    ``files``: how base files are written; the metadata table's needs are added here.
    """
    context = write_context(table, instant, COMPACTION, files)
    inputs = inputs_of(table, context.timeline, instant, read_operations(table, instant))
    max_memory = (options or CompactionOptions()).max_memory
    return [
        CompactionTask(table, replace(context, task_partition=number), each, run_id, max_memory)
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
    """Give the files their final names and complete the plan; the completed instant.

    InstantConflictError when another process was first: then these files are removed.
    """

    def metadata(schema_json: str) -> CommitMetadata:
        return replace(CommitMetadata.build(statuses, {}, schema_json, WriteOperationType.COMPACT), compacted=True)

    return complete_plan(table.reload(), instant, _SERVICE, statuses, metadata, clock_ms, check, reach)


def groups_of(operations: Iterable[Operation]) -> dict[str, frozenset[str]]:
    """The file ids of the operations by partition path."""
    found: dict[str, set[str]] = {}
    for operation in operations:
        found.setdefault(operation.partition_path, set()).add(operation.file_id)
    return {partition: frozenset(ids) for partition, ids in found.items()}


def rollback_compaction(
    table: HoodieTable, instant: str, rollback_instant: str, check: Callable[[], None] = lambda: None
) -> RollbackResult:
    """Roll back the files of an execution of the plan ``instant`` with a rollback action; the plan is kept for
    execution.

    Needed only if the plan will not be executed soon: the next execution itself removes these files. Log files are
    kept: up to version 7 the log files named after the plan have later writes. InstantConflictError when the plan is
    not being executed, or is completed.
    """

    def requests(table: HoodieTable, failed: Instant) -> list[RollbackRequest]:
        return rollback_requests(table, failed.time, groups_of(read_operations(table, failed.time)))

    check()
    return roll_back_execution(table, instant, rollback_instant, requests)


def unschedule_compaction(table: HoodieTable, instant: str, check: Callable[[], None] = lambda: None) -> None:
    """Remove the plan ``instant`` from the timeline.

    InstantConflictError when it is being executed (see :func:`rollback_compaction`) or completed, and up to version 7
    when a later log file is named after the plan: its slice would no longer exist.
    """
    operations = read_operations(table, instant)
    check_pending(table, instant, _SERVICE)
    if table.storage.exists(plan_file(table, instant, _SERVICE, State.INFLIGHT)):
        raise InstantConflictError(
            f"compaction {instant} of {table.base_path} is being executed, or its execution died: roll back the "
            f"execution first"
        )
    if not table.config.names_logs_by_commit:
        partitions = {operation.partition_path for operation in operations} & set(list_partitions(table.storage))
        for partition in sorted(partitions):
            for name in table.storage.names(partition):
                log = parse_log_file_name(name)
                if log is not None and log.base_instant == instant and not log.is_cdc:
                    raise InstantConflictError(
                        f"compaction {instant} of {table.base_path} cannot be removed from the timeline: "
                        f"{table.storage.where(partition)}/{name} was written later and is named after it; execute "
                        f"the plan"
                    )
    check()
    table.storage.delete(plan_file(table, instant, _SERVICE, State.REQUESTED))
