"""Restore a table to a savepoint: everything that was completed after the savepoint's write is undone, newest first.

An action that was completed after the savepoint's write is undone, unless the savepoint names a file of it: Hudi's
savepoints are made by instant times, and name files of a service that was requested before the write and completed
after it. An action is also undone if it has replaced a file group with a file of the savepoint: up to version 7 nothing
else says that it was completed after the savepoint was made. The restore is an error if the table would differ from the
savepoint afterwards.

1. The metadata table is dropped; a job that uses one builds it again at its next start. Pending cleans are withdrawn.
2. ``R.restore.requested`` names the instants, ``R.restore.inflight`` says that the restore is being executed.
3. For each instant its completed file is removed, then its data files, then its other files on the timeline. Cleans are
   kept.
4. ``R.restore`` completes.

After an interruption the next call with the same savepoint continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tagstream.table.buckets.hashing_metadata import remove_rings
from tagstream.table.errors import InstantConflictError
from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.file_group.names import file_id_of, join, parse_base_file_name, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_writer import fresh_times
from tagstream.table.services.cleaning import withdraw_cleans
from tagstream.table.services.failed_writes import RollbackRequest, plan_rollback
from tagstream.table.services.retention import completed_at, names_of
from tagstream.table.services.rollback import apply_requests, resume_rollbacks, rollback_record, undo_requests
from tagstream.table.steps import Step
from tagstream.table.storage.storage import each
from tagstream.table.timeline.avro_timeline import SYNC_MARKER, parsed_schema, read_record, write_parsed
from tagstream.table.timeline.instant import COMPLETED_ACTION, RESTORE, Instant, State, write_inflight
from tagstream.table.timeline.timeline import Savepoint, Timeline, savepoints
from tagstream.table.write.commit import completed_instant
from tagstream.table.write.markers import delete_markers, unstage

_END = "9" * 17
LAYOUT_2 = 8  # from this table version on the name of a log file has the instant of its own write
_PLAN_VERSION = 2


def to_undo(timeline: Timeline, at: Instant, savepoint: Savepoint, version: int) -> tuple[Instant, ...]:
    """The writes that a restore to the savepoint of the write ``at`` undoes, newest first. ``version``: the table's.

    Unfinished writes are included. Plans that were made before the savepoint are kept.
    """
    plans = set(timeline.pending_clusterings.values())
    end, named, replaced = completed_at(at), _times_named(savepoint, version), _replacing(timeline, savepoint)

    def goes(i: Instant) -> bool:
        if i.is_completed:
            return i.time in replaced or (completed_at(i) > end and i.time not in named)
        return i.time > at.time or (i.action not in COMPLETED_ACTION and i.time not in plans)

    found = (i for i in timeline.instants if i.is_write and i.time != at.time and goes(i))
    return tuple(sorted(found, key=lambda i: i.time, reverse=True))


def _times_named(savepoint: Savepoint, version: int) -> set[str]:
    """The instants of the writes whose files a savepoint names. Up to version 7 a log file's name has its slice instead."""
    found = set()
    for name in (name for names in savepoint.files.values() for name in names):
        base, log = parse_base_file_name(name), parse_log_file_name(name)
        if base is not None:
            found.add(base.instant)
        elif log is not None and version >= LAYOUT_2:
            found.add(log.base_instant)
    return found


def _replacing(timeline: Timeline, savepoint: Savepoint) -> set[str]:
    """The instants of the replace commits that have replaced a file group with a file of the savepoint."""
    groups = {(partition, file_id_of(name)) for partition, names in savepoint.files.items() for name in names}
    return {time for group, time in timeline.replaced.items() if group in groups}


def without(view: FileSystemView, undone: tuple[Instant, ...]) -> FileSystemView:
    """The slices after these writes are undone. Files of other writes are valid however new they are."""
    times = {i.time for i in undone}
    timeline = view.timeline
    instants = tuple(
        replace(i, state=State.INFLIGHT, completion_time=None) if i.is_write and i.time in times else i
        for i in timeline.instants
    )
    left = replace(
        timeline,
        instants=instants,
        pending_compactions={g: t for g, t in timeline.pending_compactions.items() if t not in times},
        pending_clusterings={g: t for g, t in timeline.pending_clusterings.items() if t not in times},
        replaced={g: t for g, t in timeline.replaced.items() if t not in times},
    )
    return replace(view, timeline=left, as_of=_END)


