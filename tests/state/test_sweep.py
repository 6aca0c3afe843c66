"""Places without records leave the dictionary before a snapshot, whatever happens to tasks, hosts and stores meanwhile."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from tagstream.state import sweep as sweep_module
from tagstream.state.batch_manifest import DeltaRef
from tagstream.state.durable_files import Pointer
from tagstream.state.index_view import sizes_at
from tagstream.state.layout import OrderingKind, StateLayout
from tagstream.state.local_store import open_at
from tagstream.state.rocks_store import META_KEY
from tagstream.state.store_entries import Location, StoreMeta, all_codes, places_of, records_of
from tagstream.state.sweep import NOTE_KEY, before_a_snapshot
from tagstream.state.tag_batch import TagResult
from tagstream.state.tag_group import tag_key_group
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.write.write_context import SmallFile
from tests.state.tagging import LABEL, Event, FakeTable, Oracle, make_batch, make_profile
from tests.state.test_catch_up import Row, write_catch_up
from tests.support.faulty_storage import CHANGES, Faults, FaultyStorage, InjectedError

EVERY = 4


@pytest.fixture
def layout(tmp_path: Path) -> StateLayout:
    durable = PosixStorage(str(tmp_path / "durable"), sync=False)
    return StateLayout(durable, str(tmp_path / "host-0"), snapshot_every=EVERY)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are looked through before each snapshot, however few."""
    monkeypatch.setattr(sweep_module, "_MIN_PLACES", 1)
    monkeypatch.setattr(sweep_module, "_RECORDS_A_PLACE", 1 << 30)
    monkeypatch.setattr(sweep_module, "_SNAPSHOTS_BETWEEN", 0)


@dataclass
class Inside:
    """What a store holds: the place of every live key, every code's place, and the meta entry."""

    rows: dict[bytes, Location]
    codes: dict[int, Location]
    meta: StoreMeta
    entries: list[tuple[bytes, bytes]]


def look(layout: StateLayout, pointer: bytes | Pointer) -> Inside:
    """Read a key group; its dictionary must be the same both ways."""
    at = pointer if isinstance(pointer, Pointer) else Pointer.from_bytes(pointer, LABEL)
    store, meta = open_at(layout, LABEL, at)
    with store:
        codes, raws = all_codes(store)
        places = dict(zip(codes.tolist(), places_of(codes, store.get, LABEL), strict=True))
        entries = list(store.items(b"\x00"))
        back = {key[2:]: int.from_bytes(value) for key, value in entries if key.startswith(b"\x00l")}
        assert back == dict(zip(raws, codes.tolist(), strict=True))
        rows = {}
        for keys, records in records_of(store, layout):
            rows |= {k: places[c] for k, c in zip(keys, records.loc.tolist(), strict=True) if c != 0xFFFFFFFF}
    return Inside(rows, places, meta, entries)


def elsewhere(layout: StateLayout, tmp_path: Path) -> StateLayout:
    """A host that has no store yet."""
    fresh = tmp_path / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    return replace(layout, local_dir=str(fresh))


@dataclass
class Stream:
    """One key group's batches, one after the other."""

    layout: StateLayout
    pointer: bytes | None = None
    batch_id: int = -1
    table: FakeTable = field(default_factory=FakeTable)

    def tag(self, events: list[Event], catch_up: int = 0, **more: object) -> TagResult:
        self.batch_id += 1
        profile = make_profile(self.batch_id, catch_up=catch_up, **more)
        result = tag_key_group(LABEL, self.pointer, make_batch(events, self.layout), profile, self.layout)
        self.pointer = result.pointer
        return result

    def until_a_snapshot(self, key: str, partition: str, catch_up: int = 0) -> Inside:
        """Small batches until the pointer has a new snapshot; what is in that snapshot, without the deltas after it."""
        before = self.at().snapshot
        while self.at().snapshot == before:
            self.tag([Event(key, partition, 1000 + self.batch_id)], catch_up)
        return look(elsewhere(self.layout, Path(self.layout.local_dir).parent), replace(self.at(), deltas=()))

    def at(self) -> Pointer:
        assert self.pointer is not None
        return Pointer.from_bytes(self.pointer, LABEL)

    def looks(self) -> int:
        """In which batch places were looked through last; -1: in none."""
        entries = dict(look(self.layout, self.pointer or b"").entries)
        return int(entries[NOTE_KEY].split(b'"batch":')[1].split(b",")[0]) if NOTE_KEY in entries else -1


