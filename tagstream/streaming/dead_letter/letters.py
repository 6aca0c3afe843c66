"""Bad records as dead letters: what one says, how it is known again, and who takes it."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tagstream.streaming.write.quarantine import read_quarantine
from tagstream.table.storage.storage import Storage

DIGEST_DIGITS = 16


@dataclass(frozen=True)
class Letter:
    """One bad record. ``ident``: the same whenever the record is read (:func:`ident_of`); ``source``: topic or path;
    ``partition`` of the topic, None for files. ``headers``: names and values.
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
        """The headers as JSON, their values in base64."""
        return json.dumps([[name, None if v is None else b64encode(v).decode()] for name, v in self.headers])


class Taker(Protocol):
    """Takes the letters of a batch: all of them, durably, or raises. ``batch``: names query and batch, and comes again
    with the same letters when a process died in between."""

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
    """``<place>:<digest>``. ``place`` of a record is its position in the source, so that a query that reads it again finds
    the same letter; a row of a DataFrame has none, and goes by its line in the quarantine.

    The digest tells records apart that had the same position: in a topic that was deleted and created once more, in a file
    that was written over, rows that a transformation made of one record, and records that are bad for two tables.
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
