"""Several streams write to one table at the same time: the rows are those of all their events."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.batch import added_keys
from tagstream.table.errors import LeaseLostError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.job_leases import TURN
from tagstream.table.timeline.lease import current
from tests.streaming.job.frame_case import FrameCase
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.support.process import in_thread, wait_for
from tests.support.table_version import metadata, using

pytestmark = pytest.mark.spark
LOCK = "hoodie.write.lock."
NAME = "hoodie.datasource.write.streaming.checkpoint.identifier"
CONF = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    f"{LOCK}provider": "FileSystemBasedLockProvider",
    f"{LOCK}wait_time_ms": "10",
    f"{LOCK}client.num_retries": "6000",
    f"{LOCK}client.wait_time_ms_between_retry": "10",
}
IN_PROCESS = {**CONF, f"{LOCK}provider": "InProcessLockProvider"}
MIX = ev.Mix(keys=60, partitions=3, equal_ordering=0.0, deletes=0.1, late_deletes=0.06)
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
PER_FILE = 30


class OneOfSeveral(StreamCase):
    """A stream whose table is in the folder of all."""

    @property
    def table(self) -> Path:
        return self.folder.parent / "table"


class FrameOfSeveral(FrameCase):
    """A DataFrame whose table is in the folder of all."""

    @property
    def table(self) -> Path:
        return self.folder.parent / "table"


def streams(
    folder: Path, spark: SparkSession, table_type: str, names: str, conf: Mapping[str, str] = CONF
) -> list[OneOfSeveral]:
    """A stream for each letter."""
    return [
        OneOfSeveral(folder / name, spark.newSession(), table_type, {**conf, NAME: f"stream {name}"}) for name in names
    ]


def spread(events: Sequence[ev.Event], cases: Sequence[StreamCase | FrameCase]) -> None:
    """Each event to one of the sources, at random."""
    rng = random.Random(len(events))
    parts: list[list[ev.Event]] = [[] for _ in cases]
    for event in events:
        parts[rng.randrange(len(cases))].append(event)
    for case, part in zip(cases, parts, strict=True):
        ev.write_files(part, case.source, PER_FILE)


def run_all(cases: Sequence[StreamCase]) -> None:
    """All at once, each to its end; the first error of one of them."""
    errors: list[BaseException] = []

    def run(case: StreamCase) -> None:
        try:
            case.run()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(case,)) for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def is_oracles(path: Path, events: Sequence[ev.Event]) -> None:
    expected = ev.rows(ev.oracle(sorted(events, key=lambda e: e.ordering or 0)).values())
    assert not (wrong := compare(expected, read_table(path, meta_columns=False), ["id"])), wrong
    table = HoodieTable.open(str(path))
    assert validate(table) == []
    assert not table.config.metadata_partitions or validate_metadata(table) == []


@pytest.mark.extended("more kinds of tables", first=("9-MERGE_ON_READ",))
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("version", [6, 9])
def test_streams_that_share_keys(tmp_path: Path, spark: SparkSession, table_type: str, version: int) -> None:
    events = list(ev.generate(240, MIX, seed=7))
    with using(version), metadata(version == 9):
        cases = streams(tmp_path, spark, table_type, "ab")
        spread(events, cases)
        run_all(cases)
    is_oracles(cases[0].table, events)


@pytest.mark.extended("another pair of real streams")
def test_a_compaction_is_planned_although_the_other_stream_always_has_a_batch(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Version 6 has no plan while a batch is pending: the stream with the services asks the other one to wait."""
    conf = {**CONF, "hoodie.compact.inline.max.delta.commits": "2", "tagstream.writers.keys": "disjoint"}
    with using(6), metadata(False):
        one, other = streams(tmp_path, spark, "MERGE_ON_READ", "ab", conf)
        for case, first in ((one, 0), (other, 100)):
            for number in range(4):
                ev.write_files([ev.Event(f"k{first + number}", "p0", number)], case.source, 1, first=number)
        begun, asked, others = threading.Event(), threading.Event(), list[threading.Thread]()

        def stay(point: str, batch: int) -> None:
            if (point, batch) == ("files_written", 0):
                begun.set()
                storage = PosixStorage(other.table)
                wait_for(lambda: (at := current(storage, TURN)) is not None and not at.released, 60, "a turn")
                asked.set()

        def begin_other(point: str, batch: int) -> None:
            if (point, batch) == ("files_written", 1) and not others:  # this stream does the services by now
                others.append(in_thread(lambda: other.run(at=stay)))
                wait_for(begun.is_set, 60, "a batch that stays")

        one.run(at=begin_other)
        others[0].join()
    assert asked.is_set()
    assert [i for i in HoodieTable.open(str(one.table)).timeline().instants if i.action == "commit" and i.is_completed]
    is_oracles(one.table, [ev.Event(f"k{first + n}", "p0", n) for first in (0, 100) for n in range(4)])