def differences(view: FileSystemView, savepoint: Savepoint) -> Iterator[str]:
    """The files in which the remaining slices differ from the savepoint's; ``view`` is from :func:`without`."""
    partitions = sorted({*view.partitions(), *savepoint.files})
    view.look_up(partitions)
    for partition, left in zip(partitions, each(view.latest_merged_slices, partitions), strict=True):
        slices = {found.file_id: found for found in left}
        named = _by_group(savepoint.files.get(partition, frozenset()))
        for file_id in sorted(slices.keys() | named.keys()):
            found, wanted = slices.get(file_id), named.get(file_id, frozenset())
            for name in _unlike(found, wanted, view.version):
                yield name if not partition else join(partition, name)


def _unlike(found: FileSlice | None, named: frozenset[str], version: int) -> list[str]:
    """The names of files that readers would see and should not see, or the other way round.

    Up to version 7 savepoints of Hudi's first versions name only base files.
    """
    names = frozenset(names_of(found)) if found is not None else frozenset()
    if not named or found is None:
        return sorted(named ^ names)
    if version < LAYOUT_2:
        return sorted(_lost_by_name(found, named))
    return sorted(named ^ names)


def _lost_by_name(found: FileSlice, named: frozenset[str]) -> frozenset[str]:
    """Up to version 7: the named files that the slice neither has nor was compacted from.

    The slice may have later log files: rollback blocks hide their blocks of undone writes.
    """
    bases = {base.instant for name in named if (base := parse_base_file_name(name)) is not None}
    if found.base_file is None or (bases and found.base_file.instant < max(bases)):
        return named - frozenset(names_of(found))
    begun = found.base_file.instant
    older = {name for name in named if (log := parse_log_file_name(name)) is not None and log.base_instant < begun}
    older |= {name for name in named if (base := parse_base_file_name(name)) is not None and base.instant < begun}
    return named - frozenset(names_of(found)) - older


def _by_group(names: frozenset[str]) -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for name in names:
        file_id, log = file_id_of(name), parse_log_file_name(name)
        if file_id is not None and not (log is not None and log.is_cdc):  # Hudi's savepoints name change files, too
            found.setdefault(file_id, set()).add(name)
    return {file_id: frozenset(own) for file_id, own in found.items()}


@dataclass(frozen=True)
class RestorePlan:
    """A planned restore.

    ``savepoint``: the write to restore. ``instants``: the writes to undo, newest first. ``metadata``: the partitions of
    the metadata table, which is dropped. ``kept``: paths of the savepoint's files.
    """

    savepoint: str
    instants: tuple[Instant, ...]
    metadata: tuple[str, ...]
    kept: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RestoreResult:
    """``instant``: the restore's. ``undone``: instants of the writes, newest first. ``deleted``: paths of files."""

    instant: str
    undone: tuple[str, ...]
    deleted: tuple[str, ...]
    metadata: tuple[str, ...]