def moved(count: int, partitions: int, ordering: int, name: str) -> list[Event]:
    return [Event(f"k{i:05d}", f"{name}{i % partitions}", ordering) for i in range(count)]


def test_a_snapshot_is_without_the_places_that_all_records_have_left(layout: StateLayout, tmp_path: Path) -> None:
    stream = Stream(layout)
    stream.tag(moved(600, 600, 1, "old"))
    stream.tag(moved(600, 20, 2, "new"))
    grown = look(layout, stream.pointer or b"")
    assert len(grown.codes) == 620
    kept = stream.until_a_snapshot("k00000", "new0")
    assert set(kept.codes.values()) == set(kept.rows.values())
    assert len(kept.codes) == 20
    assert kept.meta.next_code == 620, "no code is given twice"
    assert kept.rows == grown.rows
    assert look(layout, stream.pointer or b"").codes == kept.codes, "and so is the local store"
    stream.tag([Event("k00001", "old1", 5000)])
    assert max(look(layout, stream.pointer or b"").codes) == 620
    size = sizes_at(layout, LABEL, stream.at())[0]
    assert size < 30_000, "620 places were 59 kB"


def test_what_reads_the_deltas_from_before_reads_the_old_places(layout: StateLayout, tmp_path: Path) -> None:
    """An older attempt, or a replay: the pointer from before the look, on a host with a store and on one without."""
    stream = Stream(layout)
    stream.tag(moved(300, 300, 1, "old"))
    stream.tag(moved(299, 10, 2, "new"))
    before, was = stream.pointer, look(layout, stream.pointer or b"")
    kept = stream.until_a_snapshot("k00000", "new0")
    assert len(kept.codes) == 11
    for host in (layout, elsewhere(layout, tmp_path)):
        assert look(host, before or b"") == was
    again = tag_key_group(
        LABEL, before, make_batch(moved(300, 300, 9000, "old"), layout), make_profile(2, run=2), layout
    )
    assert again.stats["moves"] == 299
    after = look(layout, again.pointer or b"")
    assert {code: place for code, place in after.codes.items() if code in kept.codes} == kept.codes


@pytest.mark.usefixtures("always")
def test_a_place_that_the_very_batch_fills_again_stays(layout: StateLayout) -> None:
    small = {"p": (SmallFile("small-0", 100),)}
    stream = Stream(layout)
    stream.tag([Event("a", "p", 1), Event("b", "q", 1)], small_files=small)
    stream.tag([Event("a", "q", 2)])
    stream.tag([Event("b", "q", 2)])
    assert len(stream.at().deltas) == EVERY - 1
    stream.tag([Event("c", "p", 1)], small_files=small)
    assert stream.looks() == stream.batch_id
    assert look(layout, stream.pointer or b"").rows[b"\x01c"] == ("p", "small-0")


def test_few_places_or_many_records_are_not_looked_through(layout: StateLayout) -> None:
    few = Stream(layout)
    few.tag(moved(250, 250, 1, "old"))
    few.tag(moved(250, 2, 2, "new"))
    few.until_a_snapshot("k00000", "new0")
    assert few.looks() == -1
    many = Stream(replace(layout, local_dir=f"{layout.local_dir}-many", durable=layout.durable.below("many")))
    many.tag(moved(300 * 64 + 1, 300, 1, "old"))
    many.until_a_snapshot("k00000", "old0")
    assert many.looks() == -1
    many.tag([Event("k00001", "one more", 2)])
    many.until_a_snapshot("k00000", "old0")
    assert many.looks() == many.batch_id - 1


def test_a_dictionary_in_use_is_looked_through_again_only_when_it_grew_or_long_after(layout: StateLayout) -> None:
    stream = Stream(replace(layout, snapshot_every=2))
    stream.tag(moved(400, 400, 1, "old"))
    stream.until_a_snapshot("k00000", "old0")
    first = stream.looks()
    assert first == stream.batch_id - 1
    stream.tag(moved(99, 99, 2, "new"))
    stream.until_a_snapshot("k00000", "new0")
    stream.until_a_snapshot("k00000", "new0")
    assert (stream.looks(), len(look(stream.layout, stream.pointer or b"").codes)) == (first, 499)
    stream.tag([Event("k00200", "one more", 2)])  # a quarter of those there were
    stream.until_a_snapshot("k00000", "new0")
    assert len(stream.until_a_snapshot("k00000", "new0").codes) == 400
    second = stream.looks()
    stream.tag(moved(400, 1, 3, "new"))
    while stream.batch_id - second < 16 * 2:
        stream.until_a_snapshot("k00000", "new0")
        assert stream.looks() == second or stream.batch_id - second >= 16 * 2
    stream.until_a_snapshot("k00000", "new0")
    left = set(look(stream.layout, stream.pointer or b"").codes.values())
    assert stream.looks() > second
    assert {partition for partition, _ in left} == {"new0"}


