"""A key group is taken on only where the committed batches left it, whoever wrote what Spark's state holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tagstream.state.batch_manifest import BatchManifest, ExpectedChains, chains_before
from tagstream.state.errors import IndexDamagedError
from tagstream.state.index_loads import CatchUpMarker, TouchedGroup, complete_catch_up
from tagstream.state.layout import StateLayout
from tagstream.state.tag_batch import OP_INSERT, TagResult
from tagstream.state.tag_group import tag_key_group
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import arrow_to_avro, avro_json
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.write import commit
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.small_groups import SmallFile
from tagstream.table.write.write_context import WriteContext, WriteProfile
from tests.state.tagging import LABEL, Event, make_batch, make_profile
from tests.state.test_index_load import Row, load
from tests.table.writer import SCHEMA, Writer, delete_rows

AVRO = avro_json(arrow_to_avro(SCHEMA, "t"))


@pytest.fixture
def layout(tmp_path: Path) -> StateLayout:
    return StateLayout(PosixStorage(str(tmp_path / "durable"), sync=False), str(tmp_path / "local"), snapshot_every=4)


class Driver:
    """Batches one after the other, each committed with its manifest; ``pointer`` is what Spark's state holds."""

    def __init__(self, layout: StateLayout, index_load: int = 0) -> None:
        self.layout, self.index_load = layout, index_load
        self.manifests = PosixStorage(str(Path(layout.durable.root).parent / "manifests"), sync=False)
        self.pointer: bytes | None = None
        self.batch_id = 0

    def profile(self, run: int = 1, **changes: Any) -> WriteProfile:
        at = chains_before(self.manifests, (LABEL,), "q", self.index_load, self.batch_id, 10)
        known = {"chains": dict(at.chains), "chains_whole": at.whole, "index_load": self.index_load}
        return make_profile(self.batch_id, run=run, **(known | changes))

    def tag(self, pointer: bytes | None, *events: Event, run: int = 1, **changes: Any) -> TagResult:
        return tag_key_group(LABEL, pointer, make_batch(events, self.layout), self.profile(run, **changes), self.layout)

    def commit(self, result: TagResult, run: int = 1, catch_up: int = 0) -> None:
        assert result.delta is not None
        BatchManifest("q", self.batch_id, run, {LABEL: result.delta}, "i", self.index_load, catch_up).write(
            self.manifests
        )
        self.pointer = result.pointer
        self.batch_id += 1


def test_the_state_of_a_run_that_was_not_committed_is_refused(layout: StateLayout) -> None:
    driver = Driver(layout)
    old = driver.tag(None, Event("k1", "p", 5), run=1)
    driver.commit(driver.tag(None, Event("k1", "p", 5), run=2), run=2)
    for wrong in (old.pointer, None):
        with pytest.raises(
            IndexDamagedError, match="key group 3 of .*durable.* the commits before batch 1 ended at .* overwrote"
        ):
            driver.tag(wrong, Event("k1", "p", 9))
    driver.commit(driver.tag(driver.pointer, Event("k1", "p", 9)))


def test_a_state_is_refused_where_there_must_be_none_yet(layout: StateLayout) -> None:
    driver = Driver(layout)
    old = driver.tag(None, Event("k1", "p", 5))
    with pytest.raises(IndexDamagedError, match="ended at 'the beginning'"):
        driver.tag(old.pointer, Event("k1", "p", 5))
    unknown = driver.tag(old.pointer, Event("k1", "p", 6), chains_whole=False)  # nothing is known: taken as it is
    assert unknown.stats["updates"] == 1


def test_a_batch_that_is_done_again_begins_where_it_began(layout: StateLayout) -> None:
    """Spark may have committed the state of the failed attempt; it gives the re-run the version before."""
    driver = Driver(layout)
    driver.commit(driver.tag(None, Event("a", "p", 1)))
    driver.tag(driver.pointer, Event("b", "p", 1), run=1)
    again = driver.tag(driver.pointer, Event("b", "p", 1), run=2)
    driver.commit(again, run=2)
    driver.commit(driver.tag(driver.pointer, Event("b", "p", 2), run=2), run=2)


def test_an_older_batch_that_spark_has_kept(layout: StateLayout) -> None:
    driver = Driver(layout)
    kept: list[bytes | None] = []
    for number in range(12):  # several snapshots
        kept.append(driver.pointer)
        driver.commit(driver.tag(driver.pointer, Event(f"k{number}", "p", number)))
    for number in (11, 7, 5, 0):
        driver.batch_id = number
        assert driver.tag(kept[number], Event("late", "p", 1), run=2).stats["inserts"] == 1