@pytest.mark.extended("another real stream, with an index that looks keys up in the table")
@pytest.mark.parametrize("index", ["GLOBAL_SIMPLE", "BUCKET"])
def test_streams_with_other_indexes(tmp_path: Path, spark: SparkSession, index: str) -> None:
    mix = replace(MIX, deletes=0.0, late_deletes=0.0, deletes_without_partition=0.0)
    if index == "BUCKET":  # a key stays in its partition
        mix = replace(mix, moves=0.0, chains=0.0, late=0.0, partitions=1)
    events = list(ev.generate(240, mix, seed=9))
    cases = streams(tmp_path, spark, "MERGE_ON_READ", "ab", {**CONF, "hoodie.index.type": index})
    spread(events, cases)
    run_all(cases)
    is_oracles(cases[0].table, events)


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("begin", ["at once", "one after the other"])
def test_streams_that_have_keys_of_their_own(tmp_path: Path, spark: SparkSession, begin: str) -> None:
    """No stream reads what the others have written, also not one that begins with a table full of their rows."""
    cases = streams(tmp_path, spark, "MERGE_ON_READ", "ab", {**CONF, "tagstream.writers.keys": "disjoint"})
    events: list[ev.Event] = []
    for case, name in zip(cases, "ab", strict=True):
        mine = [replace(e, key=f"{name}{e.key}") for e in ev.generate(180, MIX, seed=ord(name))]
        ev.write_files(mine, case.source, PER_FILE)
        events += mine
    for together in [cases] if begin == "at once" else [[case] for case in cases]:
        run_all(together)
    is_oracles(cases[0].table, events)
    for case in cases:
        assert not list(case.checkpoint.glob("tagstream/index/gen-*/epoch-*/complete.json"))
    rows = read_table(cases[0].table)
    groups = {
        name: set(
            pc.utf8_slice_codeunits(
                rows.filter(pc.starts_with(rows["id"], name))["_hoodie_file_name"], 0, 36
            ).to_pylist()
        )
        for name in "ab"
    }
    assert groups["a"].isdisjoint(groups["b"]), "each fills file groups of its own"


@pytest.mark.extended("the same decisions over another real stream")
def test_a_stream_that_joins_later_knows_the_deletes(tmp_path: Path, spark: SparkSession) -> None:
    """The table has no trace of a delete whose key had no row. An older event must not make the row."""
    first, second = streams(tmp_path, spark, "COPY_ON_WRITE", "ab")
    known = [ev.Event("there", "p0", 10, name="x"), ev.Event("never", "p0", 20, deleted=True)]
    ev.write_files(known, first.source, 10)
    first.run()
    late = [ev.Event("never", "p0", 15, name="late"), ev.Event("never too", "p0", 30, deleted=True)]
    ev.write_files(late, second.source, 10)
    second.run()
    more = [ev.Event("never too", "p1", 25, name="late"), ev.Event("new", "p1", 1, name="y")]
    ev.write_files(more, first.source, 10, first=1)
    first.run()
    is_oracles(first.table, [*known, *late, *more])
    assert set(read_table(first.table)["id"].to_pylist()) == {"new", "there"}


@pytest.mark.extended("a longer history of two DataFrames")
def test_two_dataframes_of_one_process(tmp_path: Path, spark: SparkSession) -> None:
    events = list(ev.generate(240, MIX, seed=5))
    cases = [FrameOfSeveral(tmp_path / name, spark, {**IN_PROCESS, NAME: f"frame {name}"}) for name in "ab"]
    spread(events, cases)
    queries = [case.start() for case in cases]
    for query in queries:
        query.awaitTermination()
    cases[0].is_oracles(sorted(events, key=lambda e: e.ordering or 0))


@pytest.mark.extended("the same decisions over another real stream")
def test_two_dataframes_without_a_lock(tmp_path: Path, spark: SparkSession) -> None:
    """The second one is refused, and the message says what to set."""
    cases = [FrameOfSeveral(tmp_path / name, spark) for name in "ab"]
    spread(list(ev.generate(60, MIX, seed=5)), cases)
    query = cases[0].start(processingTime="1 second")
    try:
        with pytest.raises(LeaseLostError, match="hoodie.write.lock.provider"):
            cases[1].start()
    finally:
        query.stop()


@pytest.mark.extended("another pair of real streams", first=("another",))
@pytest.mark.parametrize("key", ["another", "the same"])
def test_both_insert_a_key_at_one_time(tmp_path: Path, spark: SparkSession, key: str) -> None:
    """The batch that commits later is repeated if, and only if, both added the same key."""
    one, other = streams(tmp_path, spark, "MERGE_ON_READ", "ab")
    ev.write_files([ev.Event("k0", "p0", 1, name="ours")], one.source, 1)
    ev.write_files([ev.Event("k1" if key == "another" else "k0", "p0", 2, name="theirs")], other.source, 1)
    tries: list[int] = []

    def insert(point: str, batch: int) -> None:
        if point == "files_written":
            tries.append(batch)
            if len(tries) == 1:
                other.run()

    one.run(at=insert)
    assert len(tries) == (1 if key == "another" else 2)
    rows = {row["id"]: row["name"] for row in read_table(one.table).to_pylist()}
    assert rows == ({"k0": "ours", "k1": "theirs"} if key == "another" else {"k0": "theirs"})
    assert validate(HoodieTable.open(str(one.table))) == []
    assert len(list((one.table / added_keys.FOLDER).iterdir())) == len(rows)
