"""Rollback of a write that was not completed, as a ``rollback`` action on the timeline.

1. What the failed writer has staged, its commit and its files, is removed: from here on it cannot publish. If it
   was completed before that, it is left alone.
2. ``R.rollback.requested`` holds the plan, ``R.rollback.inflight`` says that it is being carried out.
3. The files that its markers name are deleted and rollback blocks written; both can be done again after a crash.
   The metadata table forgets the files.
4. ``T.<action>.inflight`` and ``.requested`` of the failed instant are removed.
5. ``R.rollback`` completes. The files are deleted once more, for a store may carry out late what it was asked
   before the first time; then the markers and the heartbeat go.

R must be smaller than the next commit's instant: older readers stop at a block that is newer than the newest
commit.

Of a completed write the files that its commit names are undone (``undo_requests``), and nothing is listed. Base
files are deleted. From version 8 on log files are, too; before, one gets a rollback block behind it, for the log
of a slice is of many writes. A log file of a slice that is undone as a whole is deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tagstream.table.errors import CorruptFileError, InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import rollback_block
from tagstream.table.file_group.names import join, log_file_name, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.failed_writes import RollbackRequest, plan_record, plan_rollback, requests_of
from tagstream.table.services.metadata_changes import forget_in_metadata_table
from tagstream.table.timeline.avro_timeline import ROLLBACK_METADATA, ROLLBACK_PLAN, read_record, write_record
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import (
    COMPACTION,
    COMPLETED_ACTION,
    LOG_COMPACTION,
    ROLLBACK,
    Instant,
    State,
    write_inflight,
)
from tagstream.table.timeline.lease import delete_heartbeat
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.commit import completed_instant
from tagstream.table.write.markers import delete_markers, unstage

# In the header of a plan of ours that takes back a completed write (``services.restore``).
OF_COMPLETED = "tagstream.rollback.of.completed"
_ROLLBACK_BYTES = 1024  # a file of one rollback block is smaller
_ROLLBACK_TOKEN = "1-0-1"  # what Hudi's own rollback blocks carry

_PLAN_STAYS = frozenset({COMPACTION, LOG_COMPACTION})


@dataclass(frozen=True)
class RollbackResult:
    """What a rollback did: the failed instant, its own instant, deleted files and log files with rollback blocks."""

    failed: str
    instant: str
    deleted: tuple[str, ...]
    blocks: tuple[str, ...]


def rollback(table: HoodieTable, failed_instant: str, rollback_instant: str) -> RollbackResult:
    """Take back ``failed_instant``. One that was begun before is finished under its own instant instead.

    From table version 8 on it is completed at the next free millisecond of the timeline.

    Raises InstantConflictError when the instant is completed or unknown, or the rollback's is not the newest.
    """
    return _roll_back(table, failed_instant, rollback_instant, _failed, plan_rollback)


def roll_back_execution(
    table: HoodieTable,
    instant: str,
    rollback_instant: str,
    plan: Callable[[HoodieTable, Instant], list[RollbackRequest]],
) -> RollbackResult:
    """Take back what an execution of the pending plan ``instant`` wrote; the plan stays, and can be executed again.

    ``plan`` names the files. Otherwise as :func:`rollback`.
    """
    return _roll_back(table, instant, rollback_instant, _begun, plan)


def roll_back_clustering(
    table: HoodieTable,
    instant: str,
    rollback_instant: str,
    plan: Callable[[HoodieTable, Instant], list[RollbackRequest]],
) -> RollbackResult:
    """Take back the pending clustering ``instant``, what was written of it and the plan: its file groups are free again.

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
            f"rollback instant {rollback_instant} is not newer than {timeline.newest} in {table.base_path}: take a "
            "later one"
        )
    unstage(table, failed.time, failed.action)
    # Published in the last moment? Then it is a commit, and must not be taken apart.
    find(table, table.timeline(), failed_instant)
    requests = plan_of(table, failed)
    requested = Instant(rollback_instant, ROLLBACK, State.REQUESTED)
    plan = write_record(ROLLBACK_PLAN, plan_record(table, failed, requests))
    table.storage.write_new(_rel(table, requested), plan)
    return carry_out(table, failed, rollback_instant, requests)


def resume_rollbacks(table: HoodieTable) -> list[RollbackResult]:
    """Finish every rollback that a crash has cut off, whoever began it."""
    results = (_resume(table, begun) for begun in table.timeline().pending_rollbacks)
    return [result for result in results if result is not None]


