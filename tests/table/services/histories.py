"""Random histories of a table of layout 2, without any file: names of files, and which writes' rows each of them holds.

Writes, compactions and clusterings overlap: a service is requested, batches are committed, then it is completed. A write
goes to file groups that no clustering waits for, as in the product.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import cast

from hypothesis import strategies as st

from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.file_group.names import base_file_name, log_file_name
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.instant import (
    CLUSTERING,
    COMMIT,
    COMPACTION,
    DELTA_COMMIT,
    REPLACE_COMMIT,
    Instant,
    State,
)
from tagstream.table.timeline.timeline import Timeline

PARTITION = "p"
_STORAGE = cast(Storage, None)  # a listing is given: nothing is asked of it


def at(number: int) -> str:
    return f"20260101{number:09d}"


@dataclass(frozen=True)
class Files:
    """A listing of one partition."""

    names: Collection[str]

    def partitions(self) -> list[str]:
        return [PARTITION]

    def look_up(self, partition_paths: Collection[str]) -> None:
        pass

    def files(self, partition_path: str) -> Mapping[str, int]:
        return dict.fromkeys(self.names, 1) if partition_path == PARTITION else {}


@dataclass
class History:
    """``holds``: the times of the writes whose rows are in each file; ``rows``: of all that count, as of each completion."""

    now: int = 0
    instants: list[Instant] = field(default_factory=list)
    holds: dict[str, frozenset[str]] = field(default_factory=dict)
    replaced: dict[tuple[str, str], str] = field(default_factory=dict)
    waiting: dict[str, tuple[str, dict[str, frozenset[str]]]] = field(
        default_factory=dict
    )  # by the time of the request
    groups: list[str] = field(default_factory=list)
    rows: dict[str, frozenset[str]] = field(default_factory=dict)

    def tick(self) -> str:
        self.now += 1
        return at(self.now)

    def planned(self, action: str) -> dict[tuple[str, str], str]:
        return {(PARTITION, g): time for time, (kind, groups) in self.waiting.items() if kind == action for g in groups}

    @property
    def timeline(self) -> Timeline:
        found = [*self.instants, *(Instant(t, kind, State.INFLIGHT) for t, (kind, _) in self.waiting.items())]
        ordered = tuple(sorted(found, key=lambda i: (i.time, i.action)))
        return Timeline("t", ordered, self.planned(COMPACTION), self.planned(CLUSTERING), dict(self.replaced))

    def view(self, names: Collection[str] | None = None) -> FileSystemView:
        timeline = self.timeline
        listing = Files(self.holds if names is None else names)
        return FileSystemView(_STORAGE, timeline, timeline.newest_completed, 9, None, listing)

    def seen(self, view: FileSystemView) -> list[str]:
        """The writes whose rows a reader finds, one entry for each file that has them."""
        slices = view.latest_merged_slices(PARTITION)
        files = (f for found in slices for f in (found.base_file, *found.log_files) if f is not None)
        return sorted(time for file in files for time in self.holds[file.name])

    def _complete(self, time: str, action: str, new: frozenset[str]) -> None:
        before = max(self.rows, default=None)
        done = self.tick()
        self.instants.append(Instant(time, action, State.COMPLETED, done))
        self.rows[done] = (self.rows[before] if before else frozenset()) | new

    def write(self, kind: int) -> None:
        """0: a new group with a base file; 1: with a log file; 2: a log file over the newest group."""
        time = self.tick()
        held = {group for _, group in self.planned(CLUSTERING)}
        free = [g for g in self.groups if g not in held]
        if kind == 2 and free:
            name = log_file_name(free[-1], time, 1, "0-0-0")
        else:
            group = f"g{len(self.groups) + len(self.replaced)}x{time[-4:]}"
            self.groups.append(group)
            name = log_file_name(group, time, 1, "0-0-0") if kind == 1 else base_file_name(group, "0-0-0", time)
        self.holds[name] = frozenset([time])
        self._complete(time, DELTA_COMMIT, frozenset([time]))

    def plan(self, action: str) -> None:
        """A compaction of every other free group, or a clustering of two: of what is there now."""
        busy = {group for _, groups in self.waiting.values() for group in groups}
        free = [g for g in self.groups if g not in busy]
        chosen = free[::2] if action == COMPACTION else free[:2]
        if chosen:
            slices = self.view().latest_slices(PARTITION, chosen)
            files = {g: (slices[g].base_file, *slices[g].log_files) for g in chosen}
            held = {
                g: frozenset(t for f in own if f is not None for t in self.holds[f.name]) for g, own in files.items()
            }
            self.waiting[self.tick()] = action, held

    def end(self, number: int) -> None:
        """Complete one of the plans."""
        if not self.waiting:
            return
        time = sorted(self.waiting)[number % len(self.waiting)]
        action, held = self.waiting.pop(time)
        if action == COMPACTION:
            self.holds |= {base_file_name(group, "0-0-0", time): rows for group, rows in held.items()}
            self._complete(time, COMMIT, frozenset())
            return
        group = f"c{time[-6:]}"
        self.holds[base_file_name(group, "0-0-0", time)] = frozenset().union(*held.values())
        self.replaced |= {(PARTITION, g): time for g in held}
        self.groups = [g for g in self.groups if g not in held] + [group]
        self._complete(time, REPLACE_COMMIT, frozenset())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2)),
        st.tuples(st.just("compact"), st.just(0)),
        st.tuples(st.just("cluster"), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 3)),
    ),
    max_size=14,
)


def history_of(steps: list[tuple[str, int]]) -> History:
    found = History()
    found.write(0)
    for step, number in steps:
        if step == "write":
            found.write(number)
        elif step == "end":
            found.end(number)
        else:
            found.plan(COMPACTION if step == "compact" else CLUSTERING)
    return found
