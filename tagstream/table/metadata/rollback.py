"""Roll back the entries of an action in the metadata table, when that action is rolled back.

Up to version 7 a rollback of the data has its own delta commit, which records the files that were deleted or got a
rollback block, and then a rollback action ``R006``: blocks in the log files make readers ignore the earlier instant.
From version 8 on a log file belongs to one instant, and the rollback (of the same instant as the data's) deletes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tagstream.table.errors import CorruptFileError, MetadataCompactedError
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import rollback_block, write_log_file
from tagstream.table.file_group.names import join, log_file_name, parse_log_file_name
from tagstream.table.metadata.metadata_writer import MetadataWriter, Times
from tagstream.table.timeline.avro_timeline import ROLLBACK_METADATA, ROLLBACK_PLAN, read_record, write_record
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import COMMIT, DELTA_COMMIT, ROLLBACK, Instant, State
from tagstream.table.timeline.timeline import Timeline

ROLLBACK_SUFFIX: Final = "006"  # of the instant of a rollback, up to version 7

_MADE: Final = "0" * 14  # prefix of the instants that create the partitions of a metadata table
_BLOCK_TOKEN: Final = "1-0-1"  # the write token of Hudi's rollback blocks


def check_rollback(writer: MetadataWriter, failed: str) -> None:
    """MetadataCompactedError when the entries of ``failed`` are in base files of the metadata table.

    Call it before the data is changed: such entries cannot be rolled back, and the metadata table must be dropped
    first.
    """
    timeline = writer.timeline()
    compaction, known = newest_compaction(timeline), timeline.find(failed)
    if compaction is None or (known is not None and not known.is_completed):
        return
    if known is None:  # archived, which happens only after a compaction, or never begun
        is_in = timeline.start is not None and failed < timeline.start
    else:
        is_in = ((known.completion_time or failed) if writer.has_completion_times else failed) < compaction
    if is_in:
        raise MetadataCompactedError(
            f"the metadata table at {writer.storage.root} has compacted the entries of {failed} at {compaction}: they "
            "cannot be rolled back; drop the metadata table before the rollback, and build it again afterwards"
        )


def is_irreversible(writer: MetadataWriter, written: str) -> bool:
    """Whether the entries of a completed write cannot be rolled back.

    That is so if base files have them, or if the metadata table, or one of its partitions, was created after the write.
    """
    timeline = writer.timeline()
    told = next((i for i in timeline.instants if (i.time, i.action) == (written, DELTA_COMMIT)), None)
    if told is None:
        return True
    made = (i.completion_time for i in timeline.instants if i.time.startswith(_MADE) and i.completion_time)
    if told.completion_time and max(made, default="") > told.completion_time:
        return True
    try:
        check_rollback(writer, written)
    except MetadataCompactedError:
        return True
    return False


def roll_back(writer: MetadataWriter, failed: str, instant: str, times: Times) -> bool:
    """Roll back the delta commit ``failed``, completed or pending; False when there is none.

    ``instant`` is that of the rollback: from version 8 on the data's rollback R, before R with ``ROLLBACK_SUFFIX``.
    MetadataCompactedError as of :func:`check_rollback`.
    """
    check_rollback(writer, failed)
    timeline = writer.timeline()
    known = next((i for i in timeline.instants if (i.time, i.action) == (failed, DELTA_COMMIT)), None)
    if known is None:
        return False
    requests = _requests(writer, timeline, known)
    plan = {
        "instantToRollback": {"commitTime": failed, "action": DELTA_COMMIT},
        "RollbackRequests": requests,
        "version": 1,
    }
    writer.begin(instant, ROLLBACK, write_record(ROLLBACK_PLAN, plan))
    _carry_out(writer, failed, instant, requests, times)
    return True


def recover(writer: MetadataWriter, times: Times) -> None:
    """Finish interrupted rollbacks, and roll back delta commits whose action is no longer on the data's timeline."""
    for begun in writer.timeline().pending_rollbacks:
        rel = writer.rel(Instant(begun.time, ROLLBACK, State.REQUESTED))
        data = writer.storage.read(rel) if writer.storage.exists(rel) else b""
        plan = read_record(data, writer.storage.where(rel)) if data else {}
        target = (plan.get("instantToRollback") or {}).get("commitTime")
        if not target:
            raise CorruptFileError(
                f"{writer.storage.where(rel)}, the plan of a pending rollback, is missing or names no instant: drop the "
                "metadata table"
            )
        writer.write_inflight(begun.time, ROLLBACK)
        _carry_out(writer, target, begun.time, list(plan.get("RollbackRequests") or ()), times)
    pending = [i for i in writer.timeline().pending if i.action == DELTA_COMMIT]
    if pending:
        known = {i.time for i in writer.table.timeline().instants}
        for instant in pending:
            if instant.time not in known:
                roll_back(writer, instant.time, times(), times)


