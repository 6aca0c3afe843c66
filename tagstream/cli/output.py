"""The output of a command, for people and for programs: facts and listings, or an error.

A listing is written row by row, so it may be larger than memory. In JSON every fact is a member of the one object, and every
listing is a member with an array of objects. A late error becomes the member ``error``, and the document is still
complete.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TextIO

from tagstream.table.errors import TagstreamError

# "name": a text that is never wrapped, such as an instant or a state.
Kind = Literal["text", "name", "count", "bytes"]


@dataclass(frozen=True)
class Column:
    """A column of a listing: its JSON field and its title in text. ``json_only``: only in JSON, because it is too long."""

    name: str
    title: str
    kind: Kind = "text"
    json_only: bool = False


@dataclass(frozen=True)
class Fact:
    """One result: its JSON field, its title in text, its value."""

    name: str
    title: str
    value: Any
    kind: Kind = "text"
    json_only: bool = False


class Output(Protocol):
    """The output of a command."""

    def facts(self, facts: Sequence[Fact]) -> None:
        """Write facts."""

    def listing(self, name: str, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> int:
        """Write rows and return their number."""

    def note(self, text: str) -> None:
        """Write a sentence for people; it is not in JSON."""

    def progress(self, text: str) -> None:
        """Show on a terminal what the command does now, until the next call or the end."""

    def close(self, error: str | None = None) -> None:
        """End the output. ``error``: the text of the error that ended the command."""


class JsonOutput:
    """One JSON document, written piece by piece."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._members = 0

    def facts(self, facts: Sequence[Fact]) -> None:
        """Write members of the document."""
        for fact in facts:
            self._begin(fact.name)
            self._stream.write(_dump(plain(fact.value)))

    def listing(self, name: str, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> int:
        """Write an array of objects. It is also closed when an error ends the rows."""
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
        """Not in JSON."""

    def progress(self, text: str) -> None:
        """Not in JSON."""

    def close(self, error: str | None = None) -> None:
        """Write the end of the document."""
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
    """A value as a JSON type: decimals, NaN and infinities as strings, times in ISO 8601, bytes in Base64."""
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
    """The command cannot do what was requested. The text says why and what to do next."""


@contextmanager
def new_file(path: str) -> Iterator[str]:
    """Gives the name under which the block writes a new file. The file is at ``path``, the --out of a command, once the
    block has ended without an error. AdminError when ``path`` exists.
    """
    if os.path.lexists(path):
        raise AdminError(f"{path} exists; give another --out, or remove it")
    temp = f"{path}.{os.getpid()}.tmp"
    try:
        yield temp
        os.link(temp, path)
    except FileExistsError as error:
        raise AdminError(f"{path} was created in the meantime; give another --out") from error
    finally:
        if os.path.exists(temp):
            os.unlink(temp)
