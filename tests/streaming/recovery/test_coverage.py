"""Which commits the index covers: told as if every commit file was looked at, by a look at few of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tagstream.state.batch_manifest import BatchManifest
from tagstream.state.checkpoint import INDEX, MANIFESTS, PROFILES
from tagstream.state.index_loads import (
    CatchUpMarker,
    IndexLoadMarker,
    complete_catch_up,
    complete_catch_ups,
    complete_index_load,
)
from tagstream.state.layout import StateLayout
from tagstream.streaming.batch.commit_record import CommitRecord, digest, extra_metadata, parse
from tagstream.streaming.batch.tag import profile_name
from tagstream.streaming.recovery import coverage
from tagstream.streaming.recovery.coverage import CheckpointState, Coverage, IndexPlace, assess
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import Instant, State
from tagstream.table.write.write_context import WriteProfile
from tests.table.writer import Writer

QUERY, RETAIN = "5b0ea4b0-0b6c-4d42-b0f4-6f4c4f9d1b11", 3


def offsets(batch: int) -> Any:
    return {"topic": {"0": 10 * batch}}


@dataclass
class Memory:
    """What a checkpoint knows at one moment; an older one is an older copy of the checkpoint."""

    finished: int = -1
    manifests: dict[int, str] = field(default_factory=dict)
    covered: list[str] = field(default_factory=list)
    catch_ups: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def index_load(self) -> int:
        return 1 if self.covered else 0

    def copy(self) -> Memory:
        return Memory(self.finished, dict(self.manifests), list(self.covered), list(self.catch_ups))


class History:
    """A table's commits and the checkpoint of a stream on it; ``timeline``: what is completed and not archived."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = folder / "checkpoint"
        self.query_folder = PosixStorage(str(self.checkpoint), sync=False)
        self.layout = StateLayout(self.query_folder.below(INDEX), "")
        self.table = Writer.create(folder, "COPY_ON_WRITE").table
        self.timeline: dict[str, dict[str, str]] = {}
        self.memory, self.past = Memory(), [Memory()]
        self.known: set[str] = set()
        self.now = 10_000

    def do(self, action: str) -> None:
        self.now += 10
        if action == "ours":
            self.catch_up()
            self.commit_batch()
        elif action == "ours, beside theirs":  # which touch nothing of the batch, and are taken in afterwards
            self.commit_batch()
        elif action == "theirs":
            self.timeline[f"{self.now:017d}"] = {}
        elif action == "theirs, late":  # begun before the last commit
            self.timeline[f"{self.now - 15:017d}"] = {}
        elif action == "archived":
            for time in sorted(self.timeline)[: max(0, len(self.timeline) - 3)]:
                del self.timeline[time]
        elif action == "caught up":
            self.catch_up()
        elif action == "loaded":
            self.memory.covered = sorted(self.timeline)
            self.memory.catch_ups = []
            self.known = set(self.timeline)
        self.past.append(self.memory.copy())

    def catch_up(self) -> None:
        new = tuple(sorted(set(self.timeline) - self.known))
        if new and self.known:
            self.memory.catch_ups.append(new)
        elif new:
            self.memory.covered = list(new)
        self.known |= set(new)

    def commit_batch(self) -> None:
        batch, time = self.memory.finished + 1, f"{self.now:017d}"
        name = BatchManifest(QUERY, batch, 1, {}).name
        follows = digest(set(self.timeline) & self.known)
        record = CommitRecord("s", QUERY, batch, offsets(batch), offsets(batch + 1), name, follows)
        self.timeline[time] = extra_metadata(record, "")
        self.known.add(time)
        self.memory.finished = batch
        self.memory.manifests[batch] = time
        for old in [b for b in self.memory.manifests if b < batch - RETAIN - 2]:
            del self.memory.manifests[old]

    def assess(self, memory: Memory, *, unfinished: int, oracle: bool = False) -> Coverage:
        """``unfinished``: how many of the newest batches Spark has planned and not finished."""
        self.write(memory)
        index = IndexPlace(self.query_folder, self.layout, memory.index_load, RETAIN, False)
        finished, planned = memory.finished - unfinished, memory.finished
        state = CheckpointState(QUERY, planned if planned >= 0 else None, finished if finished >= 0 else None)
        table = HoodieTable.open(self.table.base_path)
        return (one_by_one if oracle else assess)(index, table, table.timeline(), state)

    def write(self, memory: Memory) -> None:
        self.checkpoint.mkdir(exist_ok=True)
        layout = self.layout
        (self.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
        (self.checkpoint / "offsets").mkdir(exist_ok=True)
        for batch in range(memory.finished + 1):
            (self.checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offsets(batch + 1))}")
        for batch, time in memory.manifests.items():
            BatchManifest(QUERY, batch, 1, {}, time).write(self.query_folder.below(MANIFESTS))
        if memory.covered:
            complete_index_load(layout, IndexLoadMarker(1, "", 0, 0, {}, covered=tuple(memory.covered)))
        for number, instants in enumerate(memory.catch_ups, 1):
            complete_catch_up(layout, CatchUpMarker(memory.index_load, number, instants, (), False, 0))
        folder = Path(self.table.base_path, self.table.config.timeline_folder)
        for time, extra in self.timeline.items():
            content = CommitMetadata.build([], extra, "{}").to_bytes(6)
            (folder / Instant(time, "commit", State.COMPLETED).file_name()).write_bytes(content)


