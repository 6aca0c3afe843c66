"""What the change stream of a table must be, computed from what was written, not from its files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tagstream.table.schema.schema import META_COLUMNS
from tests.table.writer import Row, Writer, row

Change = tuple[str, str, str, str]  # op, instant, row before and row after as JSON, empty for none
PARTS = ("p0", "p1", "p2")


def change(op: str, instant: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Change:
    """A change in a form that can be sorted and compared. Nulls count as missing, as in Hudi's JSON."""
    return (op, instant, _text(before), _text(after))


def _text(image: Mapping[str, Any] | None) -> str:
    if image is None:
        return ""
    return json.dumps(
        {k: v for k, v in image.items() if k not in META_COLUMNS and v is not None}, sort_keys=True, default=str
    )


@dataclass
class Recorder:
    """A writer, and the changes that each of its commits makes, by the keys' rows and places before and after."""

    writer: Writer
    expected: list[Change] = field(default_factory=list)
    instants: list[str] = field(default_factory=list)
    made: int = 0

    def write(self, upserts: Sequence[Row] = (), deletes: Iterable[str] = ()) -> str:
        """One commit of the writer."""
        writer, deletes = self.writer, list(deletes)
        live, where = dict(writer.live), dict(writer.where)
        instant = writer.write(upserts, deletes)
        self.instants.append(instant)
        for key in deletes:
            self.expected.append(change("d", instant, live[key], None))
        for new in upserts:
            old = live.get(new["id"])
            if old is not None and where[new["id"]] == writer.where[new["id"]]:
                self.expected.append(change("u", instant, old, new))
                continue
            if old is not None:  # moved: deleted from one file group, inserted into another
                self.expected.append(change("d", instant, old, None))
            self.expected.append(change("i", instant, None, new))
        return instant

    def random_commits(self, count: int, seed: int, between: Callable[[int], None] = lambda _: None) -> None:
        """Inserts, updates, moves and deletes. ``between`` is called after each commit with its number."""
        rnd = random.Random(seed)
        for number in range(count):
            known = sorted(self.writer.live)
            gone = rnd.sample(known, min(len(known), rnd.randrange(3)))
            kept = [key for key in known if key not in gone]
            touched = rnd.sample(kept, min(len(kept), rnd.randrange(6)))
            rows = []
            for key in touched:
                old = self.writer.live[key]
                part = rnd.choice(PARTS) if rnd.random() < 0.3 else old["part"]
                name = None if rnd.random() < 0.2 else f"n{number}"
                rows.append(
                    {**old, "part": part, "ver": old["ver"] + 1, "name": name, "amount": rnd.randrange(100) / 4}
                )
            for _ in range(rnd.randrange(1, 6)):
                self.made += 1
                rows.append(row(self.made, rnd.choice(PARTS), 1, f"new {number}"))
            self.write(rows, gone)
            between(number)


def of_hudi(rows: pa.Table) -> list[Change]:
    """The answer of Hudi's CDC query; inferred rows have meta columns, a missing image is null or its text."""
    return sorted(change(r["op"], r["ts_ms"], _parsed(r["before"]), _parsed(r["after"])) for r in rows.to_pylist())


def _parsed(text: str | None) -> dict[str, Any] | None:
    return json.loads(text) if text else None


def of_ours(rows: pa.Table) -> list[Change]:
    """The answer of :meth:`tagstream.reading.Table.changes`."""
    return sorted(change(r["op"], r["ts_ms"], r["before"], r["after"]) for r in rows.to_pylist())


def applied(state: Mapping[str, Row], changes: Iterable[Change]) -> dict[str, Row]:
    """The rows by key after changes are applied to a state. A move deletes and inserts in one commit."""
    live = dict(state)
    ordered = sorted(changes, key=lambda c: (c[1], c[0] != "d"))
    for op, _, before, after in ordered:
        image = json.loads(after or before)
        if op == "d":
            assert live.pop(image["id"], None) is not None, f"{image['id']} is deleted and was not there"
        else:
            assert (image["id"] in live) == (op == "u"), f"{op} of {image['id']}"
            live[image["id"]] = image
    return live
