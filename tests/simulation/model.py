"""What the table must hold, computed from the events alone: the oracle of a simulation.

The timeline is asked for one thing only: which events a commit says it has taken (their offsets). That these follow each
other without a gap is checked, so a commit that says too much, or a stream that passes events over, is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tagstream.table.timeline.operation import WriteOperationType
from tests.simulation.layouts import PARTITION_COLUMNS
from tests.simulation.values import BY_NAME, Column

Ident = str | tuple[str, str]
Offsets = dict[int, int]
BEFORE_ALL = (-1, -1)
TRUNCATE = "the whole table"  # the ident of an event that deletes all rows


@dataclass(frozen=True)
class Event:
    """One change. ``row``: its fields as JSON has them; one that it lacks is not in there. ``path``: its partition path,
    None where it does not say one. ``origin``: the key that the row had before, and that is deleted at the same time."""

    ident: Ident
    order: tuple[int, int]
    row: Mapping[str, Any]
    deleted: bool
    path: str | None = None
    origin: Ident | None = None


@dataclass(frozen=True)
class Unknown:
    """A value that the row of another key had when it was deleted at ``at``, which was not read yet: nobody knows it."""

    ident: Ident
    at: int
    column: str


@dataclass(frozen=True)
class Held:
    """What is known of a key: its row, None where it is deleted, the order of the newest event that counted, and where the
    row lies. ``ghosts``: rows that were deleted, by the time of the delete."""

    row: Mapping[str, Any] | None = None
    order: tuple[int, int] = BEFORE_ALL
    path: str | None = None
    ghosts: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)


State = dict[Ident, Held]


@dataclass(frozen=True)
class Entry:
    """The table after a completed write. ``exact``: a reader of that time saw just that; not so while events are read a
    second time, whose deletes the index may have forgotten."""

    instant: str
    state: State
    offsets: Offsets
    exact: bool


def _repeated(entry: Entry, before: Entry, now: Entry) -> Entry:
    """What a write has changed in ``before``, changed in ``now``: its keys have no other writes in between."""
    changed = {ident: held for ident, held in entry.state.items() if before.state.get(ident) != held}
    taken = {p: end for p, end in entry.offsets.items() if before.offsets.get(p) != end}
    return replace(
        entry, state={**now.state, **changed}, offsets={**now.offsets, **taken}, exact=now.exact and entry.exact
    )


@dataclass
class Model:
    """``log``: the completed writes in the order of their completion, as far as they were not undone. ``stays``: a row that
    comes with another partition stays where it is, as with ``update.partition.path=false``."""

    partial: bool
    stays: bool = False
    changes: bool = False
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

    def batch(
        self, instant: str, events: Sequence[Event], start: Offsets, end: Offsets, operation: str = ""
    ) -> str | None:
        """A batch was committed: ``events`` are those between the offsets. What is wrong with the offsets, if anything.
        ``operation``: what the commit has done with them."""
        before = self.now
        at = {p: before.offsets.get(p, 0) for p in end}
        begins = {p: start.get(p, 0) for p in end}
        ahead = [p for p in end if begins[p] > at[p]]
        problem = f"commit {instant} passes over events: it begins at {begins}, {at} is next" if ahead else None
        again = any(begins[p] < self.furthest.get(p, 0) for p in end)
        # What is read again ends where it was before: only the last of such batches is exact.
        done = all(end[p] >= self.furthest.get(p, 0) for p in end)
        self.furthest = {p: max(self.furthest.get(p, 0), end[p]) for p in end}
        offsets = {**before.offsets, **end}
        if operation == WriteOperationType.DELETE:
            after = deleted(before.state, events)
        else:
            after = self.folded(kept(before.state, events, operation), events)
        self.log.append(Entry(instant, after, offsets, done if again else before.exact))
        return problem

    def folded(self, state: State, events: Sequence[Event]) -> State:
        """The state after a batch: of one key, by their order, and only what is not older than what was there before."""
        if self.changes:
            return folded_changes(state, events)
        after = dict(state)
        by_key: dict[Ident, list[Event]] = {}
        for event in events:
            by_key.setdefault(event.ident, []).append(event)
        for ident, mine in by_key.items():
            held = before = after.get(ident, Held())
            known = held.order
            for event in sorted(mine, key=lambda e: e.order):
                if event.order < known:
                    continue
                row = None if event.deleted else dict(event.row)
                if row is not None and self.partial and held.row is not None:
                    row = {**held.row, **row}
                path = before.path if self.stays and before.row is not None else event.path
                if path is None and held.row is not None:  # a row that is new takes nothing from one that was deleted
                    path = held.path
                held = Held(row, event.order, path)
            after[ident] = held
        return after

    def other(self, instant: str) -> None:
        """A write that changes no row: compaction, clustering."""
        self.log.append(replace(self.now, instant=instant))

    def delete_partitions(self, instant: str, partitions: Sequence[str]) -> None:
        """All rows of partitions are gone; these are paths."""
        state = {
            ident: Held(None, held.order) if held.row is not None and held.path in partitions else held
            for ident, held in self.now.state.items()
        }
        self.log.append(replace(self.now, instant=instant, state=state))

    def put(self, rows: Sequence[Event]) -> None:
        """These rows came with the newest write."""
        entry = self.log.pop()
        # The index learns of others' deletes that the row is gone, not of their order.
        new = {e.ident: Held() if e.deleted else Held(dict(e.row), e.order, e.path) for e in rows}
        self.log.append(replace(entry, state=entry.state | new))

    def back_to(self, instant: str, there: Callable[[str], bool] | None = None) -> None:
        """All that was completed after ``instant`` is undone. ``there``: in table version 6, which knows no times of
        completion, it is all with a later time. What was completed after such a write is left if it has an earlier time and
        is on the timeline: compactions, clusterings, and batches of another stream."""
        if there is None:
            keep = next((i + 1 for i, e in enumerate(self.log) if e.instant == instant), 0)
            del self.log[keep:]
            return
        stays = [e.instant <= instant and there(e.instant) for e in self.log]
        if not all(stays):
            at = stays.index(False)
            kept = [self.start, *self.log[:at]]
            for i in range(at, len(self.log)):
                if stays[i]:
                    kept.append(_repeated(self.log[i], self.log[i - 1] if i else self.start, kept[-1]))
            self.log[:] = kept[1:]

    def forget(self, instant: str) -> None:
        """One write was undone alone. Those that were completed later stay: compactions, clusterings, and in table
        version 6 a batch of another stream with an earlier time."""
        at = next((i for i, entry in enumerate(self.log) if entry.instant == instant), None)
        if at is not None:
            kept = [self.start, *self.log[:at]]
            for i in range(at + 1, len(self.log)):
                kept.append(_repeated(self.log[i], self.log[i - 1], kept[-1]))
            self.log[:] = kept[1:]

    def rows(self, entry: Entry, by_partition: bool) -> dict[Ident, dict[str, Any]]:
        """The rows of the table after a write: values by column, in the form that they are compared in."""
        found: dict[Ident, dict[str, Any]] = {}
        for held in entry.state.values():
            if held.row is None:
                continue
            key, path = str(held.row["id"]), held.path
            values = {name: _value(column, held.row.get(name)) for name, column in BY_NAME.items()}
            own = {name: held.row[name] for name in PARTITION_COLUMNS if name in held.row}
            if path is not None:  # no record has said where the row is to lie
                own["_hoodie_partition_path"] = path
            found[(str(path), key) if by_partition else key] = {**own, **values}
        return found


def kept(state: State, events: Sequence[Event], operation: str) -> State:
    """The state without the rows that an overwrite with these events replaces.

    Deletes replace no partition; but an overwrite of the table replaces it by whatever the batch has, as by Hudi.
    """
    if operation == WriteOperationType.INSERT_OVERWRITE_TABLE:
        return {}
    if operation != WriteOperationType.INSERT_OVERWRITE:
        return state
    paths = {event.path for event in events if not event.deleted}
    return {ident: held for ident, held in state.items() if held.path not in paths}


def deleted(state: State, events: Sequence[Event]) -> State:
    """The state after a batch whose records all delete their keys, whatever their order is."""
    newest: dict[Ident, tuple[int, int]] = {}
    for event in events:
        newest[event.ident] = max(event.order, newest.get(event.ident, state.get(event.ident, Held()).order))
    return {**state, **{ident: Held(None, order) for ident, order in newest.items()}}


def folded_changes(state: State, events: Sequence[Event]) -> State:
    """The state after a batch of changes of a database: in the order of its log, over all keys."""
    after = dict(state)
    for event in sorted(events, key=lambda e: e.order):
        cut = after.get(TRUNCATE, Held()).order
        if event.ident == TRUNCATE:
            for ident, held in after.items():
                if held.order < event.order:
                    after[ident] = replace(held, row=None)
            after[TRUNCATE] = Held(None, max(cut, event.order))
            continue
        held = after.get(event.ident, Held())
        if event.order < held.order:
            continue
        at = event.order[0]
        if event.deleted:
            ghost = held.ghosts.get(at, held.row)
            ghosts = held.ghosts if ghost is None else {**held.ghosts, at: ghost}
            after[event.ident] = Held(None, event.order, None, ghosts)
            if ghost is not None:
                _resolve(after, event.ident, at, ghost)
            continue
        row: dict[str, Any] = {**(held.row or {}), **event.row}
        if event.origin is not None:
            row = {**_before(after, event.origin, at, event.row), **event.row}
        after[event.ident] = Held(None if event.order < cut else row, event.order, event.path, held.ghosts)
    return after


def _before(state: State, ident: Ident, at: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the row of another key had at its delete, as far as that was read."""
    ghost = state.get(ident, Held()).ghosts.get(at)
    if ghost is not None:
        return ghost
    return {name: Unknown(ident, at, name) for name in BY_NAME if name not in row}


def _resolve(state: State, ident: Ident, at: int, ghost: Mapping[str, Any]) -> None:
    """A delete was read: what was unknown for want of it is known."""

    def known(row: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: ghost.get(name) if isinstance(value, Unknown) and (value.ident, value.at) == (ident, at) else value
            for name, value in row.items()
        }

    for other, held in state.items():
        if held.row is not None or held.ghosts:
            row = None if held.row is None else known(held.row)
            state[other] = replace(held, row=row, ghosts={when: known(one) for when, one in held.ghosts.items()})


def _value(column: Column, found: Any) -> Any:
    return found if isinstance(found, Unknown) else column.value(found)
