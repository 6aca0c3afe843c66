"""Bad records: stored in the quarantine, each with its position in the source and the reason, and read back as dead
letters.

The quarantine has one JSON object per line in ``<quarantine>/batch=<id>/part-<n>.jsonl``: ``topic, partition, offset``
(Kafka) or ``path, offset`` (files, bytes from the start), ``reason``, ``key_base64`` and ``value_base64`` (null where
the record had none). Messages with headers also have ``headers``: pairs of name and value in base64. The bytes are
those of the record, so that a corrected copy can be sent again.
"""

from __future__ import annotations

import base64
import hashlib
import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tagstream.table.storage.storage import Storage

_BATCH = "batch="
_SHOWN = 400  # characters of a reason in one line of a log


def batch_folder(batch_id: int) -> str:
    """Folder of one batch's bad records, in the quarantine."""
    return f"{_BATCH}{batch_id:020d}"


def write_quarantine(quarantine: Storage, batch_id: int, part: int, records: Iterable[Mapping[str, Any]]) -> str:
    """Write one task's bad records and return the file's full path.

    ``records`` have their position (``topic, partition, offset`` or ``path, offset``), ``reason``, and ``key`` and
    ``value`` as bytes or None. The file appears whole or not at all, and is durable when this returns. A replay or a
    second attempt of the task writes the same file again.
    """
    target = f"{batch_folder(batch_id)}/part-{part:05d}.jsonl"
    with quarantine.open_output(target) as out:
        for record in records:  # a row loop: bad records are few, and each is its own line
            out.write((json.dumps(_line(record), ensure_ascii=False) + "\n").encode())
    return quarantine.where(target)


def read_quarantine(quarantine: Storage, batch_id: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Read one batch's bad records: (part, line number from 1, record).

    ``key``, ``value`` and the values of ``headers`` are bytes or None.
    """
    folder = batch_folder(batch_id)
    for name in quarantine.names(folder):
        part = name.removeprefix("part-").removesuffix(".jsonl")
        if not part.isdigit():
            continue
        for number, text in enumerate(quarantine.read(f"{folder}/{name}").splitlines(), 1):
            record = json.loads(text)
            for field in ("key", "value"):
                record[field] = _decoded(record.pop(f"{field}_base64"))
            if "headers" in record:
                record["headers"] = tuple((header, _decoded(value)) for header, value in record["headers"])
            yield int(part), number, record


def first_reason(quarantine: Storage, batch_id: int) -> str:
    """A sentence that says why the first bad record of a batch is bad, with a blank at the end. Empty where there is
    none.
    """
    for _, _, record in read_quarantine(quarantine, batch_id):
        where = _where(record)
        reason = " ".join(str(record["reason"]).split())
        return f"The first ({where}): {reason if len(reason) <= _SHOWN else reason[:_SHOWN] + '...'}. "
    return ""


def _where(record: Mapping[str, Any]) -> str:
    if record.get("topic") == "":  # of a DataFrame, whose rows have no position in a source
        return f"row {record['offset']} of task {record['partition']}"
    return " ".join(f"{name} {record[name]}" for name in ("topic", "partition", "path", "offset") if name in record)


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def quarantined_batches(quarantine: Storage) -> list[int]:
    """Numbers of the batches that have bad records, in ascending order."""
    found = (name.removeprefix(_BATCH) for name in quarantine.names("") if name.startswith(_BATCH))
    return sorted(int(number) for number in found if number.isdigit())


def forget_batch(quarantine: Storage, batch_id: int) -> None:
    """Remove the bad records of a batch attempt that was not committed. The next attempt may have other bad records."""
    quarantine.delete_tree(batch_folder(batch_id))


def forget_old(quarantine: Storage, before_ms: int) -> list[int]:
    """Remove the batches whose files are all older than a time in epoch milliseconds. Returns their numbers."""
    old = [b for b in quarantined_batches(quarantine) if _newest(quarantine, b) < before_ms]
    for batch_id in old:
        forget_batch(quarantine, batch_id)
    return old


def _newest(quarantine: Storage, batch_id: int) -> int:
    return max((entry.mtime_ms for entry in quarantine.list(batch_folder(batch_id))), default=0)


def _line(record: Mapping[str, Any]) -> dict[str, Any]:
    place = {k: v for k, v in record.items() if k not in ("reason", "key", "value")}
    return {
        **place,
        "reason": record["reason"],
        "key_base64": _base64(record["key"]),
        "value_base64": _base64(record["value"]),
    }


def _base64(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode("ascii")


DIGEST_DIGITS = 16


@dataclass(frozen=True)
class Letter:
    """One bad record. ``ident`` (:func:`ident_of`) is the same each time the record is read. ``source``: topic or path.
    ``partition``: of the topic; None for files. ``headers``: names and values.
    """

    ident: str
    source: str
    partition: int | None
    offset: int
    reason: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def headers_json(self) -> str:
        """The headers as JSON, with their values in base64."""
        return json.dumps([[name, None if v is None else b64encode(v).decode()] for name, v in self.headers])


class LetterTarget(Protocol):
    """Receives the letters of a batch: stores all of them durably or raises.

    ``batch``: identifies query and batch. The same call is repeated when a process died before the batch was committed.
    """

    def take(self, letters: list[Letter], batch: str, /) -> None: ...


def letters_of(quarantine: Storage, batch_id: int, query: str, target: str) -> Iterator[Letter]:
    """The bad records of a batch of ``query``, in the order of the quarantine. ``target``: base path of their table."""
    for part, line, found in read_quarantine(quarantine, batch_id):
        source = found["path"] if "path" in found else found["topic"]
        place = f"{query}.{batch_id}.{part}.{line}"
        if source:
            partition = "" if "path" in found else f"{found['partition']}:"
            place = f"{source}:{partition}{int(found['offset']):020d}"
        yield _letter(ident_of(place, target, found["key"], found["value"]), source, found)


def ident_of(place: str, target: str, key: bytes | None, value: bytes | None) -> str:
    """``<place>:<digest>``. ``place``: the record's position in the source, so a query that reads the record again
    makes the same letter. A row of a DataFrame has no position, so its line in the quarantine is used.

    The digest separates records with the same position: of a topic that was deleted and created again, of a file that
    was overwritten, rows that a transformation made from one record, and records that are bad for two tables.
    """
    held = hashlib.sha256(repr((place, target, key, value)).encode())
    return f"{place}:{held.hexdigest()[:DIGEST_DIGITS]}"


def _letter(ident: str, source: str, found: dict[str, Any]) -> Letter:
    return Letter(
        ident=ident,
        source=source,
        partition=found.get("partition"),
        offset=int(found["offset"]),
        reason=found["reason"],
        key=found["key"],
        value=found["value"],
        headers=found.get("headers", ()),
    )
