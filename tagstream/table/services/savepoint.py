"""Savepoints: a completed write is kept with all files of its state of the table.

``T.savepoint.inflight`` (empty) is written, then ``T.savepoint`` (HoodieSavepointMetadata), which names the base and
log files of the slices that a reader saw when T was completed. Nothing is written to the metadata table. A deleted
savepoint leaves no files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tagstream.table.errors import InstantConflictError
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.file_group.names import join
from tagstream.table.history.archive import archive
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.cleaning_plan import last_clean
from tagstream.table.services.pending_clean import not_cleaned, pending_plans
from tagstream.table.services.retention import (
    Later,
    completed_at,
    missing,
    names_of,
    newest_files,
    newest_write,
    superseded,
    view_as_of,
)
from tagstream.table.steps import Step
from tagstream.table.timeline.avro_timeline import parsed_schema, write_parsed
from tagstream.table.timeline.instant import COMMIT, COMPACTION, SAVEPOINT, Instant, State
from tagstream.table.timeline.timeline import Savepoint, Timeline, savepoints
from tagstream.table.write.commit import completed_instant


def create_savepoint(
    table: HoodieTable,
    time: str | None,
    user: str,
    comment: str,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
) -> Savepoint:
    """Create a savepoint of the completed write ``time``; default and errors as of ``plan_savepoint``.

    An interrupted one is finished. ``reach`` is called at the steps ``savepoint_inflight`` and ``savepoint_completed``.
    """
    made = plan_savepoint(table, time, user, comment, clock_ms)
    storage, inflight = table.storage, Instant(made.time, SAVEPOINT, State.INFLIGHT)
    check()
    if not storage.exists(table.instant_path(inflight)):
        storage.write_new(table.instant_path(inflight), b"")
    reach(Step.SAVEPOINT_INFLIGHT)
    check()
    completed = completed_instant(table, inflight, clock_ms())
    storage.write_new(table.instant_path(completed), savepoint_bytes(made))
    reach(Step.SAVEPOINT_COMPLETED)
    return made


def plan_savepoint(
    table: HoodieTable, time: str | None, user: str, comment: str, clock_ms: Callable[[], int]
) -> Savepoint:
    """The savepoint of the completed write ``time``, by default of the write completed last. Nothing is changed.

    InstantConflictError when there is no such write, when it has a savepoint, or when a clean has deleted, or is about
    to delete, a file that it needs.
    """
    timeline, storage = table.timeline(), table.storage
    newest = newest_write(timeline)
    time = time or (newest.time if newest is not None else None)
    write = next((i for i in timeline.completed_writes if i.time == time), None)
    if time is None or write is None:
        raise InstantConflictError(
            f"table {table.base_path} has no completed write {time or 'at all'} on its active timeline: `tagstream table "
            "commits` lists them"
        )
    if any(savepoint.time == time for savepoint in savepoints(storage, timeline)):
        raise InstantConflictError(f"write {time} of table {table.base_path} has a savepoint already: delete it first")
    last = last_clean(storage, timeline)
    if last is not None and last.earliest is not None and time < last.earliest:
        raise InstantConflictError(
            f"the clean {last.time} of table {table.base_path} retains writes from {last.earliest} on: files that {time} "
            "needs may be deleted, so it cannot be kept; use a later write"
        )
    view = view_as_of(table.view(timeline), write)
    _check_whole(table, timeline, write, view)
    files = {p: frozenset(n for s in view.latest_merged_slices(p) for n in names_of(s)) for p in view.partitions()}
    _check_pending_cleans(table, timeline, time, files)
    return Savepoint(time, user, comment, clock_ms(), {p: names for p, names in files.items() if names})


def delete_savepoint(table: HoodieTable, time: str, check: Callable[[], None] = lambda: None) -> None:
    """Delete a savepoint, begun or completed, and so release its files; InstantConflictError when there is none.

    If archiving has skipped the savepoint's write, that write is archived first: without the savepoint the timeline
    would begin with it, and the archived writes after it would no longer be valid.
    """
    found = [i for i in table.timeline().instants if (i.action, i.time) == (SAVEPOINT, time)]
    if not found:
        raise InstantConflictError(
            f"table {table.base_path} has no savepoint {time}: `tagstream table savepoints` lists them"
        )
    check()
    _archive_passed(table, time)
    table.storage.delete(table.instant_path(Instant(time, SAVEPOINT, State.INFLIGHT)))
    for instant in found:
        table.storage.delete(table.instant_path(instant))


def _check_whole(table: HoodieTable, timeline: Timeline, write: Instant, view: FileSystemView) -> None:
    """InstantConflictError unless every slice that a reader saw as of the write is on disk."""
    archived = next(table.archived_writes(), None)
    if archived is not None and archived.time > write.time:
        raise InstantConflictError(
            f"write {archived.time} of table {table.base_path} is archived and newer than {write.time}: the files "
            "that the older one needs are not known any more, so it cannot be kept; use a later write"
        )
    ordered = sorted(timeline.completed_writes, key=completed_at)
    wanted = superseded(_later(table, timeline, i) for i in ordered if completed_at(i) > completed_at(write))
    earlier = (i for i in reversed(ordered) if completed_at(i) <= completed_at(write))
    newest = newest_files(wanted, (timeline.metadata(table.storage, i) for i in earlier))
    gone = missing(view, wanted, newest)
    if gone is not None:
        raise InstantConflictError(
            f"{gone} of table {table.base_path}, which write {write.time} needs, was deleted: it cannot be kept; use a "
            "later write"
        )


def _later(table: HoodieTable, timeline: Timeline, instant: Instant) -> Later:
    metadata = timeline.metadata(table.storage, instant)
    plan = Instant(instant.time, COMPACTION, State.REQUESTED)
    if instant.action != COMMIT or not table.storage.exists(table.instant_path(plan)):
        return Later(instant.time, metadata)
    read = {(s.partition_path, s.file_id): s.files for s in timeline.plan(table.storage, plan).rewrites}
    return Later(instant.time, metadata, read)


def _check_pending_cleans(
    table: HoodieTable, timeline: Timeline, time: str, files: Mapping[str, frozenset[str]]
) -> None:
    for instant, plan in pending_plans(table, timeline).items():
        for partition, names in plan.files.items():
            both = files.get(partition, frozenset()).intersection(names)
            if both:
                raise InstantConflictError(
                    f"the clean {instant} of table {table.base_path} is pending and deletes {join(partition, min(both))}, "
                    f"which write {time} needs: finish it with `tagstream table clean`, then use a later write"
                )


def _archive_passed(table: HoodieTable, time: str) -> None:
    timeline = table.timeline()
    newest, write = next(table.archived_writes(), None), timeline.find(time)
    if newest is None or newest.time < time or write is None or not write.is_completed:
        return
    if not_cleaned(table, timeline, [write]) is not None:
        raise InstantConflictError(
            f"write {time} of table {table.base_path} has replaced file groups that are not cleaned yet, and newer writes "
            "are archived: delete its savepoint after `tagstream table clean` has deleted them; another savepoint "
            "may keep them"
        )
    archive(table.timeline_place(), [write])


def savepoint_bytes(made: Savepoint) -> bytes:
    """The content of ``T.savepoint``."""
    record = {
        "savepointedBy": made.user,
        "savepointedAt": made.made_ms,
        "comments": made.comment,
        "partitionMetadata": {
            partition: {"partitionPath": partition, "savepointDataFile": sorted(names)}
            for partition, names in made.files.items()
        },
        "version": 1,
    }
    return write_parsed(parsed_schema("HoodieSavepointMetadata"), record)