def plan_restore(table: HoodieTable, savepoint: str) -> RestorePlan:
    """The plan of a restore; nothing is changed.

    InstantConflictError when there is no such savepoint, when there is a newer one, when a file of it is missing, or
    when readers would not see the savepoint's files afterwards.
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
            f"table {table.base_path} has savepoint {newer}, which a restore to {savepoint} would remove: delete it first"
        )
    for partition, names in known[savepoint].files.items():
        there = set(storage.names(partition))
        if not names <= there:
            missing = join(partition, min(names - there))
            raise InstantConflictError(
                f"{storage.where(missing)}, which savepoint {savepoint} needs, is missing: a restore to it is impossible"
            )
    _check_archive(table, savepoint)
    undone = to_undo(timeline, at, known[savepoint], table.config.version)
    unlike = next(differences(without(table.view(timeline), undone), known[savepoint]), None)
    if unlike is not None:
        raise InstantConflictError(
            f"restored to savepoint {savepoint}, table {table.base_path} would not be what the savepoint names: readers "
            f"would see {storage.where(unlike)} and should not, or the other way round. The file belongs to a write that "
            "the active timeline does not have, or to another table version. Nothing was changed; no restore can use the "
            "savepoint: delete it"
        )
    kept = frozenset(join(p, name) for p, names in known[savepoint].files.items() for name in names)
    return RestorePlan(savepoint, undone, table.config.metadata_partitions, kept)


def restore(
    table: HoodieTable,
    savepoint: str,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
) -> RestoreResult:
    """Restore the table; errors as of ``plan_restore``, and when a restore to another savepoint is unfinished.

    The caller has the writer lease. ``reach`` is called at the steps ``metadata_dropped``, ``restore_requested``,
    ``restore_inflight``, ``restore_undone`` (once for each instant) and ``restore_completed``.
    """
    begun = _begun(table, savepoint)
    check()
    resume_rollbacks(table)
    plan = plan_restore(table, savepoint)
    check()
    metadata = table.drop_metadata_table(clock_ms())
    table = table.reload()
    reach(Step.METADATA_DROPPED)
    withdraw_cleans(table, clock_ms, check)  # planned for a later state than the savepoint's
    fresh = fresh_times(table, None, clock_ms)
    instant, infos = begun if begun is not None else (fresh(), [_info(i) for i in plan.instants])
    if begun is None:
        record = {"instantsToRollback": infos, "version": _PLAN_VERSION, "savepointToRestoreTimestamp": savepoint}
        content = write_parsed(parsed_schema("HoodieRestorePlan"), record)
        table.storage.write_new(table.instant_path(Instant(instant, RESTORE, State.REQUESTED)), content)
        reach(Step.RESTORE_REQUESTED)
    write_inflight(table.storage, table.config.timeline_folder, instant, RESTORE)
    reach(Step.RESTORE_INFLIGHT)
    undone = {info["commitTime"] for info in infos} | {i.time for i in plan.instants}
    done: dict[str, list[dict[str, Any]]] = {}
    deleted: list[str] = []
    for write in plan.instants:
        check()
        files, outcome = _undo(table, write, fresh(), undone, plan.kept)
        deleted += files
        done[write.time] = [outcome]
        reach(Step.RESTORE_UNDONE)
    content = write_parsed(parsed_schema("HoodieRestoreMetadata"), {
        "startRestoreTime": instant, "timeTakenInMillis": 0, "instantsToRollback": [info["commitTime"] for info in infos],
        "hoodieRestoreMetadata": done, "version": 1, "restoreInstantInfo": infos,
    })  # fmt: skip
    completed = completed_instant(table, Instant(instant, RESTORE, State.INFLIGHT), clock_ms())
    table.storage.write_new(table.instant_path(completed), content)
    reach(Step.RESTORE_COMPLETED)
    return RestoreResult(instant, tuple(info["commitTime"] for info in infos), tuple(deleted), metadata)


def resume_restore(
    table: HoodieTable, clock_ms: Callable[[], int], check: Callable[[], None] = lambda: None
) -> RestoreResult | None:
    """Finish an interrupted restore; None when there is none. InstantConflictError for a restore of another tool."""
    begun = next((i for i in table.timeline().pending if i.action == RESTORE), None)
    if begun is None:
        return None
    rel = table.instant_path(Instant(begun.time, RESTORE, State.REQUESTED))
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
    """InstantConflictError when a newer write is archived, because it cannot be undone."""
    newest = next(table.archived_writes(), None)
    if newest is not None and newest.time > savepoint:
        raise InstantConflictError(
            f"write {newest.time} of table {table.base_path} is newer than savepoint {savepoint} and archived "
            "(hoodie.archive.beyond.savepoint), so a restore cannot undo it: delete the savepoint"
        )


def _undo(
    table: HoodieTable, instant: Instant, time: str, undone: set[str], kept: frozenset[str]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Undo one instant; returns (paths of deleted files, HoodieRollbackMetadata). It can be repeated after a crash."""
    requests = _requests(table, instant, undone, kept)
    if not instant.is_completed:
        unstage(table, instant.time, instant.action)
    deleted, blocks = apply_requests(table, requests, instant.time, time)
    remove_rings(table, instant.time)
    if instant.is_completed:
        table.storage.delete(table.instant_path(instant))
    planned = [action for action, once in COMPLETED_ACTION.items() if once == instant.action]
    for action in (instant.action, *planned):
        for state in (State.INFLIGHT, State.REQUESTED):
            table.storage.delete(table.instant_path(Instant(instant.time, action, state)))
    delete_markers(table.storage, instant.time)
    files = tuple(rel for names in deleted.values() for rel in names)
    return files, rollback_record(table, instant, time, requests, deleted, blocks)


def _requests(table: HoodieTable, instant: Instant, undone: set[str], kept: frozenset[str]) -> list[RollbackRequest]:
    if instant.is_completed:
        return undo_requests(table, table.timeline().metadata(table.storage, instant), undone, kept)
    return plan_rollback(table, instant)


def _begun(table: HoodieTable, savepoint: str) -> tuple[str, list[dict[str, str]]] | None:
    """(instant, instants to undo) of an unfinished restore to the savepoint; None without one."""
    for found in table.timeline().pending:
        if found.action == RESTORE:
            rel = table.instant_path(Instant(found.time, RESTORE, State.REQUESTED))
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