def one_by_one(index: IndexPlace, table: HoodieTable, timeline: Any, state: CheckpointState) -> Coverage:
    """The same by a look at every commit file; what the newest of ours follows is not asked."""
    found = assess(index, table, timeline, state)
    known = coverage.finished_instants(index, state)
    uncovered, batches = [], {}
    for instant in timeline.completed_writes:
        record = parse(timeline.metadata(table.storage, instant).extra)
        own = record is not None and coverage._is_own(index, record, instant.time, state)
        unfinished = record is not None and coverage._is_unfinished(record, state)
        if record is not None and unfinished and own:  # no history here damages a manifest
            batches[record.batch_id] = (instant.time, record)
        if not own and instant.time not in found.loaded and instant.time not in known:
            uncovered.append(instant.time)
    return Coverage(tuple(uncovered), found.lost, found.vanished, found.loaded, batches)


ACTIONS = st.sampled_from(
    ["ours", "ours", "ours", "ours, beside theirs", "theirs", "theirs, late", "archived", "caught up", "loaded"]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    actions=st.lists(ACTIONS, min_size=1, max_size=14),
    back=st.sampled_from([0, 0, 0, 1, 2, 5]),
    unfinished=st.sampled_from([0, 0, 1, 2]),
)
def test_few_looks_tell_what_all_would(
    actions: list[str], back: int, unfinished: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    history = History(tmp_path_factory.mktemp("history"))
    for action in actions:
        history.do(action)
    memory = history.past[max(0, len(history.past) - 1 - back)]
    expected = history.assess(memory, unfinished=unfinished, oracle=True)
    assert history.assess(memory, unfinished=unfinished) == expected


def spoil(history: History, times: list[str]) -> None:
    """Commit files that nobody can read; whoever reads the query's name in them tries to."""
    folder = Path(history.table.base_path, history.table.config.timeline_folder)
    for time in times:
        (folder / f"{time}.commit").write_text(f"{QUERY} damaged")


@pytest.mark.parametrize("unfinished", [0, 1])
def test_nothing_older_than_our_newest_commits_is_read(tmp_path: Path, unfinished: int) -> None:
    history = History(tmp_path)
    for number in range(40):
        history.do("theirs" if number % 3 else "ours")
    for _ in range(4):
        history.do("ours")
    ours = max(history.timeline)
    history.do("theirs")
    history.do("theirs")
    theirs = sorted(history.timeline)[-2:]
    history.write(history.memory)
    old = [time for time in history.timeline if time < ours][: -unfinished or None]
    history.timeline = {time: extra for time, extra in history.timeline.items() if time not in old}
    spoil(history, old)
    found = history.assess(history.memory, unfinished=unfinished)
    assert found.uncovered == tuple(theirs)
    assert list(found.batches) == [history.memory.finished][:unfinished]
    history.do("caught up")
    again = history.assess(history.memory, unfinished=unfinished)
    assert (again.uncovered, list(again.batches)) == ((), list(found.batches))


def test_a_table_that_was_loaded_is_not_read_again(tmp_path: Path) -> None:
    history = History(tmp_path)
    for _ in range(20):
        history.do("theirs")
    history.do("loaded")
    history.write(history.memory)
    times = sorted(history.timeline)
    history.timeline = {}
    spoil(history, times)
    assert history.assess(history.memory, unfinished=0).uncovered == ()
    assert complete_catch_ups(history.layout, 1) == []


def batch_of_a_newer_copy(folder: Path) -> tuple[History, Memory, str]:
    """An older copy of the checkpoint whose index was loaded over batch 2 of the newer one, and that has planned a batch 2
    with the same offsets; the commit of the newer one's."""
    history = History(folder)
    for _ in range(3):
        history.do("ours")
    theirs = max(history.timeline)
    older = history.past[2].copy()
    older.covered = sorted(history.timeline)
    older.finished = 2  # planned, as `unfinished` says
    return history, older, theirs


def pin(history: History, instant: str, **more: Any) -> None:
    """What a run that begins the batch of ``instant`` leaves in the checkpoint first."""
    profile = WriteProfile("t", QUERY, 2, 1, instant, 0, (0,), **more)
    history.query_folder.below(PROFILES).replace(profile_name(2, 1), profile.to_json().encode())


def test_a_batch_of_a_newer_copy_is_no_replay_where_the_index_was_loaded_over_it(tmp_path: Path) -> None:
    history, older, theirs = batch_of_a_newer_copy(tmp_path)
    found = history.assess(older, unfinished=1)
    assert (found.uncovered, theirs in found.loaded) == ((), True)
    assert found.batches == {}, "only number and offsets are the same"


@pytest.mark.parametrize("mode", ["process", "replay"])
def test_a_batch_that_this_checkpoint_began_is_a_replay_without_its_manifest(tmp_path: Path, mode: Any) -> None:
    history, older, theirs = batch_of_a_newer_copy(tmp_path)
    pin(history, theirs, mode=mode)
    found = history.assess(older, unfinished=1)
    # What a replay pins says what was decided then, and proves nothing.
    assert {batch: time for batch, (time, _) in found.batches.items()} == ({2: theirs} if mode == "process" else {})


def test_a_damaged_profile_proves_nothing(tmp_path: Path) -> None:
    history, older, theirs = batch_of_a_newer_copy(tmp_path)
    pin(history, theirs)
    place = history.query_folder.below(PROFILES)
    place.replace(profile_name(2, 1), place.read(profile_name(2, 1))[:-7])
    assert history.assess(older, unfinished=1).batches == {}
