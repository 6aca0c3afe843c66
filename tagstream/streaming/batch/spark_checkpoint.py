"""What Spark's checkpoint says about a batch: the query id, and the source offsets before and after it.

A batch is a replay of a commit if it has the commit's number and offsets, and if this checkpoint made the commit. With
other offsets it is another batch that has the same number. The facts are read from Spark's files (``metadata``,
``offsets/<n>``, ``commits/<n>``, ``sources/0/<n>``), which are written before a batch runs. Their format: a version
line, a metadata line, then one JSON line per source. ``query_folder`` is the checkpoint location that Spark was given
(``state.checkpoint``).

Spark's log of files (``sources/0``) names the plans of the file source. Spark reads the whole log at a start and with
every tenth batch, and never removes an entry. An entry keeps a file from being read again. So the entry of a removed
plan has no use, and is removed too. Measured with 525,600 batches (a year of minutes): 70 MB, 2.4 s.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tagstream.streaming.errors import CheckpointError
from tagstream.streaming.source.file_plans import PLANS, SNAPSHOT, PlanLog, plan_name, plan_number, read_plan
from tagstream.table.storage.opening import uri
from tagstream.table.storage.storage import Storage, at_once


@dataclass(frozen=True)
class SparkBatch:
    """One batch as Spark planned it. Offsets are the source's JSON values (files: ``{"log", "mtime_ms", "paths"}``)."""

    query_id: str
    batch_id: int
    start_offsets: Any
    end_offsets: Any


