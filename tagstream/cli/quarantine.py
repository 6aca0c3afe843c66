"""``tagstream quarantine``: list, count, show and replay the bad records that a job left out.

Each bad record of a checkpoint, of all its queries, has a fixed id.

A replay writes records to a folder that a job reads, each record once, even if the process is killed. The plan of a replay
is written first, in ``<quarantine of query folder 0>/replayed/<n>.json``: the records' ids, the folder, the file's name. The
file is then created whole under that name, and ``<n>.done`` marks the end. The next replay finishes one that was killed:
it writes the file if it does not exist. No record is chosen twice unless the user requests it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tagstream.cli.command import Clock, Command, add_checkpoint, add_limit, count
from tagstream.cli.output import AdminError, Column, Fact, Output
from tagstream.state.checkpoint import QUARANTINE, query_folder_at, query_folder_numbers
from tagstream.streaming.batch.quarantine import quarantined_batches, read_quarantine
from tagstream.streaming.batch.spark_checkpoint import newest_batch
from tagstream.table.storage.opening import open_storage, private
from tagstream.table.storage.storage import Storage

_VERSION = 1
_FOLDER = "replayed"
_RECORDS = (
    Column("id", "id", "name"),
    Column("batch_id", "batch", "count"),
    Column("left_out", "left out", "name"),
    Column("source", "source"),
    Column("offset", "offset", "count"),
    Column("reason", "reason"),
    Column("replayed", "replayed to"),
    Column("bytes", "value", "bytes"),
)
_COUNTS = (Column("reason", "reason"), Column("records", "records", "count"), Column("left_out", "left out", "count"))


@dataclass(frozen=True)
class BadRecord:
    """``ident``: ``<query folder>.<batch>.<part>.<line>``. ``left_out``: its batch is done, so the table will not get it.

    If the job stopped at the record's batch, it reads the record again later: it is not left out (yet).
    """

    ident: str
    batch_id: int
    left_out: bool
    source: str
    offset: int
    reason: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def open_checkpoint(path: str) -> Storage:
    """The checkpoint's files; AdminError when there is no checkpoint."""
    checkpoint = open_storage(path)
    if not checkpoint.exists("tagstream"):
        raise AdminError(f"{checkpoint.root} is not a checkpoint of this program; correct --checkpoint-dir")
    return checkpoint


def quarantine_of(checkpoint: Storage, query_folder: int) -> Storage:
    """The quarantine in one of the checkpoint's query folders."""
    return private(query_folder_at(checkpoint, query_folder).below(QUARANTINE))


def bad_records(checkpoint: Storage, batch: int | None = None, reason: str | None = None) -> Iterator[BadRecord]:
    """Bad records, oldest batch first; only of one ``batch``, and only with ``reason`` in their reason, if given."""
    for query_folder in query_folder_numbers(checkpoint):
        done = newest_batch(query_folder_at(checkpoint, query_folder), "commits")
        quarantine = quarantine_of(checkpoint, query_folder)
        for number in quarantined_batches(quarantine):
            if batch is not None and number != batch:
                continue
            left_out = done is not None and number <= done
            for part, line, found in read_quarantine(quarantine, number):
                if reason is None or reason in found["reason"]:
                    yield _record(f"{query_folder}.{number}.{part}.{line}", number, left_out, found)


def bad_record(checkpoint: Storage, ident: str) -> BadRecord:
    """The record with an id; AdminError when there is none."""
    parts = ident.split(".")
    if len(parts) == 4 and all(part.isdigit() for part in parts):
        for found in bad_records(checkpoint, int(parts[1])):
            if found.ident == ident:
                return found
    raise AdminError(f"the quarantine has no record {ident}; `tagstream quarantine list` shows the ids")


def _record(ident: str, batch_id: int, left_out: bool, found: dict[str, Any]) -> BadRecord:
    source = found["path"] if "path" in found else f"{found['topic']} {found['partition']}"
    return BadRecord(
        ident,
        batch_id,
        left_out,
        source,
        int(found["offset"]),
        found["reason"],
        found["key"],
        found["value"],
        found.get("headers", ()),
    )


@dataclass(frozen=True)
class Replay:
    """One replay: ``file`` in ``folder`` has the records ``idents``."""

    number: int
    folder: str
    file: str
    idents: tuple[str, ...]

    @property
    def path(self) -> str:
        """The path of the file."""
        return open_storage(self.folder).where(self.file)


def replayed(checkpoint: Storage) -> dict[str, str]:
    """The records that were replayed or are about to be: id -> path of the file."""
    return {ident: replay.path for replay in _replays(_ledger(checkpoint)) for ident in replay.idents}


