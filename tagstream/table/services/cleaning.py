"""Cleaning of a table: ``schedule_clean`` writes a plan (``cleaning_plan``), ``execute_clean`` carries it out.

1. ``T.clean.requested`` holds the plan, ``T.clean.inflight`` says that it is being carried out (up to version 7 it
   holds the plan once more).
2. The files are deleted. One that is gone already is fine, so this may be done again.
3. The metadata table gets the change.
4. ``T.clean`` completes.

A plan that is on the timeline, of whatever writer, is looked at again (``pending_clean``) and carried out before
there is a new one. Planning and completing need the writer lease. The files may be deleted by another process
while batches continue: no slice in a plan is read or written by them.
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
    look_again,
    pending_plans,
    plan_bytes,
    read_plan,
    reduced,
    remove_plan,
)
from tagstream.table.timeline.instant import CLEAN, Instant, State, write_inflight
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.commit import completed_instant


@dataclass(frozen=True)
class CleanResult:
    """``instants``: the cleans that were completed, oldest first. ``deleted``: paths of the files; ``partitions``: those
    that are gone with their folders; ``earliest``: the earliest commit that is retained, None where the policy has none."""

    instants: tuple[str, ...]
    deleted: tuple[str, ...]
    partitions: tuple[str, ...]
    earliest: str | None


def _nothing() -> None:
    return None


def _ignored(_: str) -> None:
    return None


def clean(
    table: HoodieTable,
    options: CleanOptions,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = _nothing,
    reach: Callable[[str], None] = _ignored,
    timeline: Timeline | None = None,
) -> CleanResult | None:
    """Carry out the plans on the timeline, whoever made them, and then what is due now; None where there was nothing.

    The caller holds the writer lease, and ``check`` raises where it does no longer. ``reach`` is told of the steps
    ``clean_requested``, ``clean_inflight``, ``clean_deleted``, ``metadata_begun``, ``metadata_files``, ``clean_metadata``
    and ``clean_completed``. ``timeline``: as it is now; without one, it is looked at.
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
    """The instants of plans that are not carried out yet, oldest first."""
    return tuple(i.time for i in timeline.pending if i.action == CLEAN)


def schedule_clean(
    table: HoodieTable,
    options: CleanOptions,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = _nothing,
    reach: Callable[[str], None] = _ignored,
    timeline: Timeline | None = None,
) -> str | None:
    """Write a plan where a clean is due and has something to do; its instant. None also while another one is pending.

    ``timeline``: as it is now; without one, it is looked at.
    """
    timeline = timeline if timeline is not None else table.timeline()
    if pending_cleans(timeline):
        return None
    plan = plan_table(table, options, clock_ms(), timeline=timeline)
    if plan is None:
        return None
    writer = MetadataWriter.open(table)
    instant = fresh_times(table, writer, clock_ms)()
    rel = _rel(table, Instant(instant, CLEAN, State.REQUESTED))
    check()
    try:
        table.storage.write_new(rel, plan_bytes(table.storage, plan))
    except FileExistsError:
        raise InstantConflictError(
            f"{table.storage.where(rel)} exists already: another writer works on the table, and only one may"
        ) from None
    reach("clean_requested")
    return instant


def execute_clean(
    table: HoodieTable,
    instant: str,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = _nothing,
    reach: Callable[[str], None] = _ignored,
) -> CleanResult | None:
    """Carry out the plan of ``instant`` to its end, or the rest of it; None when there is nothing left of it to do."""
    planned = begin_clean(table, instant, check, reach)
    if planned is None:
        return None
    check()
    delete_files(table, planned)
    reach("clean_deleted")
    return complete_clean(table, instant, planned, clock_ms, check, reach)


def begin_clean(
    table: HoodieTable, instant: str, check: Callable[[], None] = _nothing, reach: Callable[[str], None] = _ignored
) -> StoredPlan | None:
    """Say on the timeline that a plan is being carried out; what of it may be (``again``).

    None: it is completed, or nothing of it may be carried out, or it is an empty file; then its files are removed.
    """
    storage = table.storage
    requested = _rel(table, Instant(instant, CLEAN, State.REQUESTED))
    timeline = table.timeline()
    if instant not in pending_cleans(timeline):
        return None
    # A writer of Hudi's that died between creating the file and filling it leaves an empty one, and a process that was
    # killed right after it woke one that is begun and has no plan.
    try:
        data = storage.read(requested)
    except FileNotFoundError:
        data = b""
    plan = look_again(table, instant, read_plan(data, storage.where(requested)), timeline) if data else None
    if plan is None:
        check()
        remove_plan(table, instant)
        return None
    content = b"" if table.config.has_completion_times else data
    write_inflight(storage, table.config.timeline_folder, instant, CLEAN, content, check)
    reach("clean_inflight")
    return plan


def withdraw_cleans(
    table: HoodieTable, clock_ms: Callable[[], int], check: Callable[[], None] = _nothing
) -> tuple[str, ...]:
    """Take every plan off the timeline that is not carried out yet, before the table goes back; their instants.

    A plan that was begun is completed with the files that are gone, for the metadata table must be told of them.
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
    """Delete the files that a plan names; needs no lease, and may be done again."""
    table.storage.delete_many(join(partition, name) for partition, names in plan.files.items() for name in names)


def complete_clean(
    table: HoodieTable,
    instant: str,
    plan: StoredPlan,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = _nothing,
    reach: Callable[[str], None] = _ignored,
) -> CleanResult | None:
    """Tell the metadata table, and complete the action; None when another process has completed it meanwhile."""
    check()
    partitions = _delete_partitions(table, plan)
    writer = MetadataWriter.open(table)
    after = None
    if writer is not None:
        gone = {path: PartitionChange(deleted=names) for path, names in plan.files.items()}
        changes = Changes(gone, deleted_partitions=partitions, columns=range_columns(writer))
        times = fresh_times(table, writer, clock_ms)
        after = delta_commit(writer, instant, changes, times, reach, check=check).completion_time
        reach("clean_metadata")
    check()
    try:
        done = completed_instant(table, Instant(instant, CLEAN, State.INFLIGHT), clock_ms(), after)
        table.storage.write_new(_rel(table, done), done_bytes(instant, plan, partitions, 0))
    except FileExistsError:
        return None
    reach("clean_completed")
    deleted = tuple(join(partition, name) for partition, names in plan.files.items() for name in names)
    return CleanResult((instant,), deleted, partitions, plan.earliest)


def _delete_partitions(table: HoodieTable, plan: StoredPlan) -> tuple[str, ...]:
    """Delete the folders of partitions that nothing was written to since they were planned to go; which these are."""
    view = table.view()
    empty = tuple(p for p in plan.partitions if p and not data_files(view, p))
    for partition in empty:
        table.storage.delete_many(join(partition, name) for name in sorted(METAFILE_NAMES))
        table.storage.delete_empty(partition)
    return empty


def _rel(table: HoodieTable, instant: Instant) -> str:
    return f"{table.config.timeline_folder}/{instant.file_name()}"