def _failed(table: HoodieTable, timeline: Timeline, time: str) -> Instant:
    instant = timeline.find(time)
    if instant is None or instant.is_completed:
        state = "is not on the timeline" if instant is None else "is completed"
        raise InstantConflictError(f"instant {time} of {table.base_path} {state}: there is nothing to roll back")
    if instant.action in COMPLETED_ACTION:
        raise UnsupportedTableError(
            f"instant {time} of {table.base_path} is a pending {instant.action}, a plan that log files may rely on: "
            "run it to its end with Hudi"
        )
    return instant


def _clustering(table: HoodieTable, timeline: Timeline, time: str) -> Instant:
    instant = timeline.find(time)
    if instant is None or instant.is_completed or time not in timeline.pending_clusterings.values():
        raise InstantConflictError(
            f"instant {time} of {table.base_path} is no pending clustering: there is nothing to roll back"
        )
    return instant


def _begun(table: HoodieTable, timeline: Timeline, time: str) -> Instant:
    instant = timeline.find(time)
    if instant is None or instant.action not in _PLAN_STAYS or instant.state is not State.INFLIGHT:
        raise InstantConflictError(
            f"instant {time} of {table.base_path} is no plan that is being executed: there is nothing to roll back"
        )
    return instant


def _resume(table: HoodieTable, begun: Instant, only: str | None = None) -> RollbackResult | None:
    rel = _rel(table, Instant(begun.time, ROLLBACK, State.REQUESTED))
    try:
        data = table.storage.read(rel)
        record = read_record(data, table.storage.where(rel))
    except FileNotFoundError:
        raise CorruptFileError(
            f"rollback {begun.time} of {table.base_path} is unfinished and its plan {rel} is missing: finish it with Hudi"
        ) from None
    target = record.get("instantToRollback") or {}
    if only is not None and target.get("commitTime") != only:
        return None
    failed = Instant(target["commitTime"], target["action"], State.INFLIGHT)
    known = table.timeline().find(failed.time)
    if known is not None and known.is_completed and OF_COMPLETED.encode() in data:
        # Ours, of a completed write, cut off before that one's completed file was removed.
        table.storage.delete(_rel(table, known))
    elif known is not None and known.is_completed:
        raise InstantConflictError(
            f"rollback {begun.time} of {table.base_path} wants to take back {failed.time}, a completed instant: finish "
            "it with the Hudi tool that began it"
        )
    unstage(table, failed.time, failed.action)
    return carry_out(table, failed, begun.time, requests_of(record))


def carry_out(table: HoodieTable, failed: Instant, time: str, requests: list[RollbackRequest]) -> RollbackResult:
    """Steps 2 (but for the plan) to 5 of the rollback ``time``; may be done again."""
    storage = table.storage
    write_inflight(storage, table.config.timeline_folder, time, ROLLBACK)
    deleted, blocks = apply_requests(table, requests, failed.time, time)
    # The failed write's own log files stay under their rollback blocks. What told of them is taken back, so they are named.
    stays = {p: {**_log_blocks(requests, p), **blocks.get(p, {})} for p in {r.partition_path for r in requests}}
    forget_in_metadata_table(table, failed.time, time, deleted, stays)
    # The plan of a compaction stays: log files may rely on it, and it is still to be executed.
    for state in (State.INFLIGHT,) if failed.action in _PLAN_STAYS else (State.INFLIGHT, State.REQUESTED):
        storage.delete(_rel(table, Instant(failed.time, failed.action, state)))
    files = tuple(rel for p in sorted(deleted) for rel in deleted[p])
    metadata = rollback_record(table, failed, time, requests, deleted, blocks)
    completed = _rel(table, completed_instant(table, Instant(time, ROLLBACK, State.INFLIGHT), at_ms=0))
    storage.write_new(completed, write_record(ROLLBACK_METADATA, metadata))
    storage.delete_many(files)
    delete_markers(storage, failed.time)
    delete_heartbeat(storage, failed.time)
    return RollbackResult(failed.time, time, files, tuple(rel for p in sorted(blocks) for rel in blocks[p]))


def apply_requests(
    table: HoodieTable, requests: list[RollbackRequest], failed: str, time: str
) -> tuple[dict[str, list[str]], dict[str, dict[str, int]]]:
    """Delete files and write rollback blocks: (paths of deleted files, sizes of new log files by path) by partition path."""
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
    """What was done as Hudi's HoodieRollbackMetadata; paths are absolute there."""
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
    """A new log file of the slice with one block that takes back the failed instant's; returns its path.

    One that this rollback has written before it was cut off is it.
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


def _rel(table: HoodieTable, instant: Instant) -> str:
    return f"{table.config.timeline_folder}/{instant.file_name()}"


def undo_requests(table: HoodieTable, metadata: CommitMetadata, undone: Collection[str]) -> list[RollbackRequest]:
    """The steps for a write with this metadata; ``undone``: the times of all writes that go, this one among them."""
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
    return list(found.values())
