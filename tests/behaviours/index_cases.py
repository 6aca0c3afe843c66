"""What every index must do, as one stream: a batch a case, and the rows that the table has after each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "sub", "type": "string"},
        {"name": "part", "type": ["null", "string"], "default": None},
        {"name": "region", "type": ["null", "string"], "default": None},
        {"name": "ts", "type": "long"},
        {"name": "v", "type": ["null", "string"], "default": None},
        {"name": "_hoodie_is_deleted", "type": "boolean", "default": False},
    ],
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Layout:
    """Key and partition fields."""

    name: str
    keys: tuple[str, ...]
    partitions: tuple[str, ...]

    def conf(self) -> dict[str, str]:
        return {
            "hoodie.datasource.write.recordkey.field": ",".join(self.keys),
            "hoodie.datasource.write.partitionpath.field": ",".join(self.partitions),
        }


LAYOUTS = {
    "one partition field": Layout("one partition field", ("id",), ("part",)),
    "no partition": Layout("no partition", ("id",), ()),
    "two partition fields, complex key": Layout("two partition fields, complex key", ("id", "sub"), ("region", "part")),
}


def row(key: str, part: str | None, ts: int, v: str, *, deleted: bool = False) -> Row:
    """One event. Every key has its own ``sub``; the region goes with the first letter of the partition."""
    region = None if part is None else f"r{part[-1]}"
    return {
        "id": key, "sub": f"s-{key}", "part": part, "region": region, "ts": ts, "v": v, "_hoodie_is_deleted": deleted,
    }  # fmt: skip


@dataclass
class Expected:
    """The table by identity; ``keeps_deletes``: a late event for a deleted key stays away."""

    is_global: bool
    partitioned: bool
    keeps_deletes: bool
    live: dict[Any, Row] = field(default_factory=dict)
    buried: dict[Any, int] = field(default_factory=dict)

    def identity(self, event: Row) -> Any:
        return event["id"] if self.is_global or not self.partitioned else (event["part"], event["id"])

    def apply(self, events: Iterable[Row]) -> None:
        """The newest event of each key of the batch, against what is live."""
        newest: dict[Any, Row] = {}
        for event in events:
            key = self.identity(event)
            if key not in newest or event["ts"] >= newest[key]["ts"]:
                newest[key] = event
        for key, event in newest.items():
            known = self.live[key]["ts"] if key in self.live else self.buried.get(key, -1) if self.keeps_deletes else -1
            if event["ts"] < known:
                continue
            if event["_hoodie_is_deleted"]:
                self.live.pop(key, None)
                self.buried[key] = event["ts"]
            else:
                self.live[key] = event

    def rows(self) -> list[Row]:
        return sorted(self.live.values(), key=lambda r: (r["id"], r["part"]))


@dataclass(frozen=True)
class Case:
    """A name, and the batch that stands for it. ``only_global``: what a non-global index cannot be asked.

    ``layouts``: asked with every layout of keys and partitions; the others with one partition field.
    """

    name: str
    events: tuple[Row, ...]
    only_global: bool = False
    layouts: bool = False


BLANKS = 100_000
CONSISTENT = "BUCKET with consistent hashing"  # the name of the second engine among the types of indexes

CASES = (
    Case("empty table", tuple(row(f"k{n}", f"p{n % 3}", 10, "new") for n in range(9)), layouts=True),
    Case("update", tuple(row(f"k{n}", f"p{n % 3}", 20, "updated") for n in (0, 1, 2)), layouts=True),
    Case("insert", tuple(row(f"k{n}", f"p{n % 3}", 20, "second") for n in (20, 21))),
    Case("delete", (row("k3", "p0", 30, "gone", deleted=True),), layouts=True),
    Case("delete of an unknown key", (row("zz", "p1", 30, "gone", deleted=True),)),
    Case(
        "duplicate key in the batch",
        (
            row("k4", "p1", 42, "last"),
            row("k4", "p1", 41, "first"),
            row("new", "p1", 41, "a"),
            row("new", "p1", 43, "b"),
        ),
        layouts=True,
    ),
    Case(
        "partition change",
        (row("k5", "p0", 50, "moved"), row("k6", "p2", 50, "moved"), row("k6", "p1", 51, "again")),
        layouts=True,
    ),
    Case("back to the first partition", (row("k5", "p2", 60, "home"),)),
    Case("late update", (row("k0", "p0", 5, "late"),), layouts=True),
    Case("late update in another partition", (row("k1", "p2", 5, "late"),), only_global=True),
    Case("late delete", (row("k1", "p1", 6, "late", deleted=True),)),
    Case("deleted key comes again", (row("k3", "p0", 70, "again"),)),
    Case("empty batch", ()),
    Case("delete without partition", (row("k8", None, 80, "gone", deleted=True),), only_global=True),
    Case("late after a delete", (row("k4", "p1", 90, "", deleted=True),)),
    Case("  and then", (row("k4", "p1", 85, "older than its delete"),)),
)


def marked(indexes: Iterable[str]) -> list[Any]:
    """Index types as a test's parameters; the one that needs a server has its mark."""
    return [pytest.param(name, marks=pytest.mark.hbase) if name == "HBASE" else name for name in indexes]


def cases_for(layout: Layout, *, is_global: bool) -> list[Case]:
    """Those that can be asked, and with layouts but the first those that depend on it."""
    first = layout.name == "one partition field"
    return [c for c in CASES if (first or c.layouts) and (is_global or not c.only_global)]


def combined(cases: list[Case]) -> list[Case]:
    """The same cases in fewer batches: neighbours whose keys differ are one. An empty batch stays one of its own."""
    joined: list[Case] = []
    for case in cases:
        keys = {event["id"] for event in case.events}
        last = joined[-1] if joined else None
        if last is not None and last.events and keys and not keys & {event["id"] for event in last.events}:
            joined[-1] = Case(f"{last.name}; {case.name}", (*last.events, *case.events))
        else:
            joined.append(case)
    return joined


def write_case(folder: Path, number: int, case: Case) -> None:
    """One file a case, a second younger than the one before; an empty batch: more blank lines than are looked at first."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:03d}.json"
    path.write_text("".join(json.dumps(e) + "\n" for e in case.events) or "\n" * BLANKS)
    os.utime(path, (1_700_000_000 + number,) * 2)


def check_after(expected: Expected, cases: list[Case], read: Callable[[], list[Row]]) -> Callable[[int], None]:
    """A callback for after each batch: the table has what the cases so far lead to."""

    def check(batch: int) -> None:
        expected.apply(cases[batch].events)
        found = sorted(read(), key=lambda r: (r["id"], r["part"]))
        assert found == expected.rows(), f"after case {cases[batch].name!r}"

    return check