def test_after_a_clustering_the_next_snapshot_is_without_the_old_places(layout: StateLayout) -> None:
    stream = Stream(layout)
    stream.tag(moved(300, 300, 1, "p"))
    stream.until_a_snapshot("k00000", "p0")
    first = stream.looks()
    files = dict(look(layout, stream.pointer or b"").rows.values())
    files["joined"] = "joined-0"
    rows: dict[str, Row] = {f"k{i:05d}": ("joined", 1) for i in range(300)}
    write_catch_up(layout, 1, rows, [*sorted(set(files) - {"joined"}), "joined"], files)
    kept = stream.until_a_snapshot("k00000", "joined", catch_up=1)
    assert stream.looks() > first
    assert set(kept.codes.values()) == {("joined", "joined-0")}
    assert len(kept.rows) == 300


@pytest.mark.parametrize("every", [1, 2, 3, 5])
@pytest.mark.parametrize("caught_up", [0, 1, 2, 7])
def test_one_look_for_each_snapshot_however_many_deltas_a_batch_makes(every: int, caught_up: int) -> None:
    pick = random.Random(f"{every} {caught_up}")
    layout = StateLayout(PosixStorage("/"), "/", snapshot_every=every)
    deltas, looks, snapshots = 0, 0, 0
    for _ in range(200):
        more = pick.randint(0, caught_up)
        deltas += more
        looks += before_a_snapshot(deltas, more, layout)
        if deltas >= every:
            deltas, snapshots = 0, snapshots + 1
        deltas += 1
    assert abs(looks - snapshots) <= 1


