"""Index and table are brought together before the stream goes on, whatever happened to either in between."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.bootstrap.errors import IndexCoverageError
from tagstream.streaming.batch.report import BatchReport
from tagstream.streaming.recovery.takeover import read_query_index_load
from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.rollback import rollback
from tagstream.table.services.validate import validate
from tagstream.table.storage.posix import PosixStorage
from tests.streaming.stream_case import StreamCase
from tests.streaming.test_kafka_stream import kafka_case, send
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.foreign_writer import ForeignWriter
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker
from tests.support.table_version import completed_file, timeline_of

pytestmark = pytest.mark.spark
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
MIX = ev.Mix(keys=60, tombstones=0.0)


def is_oracles(case: StreamCase, events: list[ev.Event]) -> None:
    expected = ev.rows(ev.oracle(events).values())
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), ["id"])), wrong
    assert validate(HoodieTable.open(str(case.table))) == []


def live(events: list[ev.Event]) -> list[ev.Event]:
    return sorted(ev.oracle(events).values(), key=lambda e: e.key)


class Between:
    """A stream of two batches, then others' commits, then the rest of the stream."""

    def __init__(self, tmp_path: Path, spark: SparkSession, table_type: str, seed: int = 51) -> None:
        self.case = StreamCase(tmp_path, spark, table_type)
        self.events = list(ev.generate(600, MIX, seed=seed))
        ev.write_files(self.events[:300], self.case.source, 150)
        assert len(self.case.run()) == 2
        self.writer = ForeignWriter(self.case.table)
        self.first = self.events[:300]
        self.rest = self.events[300:]
        self.top = max(e.ordering or 0 for e in self.events) + 1_000

    def go_on(self, foreign: list[ev.Event], rest: list[ev.Event] | None = None) -> list[BatchReport]:
        """Run on with what is left; the table must be the oracle's of everything in this order."""
        rest = self.rest if rest is None else rest
        ev.write_files(rest, self.case.source, 100, first=2)
        reports = self.case.run()
        is_oracles(self.case, [*self.first, *foreign, *rest])
        return reports

    def catch_ups(self) -> list[str]:
        return sorted(p.parent.name for p in self.case.checkpoint.glob("tagstream/index/gen-*/epoch-*/complete.json"))