def forget_undone(writer: MetadataWriter, times: Times) -> tuple[str, ...]:
    """Roll back delta commits that were completed after the data had rolled their writes back; returns their instants.

    A driver that was paused while its successor rolled its write back, and died after it resumed, causes one. Readers
    use it when its instant is older than the data's timeline, or when it is compacted: they would list deleted files.
    So this is called at a start, before a compaction, and before the rollback is archived from the data's timeline. A
    write that was executed again at the same instant is not rolled back. MetadataCompactedError as of ``roll_back``.
    """
    done = {i.time for i in writer.timeline().instants if i.action == DELTA_COMMIT and i.is_completed}
    timeline = writer.table.timeline()
    suspects = {time for time in done if timeline.find(time) is None}
    if not suspects:
        return ()
    later = [i for i in timeline.instants if i.action == ROLLBACK and i.is_completed and i.time > min(suspects)]
    suspects &= {time for rollback in later for time in timeline.rolled_back_by(writer.table.storage, rollback)}
    if suspects:
        suspects -= {write.time for write in writer.table.archived_writes()}
    for time in sorted(suspects):
        roll_back(writer, time, times(), times)
    return tuple(sorted(suspects))


def _requests(writer: MetadataWriter, timeline: Timeline, failed: Instant) -> list[dict[str, Any]]:
    """The files to delete, or to append a rollback block to, in Hudi's form, with absolute paths."""
    found = []
    for partition, name, size in _log_files(writer, timeline, failed):
        log, path = parse_log_file_name(name), writer.storage.where(join(partition, name))
        assert log is not None  # _log_files returns only log files
        own = writer.has_completion_times
        found.append({
            "partitionPath": partition,
            "fileId": "" if own else log.file_id,
            "latestBaseInstant": "" if own else log.base_instant,
            "filesToBeDeleted": [path] if own else [],
            "logBlocksToBeDeleted": {} if own else {path: size},
        })  # fmt: skip
    return found


def _log_files(writer: MetadataWriter, timeline: Timeline, failed: Instant) -> Iterable[tuple[str, str, int]]:
    """(partition, name, bytes) of each log file with entries of the instant."""
    storage = writer.storage
    if failed.is_completed and not writer.has_completion_times:
        rel = writer.rel(failed)
        for stat in CommitMetadata.from_bytes(storage.read(rel), storage.where(rel)).all_stats():
            yield stat.partition_path, stat.file_name, stat.file_size
        return
    view = writer.view(timeline)
    for partition in _folders(writer):
        if writer.has_completion_times:
            for entry in storage.list(partition):
                log = parse_log_file_name(entry.name)
                if log is not None and log.base_instant == failed.time:
                    yield partition, entry.name, entry.size
            continue
        for file_slice in view.latest_merged_slices(partition):
            for log_file, rel in zip(file_slice.log_files, file_slice.log_paths, strict=True):
                if any(block.instant == failed.time for block in scan_log_file(storage, rel)):
                    yield partition, log_file.name, log_file.size


def _folders(writer: MetadataWriter) -> list[str]:
    return [entry.name for entry in writer.storage.list("") if entry.is_dir and not entry.name.startswith(".")]


def _carry_out(writer: MetadataWriter, failed: str, instant: str, requests: list[dict[str, Any]], times: Times) -> None:
    """Execute a rollback.

    It can be repeated after a crash: deleted files remain deleted, more rollback blocks do no harm.
    """
    storage = writer.storage
    # The completed file first: without it readers ignore the remaining files.
    for known in writer.timeline().instants:
        if (known.time, known.action, known.is_completed) == (failed, DELTA_COMMIT, True):
            storage.delete(writer.rel(known))
    done: dict[str, dict[str, Any]] = {}
    for request in requests:
        partition = request["partitionPath"]
        part = done.setdefault(partition, {
            "partitionPath": partition, "successDeleteFiles": [], "failedDeleteFiles": [], "rollbackLogFiles": {},
            "logFilesFromFailedCommit": {},
        })  # fmt: skip
        files = [join(partition, path.rsplit("/", 1)[-1]) for path in request["filesToBeDeleted"]]
        storage.delete_many(files)
        part["successDeleteFiles"] += [storage.where(rel) for rel in files]
        for path, size in (request["logBlocksToBeDeleted"] or {}).items():
            rel, written = _rollback_block(writer, request, failed, instant)
            part["rollbackLogFiles"][storage.where(rel)] = written
            part["logFilesFromFailedCommit"][path] = size
    for state in (State.INFLIGHT, State.REQUESTED):
        storage.delete(writer.rel(Instant(failed, DELTA_COMMIT, state)))
    metadata = {
        "startRollbackTime": instant,
        "timeTakenInMillis": 0,
        "totalFilesDeleted": sum(len(part["successDeleteFiles"]) for part in done.values()),
        "commitsRollback": [failed],
        "partitionMetadata": done,
        "version": 1,
        "instantsRollback": [{"commitTime": failed, "action": DELTA_COMMIT}],
    }
    writer.complete(instant, ROLLBACK, write_record(ROLLBACK_METADATA, metadata), times)


def _rollback_block(writer: MetadataWriter, request: dict[str, Any], failed: str, instant: str) -> tuple[str, int]:
    """(path, bytes) of a new log file of the slice, with a block that rolls back the failed instant's blocks."""
    partition, file_id, base = request["partitionPath"], request["fileId"], request["latestBaseInstant"]
    logs = (parse_log_file_name(name) for name in writer.storage.names(partition))
    versions = [log.version for log in logs if log and (log.file_id, log.base_instant) == (file_id, base)]
    rel = join(partition, log_file_name(file_id, base, max(versions, default=0) + 1, _BLOCK_TOKEN))
    return rel, write_log_file(writer.storage, rel, [rollback_block(instant, failed)])


def newest_compaction(timeline: Timeline) -> str | None:
    """The time of the newest completed compaction; None without one."""
    return next((i.time for i in reversed(timeline.instants) if i.action == COMMIT and i.is_completed), None)
