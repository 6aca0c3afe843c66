"""A table is brought back to a savepoint: everything that was completed after it is undone, newest first.

What is undone, and whether the table is then what the savepoint names, tells ``table.retention``; else it is refused.

1. The metadata table is dropped; a job that keeps one builds it at its next start. Cleans that wait are withdrawn.
2. ``R.restore.requested`` names the instants, ``R.restore.inflight`` says that it is being carried out.
3. Each of them loses its completed file, then its files, then the rest of it on the timeline. Cleans stay.
4. ``R.restore`` completes.

Cut off anywhere, the next call with the same savepoint goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tagstream.table.errors import InstantConflictError
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.write.metadata_writer import fresh_times
from tagstream.table.retention.undone import differences, to_undo, without
from tagstream.table.services.cleaning.clean import withdraw_cleans
from tagstream.table.services.restore.undo import undo_requests
from tagstream.table.services.rollback import apply_requests, resume_rollbacks, rollback_record
from tagstream.table.services.rollback_plan import RollbackRequest, plan_rollback
from tagstream.table.timeline.avro_schemas import parsed_schema
from tagstream.table.timeline.avro_timeline import SYNC_MARKER, read_record, write_parsed
from tagstream.table.timeline.begin import write_inflight
from tagstream.table.timeline.instant import COMPLETED_ACTION, RESTORE, Instant, State
from tagstream.table.timeline.savepoints import savepoints
from tagstream.table.write.commit import completed_instant
from tagstream.table.write.markers import delete_markers
from tagstream.table.write.staged import unstage

_PLAN_VERSION = 2


@dataclass(frozen=True)
class RestorePlan:
    """``savepoint``: the write to go back to; ``instants``: those that are undone, newest first; ``metadata``: the
    partitions of the metadata table that is dropped."""

    savepoint: str
    instants: tuple[Instant, ...]
    metadata: tuple[str, ...]


@dataclass(frozen=True)
class RestoreResult:
    """``instant``: the restore's; ``undone``: times of writes, newest first; ``deleted``: paths of files."""

    instant: str
    undone: tuple[str, ...]
    deleted: tuple[str, ...]
    metadata: tuple[str, ...]


def plan_restore(table: HoodieTable, savepoint: str) -> RestorePlan:
    """What a restore would do; nothing is changed.

    InstantConflictError where there is no such savepoint, a newer one is there, a file that it keeps is missing, or readers
    would not see afterwards what it names.
    """
    timeline, storage = table.timeline(), table.storage
    known = {found.time: found for found in savepoints(storage, timeline)}
    at = timeline.find(savepoint)
    if savepoint not in known or at is None or not at.is_completed:
        raise InstantConflictError(
            f"table {table.base_path} has no savepoint {savepoint}: `tagstream table savepoints` lists them"
        )
    newer = max(known, key=lambda time: (timeline.completion_time(time), time))
    if newer != savepoint:
        raise InstantConflictError(
            f"table {table.base_path} has savepoint {newer}, which a restore to {savepoint} would take away: delete it first"
        )
    for partition, names in known[savepoint].files.items():
        there = set(storage.names(partition))
        if not names <= there:
            missing = join(partition, min(names - there))
            raise InstantConflictError(
                f"{storage.where(missing)}, which savepoint {savepoint} keeps, is missing: there is no way back to it"
            )
    _check_archive(table, savepoint)
    undone = to_undo(timeline, at, known[savepoint], table.config.version)
    unlike = next(differences(without(table.view(timeline), undone), known[savepoint]), None)
    if unlike is not None:
        raise InstantConflictError(
            f"restored to savepoint {savepoint}, table {table.base_path} would not be what the savepoint names: readers "
            f"would see {storage.where(unlike)} and should not, or the other way round. It is of a write that the active "
            "timeline does not tell of, or of another table version. Nothing was changed; no restore can use the savepoint: "
            "delete it"
        )
    return RestorePlan(savepoint, undone, table.config.metadata_partitions)


