"""Build small batches for the tag step, and an oracle that follows the rules record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tagstream.state.layout import StateLayout
from tagstream.state.tag_batch import (
    FLAG_DELETE,
    FLAG_NO_ORDERING,
    FLAG_NO_PARTITION,
    OP_DELETE,
    OP_INSERT,
    TagBatch,
    TagResult,
)
from tagstream.table.write.write_context import WriteProfile

LABEL = 3


@dataclass(frozen=True)
class Event:
    """One record. `partition` or `ordering` None: the record has none (only a delete may)."""

    key: str
    partition: str | None
    ordering: int | None
    delete: bool = False


def objects(values: Sequence[object]) -> np.ndarray:
    """A NumPy column of Python objects."""
    out = np.empty(len(values), object)
    out[:] = values
    return out


def make_batch(events: Sequence[Event], layout: StateLayout) -> TagBatch:
    """The events in stream order as a batch; string ordering values are the number's digits."""
    flags = [
        FLAG_DELETE * e.delete | FLAG_NO_ORDERING * (e.ordering is None) | FLAG_NO_PARTITION * (e.partition is None)
        for e in events
    ]
    skeys = [
        b"\x01" + e.key.encode() if layout.global_index else f"\x02{e.partition}\x00{e.key}".encode() for e in events
    ]
    ordering: np.ndarray | None
    if layout.ordering == "none":
        ordering = None
    elif layout.ordering == "bytes":
        ordering = objects([b"" if e.ordering is None else b"%04d" % e.ordering for e in events])
    else:
        ordering = np.array([e.ordering or 0 for e in events], np.int64)
    n = len(events)
    return TagBatch(
        objects(skeys),
        objects([e.partition for e in events]),
        ordering,
        np.array(flags, np.uint8),
        objects(["events"] * n),
        np.zeros(n, np.int64),
        np.arange(n, dtype=np.int64),
    )


def make_profile(batch_id: int, **changes: object) -> WriteProfile:
    """A profile of one key group with no small files."""
    values: dict[str, object] = {"table_name": "t", "query_id": "q", "run": 1, "labels": (LABEL,)}
    values |= {"instant": f"20260101{batch_id:09d}", "batch_time_ms": 1_767_225_600_000 + batch_id * 60_000}
    return WriteProfile(batch_id=batch_id, **(values | changes))  # type: ignore[arg-type]


@dataclass
class Oracle:
    """Per key: (partition or None when deleted, ordering or None when unknown)."""

    has_ordering: bool = True
    global_index: bool = True
    known: dict[str, tuple[str | None, int | None]] = field(default_factory=dict)

    def apply(self, events: Sequence[Event]) -> None:
        """One event after the other, as they come in the stream."""
        for e in events:
            name = e.key if self.global_index else f"{e.partition}\x00{e.key}"
            before = self.known.get(name)
            ordering = e.ordering if self.has_ordering else None
            if before is not None and before[1] is not None:
                if ordering is None:
                    ordering = before[1]
                if ordering < before[1]:
                    continue
            self.known[name] = (None if e.delete else e.partition, ordering)

    def live(self) -> dict[str, str]:
        """Key -> partition of the keys that have a record."""
        return {k: p for k, (p, _) in self.known.items() if p is not None}


@dataclass
class FakeTable:
    """(key, partition, file id) of every live record; refuses what a table would end up wrong by."""

    rows: dict[bytes, tuple[str, str]] = field(default_factory=dict)

    def apply(self, result: TagResult) -> None:
        """Deletes first, as a writer sees them per file group in any order."""
        for i in np.flatnonzero(result.op == OP_DELETE):
            assert self.rows.pop(result.skey[i]) == (result.partition[i], result.file_id[i])
            assert result.take[i] == -1
        for i in np.flatnonzero(result.op != OP_DELETE):
            key, place = result.skey[i], (result.partition[i], result.file_id[i])
            if result.op[i] == OP_INSERT:
                assert key not in self.rows
            else:
                assert self.rows[key] == place
            self.rows[key] = place
