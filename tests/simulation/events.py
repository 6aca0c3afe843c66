"""Random events of a stream: what sources send, and what they must not but do (late, twice, out of place)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulation.model import BEFORE_ALL, Event, Ident
from tests.simulation.settings import Settings
from tests.simulation.values import BY_NAME, ORDERINGS

_KINDS = ("update", "move", "late", "delete", "equal", "twice", "delete without partition", "late delete")
_CHANCES = (50, 15, 8, 8, 5, 3, 4, 3)


@dataclass
class _Key:
    alive: bool = False
    order: tuple[int, int] = BEFORE_ALL
    part: str | None = None
    last: Event | None = None


@dataclass
class EventMaker:
    """Makes events one after the other. It follows what each key is at, so that a late event is late for a row that lives:
    an event older than a delete may bring a row back where the index was loaded from the table since."""

    settings: Settings
    clock: int = 1000
    _keys: dict[Ident, _Key] = field(default_factory=dict)

    def make(self, random: Random, columns: tuple[str, ...], count: int) -> list[Event]:
        """The next events."""
        return [self._event(random, columns) for _ in range(count)]

    def forget(self, partitions: tuple[str, ...]) -> None:
        """Rows of partitions were deleted without events: no event is late for them any more."""
        for known in self._keys.values():
            if known.part in partitions:
                known.alive = False

    def rows_for(self, random: Random, columns: tuple[str, ...], part: str, count: int) -> list[Event]:
        """Rows of a partition, for a person who replaces what it holds."""
        found: dict[Ident, Event] = {}
        for _ in range(count):
            self.clock += random.randint(1, 5)
            key = f"k{random.randrange(self.settings.keys):04d}"
            ident: Ident = (part, key) if self.settings.by_partition else key
            known = self._keys.setdefault(ident, _Key())
            if known.alive and known.part != part:
                continue
            seq = 0
            event = Event(
                ident, (self.clock, seq), self._row(random, columns, key, part, self.clock, seq, False), False
            )
            found[ident] = event
        return list(found.values())

    def replaced(self, part: str, rows: Sequence[Event]) -> None:
        """Rows of a partition were replaced by these."""
        self.forget((part,))
        for event in rows:
            self._follow(self._keys[event.ident], event)

    def _event(self, random: Random, columns: tuple[str, ...]) -> Event:
        told = self.settings
        self.clock += random.randint(1, 5)
        key, part = f"k{random.randrange(told.keys):04d}", f"p{random.randrange(told.partitions)}"
        ident: Ident = (part, key) if told.by_partition else key
        known = self._keys.setdefault(ident, _Key())
        number, seq = self.clock, random.randint(0, 3) if told.second_ordering else 0
        kind = random.choices(_KINDS, _CHANCES)[0]
        deleted = kind == "delete"
        keeps_part = False
        shown: str | None = part
        if known.alive:
            if kind in ("late", "late delete"):
                number, deleted = max(1, known.order[0] - random.randint(1, 300)), kind == "late delete"
            elif kind == "equal":
                number, seq = known.order
            elif kind == "delete without partition":
                deleted = True
            if kind != "move" and not told.by_partition and random.random() < 0.9:
                shown = known.part
            if kind == "delete without partition" and not told.by_partition and told.index == "FLINK_STATE":
                shown = None
            keeps_part = told.partial and kind in ("update", "equal") and random.random() < 0.2
        if kind == "twice" and known.alive and known.last is not None:
            event = known.last
        else:
            row = self._row(random, columns, key, shown, number, seq, deleted)
            if keeps_part and not deleted:
                del row["part"]
            event = Event(ident, (number, seq), row, deleted)
        self._follow(known, event)
        return event

    def _follow(self, known: _Key, event: Event) -> None:
        if event.order < known.order:
            return
        known.alive, known.order, known.last = not event.deleted, event.order, event
        if not event.deleted and "part" in event.row:
            known.part = event.row["part"]

    def _row(
        self, random: Random, columns: tuple[str, ...], key: str, part: str | None, number: int, seq: int, deleted: bool
    ) -> dict[str, Any]:
        told = self.settings
        row: dict[str, Any] = {"id": key, "part": part, "ts": ORDERINGS[told.ordering][1](number)}
        if told.second_ordering:
            row["seq"] = seq
        row["_hoodie_is_deleted"] = deleted
        for name in columns:
            if not (told.partial and random.random() < 0.5):
                row[name] = BY_NAME[name].draw(random, number)
        return row
