"""A stream with its table services: the rows are the oracle's after every batch, and the table stays small."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.services import cleaning as cleaner
from tagstream.streaming.services import clustering as clusterer
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.timeline.instant import CLEAN, COMPACTION
from tagstream.table.timeline.timeline import Timeline
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
BATCHES, PER_FILE = 14, 60
SMALL = {
    "hoodie.compact.inline.max.delta.commits": "3", "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "4", "hoodie.keep.max.commits": "6", "hoodie.metadata.compact.max.delta.commits": "3",
}  # fmt: skip
CASES = {
    "6": {"hoodie.write.table.version": "6"},
    "6, metadata table": {"hoodie.write.table.version": "6", "hoodie.metadata.enable": "true"},
    "9": {"hoodie.write.table.version": "9", "hoodie.metadata.enable": "false"},
    "9, metadata table": {
        "hoodie.write.table.version": "9",
        "hoodie.metadata.global.record.level.index.enable": "true",
        "hoodie.metadata.global.record.level.index.min.filegroup.count": "2",
    },
    "9, beside": {
        "hoodie.write.table.version": "9",
        "hoodie.datasource.compaction.async.enable": "true",
        "hoodie.clean.async.enabled": "true",
    },
    "6, beside": {"hoodie.write.table.version": "6", "hoodie.metadata.enable": "true", "hoodie.clean.async": "true"},
}


MOR = "MERGE_ON_READ"


@pytest.mark.extended(
    "more kinds of tables",
    second=(
        "MERGE_ON_READ-6, metadata table",
        "MERGE_ON_READ-9, metadata table",
        "MERGE_ON_READ-9, beside",
        "COPY_ON_WRITE-6, beside",
    ),
)
@pytest.mark.parametrize(
    ("table_type", "name"),
    [(MOR, name) for name in CASES if name != "6, beside"]
    + [("COPY_ON_WRITE", name) for name in ("6", "9, metadata table", "6, beside")],
)
def test_rows_are_right_and_little_is_left(tmp_path: Path, spark: SparkSession, table_type: str, name: str) -> None:
    events = list(ev.generate(BATCHES * PER_FILE, ev.Mix(keys=40, tombstones=0), seed=11))
    case = StreamCase(tmp_path, spark, table_type, SMALL | CASES[name])
    done = 0
    for batches in (5, BATCHES):  # a start in between: the services go on where they were
        ev.write_files(events[done * PER_FILE : batches * PER_FILE], case.source, PER_FILE, first=done)
        done = batches
        case.run()
        rows = ev.rows(ev.oracle(events[: done * PER_FILE], global_index=True).values())
        assert not compare(rows, read_table(case.table), key=("id", "part"))
    table = HoodieTable.open(str(case.table))
    assert validate(table) == []
    timeline = table.timeline()
    assert len(timeline.completed_writes) <= 6 + 3
    assert any(i.action == CLEAN for i in timeline.instants)
    assert not [i for i in timeline.pending if i.action == CLEAN]
    assert not [i for i in timeline.pending if i.action == COMPACTION]
    view = table.view()
    for path in view.partitions():
        for found in view.all_slices(path).values():
            assert len(found) <= 4
            assert all(len(s.log_files) <= 6 for s in found)


def test_what_fails_is_told_and_tried_again(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    events = list(ev.generate(4 * PER_FILE, ev.Mix(keys=40, tombstones=0), seed=12))
    case, tries = StreamCase(tmp_path, spark, MOR, SMALL | CASES["9"]), []
    real = cleaner.clean

    def fails_twice(*given: object, **more: object) -> object:
        tries.append(given)
        if len(tries) < 3:
            raise OSError("no room left")
        return real(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(cleaner, "clean", fails_twice)
    ev.write_files(events, case.source, PER_FILE)
    case.run()
    assert len(tries) == 4
    told = [r.getMessage() for r in caplog.records if "cleaning of table" in r.getMessage()]
    assert len(told) == 1  # the same again is not said again
    assert "no room left" in told[0]
    assert "tried again" in told[0]
    rows = ev.rows(ev.oracle(events, global_index=True).values())
    assert not compare(rows, read_table(case.table), key=("id", "part"))


def test_only_planned(tmp_path: Path, spark: SparkSession) -> None:
    events = list(ev.generate(5 * PER_FILE, ev.Mix(keys=40, tombstones=0), seed=12))
    case = StreamCase(tmp_path, spark, MOR, SMALL | CASES["9"] | {"hoodie.compact.schedule.inline": "true"})
    ev.write_files(events, case.source, PER_FILE)
    case.run()
    timeline = HoodieTable.open(str(case.table)).timeline()
    assert len([i for i in timeline.pending if i.action == COMPACTION]) == 1
    rows = ev.rows(ev.oracle(events, global_index=True).values())
    assert not compare(rows, read_table(case.table), key=("id", "part"))


CLUSTERED = {
    "hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "3",
    "hoodie.clustering.plan.strategy.sort.columns": "name", "hoodie.parquet.small.file.limit": "0",
    "tagstream.inserts.to.base.files": "true",
}  # fmt: skip


def clusterings(table: HoodieTable, timeline: Timeline) -> int:
    return len([
        i for i in timeline.completed_writes if timeline.metadata(table.storage, i).operation == "CLUSTER"
    ])  # fmt: skip


@pytest.mark.extended(
    "more indexes and kinds of tables",
    first=("MERGE_ON_READ-6-STATE",),
    second=("COPY_ON_WRITE-9, metadata table-STATE", "COPY_ON_WRITE-6-INMEMORY"),
)
@pytest.mark.parametrize(
    ("table_type", "name", "index"),
    [
        (MOR, "6", "STATE"), (MOR, "9, metadata table", "STATE"), ("COPY_ON_WRITE", "9, metadata table", "STATE"),
        ("COPY_ON_WRITE", "6", "GLOBAL_SIMPLE"), ("COPY_ON_WRITE", "6", "INMEMORY"),
    ],
)  # fmt: skip
def test_the_index_follows_a_clustering(
    tmp_path: Path,
    spark: SparkSession,
    caplog: pytest.LogCaptureFixture,
    table_type: str,
    name: str,
    index: str,
) -> None:
    """Updates, moves and deletes of keys that a clustering has moved; the query goes on."""
    events = list(ev.generate(BATCHES * PER_FILE, ev.Mix(keys=120, tombstones=0, late_deletes=0, late=0), seed=13))
    more = {"hoodie.archive.automatic": "false", "hoodie.index.type": index}
    case = StreamCase(tmp_path, spark, table_type, SMALL | CASES[name] | CLUSTERED | more)
    done = 0
    for batches in (6, BATCHES):
        ev.write_files(events[done * PER_FILE : batches * PER_FILE], case.source, PER_FILE, first=done)
        done = batches
        case.run()
        rows = ev.rows(ev.oracle(events[: done * PER_FILE], global_index=True).values())
        assert not compare(rows, read_table(case.table), key=("id", "part"))
    table = HoodieTable.open(str(case.table))
    timeline = table.timeline()
    assert clusterings(table, timeline) >= 3
    assert not timeline.pending_clusterings
    assert validate(table) == []
    assert validate_metadata(table) == []
    starts = [r for r in caplog.records if "another writer made commit" in r.getMessage()]
    assert bool(starts) is (index == "INMEMORY"), (
        "only an index that is loaded at the start makes the query start again"
    )


BESIDE = {
    key.replace(".inline", ".async"): value for key, value in CLUSTERED.items() if key != "hoodie.clustering.inline"
}
BESIDE |= {"hoodie.clustering.async.enabled": "true", "hoodie.archive.automatic": "false"}


@pytest.mark.extended("more indexes and kinds of tables", second=("-STATE",))
@pytest.mark.parametrize(
    ("table_type", "name", "index"),
    [
        (MOR, "6, beside", "STATE"),
        ("COPY_ON_WRITE", "9, metadata table", "STATE"),
        ("COPY_ON_WRITE", "6", "GLOBAL_SIMPLE"),
    ],
)
def test_clustering_beside_the_batches(
    tmp_path: Path,
    spark: SparkSession,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    table_type: str,
    name: str,
    index: str,
) -> None:
    """While batches bring new keys alone a clustering is completed between two of them, and updates find their rows then;
    while they have rows for the plan's file groups they win."""
    hot = list(ev.generate(5 * PER_FILE, ev.Mix(keys=120, tombstones=0, late_deletes=0, late=0), seed=14))
    newest = max(e.ordering or 0 for e in hot)
    new = [ev.Event(f"new-{n:04d}", f"q{n % 2}", newest + n, name="new", amount=1.0) for n in range(5 * PER_FILE)]
    live = ev.oracle(hot, global_index=True)
    known = [*list(live.values())[:PER_FILE], *new[:PER_FILE]]
    last = [ev.Event(e.key, "moved", newest + 9999, name="last", amount=2.0) for e in known]
    case = StreamCase(tmp_path, spark, table_type, SMALL | CASES[name] | BESIDE | {"hoodie.index.type": index})
    steps: list[tuple[str, int]] = []
    may_end = threading.Event()
    carried_out = clusterer.run_in_spark

    def when_told(*given: Any) -> Any:
        """How fast the tasks are beside the batches is a matter of luck; here they end in a known batch."""
        assert may_end.wait(120)
        return carried_out(*given)

    monkeypatch.setattr(clusterer, "run_in_spark", when_told)

    def at(step: str, batch: int) -> None:
        steps.append((step, batch))
        running = [thread for thread in threading.enumerate() if thread.name.startswith("clustering ")]
        if step == "files_written" and running:
            if batch < 5:  # it has not ended when the batch of hot keys publishes its files
                may_end.set()
            else:  # it has ended when the batch of new keys is committed
                running[0].join(120)
        elif step == "clustering_inflight":
            may_end.clear() if batch < 5 else may_end.set()

    done = 0
    for events in (hot, [*hot, *new], [*hot, *new, *last]):
        batches = len(events) // PER_FILE
        ev.write_files(events[done * PER_FILE :], case.source, PER_FILE, first=done)
        done = batches
        case.run(at=at)
        rows = ev.rows(ev.oracle(events, global_index=True).values())
        assert not compare(rows, read_table(case.table), key=("id", "part"))
    stopped = [batch for step, batch in steps if step == "clustering_stopped"]
    assert [batch for batch in stopped if batch < 5], "the batches of hot keys have met no plan"
    told = [r for r in caplog.records if "was rolled back: a batch" in r.getMessage()]
    assert len(told) == len(stopped)
    begun = [batch for step, batch in steps if step == "clustering_inflight"]
    completed = [batch for step, batch in steps if step == "clustering_completed"]
    assert len(begun) == len(stopped) + len(completed)
    assert [batch for batch in completed if 5 <= batch < 10], "none was completed beside the batches of new keys"
    table = HoodieTable.open(str(case.table))
    timeline = table.timeline()
    assert clusterings(table, timeline) == len(completed)
    assert not timeline.pending_clusterings
    assert validate(table) == []
    assert validate_metadata(table) == []
    starts = [r for r in caplog.records if "The query starts again" in r.getMessage()]
    assert not starts


