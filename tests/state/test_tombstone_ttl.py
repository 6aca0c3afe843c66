"""Time to live of deleted keys: tombstones leave the index, live keys stay, and every attempt decides the same."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.state.durable_files import Pointer
from tagstream.state.index_view import counts_at
from tagstream.state.layout import OrderingKind, StateLayout
from tagstream.state.tag_batch import OP_DELETE, OP_INSERT
from tagstream.state.tag_group import tag_key_group
from tagstream.table.storage.posix import PosixStorage
from tests.state.tagging import LABEL, Event, FakeTable, Oracle, make_batch, make_profile

HOUR = 3_600_000
START = 1_767_225_600_000
FLAT = StateLayout(PosixStorage("/"), "/", tombstone_ttl_ms=2 * HOUR, snapshot_every=3)


def layout_in(folder: Path, **changes: object) -> StateLayout:
    durable = PosixStorage(str(folder / "d"), sync=False)
    return replace(FLAT, durable=durable, local_dir=str(folder / "l"), **changes)  # type: ignore[arg-type]


class Group:
    """One key group, an hour a batch unless told otherwise."""

    def __init__(self, layout: StateLayout) -> None:
        self.layout, self.table = layout, FakeTable()
        self.pointer: bytes | None = None
        self.batch_id = -1

    def batch(self, events: Sequence[Event], hours: float) -> dict[str, int]:
        self.batch_id += 1
        profile = make_profile(self.batch_id, batch_time_ms=START + int(hours * HOUR))
        result = tag_key_group(LABEL, self.pointer, make_batch(events, self.layout), profile, self.layout)
        self.pointer, self.result = result.pointer, result
        self.table.apply(result)
        return result.stats


def test_tombstones_go_and_live_keys_stay(tmp_path: Path) -> None:
    group = Group(layout_in(tmp_path))
    group.batch([Event("stays", "p", 1), Event("gone", "p", 1)], 0)
    assert group.batch([Event("gone", None, 5, delete=True)], 0)["tombstones"] == 1
    # As long as it is remembered, what is older than the delete is late; exactly two hours old still counts.
    found = group.batch([Event("gone", "p", 4)], 2)
    assert (found["late"], found["live_keys"]) == (1, 1)
    # Outlived, before any snapshot has forgotten it: the row comes again.
    found = group.batch([Event("gone", "p", 4)], 2.1)
    assert (found["inserts"], found["live_keys"], found["tombstones"]) == (1, 2, 0)
    # A key without a record for weeks is as live as before.
    found = group.batch([Event("stays", "p", 2)], 24 * 30)
    assert (found["updates"], found["live_keys"]) == (1, 2)


def test_a_delete_that_is_new_begins_the_time_anew(tmp_path: Path) -> None:
    group = Group(layout_in(tmp_path))
    group.batch([Event("a", "p", 1)], 0)
    group.batch([Event("a", None, 5, delete=True)], 0)
    group.batch([Event("a", None, 7, delete=True)], 1.9)
    assert group.batch([Event("a", "p", 6)], 3.5)["late"] == 1


def test_a_snapshot_forgets_them_and_the_bytes_come_back(tmp_path: Path) -> None:
    """A stream that deletes all it inserts: the index is bounded by what was deleted within the time to live."""
    counts: dict[int, list[int]] = {}
    for ttl_hours in (0, 2):
        group = Group(layout_in(tmp_path / str(ttl_hours), tombstone_ttl_ms=ttl_hours * HOUR))
        counts[ttl_hours] = []
        for hour in range(24):
            events = [Event(f"{hour}-{n}", "p", 1) for n in range(50)]
            events += [replace(e, ordering=2, partition=None, delete=True) for e in events]
            counts[ttl_hours].append(group.batch([*events, Event("stays", "p", hour)], hour)["tombstones"])
        pointer = Pointer.from_bytes(group.pointer or b"", LABEL)
        kept = counts_at(group.layout, LABEL, pointer, 0, 0)
        assert (kept.live, kept.tombstones) == (1, counts[ttl_hours][-1]), "a store restored from the checkpoint agrees"
    assert counts[0][-1] == 24 * 50
    assert max(counts[2]) <= 50 * (3 + FLAT.snapshot_every + 1), "of the last hours, and those until the next snapshot"


def test_few_tombstones_are_not_worth_the_reading_of_a_large_group(tmp_path: Path) -> None:
    group = Group(layout_in(tmp_path))
    group.batch([Event(f"k{n}", "p", 1) for n in range(100)], 0)
    group.batch([Event(f"k{n}", None, 2, delete=True) for n in range(5)], 0)
    for hour in range(3, 9):
        found = group.batch([Event("k99", "p", hour)], hour)
    assert found["tombstones"] == 5, "outlived, and not read for: a tag step takes them for unknown all the same"
    assert group.batch([Event("k0", "p", 1)], 10)["inserts"] == 1
    group.batch([Event(f"k{n}", None, 2, delete=True) for n in range(5, 9)], 10)
    for hour in range(13, 19):
        found = group.batch([Event("k99", "p", hour)], hour)
    assert (found["live_keys"], found["tombstones"]) == (92, 0), "now they are a sixteenth"


_MORE = pytest.mark.extended("more kinds of keys and orders")


@pytest.mark.parametrize(
    ("kind", "is_global"),
    [
        ("int64", True),
        pytest.param("int64", False, marks=_MORE),
        *(pytest.param(kind, one, marks=_MORE) for kind in ("bytes", "none") for one in (True, False)),
    ],
)
def test_random_histories_end_as_the_rules_say(tmp_path: Path, kind: OrderingKind, is_global: bool) -> None:
    """Against an oracle that forgets a delete at its age; a second attempt of each batch decides the same."""
    pick = random.Random(f"{kind} {is_global}")
    group = Group(layout_in(tmp_path, ordering=kind, global_index=is_global))
    oracle = Oracle(has_ordering=kind != "none", global_index=is_global)
    deleted: dict[str, float] = {}
    hours = 0.0
    for batch in range(30):
        hours += pick.choice([0.0, 0.25, 1.0, 3.0])
        for name in [k for k, at in deleted.items() if _minutes(hours) - 120 > _minutes(at)]:
            del deleted[name], oracle.known[name]
        events = []
        for key in pick.sample(range(12), 5):
            delete = pick.random() < 0.5
            partition = f"p{key % 3}" if not is_global or pick.random() < 0.9 else "other"
            events.append(Event(f"k{key}", partition, pick.randrange(1, 9_999), delete=delete))
        before = dict(oracle.known)
        oracle.apply(events)
        for name, (partition_now, ordering) in oracle.known.items():
            if partition_now is not None:
                deleted.pop(name, None)
            elif before.get(name) != (None, ordering):
                deleted[name] = hours
        pointer = group.pointer
        group.batch(events, hours)
        assert len(group.table.rows) == len(oracle.live())
        if batch % 5:
            continue
        # The task dies with its local store and is done again: the same decision, the same bytes.
        shutil.rmtree(tmp_path / "l")
        profile = make_profile(group.batch_id, batch_time_ms=START + int(hours * HOUR))
        second = tag_key_group(LABEL, pointer, make_batch(events, group.layout), profile, group.layout)
        assert second.pointer is not None and group.pointer is not None
        chains = [Pointer.from_bytes(told, LABEL).chain for told in (second.pointer, group.pointer)]
        assert chains[0] == chains[1], "the content of the deltas; their files have names of their own"
        assert second.op.tolist() == group.result.op.tolist()
    assert {OP_INSERT, OP_DELETE} <= set(group.result.op.tolist()) or len(group.table.rows) > 0


def _minutes(hours: float) -> int:
    return int(START + hours * HOUR) // 60_000