def finish_replays(checkpoint: Storage) -> list[Replay]:
    """Finish killed replays, and return them."""
    ledger = _ledger(checkpoint)
    undone = [r for r in _replays(ledger) if not ledger.exists(f"{_FOLDER}/{r.number:06d}.done")]
    for replay in undone:
        _write(checkpoint, ledger, replay)
    return undone


def replay(checkpoint: Storage, folder: str, records: Collection[BadRecord]) -> Replay:
    """Write records that have a value to a new file of the folder. AdminError when another replay runs."""
    ledger = _ledger(checkpoint)
    number = max((r.number for r in _replays(ledger)), default=0) + 1
    name = hashlib.sha256(checkpoint.root.encode()).hexdigest()[:8]
    made = Replay(
        number, open_storage(folder).root, f"quarantine-{name}-{number:06d}.json", tuple(r.ident for r in records)
    )
    doc = {"version": _VERSION, "folder": made.folder, "file": made.file, "records": made.idents}
    try:
        ledger.write_new(f"{_FOLDER}/{number:06d}.json", json.dumps(doc, indent=1).encode())
    except FileExistsError:
        raise AdminError("another replay of this checkpoint is running; wait for its end, then try again") from None
    _write(checkpoint, ledger, made)
    return made


def line_of(value: bytes) -> bytes:
    """A record as a line. A line break inside it becomes a blank, which means the same in JSON outside of strings."""
    return value.replace(b"\n", b" ") + b"\n"


def _write(checkpoint: Storage, ledger: Storage, replay: Replay) -> None:
    target = private(open_storage(replay.folder))
    if not target.exists(replay.file):
        wanted = set(replay.idents)
        lines = {
            r.ident: line_of(r.value) for r in bad_records(checkpoint) if r.ident in wanted and r.value is not None
        }
        if len(lines) < len(wanted):
            raise AdminError(
                f"replay {replay.number} was killed before it wrote {replay.path}, and {len(wanted) - len(lines)} of "
                "its records are no longer in the quarantine; restore the quarantine from a copy, or remove "
                f"{ledger.where(_FOLDER)}/{replay.number:06d}.json to give up these records"
            )
        with suppress(FileExistsError):
            target.write_new(replay.file, b"".join(lines[ident] for ident in replay.idents))
    with suppress(FileExistsError):
        ledger.write_new(f"{_FOLDER}/{replay.number:06d}.done", b"")


def _replays(ledger: Storage) -> Iterator[Replay]:
    for name in ledger.names(_FOLDER):
        number, _, kind = name.partition(".")
        if kind != "json":
            continue
        where = ledger.where(f"{_FOLDER}/{name}")
        try:
            doc = json.loads(ledger.read(f"{_FOLDER}/{name}"))
            if doc["version"] == _VERSION:
                yield Replay(int(number), doc["folder"], doc["file"], tuple(doc["records"]))
                continue
        except (ValueError, KeyError, TypeError) as e:
            raise AdminError(f"{where} is damaged ({e!r}); restore it from a copy") from e
        raise AdminError(f"{where} has another version than {_VERSION}; run the program version that wrote it")


def _ledger(checkpoint: Storage) -> Storage:
    return quarantine_of(checkpoint, 0)


def _opened(arguments: argparse.Namespace, out: Output) -> Storage:
    checkpoint = open_checkpoint(arguments.checkpoint_dir)
    out.facts([Fact("checkpoint", "checkpoint", checkpoint.root)])
    return checkpoint


def _list(arguments: argparse.Namespace, out: Output, _: Clock) -> int:
    checkpoint = _opened(arguments, out)
    done = replayed(checkpoint)
    found = bad_records(checkpoint, arguments.batch, arguments.reason)
    count = out.listing("records", _RECORDS, (_row(r, done) for r in islice(found, arguments.limit or None)))
    more = next(found, None) is not None
    out.facts([Fact("more", "more records", more, json_only=True)])
    if count == 0:
        out.note("no bad records")
    if more:
        out.note(f"the first {arguments.limit} records; --limit 0 shows all, `quarantine count` their number")
    return 0


def _row(record: BadRecord, done: dict[str, str]) -> tuple[Any, ...]:
    size = None if record.value is None else len(record.value)
    return (
        record.ident,
        record.batch_id,
        record.left_out,
        record.source,
        record.offset,
        record.reason,
        done.get(record.ident),
        size,
    )


def _count(arguments: argparse.Namespace, out: Output, _: Clock) -> int:
    checkpoint = _opened(arguments, out)
    every, left_out = Counter[str](), Counter[str]()
    for record in bad_records(checkpoint, arguments.batch, arguments.reason):
        every[record.reason] += 1
        left_out[record.reason] += record.left_out
    out.listing("reasons", _COUNTS, ((reason, n, left_out[reason]) for reason, n in every.most_common()))
    out.facts(
        [
            Fact("records", "records", every.total(), "count"),
            Fact("left_out", "left out of the table", left_out.total(), "count"),
        ]
    )
    return 0


