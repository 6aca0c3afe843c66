"""A database and its change stream, as Debezium sends it: rows, deletes with their tombstones, changed keys, values that
were not sent since they did not change, truncates, and messages that come twice.

A key's events are in one partition of the topic, in their order. Those of two keys may be read in any order: the new key of
a row that was renamed may be read before all that became of the old one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulation.model import TRUNCATE, Event, Ident
from tests.simulation.settings import Settings
from tests.simulation.values import BY_NAME, ORDERINGS, sub_of

UNSENT = "__debezium_unavailable_value"
TOAST = ("txt", "new2")  # columns of text, whose large values are not sent when they did not change
_KINDS = ("update", "move", "rename", "delete", "twice", "truncate")
_CHANCES = (50, 12, 14, 16, 5, 2)


@dataclass(frozen=True)
class Message:
    """A message of the topic, and what it means (None: nothing)."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]
    event: Event | None


@dataclass
class _Row:
    """A row of the database. ``last``: its newest message, None where it says a key that changed."""

    values: dict[str, Any]
    path: str
    last: Message | None = None


@dataclass
class Database:
    """The source's table: what it holds, and the messages that its changes make."""

    settings: Settings
    partitions: int
    clock: int = 1000
    _rows: dict[str, _Row] = field(default_factory=dict)
    _old: dict[str, list[Message]] = field(default_factory=dict)

    def make(self, random: Random, columns: tuple[str, ...], count: int) -> list[Message]:
        """The messages of so many changes."""
        return [message for _ in range(count) for message in self._change(random, columns)]

    def forget(self, partitions: tuple[str, ...]) -> None:
        """Rows were deleted in the table alone: no message that comes twice may bring them back."""
        for row in self._rows.values():
            row.last = None
        self._old.clear()

    def forget_keys(self, idents: Iterable[Ident]) -> None:
        """As :meth:`forget`."""
        self.forget(())

    def taken(self, rows: Sequence[Event]) -> None:
        """No other writes here."""

    def _change(self, random: Random, columns: tuple[str, ...]) -> list[Message]:
        told = self.settings
        self.clock += random.randint(1, 5)
        key = f"k{random.randrange(told.keys):04d}"
        row, kind = self._rows.get(key), random.choices(_KINDS, _CHANCES)[0]
        if kind == "truncate" and told.truncates:
            return [self.truncate(random)]
        if row is None:
            return [self.put(random, columns, key, random.randrange(told.partitions))]
        if kind == "twice":
            return self._again(random, key)
        if kind == "delete":
            return self._delete(random, key, None)
        other = f"k{random.randrange(told.keys):04d}"
        if kind == "rename" and other not in self._rows:
            gone = self._delete(random, key, other)
            return [*gone, self.put(random, columns, other, self._part(random, row, 0.3), row, key)]
        return [self.put(random, columns, key, self._part(random, row, 0.9 if kind == "move" else 0.0), row)]

    def _part(self, random: Random, row: _Row, moves: float) -> int:
        if random.random() < moves:
            return random.randrange(self.settings.partitions)
        place = self.settings.place
        own = {name: row.values[name] for name in place.columns}
        return next(n for n in range(self.settings.partitions) if place.fields(n) == own)

    def put(
        self,
        random: Random,
        columns: tuple[str, ...],
        key: str,
        part: int,
        was: _Row | None = None,
        old: str | None = None,
    ) -> Message:
        """A row that is new, was updated, or has the values of another key's row that it was before."""
        told = self.settings
        values = {"id": key, **told.place.fields(part), "ts": ORDERINGS[told.ordering][1](self.clock)}
        if told.two_keys:
            values["sub"] = sub_of(key)
        sent, unsent = dict(values), []
        for name in columns:
            value = BY_NAME[name].draw(random, self.clock)
            if name in TOAST:
                value = f"large {self.clock}" if value is None or name == "txt" else value
                if told.toast and was is not None and was.values.get(name) is not None and random.random() < 0.6:
                    value, unsent = was.values[name], [*unsent, name]
            values[name] = value
            sent[name] = UNSENT if name in unsent else value
        path = told.place.path(part)
        known = {name: value for name, value in values.items() if name not in unsent}
        event = Event(key, (self.clock, 1 if old is not None else 0), known, False, path, old)
        doc = {"op": "c" if was is None or old is not None else "u", "before": None, "after": sent, **self._source()}
        headers = {} if old is None else {"__debezium.oldkey": json.dumps(self._key(old))}
        message = Message(self._place(key), self._bytes(key), json.dumps(doc).encode(), headers, event)
        plain = old is None and not unsent
        self._rows[key] = _Row(values, path, message if plain else None)
        if plain:
            self._old.setdefault(key, []).append(message)
        else:
            self._old.pop(key, None)
        return message

    def _delete(self, random: Random, key: str, new: str | None) -> list[Message]:
        row = self._rows.pop(key)
        self._old.pop(key, None)
        before: dict[str, Any] = row.values
        if random.random() < 0.5:  # the key alone, and nulls, as without REPLICA IDENTITY FULL
            before = {**dict.fromkeys(row.values), **self._key(key)}
        event = Event(key, (self.clock, 0), {"id": key}, True, None)
        doc = {"op": "d", "before": before, "after": None, **self._source()}
        headers = {} if new is None else {"__debezium.newkey": json.dumps(self._key(new))}
        out = [Message(self._place(key), self._bytes(key), json.dumps(doc).encode(), headers, event)]
        if random.random() < 0.8:
            out.append(Message(self._place(key), self._bytes(key), None, headers, None))
        return out

    def truncate(self, random: Random) -> Message:
        """All rows are deleted at once."""
        self._rows.clear()
        self._old.clear()
        event = Event(TRUNCATE, (self.clock, 0), {}, True)
        doc = {"op": "t", "before": None, "after": None, **self._source()}
        return Message(random.randrange(self.partitions), None, json.dumps(doc).encode(), {}, event)

    def _again(self, random: Random, key: str) -> list[Message]:
        """A connector that started again: the newest message, or with an ordering field one from before, too."""
        last = self._rows[key].last
        if last is None:
            return []
        return [random.choice(self._old[key]) if self.settings.changes == "field" else last]

    def _source(self) -> dict[str, Any]:
        return {"source": {"lsn": self.clock, "ts_ms": self.clock, "snapshot": "false", "connector": "postgresql"}}

    def _key(self, key: str) -> dict[str, Any]:
        return {"id": key, **({"sub": sub_of(key)} if self.settings.two_keys else {})}

    def _bytes(self, key: str) -> bytes:
        return json.dumps(self._key(key)).encode()

    def _place(self, key: str) -> int:
        return sum(key.encode()) % self.partitions
