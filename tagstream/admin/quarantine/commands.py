"""``tagstream quarantine``: list, count, show and replay the records that a job put aside as bad."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from itertools import islice
from typing import Any

from tagstream.admin.errors import AdminError
from tagstream.admin.output import Column, Fact, Output
from tagstream.admin.quarantine.records import BadRecord, bad_record, bad_records, open_checkpoint
from tagstream.admin.quarantine.replay import finish_replays, replay, replayed
from tagstream.table.storage.storage import Storage

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