def test_stores_of_earlier_versions_are_read_and_lose_their_unused_places(
    layout: StateLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They differ in one thing: nothing was ever looked through, and nothing noted."""
    monkeypatch.setattr(sweep_module, "_MIN_PLACES", 1 << 30)
    stream = Stream(layout)
    stream.tag(moved(300, 300, 1, "old"))
    stream.tag(moved(300, 3, 2, "new"))
    stream.until_a_snapshot("k00000", "new0")
    old = look(layout, stream.pointer or b"")
    assert len(old.codes) == 303 and all(key != NOTE_KEY for key, _ in old.entries)
    monkeypatch.undo()
    shutil.rmtree(layout.local_dir)
    kept = stream.until_a_snapshot("k00000", "new0")
    assert len(kept.codes) == 3 and kept.rows == old.rows
    # An earlier version takes such a store for its own: the entries that it looks up are of the same form.
    own = {key[:2] for key, _ in kept.entries if key[:1] == b"\x00"}
    assert own == {b"\x00c", b"\x00l", META_KEY[:2], NOTE_KEY[:2]}
    assert set(StoreMeta.from_bytes(dict(kept.entries)[META_KEY], LABEL).__dict__) == {
        "chain", "next_code", "live", "tombstones", "copies",
    }  # fmt: skip


FATES = ["go on"] * 3 + ["local store lost", "retried", "other attempt first", "other host", "killed", "replayed"]
_MORE = pytest.mark.extended("more seeds, kinds of orders and times to live")


def _cases() -> Iterator[object]:
    for seed in range(4):
        for kind in ("int64", "bytes", "none"):
            for ttl in (0, 5):
                first = seed == 0 or ((kind, ttl) == ("int64", 0) and seed < 3)
                yield pytest.param(seed, kind, ttl, marks=() if first else _MORE, id=f"{seed}-{kind}-{ttl}")


@pytest.mark.extended("longer random histories", first=("0-none",))
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(("seed", "kind", "ttl"), [*_cases()])
def test_random_histories_end_as_the_oracle_says(tmp_path: Path, seed: int, kind: OrderingKind, ttl: int) -> None:
    """Keys wander between few partitions; batches are retried, killed at any of their files, replayed, and done elsewhere.

    `ttl`: of deleted keys, in batches (a minute each); 0: none.
    """
    pick = random.Random(f"{seed} {kind} {ttl}")
    durable = PosixStorage(str(tmp_path / "durable"), sync=False)
    hosts = [
        StateLayout(durable, str(tmp_path / f"host-{i}"), kind, tombstone_ttl_ms=ttl * 60_000, snapshot_every=3)
        for i in (0, 1)
    ]
    layout, stream = hosts[0], Stream(hosts[0])
    oracle, ever = Oracle(kind != "none"), dict[int, Location]()
    was: dict[bytes, Location] = {}
    gone = 0
    for batch in range(24):
        # Orderings grow, so that a delete that was forgotten can not make a difference.
        events = [
            Event(f"k{pick.randrange(14)}", f"p{pick.randrange(6)}", batch, delete=pick.random() < 0.25)
            for _ in range(pick.randrange(1, 9))
        ]
        # Small files: the places that come back after all records have left them.
        small = {f"p{i}": (SmallFile(f"small-{i}", 100),) for i in range(6) if pick.random() < 0.7}
        fate, before, profile = pick.choice(FATES), stream.pointer, make_profile(batch, small_files=small)
        if fate == "local store lost":
            shutil.rmtree(layout.local_dir, ignore_errors=True)
        elif fate == "other host":
            layout = hosts[pick.randrange(2)]
        elif fate == "other attempt first":
            tag_key_group(LABEL, before, make_batch(events[1:], layout), make_profile(batch, run=0), layout)
        elif fate == "killed":
            faults = Faults(str(tmp_path / f"faults-{batch}"), fail=pick.randrange(1, 4), only=CHANGES)
            weak = replace(layout, durable=FaultyStorage(durable, faults))
            with suppress(InjectedError):  # the task has died with it
                tag_key_group(LABEL, before, make_batch(events, weak), profile, weak)
        stream.layout = layout
        result = stream.tag(events, small_files=small)
        if fate == "retried":
            again = tag_key_group(LABEL, before, make_batch(events, layout), profile, hosts[pick.randrange(2)])
            assert _chain(again) == _chain(result)
            assert again.file_id.tolist() == result.file_id.tolist()
        elif fate == "replayed" and result.delta is not None:
            replay = make_profile(batch, run=2, mode="replay", manifest={LABEL: result.delta})
            adopted = tag_key_group(LABEL, before, make_batch(events, layout), replay, hosts[pick.randrange(2)])
            assert adopted.pointer == result.pointer
        stream.table.apply(result)
        oracle.apply(events)
        found = look(layout, stream.pointer or b"")
        assert found.rows == stream.table.rows
        assert {k[1:].decode(): place[0] for k, place in found.rows.items()} == oracle.live()
        for code, place in found.codes.items():
            assert ever.setdefault(code, place) == place, "a code stands for one place, for ever"
        assert set(found.rows.values()) <= set(found.codes.values())
        gone = len(ever) - len(found.codes)
        if stream.looks() == batch:
            assert set(found.codes.values()) <= {*was.values(), *found.rows.values()}
        was = found.rows
        assert look(elsewhere(layout, tmp_path), stream.pointer or b"") == found
    assert gone > 0


def _chain(result: TagResult) -> str | None:
    return None if result.delta is None else DeltaRef.from_json(result.delta).pointer.chain


def test_places_of_a_key_that_is_in_several_stay(layout: StateLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer has put a key into a second file group: the stream still has to delete its row there."""
    monkeypatch.setattr(sweep_module, "_MIN_PLACES", 1)
    stream = Stream(layout)
    stream.tag([Event("a", "p1", 1), Event("b", "p2", 1), Event("c", "p3", 1)])
    files = dict(look(layout, stream.pointer or b"").rows.values())
    write_catch_up(layout, 1, {"a": ("p2", 2)}, ["p2"], files, removals=False)
    stream.tag([Event("b", "p3", 2)], catch_up=1)
    kept = stream.until_a_snapshot("c", "p3", catch_up=1)
    assert stream.looks() >= 0
    assert {place[0] for place in kept.codes.values()} >= {"p1", "p2", "p3"}
    deletes = stream.tag([Event("a", None, 9000, delete=True)], catch_up=1)
    assert sorted(deletes.partition.tolist()) == ["p1", "p2"]


def test_codes_are_columns_whatever_the_dictionary_is_like(layout: StateLayout) -> None:
    stream = Stream(layout)
    stream.tag([Event("a", "p", 1)])
    store, _ = open_at(layout, LABEL, stream.at())
    with store:
        codes, raws = all_codes(store)
    assert codes.dtype == np.uint32 and len(codes) == len(raws) == 1