def test_a_clustering_beside_the_batches_gives_way_to_an_overwrite(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new file groups would bring the replaced rows back."""
    told = {"hoodie.datasource.write.operation": "INSERT_OVERWRITE", "hoodie.index.type": "SIMPLE"}
    told |= {"hoodie.parquet.small.file.limit": "0", "hoodie.clustering.async.max.commits": "1"}
    case = StreamCase(tmp_path, spark, MOR, SMALL | CASES["9"] | BESIDE | told)
    old = [ev.Event(f"old-{n}", f"p{n % 2}", n) for n in range(PER_FILE)]
    new = [ev.Event(f"new-{n}", "p1", PER_FILE + n) for n in range(PER_FILE)]
    steps: list[tuple[str, int]] = []
    may_end, carried_out = threading.Event(), clusterer.run_in_spark

    def when_told(*given: Any) -> Any:
        assert may_end.wait(120)
        return carried_out(*given)

    def at(step: str, batch: int) -> None:
        steps.append((step, batch))
        if (step, batch) == ("files_written", 1):
            may_end.set()

    monkeypatch.setattr(clusterer, "run_in_spark", when_told)
    ev.write_files([*old, *new], case.source, PER_FILE)
    case.run(at=at)
    assert ("clustering_inflight", 0) in steps
    rows = ev.rows(ev.oracle([*(e for e in old if e.partition == "p0"), *new], global_index=False).values())
    assert not compare(rows, read_table(case.table), key=("id", "part"))
    assert [batch for step, batch in steps if step == "clustering_stopped"] == [1]
    assert validate(HoodieTable.open(str(case.table))) == []
