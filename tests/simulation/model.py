"""What the table must hold, computed from the events alone: the oracle of a simulation.

The timeline is asked for one thing only: which events a commit says it has taken (their offsets). That these follow each
other without a gap is checked, so a commit that says too much, or a stream that passes events over, is found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.values import BY_NAME

Ident = str | tuple[str, str]
Offsets = dict[int, int]
BEFORE_ALL = (-1, -1)


@dataclass(frozen=True)
class Event:
    """One change. ``row``: its fields as JSON has them; one that it lacks is not in there."""

    ident: Ident
    order: tuple[int, int]
    row: Mapping[str, Any]
    deleted: bool


@dataclass(frozen=True)
class Held:
    """What is known of a key: its row, None where it is deleted, and the order of the newest event that counted."""

    row: Mapping[str, Any] | None = None
    order: tuple[int, int] = BEFORE_ALL


State = dict[Ident, Held]


@dataclass(frozen=True)
class Entry:
    """The table after a completed write. ``exact``: a reader of that time saw just that; not so while events are read a
    second time, whose deletes the index may have forgotten."""

    instant: str
    state: State
    offsets: Offsets
    exact: bool


@dataclass
class Model:
    """``log``: the completed writes in the order of their completion, as far as they were not undone."""

    partial: bool
    log: list[Entry] = field(default_factory=list)
    furthest: Offsets = field(default_factory=dict)
    start: Entry = field(default_factory=lambda: Entry("", {}, {}, True))

    @property
    def now(self) -> Entry:
        """The table as it must be now."""
        return self.log[-1] if self.log else self.start

    def knows(self, instant: str) -> bool:
        """Whether the write was seen."""
        return any(entry.instant == instant for entry in self.log)

    def batch(self, instant: str, events: Sequence[Event], start: Offsets, end: Offsets) -> str | None:
        """A batch was committed: ``events`` are those between the offsets. What is wrong with the offsets, if anything."""
        before = self.now
        at = {p: before.offsets.get(p, 0) for p in end}
        begins = {p: start.get(p, 0) for p in end}
        ahead = [p for p in end if begins[p] > at[p]]
        problem = f"commit {instant} passes over events: it begins at {begins}, {at} is next" if ahead else None
        again = any(begins[p] < self.furthest.get(p, 0) for p in end)
        # What is read again ends where it was before: only the last of such batches is exact.
        done = all(end[p] >= self.furthest.get(p, 0) for p in end)
        self.furthest = {p: max(self.furthest.get(p, 0), end[p]) for p in end}
        self.log.append(Entry(instant, self.folded(before.state, events), dict(end), done if again else before.exact))
        return problem

    def folded(self, state: State, events: Sequence[Event]) -> State:
        """The state after a batch: of one key, by their order, and only what is not older than what was there before."""
        after = dict(state)
        by_key: dict[Ident, list[Event]] = {}
        for event in events:
            by_key.setdefault(event.ident, []).append(event)
        for ident, mine in by_key.items():
            held = after.get(ident, Held())
            known = held.order
            for event in sorted(mine, key=lambda e: e.order):
                if event.order < known:
                    continue
                row = None if event.deleted else dict(event.row)
                if row is not None and self.partial and held.row is not None:
                    row = {**held.row, **row}
                held = Held(row, event.order)
            after[ident] = held
        return after

    def other(self, instant: str) -> None:
        """A write that changes no row: compaction, clustering."""
        self.log.append(replace(self.now, instant=instant))

    def delete_partitions(self, instant: str, partitions: Sequence[str]) -> None:
        """All rows of partitions are gone."""
        state = {
            ident: Held(None, held.order) if held.row is not None and held.row.get("part") in partitions else held
            for ident, held in self.now.state.items()
        }
        self.log.append(replace(self.now, instant=instant, state=state))

    def put(self, rows: Sequence[Event]) -> None:
        """These rows came with the newest write."""
        entry = self.log.pop()
        self.log.append(replace(entry, state=entry.state | {e.ident: Held(dict(e.row), e.order) for e in rows}))

    def back_to(self, instant: str | None) -> None:
        """All that was completed after ``instant`` is undone; None: all."""
        keep = next((i + 1 for i, e in enumerate(self.log) if e.instant == instant), 0)
        del self.log[keep:]

    def forget(self, instant: str) -> None:
        """One write was undone alone. Those that were completed later changed no row: compactions, clusterings."""
        at = next((i for i, entry in enumerate(self.log) if entry.instant == instant), None)
        if at is not None:
            before = self.log[at - 1] if at else self.start
            self.log[at:] = [replace(before, instant=entry.instant) for entry in self.log[at + 1 :]]

    def rows(self, entry: Entry, by_partition: bool) -> dict[Ident, dict[str, Any]]:
        """The rows of the table after a write: values by column, in the form that they are compared in."""
        found: dict[Ident, dict[str, Any]] = {}
        for held in entry.state.values():
            if held.row is None:
                continue
            key, part = str(held.row["id"]), held.row.get("part")
            values = {name: column.value(held.row.get(name)) for name, column in BY_NAME.items()}
            found[(str(part), key) if by_partition else key] = {"part": part, **values}
        return found
