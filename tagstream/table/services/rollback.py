"""Rollback of an unfinished write, as a ``rollback`` action on the timeline.

1. The failed writer's files under temporary names, with its commit, are removed: from now on it cannot complete. If it
was completed before that, it is not rolled back. 2. ``R.rollback.requested`` has the plan, ``R.rollback.inflight`` says
that it is being executed. 3. The files that its markers name are deleted and rollback blocks are written; both can be
repeated after a crash. The files are removed from the metadata table. 4. ``T.<action>.inflight`` and ``.requested`` of
the failed instant are removed. 5. ``R.rollback`` completes. The files are deleted once more, because a store may
execute an earlier request late; then the markers and the heartbeat are removed.

R must be smaller than the next commit's instant: older readers stop at a block that is newer than the newest
commit.

A completed write's files come from its commit (``undo_requests``), without a listing. Base files are deleted. From
version 8 on log files are deleted, too. Up to version 7 a log file gets a rollback block after it, because a slice's
log has blocks of many writes. A log file is deleted if its whole slice is rolled back. So are the other log files of a
slice whose base file is rolled back: they have only rollback blocks, and readers would take them for the newest slice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tagstream.table.buckets.hashing_metadata import remove_rings
from tagstream.table.errors import CorruptFileError, InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import rollback_block
from tagstream.table.file_group.names import join, log_file_name, parse_base_file_name, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.failed_writes import RollbackRequest, plan_record, plan_rollback, requests_of
from tagstream.table.services.metadata_changes import forget_in_metadata_table, is_in_metadata_table
from tagstream.table.timeline.avro_timeline import ROLLBACK_METADATA, ROLLBACK_PLAN, read_record, write_record
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import (
    CLUSTERING,
    COMPACTION,
    COMPLETED_ACTION,
    LOG_COMPACTION,
    REPLACE_COMMIT,
    ROLLBACK,
    Instant,
    State,
    write_inflight,
)
from tagstream.table.timeline.lease import delete_heartbeat
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.commit import completed_instant, stages_files
from tagstream.table.write.markers import begun_markers, delete_markers, unstage

# In the header of this project's plan that rolls back a completed write (``services.restore``).
OF_COMPLETED = "tagstream.rollback.of.completed"
_ROLLBACK_BYTES = 1024  # a file with one rollback block is smaller
_ROLLBACK_TOKEN = "1-0-1"  # the value in Hudi's own rollback blocks

_PLAN_STAYS = frozenset({COMPACTION, LOG_COMPACTION})


@dataclass(frozen=True)
class RollbackResult:
    """What a rollback did: the failed instant, its own instant, deleted files and log files with rollback blocks."""

    failed: str
    instant: str
    deleted: tuple[str, ...]
    blocks: tuple[str, ...]


def rollback(table: HoodieTable, failed_instant: str, rollback_instant: str) -> RollbackResult:
    """Roll back ``failed_instant``. A rollback of it that was begun before is finished under its own instant instead.

    From table version 8 on it is completed at the next free millisecond of the timeline.

    Raises InstantConflictError when the instant is completed or unknown, or the rollback's is not the newest.
    """
    return _roll_back(table, failed_instant, rollback_instant, _failed, plan_rollback)


def withdraw(table: HoodieTable, instant: str) -> bool:
    """Remove a pending write of this project from the timeline, with its files and without a rollback action.

    For writers that share a lock, which the caller holds. Hudi executes every pending rollback that it sees, and takes no
    lock for that: a rollback that two writers execute fails one of them. An interrupted withdrawal leaves the pending
    write, or only its markers, which ``failed_writes.sweep`` finds.

    False, and nothing but staged files is removed, where a rollback must be recorded: a log file has blocks of others,
    the metadata table has entries of the write, or files that were published by a copy may appear later. False for a write
    without this project's commit protocol, too. InstantConflictError when the instant is completed or unknown.
    """
    storage = table.storage
    failed = _failed(table, table.timeline(), instant)
    if not stages_files(table, failed) or not begun_markers(storage, instant):
        return False
    unstage(table, instant, failed.action)
    failed = _failed(table, table.timeline(), instant)  # completed in the last moment?
    requests = plan_rollback(table, failed)
    if requests and (storage.publishes_by_copy or any(r.log_blocks for r in requests)):
        return False
    if is_in_metadata_table(table, instant):
        return False
    storage.delete_many([rel for request in requests for rel in request.files])
    for state in (State.INFLIGHT, State.REQUESTED):
        storage.delete(table.instant_path(Instant(instant, failed.action, state)))
    delete_markers(storage, instant)
    delete_heartbeat(storage, instant)
    return True


def roll_back_execution(
    table: HoodieTable,
    instant: str,
    rollback_instant: str,
    plan: Callable[[HoodieTable, Instant], list[RollbackRequest]],
) -> RollbackResult:
    """Roll back an execution of the pending plan ``instant``; the plan is kept and can be executed again.

    ``plan`` names the files. Otherwise as :func:`rollback`.
    """
    return _roll_back(table, instant, rollback_instant, _begun, plan)


def roll_back_clustering(
    table: HoodieTable,
    instant: str,
    rollback_instant: str,
    plan: Callable[[HoodieTable, Instant], list[RollbackRequest]],
) -> RollbackResult:
    """Roll back the pending clustering ``instant`` with its files and its plan: its file groups can be written to
    again.

    ``plan`` names the files. Otherwise as :func:`rollback`.
    """
    return _roll_back(table, instant, rollback_instant, _clustering, plan)


def _roll_back(
    table: HoodieTable,
    failed_instant: str,
    rollback_instant: str,
    find: Callable[[HoodieTable, Timeline, str], Instant],
    plan_of: Callable[[HoodieTable, Instant], list[RollbackRequest]],
) -> RollbackResult:
    timeline = table.timeline()
    for begun in timeline.pending_rollbacks:
        result = _resume(table, begun, only=failed_instant)
        if result is not None:
            return result
    failed = find(table, timeline, failed_instant)
    if timeline.newest is not None and rollback_instant <= timeline.newest:
        raise InstantConflictError(
            f"rollback instant {rollback_instant} is not newer than {timeline.newest} in {table.base_path}: use a "
            f"later one"
        )
    unstage(table, failed.time, failed.action)
    # Completed in the last moment? Then it is a commit, and must not be rolled back.
    find(table, table.timeline(), failed_instant)
    requests = plan_of(table, failed)
    requested = Instant(rollback_instant, ROLLBACK, State.REQUESTED)
    plan = write_record(ROLLBACK_PLAN, plan_record(table, failed, requests))
    table.storage.write_new(table.instant_path(requested), plan)
    return carry_out(table, failed, rollback_instant, requests)


def resume_rollbacks(table: HoodieTable) -> list[RollbackResult]:
    """Finish every rollback of any writer that a crash has interrupted."""
    results = (_resume(table, begun) for begun in table.timeline().pending_rollbacks)
    return [result for result in results if result is not None]


def _failed(table: HoodieTable, timeline: Timeline, time: str) -> Instant:
    instant = timeline.find(time)
    if instant is None or instant.is_completed:
        state = "is not on the timeline" if instant is None else "is completed"
        raise InstantConflictError(f"instant {time} of {table.base_path} {state}: there is nothing to roll back")
    if instant.action in COMPLETED_ACTION:
        raise UnsupportedTableError(
            f"instant {time} of {table.base_path} is a pending {instant.action}, a plan that log files may depend on: "
            f"complete it with Hudi"
        )
    return instant


def _clustering(table: HoodieTable, timeline: Timeline, time: str) -> Instant:
    instant = timeline.find(time)
    if instant is None or instant.is_completed or time not in timeline.pending_clusterings.values():
        raise InstantConflictError(
            f"instant {time} of {table.base_path} is not a pending clustering: there is nothing to roll back"
        )
    return instant


def _begun(table: HoodieTable, timeline: Timeline, time: str) -> Instant:
    instant = timeline.find(time)
    if instant is None or instant.action not in _PLAN_STAYS or instant.state is not State.INFLIGHT:
        raise InstantConflictError(
            f"instant {time} of {table.base_path} is not a plan that is being executed: there is nothing to roll back"
        )
    return instant


def _resume(table: HoodieTable, begun: Instant, only: str | None = None) -> RollbackResult | None:
    rel = table.instant_path(Instant(begun.time, ROLLBACK, State.REQUESTED))
    try:
        data = table.storage.read(rel)
        record = read_record(data, table.storage.where(rel))
    except FileNotFoundError:
        raise CorruptFileError(
            f"rollback {begun.time} of {table.base_path} is unfinished and its plan {rel} is missing: finish it with "
            f"Hudi"
        ) from None
    target = record.get("instantToRollback") or {}
    if only is not None and target.get("commitTime") != only:
        return None
    failed = Instant(target["commitTime"], target["action"], State.INFLIGHT)
    known = table.timeline().find(failed.time)
    if known is not None and known.is_completed and OF_COMPLETED.encode() in data:
        # A rollback of this project of a completed write, interrupted before the removal of the write's completed file.
        table.storage.delete(table.instant_path(known))
    elif known is not None and known.is_completed:
        raise InstantConflictError(
            f"rollback {begun.time} of {table.base_path} rolls back {failed.time}, a completed instant: finish it "
            f"with the Hudi tool that began it"
        )
    unstage(table, failed.time, failed.action)
    return carry_out(table, failed, begun.time, requests_of(record))


def carry_out(table: HoodieTable, failed: Instant, time: str, requests: list[RollbackRequest]) -> RollbackResult:
    """Steps 2 (without the plan) to 5 of the rollback ``time``; may be repeated."""
    storage = table.storage
    write_inflight(storage, table.config.timeline_folder, time, ROLLBACK)
    deleted, blocks = apply_requests(table, requests, failed.time, time)
    # The failed write's own log files are kept before their rollback blocks. The commit with their names is rolled
    # back, so they are named here.
    stays = {p: {**_log_blocks(requests, p), **blocks.get(p, {})} for p in {r.partition_path for r in requests}}
    forget_in_metadata_table(table, failed.time, time, deleted, stays)
    if failed.action not in _PLAN_STAYS:
        remove_rings(table, failed.time)
    # A compaction's plan is kept: log files may depend on it, and it must still be executed.
    for state in (State.INFLIGHT,) if failed.action in _PLAN_STAYS else (State.INFLIGHT, State.REQUESTED):
        storage.delete(table.instant_path(Instant(failed.time, failed.action, state)))
        if failed.action == REPLACE_COMMIT:  # the plan of a clustering that was completed, from version 8 on
            storage.delete(table.instant_path(Instant(failed.time, CLUSTERING, state)))
    files = tuple(rel for p in sorted(deleted) for rel in deleted[p])
    metadata = rollback_record(table, failed, time, requests, deleted, blocks)
    completed = table.instant_path(completed_instant(table, Instant(time, ROLLBACK, State.INFLIGHT), at_ms=0))
    storage.write_new(completed, write_record(ROLLBACK_METADATA, metadata))
    storage.delete_many(files)
    delete_markers(storage, failed.time)
    delete_heartbeat(storage, failed.time)
    return RollbackResult(failed.time, time, files, tuple(rel for p in sorted(blocks) for rel in blocks[p]))


def apply_requests(
    table: HoodieTable, requests: list[RollbackRequest], failed: str, time: str
) -> tuple[dict[str, list[str]], dict[str, dict[str, int]]]:
    """Delete files and write rollback blocks: (paths of deleted files, sizes of new log files by path) by partition
    path."""
    storage = table.storage
    deleted: dict[str, list[str]] = defaultdict(list)
    blocks: dict[str, dict[str, int]] = defaultdict(dict)
    storage.delete_many(rel for request in requests for rel in request.files)
    for request in requests:
        deleted[request.partition_path].extend(request.files)
        if request.log_blocks and not request.files:
            rel = _write_rollback_block(table, request, failed, time)
            blocks[request.partition_path][rel] = storage.size(rel)
    return deleted, blocks


def rollback_record(
    table: HoodieTable,
    failed: Instant,
    time: str,
    requests: list[RollbackRequest],
    deleted: Mapping[str, list[str]],
    blocks: Mapping[str, dict[str, int]],
) -> dict[str, Any]:
    """The result as Hudi's HoodieRollbackMetadata; its paths are absolute."""
    where = table.storage.where
    return {
        "startRollbackTime": time,
        "timeTakenInMillis": 0,
        "totalFilesDeleted": sum(map(len, deleted.values())),
        "commitsRollback": [failed.time],
        "partitionMetadata": {
            p: {
                "partitionPath": p,
                "successDeleteFiles": [where(rel) for rel in deleted.get(p, ())],
                "failedDeleteFiles": [],
                "rollbackLogFiles": {where(rel): size for rel, size in blocks.get(p, {}).items()},
                "logFilesFromFailedCommit": {where(rel): size for rel, size in _log_blocks(requests, p).items()},
            }
            for p in sorted({request.partition_path for request in requests})
        },
        "version": 1,
        "instantsRollback": [{"commitTime": failed.time, "action": failed.action}],
    }