def query_id(query_folder: Storage) -> str | None:
    """The id that Spark gave the query of this checkpoint; None before its first start. CheckpointError for a damaged
    file.
    """
    try:
        return str(json.loads(query_folder.read("metadata"))["id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as e:
        raise CheckpointError(
            f"{query_folder.where('metadata')} is damaged ({e}); restore this file or start with a new --checkpoint-dir"
        ) from e


def newest_batch(query_folder: Storage, log: str) -> int | None:
    """Greatest batch number in Spark's ``offsets`` or ``commits`` folder (``log``); None when the folder is empty."""
    return max((int(n) for n in query_folder.names(log) if n.isdigit()), default=None)


def unfinished_batch(query_folder: Storage) -> int | None:
    """The batch that Spark has planned and not finished; None between two batches and before the first."""
    planned = newest_batch(query_folder, "offsets")
    return None if planned == newest_batch(query_folder, "commits") else planned


def raw_offset(query_folder: Storage, batch_id: int) -> Any | None:
    """The first source's offset after ``batch_id`` as Spark logged it; None where the batch or its offset does not
    exist.
    """
    lines = _logged(query_folder, batch_id)
    return None if lines is None or lines[0] == "-" else json.loads(lines[0])


def read_up_to(query_folder: Storage, log: str, begin: str | None) -> dict[int, int] | None:
    """The next offset of each partition of the topic, after the newest batch in Spark's ``offsets`` or ``commits``
    folder.

    Before the first batch: the starting offsets ``begin``. A partition that is left out is read from its first record,
    so "earliest" gives an empty result. None: unknown ("latest").
    """
    newest = newest_batch(query_folder, log)
    found = None if newest is None else raw_offset(query_folder, newest)
    if found is None:
        if begin == "latest":
            return None
        found = {} if begin in (None, "earliest") else json.loads(begin)
    return {int(p): int(at) for parts in found.values() for p, at in parts.items() if int(at) >= 0}


def source_offsets(query_folder: Storage, batch_id: int) -> list[Any] | None:
    """Every source's offset after ``batch_id``; None for a source without one. None instead of a list: the batch does
    not exist.

    An offset that is not JSON is kept as text.
    """
    lines = _logged(query_folder, batch_id)
    return None if lines is None else [None if line == "-" else _json_or_text(line) for line in lines]


def _logged(query_folder: Storage, batch_id: int) -> list[str] | None:
    path = f"offsets/{batch_id}"
    try:
        lines = query_folder.read(path).decode().splitlines()
    except FileNotFoundError:
        return None
    if len(lines) < 3:
        raise CheckpointError(
            f"{query_folder.where(path)} has {len(lines)} lines, 3 expected; restore it or start with a new --checkpoint-dir"
        )
    return lines[2:]


def read_spark_batch(
    query_folder: Storage, batch_id: int, *, files: bool, rows: bool = False, before: SparkBatch | None = None
) -> SparkBatch:
    """Read a batch that Spark has planned.

    ``files``: the source is a folder of files, not Kafka. ``rows``: the source is a DataFrame; the offsets of its
    sources are kept unchanged, as ``{"sources": [...]}``. ``before``: the last batch of this query, whose facts are
    then not read again. No other process writes the checkpoint meanwhile.
    """
    if before is not None and before.batch_id != batch_id - 1:
        before = None
    if rows:
        return _opaque_spark_batch(query_folder, batch_id, before)
    if before is not None:
        ident: str | None = before.query_id
        after, start = raw_offset(query_folder, batch_id), before.end_offsets
        first = int(start["log"]) if files else -1
    else:
        ident, after, offset = at_once(
            query_folder,
            lambda: query_id(query_folder),
            lambda: raw_offset(query_folder, batch_id),
            lambda: raw_offset(query_folder, batch_id - 1),
        )
        start = offset or {}
        first = int(offset["logOffset"]) if files and offset is not None else -1
    if ident is None or after is None:
        raise CheckpointError(f"batch {batch_id} is not in {query_folder.where('offsets')}, though Spark runs it")
    if not files:
        return SparkBatch(ident, batch_id, start, after)
    last = int(after["logOffset"])
    seen = file_log(query_folder, first + 1, last)
    return SparkBatch(ident, batch_id, {"log": first}, _newest_files(query_folder, seen, last))


def _opaque_spark_batch(query_folder: Storage, batch_id: int, before: SparkBatch | None) -> SparkBatch:
    """The batch with the offsets of all sources unchanged, as Spark logged them."""
    after = source_offsets(query_folder, batch_id)
    if before is not None:
        ident: str | None = before.query_id
        start = before.end_offsets
    else:
        ident, offsets = query_id(query_folder), source_offsets(query_folder, batch_id - 1)
        start = {"sources": offsets} if offsets else {}
    if ident is None or after is None:
        raise CheckpointError(f"batch {batch_id} is not in {query_folder.where('offsets')}, though Spark runs it")
    return SparkBatch(ident, batch_id, start, {"sources": after})


def _json_or_text(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line


def file_log(query_folder: Storage, first: int, last: int) -> list[dict[str, Any]]:
    """Entries ``{"path", "timestamp", "batchId"}`` of the file source's log for its batch numbers first..last."""
    out: list[dict[str, Any]] = []
    for n in range(first, last + 1):
        path = f"sources/0/{n}"
        try:
            data = query_folder.read(path)
        except FileNotFoundError:  # now part of the next compaction of Spark's log
            fold = min((at for at, kind in _log_names(query_folder) if kind == "compact" and at >= n), default=None)
            if fold is None:
                raise CheckpointError(
                    f"{query_folder.where(path)} is missing; restore it or start with a new --checkpoint-dir"
                ) from None
            data = query_folder.read(f"sources/0/{fold}.compact")
        rows = [json.loads(x) for x in data.decode().splitlines()[1:] if x]
        out += [r for r in rows if int(r["batchId"]) == n]
    return out


def whole_file_log(query_folder: Storage) -> list[dict[str, Any]]:
    """All entries of the file source's log, oldest first. Its newest compaction has all entries before it.

    Entries of removed plans may be missing (see the module's text).
    """
    names = _log_names(query_folder)
    fold = max((at for at, kind in names if kind == "compact"), default=-1)
    wanted = [f"{fold}.compact"] if fold >= 0 else []
    wanted += [str(at) for at, kind in sorted(names) if at > fold and not kind]
    lines = (
        line for name in wanted for line in query_folder.read(f"sources/0/{name}").decode().splitlines()[1:] if line
    )
    return [json.loads(line) for line in lines]


def newest_fold(query_folder: Storage) -> int | None:
    """The number of the newest compaction of the file source's log; None where there is none yet."""
    return max((at for at, kind in _log_names(query_folder) if kind == "compact"), default=None)


def _log_names(query_folder: Storage) -> list[tuple[int, str]]:
    parts = (name.partition(".") for name in query_folder.names("sources/0"))
    return [(int(at), kind) for at, _, kind in parts if at.isdigit()]


def follow_moved_plans(query_folder: Storage) -> None:
    """Update the paths of plans in Spark's log, which are full paths: the checkpoint may have been moved.

    Only entries that Spark may still read are changed: those of unfinished batches and of the last finished one, from
    which a query starts.
    """
    finished = newest_batch(query_folder, "commits")
    offset = None if finished is None else raw_offset(query_folder, finished)
    last = -1 if offset is None else int(offset["logOffset"])
    for name in query_folder.names("sources/0"):
        at, _, _ = name.partition(".")
        if not at.isdigit() or int(at) < last:
            continue
        version, *lines = query_folder.read(f"sources/0/{name}").decode().splitlines()
        moved = [_moved(query_folder, line, last) for line in lines]
        if moved != lines:
            query_folder.replace(f"sources/0/{name}", "\n".join([version, *moved]).encode())


def _moved(query_folder: Storage, line: str, last: int) -> str:
    entry = json.loads(line)
    number = plan_number(entry["path"])
    if number is None or int(entry["batchId"]) < last:
        return line
    here = uri(query_folder.where(plan_name(number)))
    return line if entry["path"] == here else json.dumps({**entry, "path": here}, separators=(",", ":"))


def _newest_files(query_folder: Storage, seen: list[dict[str, Any]], last: int) -> dict[str, Any]:
    """What a commit stores of a batch of files: the time of its newest file, and the files or plans with that time.

    A plan is stored by its name in the query folder.
    """
    found = []
    for entry in seen:
        number = plan_number(entry["path"])
        if number is None:
            found.append((int(entry["timestamp"]), entry["path"]))
        else:
            found.append((read_plan(query_folder, number).mtime_ms, plan_name(number)))
    newest = max((time for time, _ in found), default=0)
    return {"log": last, "mtime_ms": newest, "paths": sorted(path for time, path in found if time == newest)}


def streamer_checkpoint(spark_batch: SparkBatch, *, files: bool) -> str:
    """Text of ``deltastreamer.checkpoint.key``: ``topic,0:5,1:7`` (next offsets), or the newest modification time in
    ms.
    """
    if files:
        return str(spark_batch.end_offsets["mtime_ms"])
    ((topic, parts),) = spark_batch.end_offsets.items()
    return ",".join([topic, *(f"{p}:{o}" for p, o in sorted(parts.items(), key=lambda x: int(x[0])))])


_KEPT = 200  # so few plans cost nothing
_LEAST_PRUNED = 200  # the log is rewritten only to remove this many entries


def forget_old_plans(query_folder: Storage, batch_id: int, retain_batches: int) -> None:
    """Remove the plans of finished batches that are older than the ``retain_batches`` before ``batch_id``, and their
    entries in Spark's log of files.

    That log says which plans a batch took; the numbers of plans do not. Call it during a batch: then the query does not
    read its log.
    """
    if batch_id % max(1, retain_batches // 10):
        return  # the step lists folders, which is too slow for every batch
    committed = newest_batch(query_folder, "commits")
    if committed is None:
        return
    log = PlanLog(query_folder)
    there = log.numbers
    offset = raw_offset(query_folder, min(batch_id - retain_batches, committed))
    if len(there) <= _KEPT or offset is None:
        return
    last = int(offset["logOffset"])
    try:
        entries = whole_file_log(query_folder)
    except FileNotFoundError:  # Spark is compacting its log; try again at a later batch
        return
    taken = {plan_number(e["path"]) for e in entries if int(e["batchId"]) <= last}
    log.forget_plans([n for n in there if n in taken])
    left = frozenset(log.numbers)
    if sum(_is_done(entry, last, left) for entry in entries) >= _LEAST_PRUNED:
        _prune(query_folder, last, left)


def _prune(query_folder: Storage, last: int, there: frozenset[int]) -> None:
    """Remove entries from the newest compaction of the log: those up to the source's batch ``last`` whose plans are not
    in ``there``.

    A compaction has all entries before it, so older files need no change: Spark reads the newest one, and removes older
    ones.
    """
    fold = newest_fold(query_folder)
    if fold is None:
        return
    name = f"sources/0/{fold}.compact"
    version, *lines = query_folder.read(name).decode().splitlines()
    left = [line for line in lines if line and not _is_done(json.loads(line), last, there)]
    if len(lines) - len(left) >= max(_LEAST_PRUNED, len(left)):
        query_folder.replace(name, "\n".join([version, *left]).encode())


def _is_done(entry: dict[str, object], last: int, there: frozenset[int]) -> bool:
    number = plan_number(str(entry["path"]))
    return number is not None and number not in there and int(str(entry["batchId"])) <= last


def carry_plans(old: Storage, new: Storage, batch_id: int) -> bool:
    """Copy the positions of the query folder `old` to the query folder `new`, and the plans that batches up to
    `batch_id` did not take.

    A query that starts in `new` reads these plans first. Returns False and changes nothing where `old` has no plans, or
    was started by a version without plans: then only Spark's log of files has its position.
    """
    offset = raw_offset(old, batch_id)
    if offset is None or not old.names(PLANS):
        return False
    last = int(offset["logOffset"])
    taken = {plan_number(e["path"]) for e in whole_file_log(old) if int(e["batchId"]) <= last}
    if None in taken:
        return False
    log, carried = PlanLog(old), PlanLog(new)
    positions, newest = log.positions()
    carried.keep_positions(positions, newest)
    if old.exists(SNAPSHOT):  # of a table as the source; not all of its parts have plans yet
        new.replace(SNAPSHOT, old.read(SNAPSHOT))
    for number in log.numbers:
        if number not in taken:
            carried.copy_plan(number, old.read(plan_name(number)))
    return True
