"""Random events of a stream: what sources send, and what they must not but do (late, twice, out of place)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.simulation.model import BEFORE_ALL, Event, Ident
from tests.simulation.settings import Settings
from tests.simulation.values import BY_NAME, ORDERINGS, sub_of

_KINDS = ("update", "move", "late", "delete", "equal", "twice", "delete without partition", "late delete")
_CHANCES = (50, 15, 8, 8, 5, 3, 4, 3)


@dataclass
class _Key:
    alive: bool = False
    order: tuple[int, int] = BEFORE_ALL
    part: int | None = None
    last: Event | None = None
    deleted: bool = False  # by an event, which the index remembers
    floor: int = 0  # another writer deleted it: the index keeps the order from before, or does not know it


@dataclass
class EventMaker:
    """Makes events one after the other. It follows what each key is at, so that a late event is late for a row that lives,
    or for one that an event deleted where no checkpoint is lost: an index that is loaded from the table alone may not know
    the order of a delete."""

    settings: Settings
    clock: int = 1000
    _keys: dict[Ident, _Key] = field(default_factory=dict)

    def make(self, random: Random, columns: tuple[str, ...], count: int) -> list[Event]:
        """The next events."""
        return [self._event(random, columns) for _ in range(count)]

    def forget(self, partitions: tuple[str, ...]) -> None:
        """Rows of partitions, which are paths, were deleted without events: no event is late for them any more."""
        for known in self._keys.values():
            # Where rows stay in their partitions, the last event does not say where.
            if self.settings.stays or (known.last is not None and known.last.path in partitions):
                known.alive = known.deleted = False

    def forget_keys(self, idents: Iterable[Ident]) -> None:
        """What was known of keys does not hold any more: no event is late for them."""
        for ident in idents:
            self._keys[ident].alive = self._keys[ident].deleted = False

    def rows_for(self, random: Random, columns: tuple[str, ...], part: int, count: int) -> list[Event]:
        """Rows of a partition, for a person who replaces what it holds."""
        found: dict[Ident, Event] = {}
        for _ in range(count):
            event = self._given(random, columns, part)
            known = self._keys[event.ident]
            if known.alive and known.part != part:
                continue
            found[event.ident] = event
        return list(found.values())

    def of_others(self, random: Random, columns: tuple[str, ...], count: int) -> list[Event]:
        """What another writer writes: newer rows, moved ones too, and deletes."""
        found: dict[Ident, Event] = {}
        for _ in range(count):
            event = self._given(random, columns, random.randrange(self.settings.partitions))
            if self._keys[event.ident].alive and random.random() < 0.3:
                event = replace(event, deleted=True)
            found[event.ident] = event
        return list(found.values())

    def taken(self, rows: Sequence[Event]) -> None:
        """These rows came into the table past the stream."""
        for event in rows:
            known = self._keys[event.ident]
            self._follow(known, event)
            known.floor = event.order[0] if event.deleted else known.floor
            known.deleted = False

    def _given(self, random: Random, columns: tuple[str, ...], part: int) -> Event:
        """A row that is newer than all others."""
        self.clock += random.randint(1, 5)
        key, path = f"k{random.randrange(self.settings.keys):04d}", self.settings.place.path(part)
        ident: Ident = (path, key) if self.settings.by_partition else key
        self._keys.setdefault(ident, _Key())
        row = self._row(random, columns, key, part, self.clock, 0, False)
        return Event(ident, (self.clock, 0), row, False, path)

    def _event(self, random: Random, columns: tuple[str, ...]) -> Event:
        told = self.settings
        self.clock += random.randint(1, 5)
        key, part = f"k{random.randrange(told.keys):04d}", random.randrange(told.partitions)
        if told.operation:  # a key that no other event has
            key = f"k{10_000 + self.clock}"
        ident: Ident = (told.place.path(part), key) if told.by_partition else key
        known = self._keys.setdefault(ident, _Key())
        number, seq = self.clock, random.randint(0, 3) if told.second_ordering else 0
        kind = random.choices(_KINDS, _CHANCES)[0]
        deleted = kind == "delete"
        keeps_part = False
        shown: int | None = part
        if kind in ("late", "late delete") and (known.alive or (told.remembers and known.deleted)):
            number, deleted = max(known.floor + 1, known.order[0] - random.randint(1, 300)), kind == "late delete"
        if known.alive:
            if kind == "equal":
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
                shown = None
                for name in told.place.columns:
                    del row[name]
            event = Event(ident, (number, seq), row, deleted, None if shown is None else told.place.path(shown))
        self._follow(known, event)
        return event

    def _follow(self, known: _Key, event: Event) -> None:
        if event.order < known.order:
            return
        known.alive, known.order, known.last = not event.deleted, event.order, event
        known.deleted = event.deleted
        if not event.deleted and event.path is not None:
            known.part = self._number(event.path)

    def _number(self, path: str) -> int | None:
        place = self.settings.place
        return next((n for n in range(self.settings.partitions) if place.path(n) == path), None)

    def _row(
        self, random: Random, columns: tuple[str, ...], key: str, part: int | None, number: int, seq: int, deleted: bool
    ) -> dict[str, Any]:
        told = self.settings
        names = told.place.columns
        where = dict.fromkeys(names) if part is None else told.place.fields(part)
        row: dict[str, Any] = {"id": key, **where, "ts": ORDERINGS[told.ordering][1](number)}
        if told.two_keys:
            row["sub"] = sub_of(key)
        if told.second_ordering:
            row["seq"] = seq
        row["_hoodie_is_deleted"] = deleted
        for name in columns:
            if not (told.partial and random.random() < 0.5):
                row[name] = BY_NAME[name].draw(random, number)
        return row