@pytest.mark.extended("more kinds of tables", first=("MERGE_ON_READ",))
@pytest.mark.parametrize("table_type", TYPES)
def test_another_writer_upserted_moved_and_deleted_in_between(
    tmp_path: Path, spark: SparkSession, table_type: str
) -> None:
    between = Between(tmp_path, spark, table_type)
    rows = live(between.first)
    # In the ordering of the stream: the newer of the stream's and the other writer's events is the oracle's.
    at = max(e.ordering or 0 for e in between.first)
    updated = [ev.Event(e.key, e.partition, at, name="theirs", amount=1.5) for e in rows[:8]]
    moved = [ev.Event(e.key, "p-elsewhere", at, name="moved", amount=2.5) for e in rows[8:16]]
    deleted = [ev.Event(e.key, e.partition, at, deleted=True) for e in rows[16:20]]
    new = [ev.Event(f"new-{i}", "p-new", at, name="new", amount=0.5) for i in range(10)]
    between.writer.upsert([*updated, *moved, *new])
    between.writer.upsert(deleted)
    more = [ev.Event(f"new-{i}", "p-elsewhere", at + i, name="ours", amount=9.0) for i in range(5)]
    # A late event after the other writer's delete must not bring the row back.
    late = [ev.Event(e.key, e.partition, (e.ordering or 0) - 1, name="late", amount=0.0) for e in rows[16:20]]
    reports = between.go_on([*updated, *moved, *new, *deleted], [*late, *more, *between.rest])
    assert between.catch_ups() == ["epoch-1"]
    assert sum(r.late for r in reports) >= 4
    assert between.case.run() == []


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("table_type", TYPES)
def test_another_writer_replaced_and_clustered_partitions(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    between = Between(tmp_path, spark, table_type)
    rows = live(between.first)
    partitions = sorted({e.partition or "" for e in rows})
    overwritten, dropped, clustered = partitions[0], partitions[1], partitions[2]
    at = max(e.ordering or 0 for e in between.first)
    kept = [e for e in rows if e.partition == overwritten][:3]
    gone = [e for e in rows if e.partition in (overwritten, dropped) and e not in kept]
    new = [ev.Event(f"over-{i}", overwritten, at, name="over", amount=1.0) for i in range(4)]
    between.writer.insert_overwrite(overwritten, [*kept, *new])
    between.writer.insert_overwrite(dropped, [])
    between.writer.cluster(clustered)
    deleted = [ev.Event(e.key, e.partition, e.ordering, deleted=True) for e in gone]
    between.go_on([*new, *deleted])
    assert between.catch_ups() == ["epoch-1"]


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("table_type", TYPES)
def test_another_writer_commits_in_mid_run(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    case = StreamCase(tmp_path, spark, table_type)
    events = list(ev.generate(400, MIX, seed=53))
    ev.write_files(events, case.source, 100)
    foreign: list[ev.Event] = []

    def interfere(report: BatchReport) -> None:
        if report.batch_id == 1:
            rows = live(events[:200])[:10]
            at = max(e.ordering or 0 for e in events) + 1
            foreign.extend(ev.Event(e.key, "p-mid", at, name="mid", amount=3.0) for e in rows)
            ForeignWriter(case.table).upsert(foreign)

    reports = case.run(on_batch=interfere)
    assert [r.batch_id for r in reports] == [0, 1, 2, 3]
    is_oracles(case, [*events[:200], *foreign, *events[200:]])
    assert case.run() == []


@pytest.mark.extended("the same decisions over another real stream")
def test_another_writer_commits_while_a_batch_is_written(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = Between(tmp_path, spark, "COPY_ON_WRITE")
    foreign = [ev.Event("mid-batch", "p-mid", 1, name="mid", amount=3.0)]
    from tagstream.streaming.job import sink as module

    real = module.protocol.announce_files
    done: list[str] = []

    def announce_files(*args: object, **more: object) -> None:
        if not done:
            done.append("begun")  # the other writer comes this way, too
            between.writer.upsert(foreign)
        real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(module.protocol, "announce_files", announce_files)
    reports = between.go_on(foreign)
    assert len(done) == 1
    assert len({r.batch_id for r in reports}) == len(reports)
    assert between.catch_ups() == ["epoch-1"]


@pytest.mark.extended("the same decisions over another real stream")
def test_a_commit_that_another_writer_completed_late(tmp_path: Path, spark: SparkSession) -> None:
    between = Between(tmp_path, spark, "COPY_ON_WRITE")
    first = min(p.name.split(".")[0].split("_")[0] for p in timeline_of(between.case.table).glob("2*.commit"))
    new = [ev.Event("late-commit", "p-late", 1, name="x", amount=1.0)]
    between.writer.upsert(new, instant=next_instant(0, first))
    between.go_on([*new, ev.Event("late-commit", "p-other", 2, name="y", amount=1.0)][:1])
    assert between.catch_ups() == ["epoch-1"]


@pytest.mark.parametrize("table_type", TYPES)
def test_a_table_restored_to_an_earlier_state(
    tmp_path: Path, spark: SparkSession, table_type: str, kafka_broker: KafkaBroker
) -> None:
    topic = f"restored-{table_type.lower()}"
    kafka_broker.create_topic(topic, partitions=2)
    events = list(ev.generate(600, ev.Mix(keys=60, late_deletes=0.0, late=0.0), seed=55))
    case = replace(kafka_case(tmp_path, spark, kafka_broker, topic), table_type=table_type)
    for start in (0, 200, 400):
        send(kafka_broker, topic, events[start : start + 200], 2)
        case.run()
    table = HoodieTable.open(str(case.table))
    newest = table.timeline().completed_writes[-1]
    (timeline_of(case.table) / newest.file_name()).unlink()
    rollback(table, newest.time, next_instant(0, newest.time))
    reports = case.run()
    assert sum(r.records for r in reports) == 200
    is_oracles(case, events)
    why = (case.root / "why.txt").read_text()
    assert why.startswith(
        f"This query continues the one in {case.checkpoint}, which was retired: table {case.table} no"
    )
    assert case.root == case.checkpoint / "tagstream" / "roots" / "1"
    assert case.run() == []


def test_a_table_restored_in_mid_run(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark)
    events = list(ev.generate(300, MIX, seed=57))
    ev.write_files(events, case.source, 100)

    def restore(report: BatchReport) -> None:
        if report.batch_id == 1 and case.root == case.checkpoint:
            completed_file(case.table, report.instant).unlink()

    reports = case.run(on_batch=restore)
    assert [r.batch_id for r in reports] == [0, 1, 0, 1, 2]  # a new query reads all files again
    is_oracles(case, events)


@pytest.mark.extended("the same decisions over another real stream")
def test_a_rolled_back_commit_of_another_writer(tmp_path: Path, spark: SparkSession) -> None:
    between = Between(tmp_path, spark, "COPY_ON_WRITE")
    instant = between.writer.upsert([ev.Event("undone", "p-x", 1, name="x", amount=1.0)])
    assert between.case.run() == []  # the index knows it
    completed_file(between.case.table, instant).unlink()
    table = HoodieTable.open(str(between.case.table))
    rollback(table, instant, next_instant(0, instant))
    between.go_on([], [ev.Event("undone", "p-y", 2, name="y", amount=1.0), *between.rest])
    takeover = read_query_index_load(PosixStorage(str(between.case.checkpoint)))
    assert takeover is not None and takeover.index_load == 1
    assert between.case.root == between.case.checkpoint


@pytest.mark.extended("the same decisions over another real stream")
def test_an_older_copy_of_the_checkpoint(tmp_path: Path, spark: SparkSession) -> None:
    between = Between(tmp_path, spark, "MERGE_ON_READ")
    case, copy = between.case, tmp_path / "copy"
    shutil.copytree(case.checkpoint, copy)
    ev.write_files(between.rest[:200], case.source, 100, first=2)
    assert len(case.run()) == 2
    shutil.rmtree(case.checkpoint)
    copy.rename(case.checkpoint)
    ev.write_files(between.rest[200:], case.source, 100, first=4)
    assert [r.batch_id for r in case.run()] == [2, 3, 4]
    is_oracles(case, between.events)
    assert case.run() == []


@pytest.mark.extended("the same decisions over another real stream")
def test_half_a_checkpoint_is_put_aside(tmp_path: Path, spark: SparkSession) -> None:
    between = Between(tmp_path, spark, "MERGE_ON_READ")
    for path in between.case.checkpoint.iterdir():
        if path.name != "tagstream":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    between.go_on([])
    assert between.case.root != between.case.checkpoint
    assert (between.case.root / "tagstream" / "manifests").is_dir()


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("moved", [0, 2, 8, 11])
def test_a_retiring_that_an_earlier_version_began_is_finished(tmp_path: Path, spark: SparkSession, moved: int) -> None:
    """It wrote a mark, moved the query's files one by one, wrote why and removed the mark."""
    between = Between(tmp_path, spark, "MERGE_ON_READ")
    checkpoint = between.case.checkpoint
    names = ["metadata", ".metadata.crc", "offsets", "commits", "state", "sources"]
    names += [f"tagstream/{name}" for name in ("takeover.json", "index", "manifests", "profiles", "quarantine")]
    (checkpoint / "tagstream" / "retiring.json").write_text(json.dumps({"number": 1, "why": "so it was found"}))
    (checkpoint / "retired" / "1" / "tagstream").mkdir(parents=True)
    for name in names[:moved]:
        if (checkpoint / name).exists():
            (checkpoint / name).rename(checkpoint / "retired" / "1" / name)
    between.go_on([])
    assert between.case.root == checkpoint / "tagstream" / "roots" / "1"
    assert "so it was found" in (between.case.root / "why.txt").read_text()
    assert not (checkpoint / "tagstream" / "retiring.json").exists()
    assert between.case.run() == []


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("what", ["deltas", "snapshots", "manifests", "epoch"])
def test_a_damaged_file_of_the_index(
    tmp_path: Path, spark: SparkSession, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    between = Between(tmp_path, spark, "MERGE_ON_READ")
    case, foreign = between.case, [ev.Event("theirs", "p-x", 1, name="x", amount=1.0)]
    index = case.checkpoint / "tagstream" / "index"
    if what == "snapshots":  # there is one from the loading of the index
        shutil.rmtree(case.checkpoint)
        shutil.copytree(case.source, tmp_path / "seen")
        assert len(case.run()) == 2
    between.writer.upsert(foreign)
    if what == "epoch":
        assert case.run() == []
        damaged = [index / "gen-0" / "epoch-1" / "complete.json"]
    elif what == "manifests":
        damaged = sorted((case.checkpoint / "tagstream" / "manifests").glob("*.json"))[-1:]
    else:
        damaged = sorted(p for p in (index / what).glob("*/*") if p.suffix == ".sst")
    assert damaged
    for path in damaged:
        path.write_bytes(path.read_bytes()[:-7])
    shutil.rmtree(case.folder / "local")
    with caplog.at_level(logging.WARNING, "tagstream"):
        between.go_on(foreign)
    if what != "manifests":  # of a commit that can be read in the table again
        assert any(
            "The query starts again" in r.message or "loaded from the table" in r.message for r in caplog.records
        )
        takeover = read_query_index_load(PosixStorage(str(case.checkpoint)))
        assert takeover is not None and takeover.index_load == (2 if what == "snapshots" else 1)
    assert case.run() == []


def test_a_table_deleted_under_a_live_checkpoint(tmp_path: Path, spark: SparkSession) -> None:
    between = Between(tmp_path, spark, "COPY_ON_WRITE")
    shutil.rmtree(between.case.table)
    with pytest.raises(IndexCoverageError, match=r"has finished batch 1.*was deleted or created again"):
        between.case.run()