def test_a_generation_that_was_loaded_anew_voids_what_was_before(layout: StateLayout) -> None:
    driver = Driver(layout)
    driver.commit(driver.tag(None, Event("a", "p0", 1)))
    old = driver.pointer
    load(layout, [Row("a", 0, 1)], batch_id=1)
    driver.index_load = 1
    driver.commit(driver.tag(old, Event("a", "p0", 2)))
    assert driver.tag(driver.pointer, Event("a", "p0", 3)).stats["updates"] == 1
    for wrong in (old, None):  # the batch that was run on the generation is not in it
        with pytest.raises(IndexDamagedError):
            driver.tag(wrong, Event("a", "p0", 3))


def test_a_catch_up_in_between(layout: StateLayout) -> None:
    load(layout, [Row("a", 0, 1)])
    driver = Driver(layout, index_load=1)
    driver.commit(driver.tag(None, Event("b", "p0", 1)))
    marker = CatchUpMarker(1, 1, ("20260101000000009",), (TouchedGroup("p0", "f0", "20260101000000009"),), True, 1)
    complete_catch_up(layout, marker)
    behind = driver.pointer
    after = driver.tag(behind, Event("c", "p0", 1), catch_up=1)
    assert after.stats["caught_up"] == 1  # "a" is gone from its file group
    driver.commit(after, catch_up=1)
    assert driver.tag(driver.pointer, Event("a", "p0", 2), catch_up=1).stats["inserts"] == 1
    with pytest.raises(IndexDamagedError):
        driver.tag(behind, Event("a", "p0", 2), catch_up=1)


def test_a_replay_is_told_apart_from_a_state_that_was_written_over(layout: StateLayout) -> None:
    driver = Driver(layout)
    first = driver.tag(None, Event("a", "p", 1), run=1)
    second = driver.tag(None, Event("a", "p", 1), run=2)
    driver.commit(second, run=2)
    third = driver.tag(driver.pointer, Event("a", "p", 2))
    profile = make_profile(1, mode="replay", manifest={LABEL: third.delta})
    batch = make_batch([Event("a", "p", 2)], layout)
    assert tag_key_group(LABEL, second.pointer, batch, profile, layout).pointer == third.pointer
    with pytest.raises(IndexDamagedError, match="batch 1 was committed from"):
        tag_key_group(LABEL, first.pointer, batch, profile, layout)


def test_a_key_is_not_written_twice(tmp_path: Path, layout: StateLayout) -> None:
    """The run that was not committed had the key in an existing small file, the committed one in a new file group."""
    writer = Writer.create(tmp_path, "COPY_ON_WRITE", groups=1)
    writer.write([{"id": "k0", "part": "p", "ver": 1, "name": "x", "amount": 1.0}])
    driver = Driver(layout)
    small = {"p": (SmallFile(writer.where["k0"][1], 1000),)}
    old = driver.tag(None, Event("k1", "p", 5), run=1, small_files=small)
    new = driver.tag(None, Event("k1", "p", 5), run=2)
    assert old.file_id[0] != new.file_id[0]
    write_and_commit(writer, new, 5)
    driver.commit(new, run=2)
    with pytest.raises(IndexDamagedError):
        write_and_commit(writer, driver.tag(old.pointer, Event("k1", "p", 9)), 9)
    write_and_commit(writer, driver.tag(new.pointer, Event("k1", "p", 9)), 9)
    rows = read_snapshot(writer.table).to_pylist()
    assert sorted((r["id"], r["ver"]) for r in rows) == [("k0", 1), ("k1", 9)]


def write_and_commit(writer: Writer, result: TagResult, version: int) -> None:
    """One commit of the one row of a tag result."""
    table, instant = writer.table, writer.instant()
    timeline = table.timeline()
    context = WriteContext(
        instant, "commit", 0, f"0-{version}-1", SCHEMA, AVRO, timeline.newest_completed, timeline, writer.options
    )
    commit.request(table, instant, "commit")
    commit.inflight(table, instant, "commit")
    insert = bool(result.op[0] == OP_INSERT)
    row = {"id": "k1", "part": "p", "ver": version, "name": "x", "amount": 1.0, "_is_insert": insert}
    file_id = result.file_id[0]
    known = table.view(timeline).latest_slice("p", file_id)
    statuses = write_file_group(table, context, "p", file_id, known, writer.rows([row]), delete_rows([], pa.int64()))
    commit.publish_files(table, instant, statuses)
    commit.complete(table, instant, "commit", CommitMetadata.build(statuses, {}, AVRO))


def test_what_is_expected_is_for_one_batch_of_one_generation() -> None:
    at = ExpectedChains("q", 1, 7)
    assert at.is_for("q", 1, 7)
    assert not any(at.is_for(*other) for other in (("r", 1, 7), ("q", 2, 7), ("q", 1, 8)))
    assert replace(at, batch_id=8) == at.after({})
