"""Cleaning of a table: ``schedule_clean`` writes a plan (``cleaning_plan``), ``execute_clean`` executes it.

1. ``T.clean.requested`` has the plan, ``T.clean.inflight`` says that it is being executed (up to version 7 it has the
plan, too). 2. The files are deleted. A missing file is not an error, so this step may be repeated. 3. The metadata
table is updated. 4. ``T.clean`` completes.

A plan of any writer on the timeline is checked again (``pending_clean``) and executed before a new plan is made.
Planning and completing need the writer lease. Another process may delete the files while batches continue: batches do
not read or write the slices in a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tagstream.table.errors import InstantConflictError
from tagstream.table.file_group.names import METAFILE_NAMES, join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.changes import Changes, PartitionChange
from tagstream.table.metadata.delta_commit import delta_commit
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.services.cleaning_plan import SAVEPOINTED, data_files, plan_table
from tagstream.table.services.metadata_changes import range_columns
from tagstream.table.services.options import CleanOptions
from tagstream.table.services.pending_clean import (
    StoredPlan,
    done_bytes,
    gone_files,
    pending_plans,
    plan_bytes,
    read_plan,
    recheck,
    reduced,
    remove_plan,
)
from tagstream.table.steps import Step
from tagstream.table.timeline.instant import CLEAN, Instant, State, write_inflight
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.commit import completed_instant


@dataclass(frozen=True)
class CleanResult:
    """``instants``: the completed cleans, oldest first. ``deleted``: paths of the files; ``partitions``: those deleted
    with their folders; ``earliest``: the earliest retained commit, None if the policy has none."""

    instants: tuple[str, ...]
    deleted: tuple[str, ...]
    partitions: tuple[str, ...]
    earliest: str | None


def clean(
    table: HoodieTable,
    options: CleanOptions,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
    timeline: Timeline | None = None,
) -> CleanResult | None:
    """Execute the plans of any writer on the timeline, then a clean that is due now; None if there was nothing to do.

    The caller has the writer lease, and ``check`` raises when the lease is lost. ``reach`` is called at the steps
    ``clean_requested``, ``clean_inflight``, ``clean_deleted``, ``metadata_begun``, ``metadata_files``,
    ``clean_metadata`` and ``clean_completed``. ``timeline``: the present one; None: it is read.
    """
    timeline = timeline if timeline is not None else table.timeline()
    pending = pending_cleans(timeline)
    done = [execute_clean(table, instant, clock_ms, check, reach) for instant in pending]
    planned = schedule_clean(table, options, clock_ms, check, reach, None if pending else timeline)
    if planned is not None:
        done.append(execute_clean(table, planned, clock_ms, check, reach))
    found = [result for result in done if result is not None]
    if not found:
        return None
    return CleanResult(
        tuple(time for result in found for time in result.instants),
        tuple(path for result in found for path in result.deleted),
        tuple(path for result in found for path in result.partitions),
        found[-1].earliest,
    )


def pending_cleans(timeline: Timeline) -> tuple[str, ...]:
    """The instants of pending plans, oldest first."""
    return tuple(i.time for i in timeline.pending if i.action == CLEAN)


def schedule_clean(
    table: HoodieTable,
    options: CleanOptions,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
    timeline: Timeline | None = None,
) -> str | None:
    """Write a plan if a clean is due and has something to do; its instant. None also while another clean is pending.

    ``timeline``: the present one; None: it is read.
    """
    timeline = timeline if timeline is not None else table.timeline()
    if pending_cleans(timeline):
        return None
    plan = plan_table(table, options, clock_ms(), timeline=timeline)
    if plan is None:
        return None
    writer = MetadataWriter.open(table)
    instant = fresh_times(table, writer, clock_ms)()
    rel = table.instant_path(Instant(instant, CLEAN, State.REQUESTED))
    check()
    try:
        table.storage.write_new(rel, plan_bytes(table.storage, plan))
    except FileExistsError:
        raise InstantConflictError(
            f"{table.storage.where(rel)} exists already: another writer works on the table, and only one may"
        ) from None
    reach(Step.CLEAN_REQUESTED)
    return instant


def execute_clean(
    table: HoodieTable,
    instant: str,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
) -> CleanResult | None:
    """Execute the plan of ``instant``, or the rest of it; None when nothing is left to do."""
    planned = begin_clean(table, instant, check, reach)
    if planned is None:
        return None
    check()
    delete_files(table, planned)
    reach(Step.CLEAN_DELETED)
    return complete_clean(table, instant, planned, clock_ms, check, reach)


def begin_clean(
    table: HoodieTable,
    instant: str,
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
) -> StoredPlan | None:
    """Write to the timeline that a plan is being executed; the part of it that may be executed (``again``).

    None: it is completed, or no part of it may be executed, or it is an empty file; then its timeline files are
    removed.
    """
    storage = table.storage
    requested = table.instant_path(Instant(instant, CLEAN, State.REQUESTED))
    timeline = table.timeline()
    if instant not in pending_cleans(timeline):
        return None
    # A Hudi writer that died between creating the file and writing to it leaves an empty file. A process that was
    # killed right after it began a plan leaves an inflight file without a plan.
    try:
        data = storage.read(requested)
    except FileNotFoundError:
        data = b""
    plan = recheck(table, instant, read_plan(data, storage.where(requested)), timeline) if data else None
    if plan is None:
        check()
        remove_plan(table, instant)
        return None
    content = b"" if table.config.has_completion_times else data
    write_inflight(storage, table.config.timeline_folder, instant, CLEAN, content, check)
    reach(Step.CLEAN_INFLIGHT)
    return plan


def withdraw_cleans(
    table: HoodieTable, clock_ms: Callable[[], int], check: Callable[[], None] = lambda: None
) -> tuple[str, ...]:
    """Remove every pending plan from the timeline before the table is restored; their instants.

    An inflight plan is completed with the files that are already deleted, because the metadata table must forget them.
    """
    plans = pending_plans(table, table.timeline())
    for instant, plan in plans.items():
        gone = reduced(plan, gone_files(table, plan), plan.extra.get(SAVEPOINTED, ""))
        check()
        if gone is None:
            remove_plan(table, instant)
        else:
            complete_clean(table, instant, gone, clock_ms, check)
    return tuple(plans)


def delete_files(table: HoodieTable, plan: StoredPlan) -> None:
    """Delete the files that a plan names; needs no lease, and may be repeated."""
    table.storage.delete_many(join(partition, name) for partition, names in plan.files.items() for name in names)


def complete_clean(
    table: HoodieTable,
    instant: str,
    plan: StoredPlan,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
) -> CleanResult | None:
    """Update the metadata table, and complete the action; None when another process has completed it in the
    meantime."""
    check()
    partitions = _delete_partitions(table, plan)
    writer = MetadataWriter.open(table)
    after = None
    if writer is not None:
        gone = {path: PartitionChange(deleted=names) for path, names in plan.files.items()}
        changes = Changes(gone, deleted_partitions=partitions, columns=range_columns(writer))
        times = fresh_times(table, writer, clock_ms)
        after = delta_commit(writer, instant, changes, times, reach, check=check).completion_time
        reach(Step.CLEAN_METADATA)
    check()
    try:
        done = completed_instant(table, Instant(instant, CLEAN, State.INFLIGHT), clock_ms(), after)
        table.storage.write_new(table.instant_path(done), done_bytes(instant, plan, partitions, 0))
    except FileExistsError:
        return None
    reach(Step.CLEAN_COMPLETED)
    deleted = tuple(join(partition, name) for partition, names in plan.files.items() for name in names)
    return CleanResult((instant,), deleted, partitions, plan.earliest)


def _delete_partitions(table: HoodieTable, plan: StoredPlan) -> tuple[str, ...]:
    """Delete the folders of the plan's partitions without writes since the plan was made; these partitions."""
    view = table.view()
    empty = tuple(p for p in plan.partitions if p and not data_files(view, p))
    for partition in empty:
        table.storage.delete_many(join(partition, name) for name in sorted(METAFILE_NAMES))
        table.storage.delete_empty(partition)
    return empty
