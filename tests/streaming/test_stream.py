"""The whole path on one Spark session: exact rows, one evaluation a batch, replays that write nothing."""

from __future__ import annotations

import json
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from tagstream.streaming.batch.report import KINDS
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.support.process import in_thread, wait_for

pytestmark = pytest.mark.spark
PER_FILE = 400


def has_rows(case: StreamCase, events: list[ev.Event]) -> None:
    expected = ev.rows(ev.oracle(events).values())
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), ["id"])), wrong


class Progress(StreamingQueryListener):
    """Collects Spark's own progress of every batch."""

    def __init__(self) -> None:
        self.batches: list[dict] = []

    def with_rows(self) -> list[dict]:
        return [b for b in self.batches if b["numInputRows"]]

    def onQueryStarted(self, event: object) -> None: ...

    def onQueryIdle(self, event: object) -> None: ...

    def onQueryTerminated(self, event: object) -> None: ...

    def onQueryProgress(self, event: object) -> None:
        self.batches.append(json.loads(event.progress.json))  # type: ignore[attr-defined]


@pytest.mark.platform("a disordered stream")
@pytest.mark.extended("more kinds of tables", first=("True-MERGE_ON_READ",))
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("base_files", [False, True])
def test_a_disordered_stream_ends_in_the_oracles_rows(
    tmp_path: Path, spark: SparkSession, table_type: str, base_files: bool
) -> None:
    if base_files and table_type == "COPY_ON_WRITE":
        conf = {"hoodie.datasource.write.hive_style_partitioning": "true"}
    else:
        conf = {"tagstream.inserts.to.base.files": str(base_files).lower()}
    events = list(ev.generate(5 * PER_FILE, ev.Mix(keys=150), seed=3))
    case = StreamCase(tmp_path, spark, table_type, conf)
    ev.write_files(events, case.source, PER_FILE)
    reports = case.run()

    assert [r.batch_id for r in reports] == list(range(5))
    assert sum(r.records for r in reports) == len(events)
    assert [sum(getattr(r, kind) for kind in KINDS) for r in reports] == [r.records for r in reports]
    assert sum(r.unknown_deletes for r in reports) > 0
    live = ev.oracle(events)
    expected = ev.rows(live.values())
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), ["id"])), wrong
    table = HoodieTable.open(str(case.table))
    ours = read_snapshot(table)
    assert not (wrong := compare(expected, ours, ["id"])), wrong
    assert validate(table) == []
    assert reports[-1].index_keys == len(live)
    assert sum(r.moves for r in reports) > 50
    assert sum(r.late for r in reports) > 10


# Kind of stream -> its options, and the steps whose rows stay in files.
STEPS: dict[str, tuple[dict[str, str], set[str]]] = {
    "state": ({}, {"keys", "tag"}),
    "simple": ({"hoodie.index.type": "GLOBAL_SIMPLE"}, {"keys", "tag"}),
    "transformed": (
        {
            "hoodie.streamer.transformer.class": "org.apache.hudi.utilities.transform.SqlQueryBasedTransformer",
            "hoodie.streamer.transformer.sql": "SELECT * FROM <SRC>",
        },
        {"rows", "tag"},
    ),
    "bulk": (
        {
            "hoodie.datasource.write.operation": "BULK_INSERT",
            "hoodie.bulkinsert.sort.mode": "GLOBAL_SORT",
            "hoodie.combine.before.insert": "true",
        },
        {"keys", "newest", "lanes"},
    ),
}
BY_SHUFFLE = {f"{kind}-shuffle": ({**STEPS[kind][0], "tagstream.task.files": "false"}, set()) for kind in STEPS}


def oracle_of(kind: str, count: int, seed: int) -> tuple[list[ev.Event], pa.Table]:
    """Events, and the rows that a stream of the kind makes of them."""
    if kind.startswith("bulk"):
        events = [ev.Event(f"k{i:04d}", f"p{i % 3}", i) for i in range(count)]
        return events, ev.rows(events)
    in_order = ev.Mix(keys=300, late=0, late_deletes=0, equal_ordering=0)
    events = list(ev.generate(count, in_order if kind.startswith("simple") else ev.Mix(), seed=seed))
    rows = ev.rows(ev.oracle(events).values())
    # The table of transformed rows has no column for the mark of deletes.
    return events, rows.drop_columns(["_hoodie_is_deleted"]) if kind.startswith("transformed") else rows


