"""A long stream of files: Spark's log of them forgets what is read and gone, and nothing is read twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.batch import spark_checkpoint as old_plans
from tagstream.streaming.batch.spark_checkpoint import forget_old_plans, newest_fold, whole_file_log
from tagstream.streaming.source import file_lister as lister
from tagstream.streaming.source.file_plans import PLANS, PlanLog, plan_name
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.storage import Storage
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

RETAIN = "spark.sql.streaming.minBatchesToRetain"
BATCHES, PER_FILE = 400, 10


def entry(path: str, batch: int) -> str:
    return json.dumps({"path": path, "timestamp": 1_600_000_000_000 + batch, "batchId": batch}, separators=(",", ":"))


@pytest.fixture
def query_folder(tmp_path: Path) -> Storage:
    """Of a query that has read 400 plans, and whose log was folded with batch 399; one entry is of an older program's."""
    storage = PosixStorage(str(tmp_path))
    log = PlanLog(storage)
    log.keep_positions({}, BATCHES)
    for number in range(1, BATCHES + 1):
        storage.write_new(plan_name(number), b"a plan")
    lines = [entry("file:///in/data.json", 0)]
    lines += [entry(f"file://{tmp_path}/{plan_name(n)}", n - 1) for n in range(1, BATCHES + 1)]
    storage.replace(f"sources/0/{BATCHES - 1}.compact", "\n".join(["v1", *lines]).encode())
    for log_name, text in (("commits", "v1\n{}"), ("offsets", "v1\n{}\n")):
        for batch in (BATCHES - 100, BATCHES - 1):
            offset = json.dumps({"logOffset": batch}) if log_name == "offsets" else ""
            storage.replace(f"{log_name}/{batch}", f"{text}{offset}".encode())
    return storage


def test_the_log_keeps_the_entries_of_the_plans_that_are_there(query_folder: Storage) -> None:
    forget_old_plans(query_folder, BATCHES, 100)
    there = PlanLog(query_folder).numbers
    assert there == list(range(302, BATCHES + 1))
    left = whole_file_log(query_folder)
    assert [e["batchId"] for e in left] == [0, *range(301, BATCHES)], (
        "an older program's file and the plans that are there"
    )
    assert query_folder.read(f"sources/0/{newest_fold(query_folder)}.compact").startswith(b"v1\n")


def test_few_entries_are_left_where_they_are(query_folder: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_plans, "_LEAST_PRUNED", 302)
    forget_old_plans(query_folder, BATCHES, 100)
    assert len(PlanLog(query_folder).numbers) == 99 and len(whole_file_log(query_folder)) == BATCHES + 1


def test_an_entry_stays_as_long_as_its_plan(query_folder: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before the plans are gone: without their entries Spark would read them again."""
    monkeypatch.setattr(PlanLog, "forget_plans", lambda *_: None)
    forget_old_plans(query_folder, BATCHES, 100)
    assert len(PlanLog(query_folder).numbers) == BATCHES and len(whole_file_log(query_folder)) == BATCHES + 1


@pytest.fixture
def small(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is done once in hundreds of batches is done in some."""
    monkeypatch.setattr(old_plans, "_KEPT", 4)
    monkeypatch.setattr(old_plans, "_LEAST_PRUNED", 6)
    monkeypatch.setattr(lister, "_PLANS", 1)
    spark.conf.set(RETAIN, "2")
    yield
    spark.conf.unset(RETAIN)


@pytest.mark.extended("thirty batches")
@pytest.mark.spark
@pytest.mark.usefixtures("small")
def test_a_stream_goes_on_with_the_shorter_log(tmp_path: Path, spark: SparkSession) -> None:
    events = list(ev.generate(33 * PER_FILE, ev.Mix(keys=40, tombstones=0), seed=31))
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", {"index.key.groups": "2"})
    done = 0
    for batches, fold in ((21, 19), (33, 29)):
        ev.write_files(events[done * PER_FILE : batches * PER_FILE], case.source, PER_FILE, first=done)
        assert len(case.run()) == batches - done
        done = batches
        query_folder = PosixStorage(str(case.root))
        assert newest_fold(query_folder) == fold
        plans = len([name for name in query_folder.names(PLANS) if name.startswith("plan-")])
        assert plans <= 6 and len(whole_file_log(query_folder)) < 18
        rows = ev.rows(ev.oracle(events[: done * PER_FILE]).values())
        assert not compare(rows, read_table(case.table, meta_columns=False), ["id"])
    assert case.run() == []
