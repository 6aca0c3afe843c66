"""A stream whose last commits were archived, by whomever, still knows where it was, and what others did since."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.history.archive import archive
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tests.streaming.stream_case import StreamCase
from tests.streaming.test_kafka_stream import kafka_case, send
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.foreign_writer import ForeignWriter
from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.table_versions(6, 9)]
# The other writer of these tests knows of no metadata table, and hudi-rs lists by one.
PLAIN = {"hoodie.metadata.enable": "false"}
MIX = ev.Mix(keys=60, tombstones=0.0, late=0.0, late_deletes=0.0)


def is_oracles(case: StreamCase, events: list[ev.Event]) -> None:
    """By our own reader: hudi-rs does not ask the archive when a log of version 8 or 9 was completed, and loses its rows."""
    expected, table = ev.rows(ev.oracle(events).values()), HoodieTable.open(str(case.table))
    found = read_snapshot(table).select(expected.column_names)
    assert not (wrong := compare(expected, found, ["id"])), wrong
    assert validate(table) == []


def archive_all_but(case: StreamCase, kept: int) -> list[str]:
    """Archive the oldest writes; their times."""
    table = HoodieTable.open(str(case.table))
    old = table.timeline().completed_writes[:-kept]
    archive(table.timeline_place(), old)
    return [instant.time for instant in old]


def foreign(case: StreamCase, seen: list[ev.Event], commits: int) -> list[ev.Event]:
    """So many commits of another writer: each updates a row, and inserts one."""
    writer, done = ForeignWriter(case.table), []
    at = max(e.ordering or 0 for e in seen)
    rows = sorted(ev.oracle(seen).values(), key=lambda e: e.key)
    for number in range(commits):
        row = rows[number]
        events = [
            ev.Event(row.key, row.partition, at, name="theirs", amount=1.5),
            ev.Event(f"new-{number}", "p-new", at, name="new", amount=0.5),
        ]
        writer.upsert(events)
        done += events
    return done


@pytest.mark.extended("more kinds of tables")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_the_same_checkpoint(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    """All that the index knows is archived, and so are some of the commits that it does not know."""
    case = StreamCase(tmp_path, spark, table_type, PLAIN)
    events = list(ev.generate(500, MIX, seed=91))
    ev.write_files(events[:300], case.source, 150)
    assert len(case.run()) == 2
    theirs = foreign(case, events[:300], 5)
    assert len(archive_all_but(case, 2)) == 5
    news = [ev.Event(f"new-{n}", "p-moved", 10**6, name="moved", amount=2.5) for n in range(5)]
    ev.write_files([*events[300:], *news], case.source, 100, first=2)
    reports = case.run()
    assert reports[0].batch_id == 2
    assert sum(r.moves for r in reports) >= 5, "rows of archived commits are not known to the index"
    is_oracles(case, [*events[:300], *theirs, *events[300:], *news])
    catch_ups = [p.parent.name for p in case.checkpoint.glob("tagstream/index/gen-*/epoch-*/complete.json")]
    assert len(catch_ups) == 1, "the index was loaded in full, and not caught up"
    assert case.run() == []


@pytest.mark.extended("more kinds of tables", first=("v9",))
def test_a_batch_whose_commit_was_archived_is_not_done_twice(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", PLAIN)
    events = list(ev.generate(300, MIX, seed=92))
    ev.write_files(events[:200], case.source, 100)

    case.run()
    for path in case.root.glob("commits/*1*"):
        path.unlink()  # as if it had died before Spark has noted that the batch is finished
    theirs = foreign(case, events[:200], 4)
    commits = len(HoodieTable.open(str(case.table)).timeline().completed_writes)
    assert commits == 6
    archive_all_but(case, 2)
    ev.write_files(events[200:], case.source, 100, first=2)
    reports = case.run()
    assert [r.batch_id for r in reports] == [1, 2]
    assert len(HoodieTable.open(str(case.table)).timeline().completed_writes) == 3, "batch 1 was committed again"
    is_oracles(case, [*events[:200], *theirs, *events[200:]])


def test_a_lost_checkpoint_of_a_topic(tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    topic = f"archived-{tmp_path.name[-20:]}".replace("_", "-").replace("[", "").replace("]", "")
    kafka_broker.create_topic(topic, partitions=2)
    events = list(ev.generate(600, MIX, seed=93))
    send(kafka_broker, topic, events[:400], 2)
    case = kafka_case(tmp_path, spark, kafka_broker, topic)
    case = replace(case, conf={**case.conf, **PLAIN})
    case.run()
    theirs = foreign(case, events[:400], 3)
    archive_all_but(case, 1)
    shutil.rmtree(case.checkpoint)
    send(kafka_broker, topic, events[400:], 2)
    assert sum(r.records for r in case.run()) == 200
    is_oracles(case, [*events[:400], *theirs, *events[400:]])


@pytest.mark.extended("more kinds of tables", first=("v6",))
def test_a_table_that_moved(tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    case = StreamCase(tmp_path, spark, conf=PLAIN)
    events = list(ev.generate(200, MIX, seed=94))
    ev.write_files(events[:100], case.source, 100)
    case.run()
    theirs = foreign(case, events[:100], 3)
    archive_all_but(case, 1)
    moved = tmp_path / "moved"
    case.table.rename(moved)
    ev.write_files(events[100:], case.source, 100, first=1)
    assert len(case.run("--target-base-path", str(moved))) == 1
    assert f"table events at {moved} has its commits" in caplog.text
    case.existing = moved
    is_oracles(case, [*events[:100], *theirs, *events[100:]])