def _log_blocks(requests: list[RollbackRequest], partition: str) -> dict[str, int]:
    return {rel: size for r in requests if r.partition_path == partition for rel, size in r.log_blocks}


def _write_rollback_block(table: HoodieTable, request: RollbackRequest, failed: str, time: str) -> str:
    """A new log file of the slice with one block that rolls back the failed instant's blocks; returns its path.

    If this rollback has written one before an interruption, that file is returned.
    """
    version = 0
    for entry in table.storage.list(request.partition_path):
        log = None if entry.is_dir else parse_log_file_name(entry.name)
        if log is None or (log.file_id, log.base_instant) != (request.file_id, request.base_instant):
            continue
        rel, version = join(request.partition_path, entry.name), max(version, log.version)
        if log.write_token == _ROLLBACK_TOKEN and entry.size <= _ROLLBACK_BYTES:
            blocks = scan_log_file(table.storage, rel)
            if any((block.instant, block.target_instant) == (time, failed) for block in blocks):
                return rel
    rel = join(
        request.partition_path, log_file_name(request.file_id, request.base_instant, version + 1, _ROLLBACK_TOKEN)
    )
    table.storage.write_new(rel, rollback_block(time, failed))
    return rel


def undo_requests(
    table: HoodieTable, metadata: CommitMetadata, undone: Collection[str], kept: Collection[str] = ()
) -> list[RollbackRequest]:
    """The steps for a write with this metadata; ``undone``: the times of all writes that are rolled back, including
    this one. ``kept``: paths that must stay."""
    found: dict[tuple[str, ...], RollbackRequest] = {}
    for stat in sorted(metadata.all_stats(), key=lambda stat: stat.path):
        log = parse_log_file_name(stat.file_name)
        partition, path = stat.partition_path, stat.path
        base = log.base_instant if log is not None else ""
        if log is None or table.config.names_logs_by_commit or log.base_instant in undone:
            found[(path,)] = RollbackRequest(partition, stat.file_id, base, files=(path,))
        elif table.storage.exists(path):
            blocks = ((path, table.storage.size(path)),)
            found[(path,)] = RollbackRequest(partition, stat.file_id, base, log_blocks=blocks)
        for rel in stat.change_files:
            found[(rel,)] = RollbackRequest(partition, stat.file_id, base, files=(rel,))
    for request in _logs_of_slices(table, metadata):
        if request.files[0] not in kept:
            found.setdefault(request.files, request)
    return list(found.values())


def _logs_of_slices(table: HoodieTable, metadata: CommitMetadata) -> Iterator[RollbackRequest]:
    """Up to version 7: the log files of the slices whose base files this write made, each with a request to delete it."""
    if table.config.names_logs_by_commit or not table.config.is_merge_on_read:
        return
    slices: dict[str, set[tuple[str, str]]] = {}
    for stat in metadata.all_stats():
        base = parse_base_file_name(stat.file_name)
        if base is not None:
            slices.setdefault(stat.partition_path, set()).add((base.file_id, base.instant))
    for partition, own in sorted(slices.items()):
        for name in sorted(table.storage.names(partition)):
            log = parse_log_file_name(name)
            if log is not None and (log.file_id, log.base_instant) in own:
                yield RollbackRequest(partition, log.file_id, log.base_instant, files=(join(partition, name),))
