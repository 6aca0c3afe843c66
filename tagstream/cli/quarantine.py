"""``tagstream quarantine``: list, count, show and replay the records that a job put aside as bad.

Each bad record of a checkpoint, of all its queries, has an id that stays.

A replay writes records to a folder that a job reads: each record once, whatever process dies in between. What a
replay has to do is kept before it is done, in ``<quarantine of root 0>/replayed/<n>.json``: the records' ids, the
folder, the file's name. The file then appears whole under that name, and ``<n>.done`` says so. The next replay
finishes one that was killed: it writes the file if the file does not exist. No record is chosen twice unless the
user asks for it.
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

from tagstream.cli.output import AdminError, Column, Fact, Output
from tagstream.state.checkpoint import QUARANTINE, root_at, root_numbers
from tagstream.streaming.batch.quarantine import quarantined_batches, read_quarantine
from tagstream.streaming.batch.spark_checkpoint import newest_batch
from tagstream.table.storage.opening import open_storage, private
from tagstream.table.storage.storage import Storage


@dataclass(frozen=True)
class BadRecord:
    """``ident``: ``<root>.<batch>.<part>.<line>``. ``left_out``: its batch is done, so the table lacks it for good.

    A record of a batch that the job stopped at is read again when the job is: it is not left out (yet).
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
    """The checkpoint's files; AdminError when there is none."""
    checkpoint = open_storage(path)
    if not checkpoint.exists("tagstream"):
        raise AdminError(f"{checkpoint.root} is no checkpoint of this program; correct --checkpoint-dir")
    return checkpoint


def quarantine_of(checkpoint: Storage, root: int) -> Storage:
    """The quarantine of one of the checkpoint's roots."""
    return private(root_at(checkpoint, root).below(QUARANTINE))


def bad_records(checkpoint: Storage, batch: int | None = None, reason: str | None = None) -> Iterator[BadRecord]:
    """Bad records, oldest batch first; of one batch, or with a text in their reason."""
    for root in root_numbers(checkpoint):
        done = newest_batch(root_at(checkpoint, root), "commits")
        quarantine = quarantine_of(checkpoint, root)
        for number in quarantined_batches(quarantine):
            if batch is not None and number != batch:
                continue
            left_out = done is not None and number <= done
            for part, line, found in read_quarantine(quarantine, number):
                if reason is None or reason in found["reason"]:
                    yield _record(f"{root}.{number}.{part}.{line}", number, left_out, found)


def bad_record(checkpoint: Storage, ident: str) -> BadRecord:
    """The record of an id; AdminError when there is none."""
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


_VERSION = 1
_FOLDER = "replayed"


@dataclass(frozen=True)
class Replay:
    """One replay: ``file`` in ``folder`` has the records ``idents``."""

    number: int
    folder: str
    file: str
    idents: tuple[str, ...]

    @property
    def path(self) -> str:
        """Where the file is."""
        return open_storage(self.folder).where(self.file)


def replayed(checkpoint: Storage) -> dict[str, str]:
    """The records that were replayed, or are about to be: id -> the file."""
    return {ident: replay.path for replay in _replays(_ledger(checkpoint)) for ident in replay.idents}


def finish_replays(checkpoint: Storage) -> list[Replay]:
    """Do what killed replays have left undone; which these were."""
    ledger = _ledger(checkpoint)
    undone = [r for r in _replays(ledger) if not ledger.exists(f"{_FOLDER}/{r.number:06d}.done")]
    for replay in undone:
        _write(checkpoint, ledger, replay)
    return undone


def replay(checkpoint: Storage, folder: str, records: Collection[BadRecord]) -> Replay:
    """Write records that have a value to a new file of the folder. AdminError when another replay is at work."""
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
        raise AdminError("another replay of this checkpoint is at work; wait for its end, then do it again") from None
    _write(checkpoint, ledger, made)
    return made


def line_of(value: bytes) -> bytes:
    """A record as a line: a line's end inside it is a blank, which means the same in JSON outside of texts."""
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
                f"replay {replay.number} was cut off before {replay.path} was written, and {len(wanted) - len(lines)} of "
                "its records are not in the quarantine any more; bring the quarantine back from a copy, or remove "
                f"{ledger.where(_FOLDER)}/{replay.number:06d}.json to give them up"
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
            raise AdminError(f"{where} is damaged ({e!r}); bring it back from a copy") from e
        raise AdminError(f"{where} has another version than {_VERSION}; run the program version that wrote it")


def _ledger(checkpoint: Storage) -> Storage:
    return quarantine_of(checkpoint, 0)


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


def run_quarantine(arguments: argparse.Namespace, out: Output) -> int:
    """Run one of the quarantine commands; returns the exit code."""
    checkpoint = open_checkpoint(arguments.checkpoint_dir)
    out.facts([Fact("checkpoint", "checkpoint", checkpoint.root)])
    match arguments.command:
        case "list":
            return _list(checkpoint, arguments, out)
        case "count":
            return _count(checkpoint, arguments, out)
        case "show":
            return _show(checkpoint, arguments, out)
        case _:
            return _replay(checkpoint, arguments, out)


def _list(checkpoint: Storage, arguments: argparse.Namespace, out: Output) -> int:
    done = replayed(checkpoint)
    found = bad_records(checkpoint, arguments.batch, arguments.reason)
    count = out.listing("records", _RECORDS, (_row(r, done) for r in islice(found, arguments.limit or None)))
    more = next(found, None) is not None
    out.facts([Fact("more", "more records", more, json_only=True)])
    if count == 0:
        out.note("no bad records")
    if more:
        out.note(f"the first {arguments.limit} records; --limit 0 shows all, `quarantine count` how many there are")
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


def _count(checkpoint: Storage, arguments: argparse.Namespace, out: Output) -> int:
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


def _show(checkpoint: Storage, arguments: argparse.Namespace, out: Output) -> int:
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
    """A new file on this machine, for its owner alone; AdminError when there is one."""
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as f:
            f.write(data)
    except FileExistsError:
        raise AdminError(f"{path} is there already; give another --out") from None


def _text(raw: bytes | None) -> str | None:
    """Bytes for people: what is no UTF-8 as ``\\xNN``; the output escapes control characters."""
    return None if raw is None else raw.decode("utf-8", "backslashreplace")


def _replay(checkpoint: Storage, arguments: argparse.Namespace, out: Output) -> int:
    for earlier in finish_replays(checkpoint):
        out.note(f"an earlier replay was cut off; it is done now: {earlier.path}")
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
        out.note("the job reads the records of a batch that is not done again by itself, when it is started")
    if skipped["no_value"]:
        out.note("a message without a value is a delete by its key, which a file can't say: send it to the topic again")
    return 0
