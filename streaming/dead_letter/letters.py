"""Bad records as dead letters: what one says, and who takes it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tagstream.streaming.write.quarantine import read_quarantine
from tagstream.table.storage.storage import Storage


@dataclass(frozen=True)
class Letter:
    """One bad record. ``ident``: ``<batch>.<part>.<line>`` of the query's quarantine; ``source``: topic or path;
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

    def take(self, letters: list[Letter], batch: str) -> None: ...


def letters_of(quarantine: Storage, batch_id: int) -> Iterator[Letter]:
    """The bad records of a batch, in the order of the quarantine."""
    for part, line, found in read_quarantine(quarantine, batch_id):
        yield _letter(f"{batch_id}.{part}.{line}", found)


def _letter(ident: str, found: dict[str, Any]) -> Letter:
    return Letter(
        ident=ident,
        source=found["path"] if "path" in found else found["topic"],
        partition=found.get("partition"),
        offset=int(found["offset"]),
        reason=found["reason"],
        key=found["key"],
        value=found["value"],
        headers=found.get("headers", ()),
    )
