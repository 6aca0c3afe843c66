"""What a command shows, for people and for machines: facts and listings, or an error.

A listing is taken row by row, so it may be longer than memory. JSON: every fact is a member of the one object,
every listing is an array member of objects. An error that comes later is the member ``error``, and the document is
still whole.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TextIO

from tagstream.table.errors import TagstreamError

# "name": a text that is never folded, an instant or a state.
Kind = Literal["text", "name", "count", "bytes"]


@dataclass(frozen=True)
class Column:
    """A column of a listing: its JSON field and its title for people. ``json_only``: too long for a terminal."""

    name: str
    title: str
    kind: Kind = "text"
    json_only: bool = False


@dataclass(frozen=True)
class Fact:
    """One thing found out: its JSON field, its title for people, its value."""

    name: str
    title: str
    value: Any
    kind: Kind = "text"
    json_only: bool = False


class Output(Protocol):
    """Where a command writes to."""

    def facts(self, facts: Sequence[Fact]) -> None:
        """Show facts."""

    def listing(self, name: str, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> int:
        """Show rows; returns how many there were."""

    def note(self, text: str) -> None:
        """A sentence for people; machines do not get it."""

    def progress(self, text: str) -> None:
        """What the command is at; shown on a terminal until the next one, or the end."""

    def close(self, error: str | None = None) -> None:
        """End the output; ``error`` is what made the command fail."""


class JsonOutput:
    """One JSON document, written as it comes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._members = 0

    def facts(self, facts: Sequence[Fact]) -> None:
        """Members of the document."""
        for fact in facts:
            self._begin(fact.name)
            self._stream.write(_dump(plain(fact.value)))

    def listing(self, name: str, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> int:
        """An array of objects. It is closed also when the rows end by an error."""
        self._begin(name)
        self._stream.write("[")
        names = [column.name for column in columns]
        count = 0
        try:
            for row in rows:
                values = dict(zip(names, map(plain, row), strict=True))
                self._stream.write(("," if count else "") + "\n  " + _dump(values))
                count += 1
        finally:
            self._stream.write("\n ]" if count else "]")
        return count

    def note(self, text: str) -> None:
        """Not for machines."""

    def progress(self, text: str) -> None:
        """Not for machines."""

    def close(self, error: str | None = None) -> None:
        """Write the document's end."""
        if error is not None:
            self.facts([Fact("error", "", error)])
        self._stream.write("\n}\n" if self._members else "{}\n")
        self._stream.flush()

    def _begin(self, name: str) -> None:
        self._stream.write(("," if self._members else "{") + f"\n {_dump(name)}: ")
        self._members += 1


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """A value as JSON has it: decimals, NaN and infinities as text, times in ISO 8601, bytes in base 64."""
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case decimal.Decimal():
            return format(value, "f")
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(k): plain(v) for k, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
    return str(value)


class AdminError(TagstreamError):
    """The command cannot do what it was asked to; the text says why and what to do next."""