def _show(arguments: argparse.Namespace, out: Output, _: Clock) -> int:
    checkpoint = _opened(arguments, out)
    record = bad_record(checkpoint, arguments.id)
    out.facts(
        [
            Fact("id", "id", record.ident),
            Fact("batch_id", "batch", record.batch_id),
            Fact("left_out", "left out", record.left_out),
            Fact("source", "source", record.source),
            Fact("offset", "offset", record.offset),
            Fact("reason", "reason", record.reason),
            Fact("replayed", "replayed to", replayed(checkpoint).get(record.ident)),
            *(Fact(f"header {name}", f"header {name}", _text(value)) for name, value in record.headers),
        ]
    )
    raw = record.key if arguments.key else record.value
    if arguments.out is not None:
        if raw is None:
            raise AdminError(f"record {record.ident} has no {'key' if arguments.key else 'value'}; nothing was written")
        write_out(arguments.out, raw)
        out.facts([Fact("out", "written to", arguments.out), Fact("bytes", "bytes", len(raw), "bytes")])
        return 0
    out.facts(
        [
            Fact("key", "key", _text(record.key)),
            Fact("key_base64", "", record.key, json_only=True),
            Fact("value", "value", _text(record.value)),
            Fact("value_base64", "", record.value, json_only=True),
        ]
    )
    return 0


def write_out(path: str, data: bytes) -> None:
    """Write a new file on this machine, with access for its owner only. AdminError when the file exists."""
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as f:
            f.write(data)
    except FileExistsError:
        raise AdminError(f"{path} exists; give another --out") from None


def _text(raw: bytes | None) -> str | None:
    """Bytes as text. Bytes that are not UTF-8 become ``\\xNN``; the output escapes control characters."""
    return None if raw is None else raw.decode("utf-8", "backslashreplace")


def _replay(arguments: argparse.Namespace, out: Output, _: Clock) -> int:
    checkpoint = _opened(arguments, out)
    for earlier in finish_replays(checkpoint):
        out.note(f"an earlier replay was killed; it is finished now: {earlier.path}")
    done = {} if arguments.again else replayed(checkpoint)
    found = list(bad_records(checkpoint, arguments.batch, arguments.reason))
    fit = [r for r in found if r.left_out and r.value is not None and r.ident not in done]
    made = replay(checkpoint, arguments.to, fit) if fit else None
    skipped = {
        "before": sum(r.ident in done for r in found),
        "not_left_out": sum(not r.left_out and r.ident not in done for r in found),
        "no_value": sum(r.left_out and r.value is None and r.ident not in done for r in found),
    }
    out.facts(
        [
            Fact("replayed", "replayed", len(fit), "count"),
            Fact("file", "file", made.path if made else None),
            Fact("replayed_before", "replayed before", skipped["before"], "count"),
            Fact("not_left_out", "of a batch that is not done", skipped["not_left_out"], "count"),
            Fact("no_value", "without a value", skipped["no_value"], "count"),
        ]
    )
    if skipped["not_left_out"]:
        out.note("when the job is started, it reads the records of an unfinished batch again by itself")
    if skipped["no_value"]:
        out.note(
            "a message without a value is a delete by its key, which a file cannot contain: send it to the topic again"
        )
    return 0


def _add_chosen(out: argparse.ArgumentParser) -> None:
    add_checkpoint(out)
    out.add_argument("--batch", metavar="N", type=count, help="only records of this batch")
    out.add_argument("--reason", metavar="TEXT", help="only records whose reason includes this text")


def _add_list(out: argparse.ArgumentParser) -> None:
    _add_chosen(out)
    add_limit(out, 100, "records to list (0: all)")


def _add_show(out: argparse.ArgumentParser) -> None:
    add_checkpoint(out)
    out.add_argument("id", metavar="ID", help="the record's id, from quarantine list")
    out.add_argument("--out", metavar="FILE", help="write the unchanged bytes of the value to this new file")
    out.add_argument("--key", action="store_true", help="with --out: the message key and not the value")


def _add_replay(out: argparse.ArgumentParser) -> None:
    _add_chosen(out)
    out.add_argument("--to", metavar="FOLDER", required=True, help="folder of JSON lines; each replay adds a file")
    out.add_argument("--again", action="store_true", help="also records that were already replayed")


_GROUP = "quarantine"
COMMANDS = (
    Command(_GROUP, "list", "the bad records: their positions in the source, and why they are bad", _add_list, _list),
    Command(_GROUP, "count", "the number of bad records, by reason", _add_chosen, _count),
    Command(_GROUP, "show", "one bad record as text, or its bytes to a file", _add_show, _show),
    Command(_GROUP, "replay", "write the records, each once, to a folder that a job reads", _add_replay, _replay),
)
