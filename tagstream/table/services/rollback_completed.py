"""Rollback of the newest completed write of a table.

1. A metadata table that has compacted its entries of the write is dropped: those cannot be rolled back. Pending
   cleans are withdrawn.
2. ``R.rollback.requested`` holds the plan.
3. The write's completed file is removed. From here on it is a failed write with a pending rollback.
4. That rollback is executed like any other (``rollback``).

After an interruption after step 2, the next call or a job's next start continues by the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tagstream.table.errors import InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.names import file_id_of, join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.metadata.rollback import is_irreversible
from tagstream.table.services.cleaning import withdraw_cleans
from tagstream.table.services.failed_writes import RollbackRequest, plan_record
from tagstream.table.services.pending_clean import gone_files, pending_plans
from tagstream.table.services.restore import without
from tagstream.table.services.retention import Later, completed_at, missing, newest_files, superseded
from tagstream.table.services.rollback import OF_COMPLETED, RollbackResult, carry_out, resume_rollbacks, undo_requests
from tagstream.table.steps import Step
from tagstream.table.timeline.avro_timeline import ROLLBACK_PLAN, write_record
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import ROLLBACK, SAVEPOINT, Instant, State
from tagstream.table.timeline.timeline import Timeline


@dataclass(frozen=True)
class RollbackPlan:
    """``requests``: the steps; ``drops_metadata``: whether the metadata table must be dropped."""

    instant: Instant
    requests: tuple[RollbackRequest, ...]
    drops_metadata: bool


def plan_rollback_completed(table: HoodieTable, time: str) -> RollbackPlan:
    """The plan for the completed write ``time``. Nothing is changed.

    InstantConflictError if it is not the newest, is unfinished or archived, another action is pending, a savepoint
    keeps it, a clean has deleted the earlier slices, or archived writes would be left without a newer one;
    UnsupportedTableError for a compaction.
    """
    timeline = table.timeline()
    where = f"write {time} of table {table.base_path}"
    found = timeline.find(time)
    if found is None or not found.is_completed:
        raise InstantConflictError(
            f"{where} is not completed, or not on the active timeline: there is nothing to roll back"
        )
    newest = timeline.newest_completed
    if newest != time:
        raise InstantConflictError(
            f"{where} is older than {newest}: roll back that one first, or restore to a savepoint"
        )
    pending = next((i for i in timeline.pending if i.is_write), None)
    if pending is not None:
        raise InstantConflictError(
            f"{where} cannot be rolled back while {pending.action} {pending.time} is pending: let it complete"
        )
    end = completed_at(found)
    saved = next(
        (i.time for i in timeline.instants if i.action == SAVEPOINT and timeline.completion_time(i.time) >= end), None
    )
    if saved is not None:
        raise InstantConflictError(f"{where} is kept by savepoint {saved}: delete the savepoint first")
    metadata = timeline.metadata(table.storage, found)
    if metadata.is_compaction:
        raise UnsupportedTableError(
            f"{where} is a compaction, which does not change rows: restore to a savepoint before it"
        )
    _check_archive(table, timeline, time)
    _check_before(table, timeline, found, metadata)
    return RollbackPlan(found, tuple(undo_requests(table, metadata, {time})), _is_compacted(table, time))


def rollback_completed(
    table: HoodieTable,
    time: str,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
) -> RollbackResult:
    """Roll back the newest completed write; errors as of ``plan_rollback_completed``. An interrupted rollback is
    finished.

    ``reach`` is called at the steps ``metadata_dropped``, ``rollback_requested``, ``rollback_uncompleted`` and
    ``rollback_completed``.
    """
    check()
    resumed = next((done for done in resume_rollbacks(table) if done.failed == time), None)
    if resumed is not None:
        return resumed
    plan = plan_rollback_completed(table, time)
    if plan.drops_metadata:
        check()
        table.drop_metadata_table(clock_ms())
        table = table.reload()
        reach(Step.METADATA_DROPPED)
    withdraw_cleans(table, clock_ms, check)  # a slice that is old with this write may be the newest without it
    instant = fresh_times(table, MetadataWriter.open(table), clock_ms)()
    folder, requests = table.config.timeline_folder, list(plan.requests)
    content = write_record(ROLLBACK_PLAN, plan_record(table, plan.instant, requests), {OF_COMPLETED: "true"})
    check()
    table.storage.write_new(f"{folder}/{Instant(instant, ROLLBACK, State.REQUESTED).file_name()}", content)
    reach(Step.ROLLBACK_REQUESTED)
    check()
    table.storage.delete(f"{folder}/{plan.instant.file_name()}")
    reach(Step.ROLLBACK_UNCOMPLETED)
    result = carry_out(table, Instant(time, plan.instant.action, State.INFLIGHT), instant, requests)
    reach(Step.ROLLBACK_COMPLETED)
    return result


def _check_archive(table: HoodieTable, timeline: Timeline, time: str) -> None:
    """Archived writes count as long as a newer write is on the active timeline."""
    rest = replace(timeline, instants=tuple(i for i in timeline.instants if i.time != time))
    newest = next(table.archived_writes(), None)
    if newest is not None and not rest.is_archived(newest.time):
        raise InstantConflictError(
            f"write {time} of table {table.base_path} cannot be rolled back: {newest.time} is archived, and would no "
            f"longer count without a newer write on the active timeline; delete its rows with a write"
        )


def _check_before(table: HoodieTable, timeline: Timeline, write: Instant, metadata: CommitMetadata) -> None:
    """The slices that the write has replaced must still exist with all their files."""
    time = write.time
    where = f"write {time} of table {table.base_path} cannot be rolled back"
    wanted = superseded([Later(time, metadata)])
    earlier = (i for i in sorted(timeline.completed_writes, key=completed_at, reverse=True) if i.time != time)
    newest = newest_files(wanted, (timeline.metadata(table.storage, i) for i in earlier))
    gone = missing(without(table.view(timeline), (write,)), wanted, newest)
    if gone is not None:
        raise InstantConflictError(f"{where}: a clean has deleted the slice before it, {gone}")
    for instant, plan in pending_plans(table, timeline).items():
        for partition, names in gone_files(table, plan).items():
            deleted = next((name for name in names if (partition, file_id_of(name)) in wanted), None)
            if deleted is not None:
                raise InstantConflictError(
                    f"{where}: the clean {instant} is being executed and has deleted {join(partition, deleted)}; "
                    f"complete it with `tagstream table clean`, then try again with --dry-run"
                )


def _is_compacted(table: HoodieTable, time: str) -> bool:
    writer = MetadataWriter.open(table)
    return writer is not None and is_irreversible(writer, time)
