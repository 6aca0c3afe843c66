"""The bad records of a checkpoint, of all its queries, each with an id that stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tagstream.admin.errors import AdminError
from tagstream.state.durable.root import QUARANTINE, root_at, root_numbers
from tagstream.streaming.batch.epoch import newest_batch
from tagstream.streaming.write.quarantine import quarantined_batches, read_quarantine
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