def restore(
    table: HoodieTable,
    savepoint: str,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
) -> RestoreResult:
    """Bring the table back; errors as of ``plan_restore``, and where a restore to another savepoint is unfinished.

    The caller holds the writer lease. ``reach`` is told of the steps ``metadata_dropped``, ``restore_requested``,
    ``restore_inflight``, ``restore_undone`` (once for each instant) and ``restore_completed``.
    """
    begun = _begun(table, savepoint)
    check()
    resume_rollbacks(table)
    plan = plan_restore(table, savepoint)
    check()
    metadata = table.drop_metadata_table(clock_ms())
    table = table.reload()
    reach("metadata_dropped")
    withdraw_cleans(table, clock_ms, check)  # planned for what comes after the savepoint
    fresh = fresh_times(table, None, clock_ms)
    instant, infos = begun if begun is not None else (fresh(), [_info(i) for i in plan.instants])
    if begun is None:
        record = {"instantsToRollback": infos, "version": _PLAN_VERSION, "savepointToRestoreTimestamp": savepoint}
        content = write_parsed(parsed_schema("HoodieRestorePlan"), record)
        table.storage.write_new(_rel(table, Instant(instant, RESTORE, State.REQUESTED)), content)
        reach("restore_requested")
    write_inflight(table.storage, table.config.timeline_folder, instant, RESTORE)
    reach("restore_inflight")
    undone = {info["commitTime"] for info in infos} | {i.time for i in plan.instants}
    done: dict[str, list[dict[str, Any]]] = {}
    deleted: list[str] = []
    for each in plan.instants:
        check()
        files, outcome = _undo(table, each, fresh(), undone)
        deleted += files
        done[each.time] = [outcome]
        reach("restore_undone")
    content = write_parsed(parsed_schema("HoodieRestoreMetadata"), {
        "startRestoreTime": instant, "timeTakenInMillis": 0, "instantsToRollback": [info["commitTime"] for info in infos],
        "hoodieRestoreMetadata": done, "version": 1, "restoreInstantInfo": infos,
    })  # fmt: skip
    completed = completed_instant(table, Instant(instant, RESTORE, State.INFLIGHT), clock_ms())
    table.storage.write_new(_rel(table, completed), content)
    reach("restore_completed")
    return RestoreResult(instant, tuple(info["commitTime"] for info in infos), tuple(deleted), metadata)


def resume_restore(
    table: HoodieTable, clock_ms: Callable[[], int], check: Callable[[], None] = lambda: None
) -> RestoreResult | None:
    """Finish a restore that was cut off; None where there is none. InstantConflictError for one that another tool began."""
    begun = next((i for i in table.timeline().pending if i.action == RESTORE), None)
    if begun is None:
        return None
    rel = _rel(table, Instant(begun.time, RESTORE, State.REQUESTED))
    try:
        data = table.storage.read(rel)
    except FileNotFoundError:
        data = b""
    if SYNC_MARKER not in data:
        raise InstantConflictError(
            f"restore {begun.time} of table {table.base_path} is unfinished: finish it with the tool that began it"
        )
    savepoint = read_record(data, table.storage.where(rel))["savepointToRestoreTimestamp"]
    return restore(table, savepoint, clock_ms, check)


def _check_archive(table: HoodieTable, savepoint: str) -> None:
    """What is archived cannot be undone: InstantConflictError where a newer write is."""
    newest = next(table.archived_writes(), None)
    if newest is not None and newest.time > savepoint:
        raise InstantConflictError(
            f"write {newest.time} of table {table.base_path} is newer than savepoint {savepoint} and archived "
            "(hoodie.archive.beyond.savepoint), so a restore cannot undo it: delete the savepoint"
        )


def _undo(table: HoodieTable, instant: Instant, time: str, undone: set[str]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """(paths of deleted files, HoodieRollbackMetadata) of one instant; again after a crash what is left of it."""
    requests = _requests(table, instant, undone)
    if not instant.is_completed:
        unstage(table, instant.time, instant.action)
    deleted, blocks = apply_requests(table, requests, instant.time, time)
    if instant.is_completed:
        table.storage.delete(_rel(table, instant))
    planned = [action for action, once in COMPLETED_ACTION.items() if once == instant.action]
    for action in (instant.action, *planned):
        for state in (State.INFLIGHT, State.REQUESTED):
            table.storage.delete(_rel(table, Instant(instant.time, action, state)))
    delete_markers(table.storage, instant.time)
    files = tuple(rel for names in deleted.values() for rel in names)
    return files, rollback_record(table, instant, time, requests, deleted, blocks)


def _requests(table: HoodieTable, instant: Instant, undone: set[str]) -> list[RollbackRequest]:
    if instant.is_completed:
        return undo_requests(table, table.timeline().metadata(table.storage, instant), undone)
    return plan_rollback(table, instant)


def _begun(table: HoodieTable, savepoint: str) -> tuple[str, list[dict[str, str]]] | None:
    """An unfinished restore to the savepoint: its instant and what it undoes."""
    for found in table.timeline().pending:
        if found.action == RESTORE:
            rel = _rel(table, Instant(found.time, RESTORE, State.REQUESTED))
            record = read_record(table.storage.read(rel), table.storage.where(rel))
            if record.get("savepointToRestoreTimestamp") != savepoint:
                raise InstantConflictError(
                    f"restore {found.time} of table {table.base_path} to {record.get('savepointToRestoreTimestamp')} is "
                    "unfinished: finish that one first"
                )
            return found.time, list(record.get("instantsToRollback") or ())
    return None


def _info(instant: Instant) -> dict[str, str]:
    return {"commitTime": instant.time, "action": instant.action}


def _rel(table: HoodieTable, instant: Instant) -> str:
    return f"{table.config.timeline_folder}/{instant.file_name()}"