@pytest.mark.extended("the same stream again", first=("state", "bulk"))
@pytest.mark.parametrize("kind", [*STEPS, *BY_SHUFFLE])
def test_rows_between_two_steps(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    """They stay in files of the tasks, which are removed with their batch, or they go through Spark's shuffle."""
    conf, steps = (STEPS | BY_SHUFFLE)[kind]
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", conf=conf)
    events, expected = oracle_of(kind, 3 * PER_FILE, 5)
    ev.write_files(events, case.source, PER_FILE)
    seen: list[set[str]] = []

    def look(point: str, _: int) -> None:
        if point == "files_written":
            seen.append({path.name.partition("-")[0] for path in tmp_path.rglob("exchange/*/*")})

    case.run(at=look)
    assert seen == [steps] * 3
    assert not list(tmp_path.rglob("exchange/*"))
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), ["id"])), wrong


@pytest.mark.extended("the same stream with another index", first=("state",))
@pytest.mark.parametrize("kind", ["state", "simple", "bulk"])
def test_files_of_tasks_that_another_program_removes(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    """The query starts again, and the batch is there once."""
    case, removed = StreamCase(tmp_path, spark, "MERGE_ON_READ", conf=STEPS[kind][0]), list[Path]()
    events, expected = oracle_of(kind, 8 * PER_FILE, 6)
    ev.write_files(events, case.source, PER_FILE)  # several batches: in one of them the thread finds a file
    ended = threading.Event()

    def remove() -> None:
        while not removed and not ended.is_set():
            with suppress(FileNotFoundError):  # a folder that is removed while it is looked at
                for path in tmp_path.rglob("exchange/*/lanes-*" if kind == "bulk" else "exchange/*/tag-*"):
                    shutil.rmtree(path.parent, ignore_errors=True)
                    removed.append(path)
                    break

    thread = in_thread(remove)
    try:
        case.run()
    finally:
        ended.set()
        thread.join()
    assert removed
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), ["id"])), wrong
    assert validate(HoodieTable.open(str(case.table))) == []


def test_one_batch_evaluates_the_stateful_plan_once(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark)
    ev.write_files(ev.generate(3 * PER_FILE, seed=5), case.source, PER_FILE)
    progress = Progress()
    spark.streams.addListener(progress)
    try:
        reports = case.run()
        wait_for(lambda: len(progress.with_rows()) == 3, 30, "Spark's progress of three batches")
    finally:
        spark.streams.removeListener(progress)
    assert len(reports) == 3
    batches = progress.with_rows()
    # A second evaluation would read the plan again (its head and one task line) and update each group's state twice.
    assert [b["numInputRows"] for b in batches] == [2] * 3
    assert [b["stateOperators"][0]["numRowsUpdated"] for b in batches] == [8] * 3
    deltas = list((case.checkpoint / "tagstream" / "index" / "deltas").glob("*/*"))
    assert len(deltas) == 3 * 8  # 4 key groups a shuffle partition


@pytest.mark.platform("replays and restarts")
@pytest.mark.extended("more kinds of tables", first=("MERGE_ON_READ",))
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_replayed_batch_writes_nothing_and_the_stream_goes_on(
    tmp_path: Path, spark: SparkSession, table_type: str
) -> None:
    events = list(ev.generate(4 * PER_FILE, ev.Mix(keys=100), seed=9))
    case = StreamCase(tmp_path, spark, table_type)
    ev.write_files(events[: 2 * PER_FILE], case.source, PER_FILE)
    case.run()
    before = case.files()
    forget_commit(case, 1)
    (replay,) = case.run()
    assert (replay.batch_id, replay.replayed, replay.files) == (1, True, 0)
    assert case.files() == before

    ev.write_files(events[2 * PER_FILE :], case.source, PER_FILE, first=2)
    forget_commit(case, 1)
    assert [(r.batch_id, r.replayed) for r in case.run()] == [(1, True), (2, False), (3, False)]
    expected = ev.rows(ev.oracle(events).values())
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), ["id"])), wrong


def forget_commit(case: StreamCase, batch: int) -> None:
    """Take a batch out of Spark's commit log, with Hadoop's checksum beside it."""
    for name in (str(batch), f".{batch}.crc"):
        (case.checkpoint / "commits" / name).unlink(missing_ok=True)


def test_without_a_global_index_partition_and_key_identify_a_row(tmp_path: Path, spark: SparkSession) -> None:
    mix = ev.Mix(keys=100, deletes_without_partition=0.0, chains=0.0)
    events = [e for e in ev.generate(3 * PER_FILE, mix, seed=4) if e.partition is not None]
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", {"index.global.enabled": "false"})
    ev.write_files(events, case.source, PER_FILE)
    case.run()
    expected = ev.rows(ev.oracle(events, global_index=False).values())
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), ["part", "id"])), wrong
