"""A job that takes the lock of its table: with others that keep it, delete it, or write between its steps."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.job.preflight import SparkNeeds, check_start
from tagstream.streaming.options.cli import load_options
from tagstream.table.errors import ConfigError, LockTimeoutError, PlanOverlapError
from tagstream.table.file_group.names import next_instant
from tagstream.table.locks.file_system import LOCK_NAME
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.clustering import complete_clustering, rollback_clustering
from tagstream.table.services.validate import validate
from tagstream.table.write.commit import request
from tests.streaming.stream_case import StreamCase, now_ms
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.foreign_writer import ForeignWriter, HeldCommit
from tests.support.hudi_rs import read_table
from tests.support.table_version import metadata, using

pytestmark = pytest.mark.spark
LOCK = "hoodie.write.lock."
CONF = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    f"{LOCK}provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    f"{LOCK}wait_time_ms": "10",
    f"{LOCK}client.num_retries": "0",
}
STRATEGY = "org.apache.hudi.client.transaction.PreferWriterConflictResolutionStrategy"
PREFER = {f"{LOCK}conflict.resolution.strategy": STRATEGY}
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
FIRST = [ev.Event(f"k{i}", "p0", 1, name="first") for i in range(4)]
OURS = [ev.Event("k0", "p0", 100, name="ours"), ev.Event("k1", "p0", 100, name="ours")]
THEIRS = [ev.Event("k2", "p0", 50, name="theirs")]


def begun(folder: Path, spark: SparkSession, table_type: str, **conf: str) -> StreamCase:
    """The stream has committed the first rows; its second batch waits in the source."""
    case = StreamCase(folder, spark, table_type, {**CONF, **conf})
    ev.write_files(FIRST, case.source, 4)
    case.run()
    ev.write_files(OURS, case.source, 2, first=1)
    return case


def lock_of(case: StreamCase) -> Path:
    return case.table / ".hoodie" / LOCK_NAME


def commits(case: StreamCase) -> list[str]:
    return [i.time for i in HoodieTable.open(str(case.table)).timeline().completed_writes]


def has_rows(case: StreamCase, events: list[ev.Event]) -> None:
    expected = ev.rows(ev.oracle(events).values())
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), ["id"])), wrong


def is_oracles(case: StreamCase, events: list[ev.Event]) -> None:
    has_rows(case, events)
    assert validate(HoodieTable.open(str(case.table))) == []


@pytest.mark.extended("more kinds of tables", first=("COPY_ON_WRITE",))
@pytest.mark.parametrize("table_type", TYPES)
def test_nothing_is_published_while_another_has_the_lock(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    case = begun(tmp_path, spark, table_type)

    def take(point: str, batch: int) -> None:
        if point == "files_written" and batch == 1:
            lock_of(case).touch()

    with pytest.raises(LockTimeoutError, match=r"the commit of \d+: the lock at .*was not free"):
        case.run(at=take)
    has_rows(case, FIRST)  # the batch is pending
    assert lock_of(case).exists(), "it is the other writer's"
    lock_of(case).unlink()
    case.run()
    is_oracles(case, [*FIRST, *OURS])
    assert not lock_of(case).exists()


@pytest.mark.extended("more kinds of tables", first=("MERGE_ON_READ",))
@pytest.mark.parametrize("table_type", TYPES)
def test_a_lock_that_is_lost_under_the_commit(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    """The lock file is deleted before the completed file: the batch is done again, and its rows are there once."""
    lost: list[str] = []
    with using(9), metadata(True):
        case = begun(tmp_path, spark, table_type)

        def lose(point: str, batch: int) -> None:
            if point == "metadata_begun" and batch == 1 and not lost:
                lock_of(case).unlink()
                lost.append(point)

        case.run(at=lose)
        assert lost
        is_oracles(case, [*FIRST, *OURS])


@pytest.mark.extended("more kinds of tables", first=("MERGE_ON_READ",))
@pytest.mark.parametrize("table_type", TYPES)
def test_a_pending_write_is_not_waited_for(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    case = begun(tmp_path, spark, table_type)
    held = ForeignWriter(case.table).hold_upsert([ev.Event("other", "p9", 50, name="theirs")])
    case.run()  # the other one does not end before this
    assert commits(case)[-1] > held.instant
    held.complete()
    ev.write_files([ev.Event("other", "p8", 60, name="moved")], case.source, 1, first=5)
    (report,) = case.run()
    assert report.moves == 1, "the index has the other writer's row"
    is_oracles(case, [*FIRST, *OURS, ev.Event("other", "p8", 60, name="moved")])


@pytest.mark.extended("more kinds of tables", first=("MERGE_ON_READ",))
@pytest.mark.parametrize("table_type", TYPES)
def test_a_commit_to_the_same_file_group_comes_first(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    case, done = begun(tmp_path, spark, table_type), list[HeldCommit | str]()

    def write(point: str, batch: int) -> None:
        if (point, batch) == ("files_written", 1) and not done:
            done.append(ForeignWriter(case.table).upsert(THEIRS))

    case.run(at=write)
    assert done
    is_oracles(case, [*FIRST, *THEIRS, *OURS])


@pytest.mark.extended("more kinds of tables", first=("MERGE_ON_READ",))
@pytest.mark.parametrize("table_type", TYPES)
def test_a_batch_before_another_writers_clustering(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    """Where batches are preferred, none waits for a pending clustering of its file group."""
    case = begun(tmp_path, spark, table_type, **PREFER)
    held = ForeignWriter(case.table).hold_cluster("p0")
    case.run()
    assert commits(case)[-1] > held.instant
    table = HoodieTable.open(str(case.table))
    assert set(table.timeline().pending_clusterings.values()) == {held.instant}
    with pytest.raises(PlanOverlapError):
        complete_clustering(table, held.instant, [], now_ms)
    rollback_clustering(table, held.instant, next_instant(now_ms(), table.timeline().newest))
    has_rows(case, [*FIRST, *OURS])


@pytest.mark.extended("the other writer has not committed yet", first=("complete",))
@pytest.mark.parametrize("theirs", ["complete", "inflight", "requested"])
def test_our_clustering_gives_way(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture, theirs: str
) -> None:
    """A write of another writer to a file group of the clustering stops it, at the latest under the lock."""
    clustered = {
        **PREFER,
        "hoodie.clustering.inline": "true",
        "hoodie.clustering.inline.max.commits": "2",
        "hoodie.clustering.plan.strategy.sort.columns": "name",
        "hoodie.clustering.fail.on.pending.ingestion.during.conflict.resolution": str(theirs == "requested").lower(),
    }
    case, held = begun(tmp_path, spark, "COPY_ON_WRITE", **clustered), list[HeldCommit]()
    instant = "20990101000000000"

    def write(point: str, _: int) -> None:
        if point == "clustering_files" and not held:
            held.append(ForeignWriter(case.table).hold_upsert(THEIRS, instant, late=theirs == "requested"))
            if theirs == "complete":
                held[0].complete()
            elif theirs == "requested":
                request(HoodieTable.open(str(case.table)), instant, "commit")

    case.run(at=write)
    assert held
    assert "clustering" in (said := " ".join(r.getMessage() for r in caplog.records))
    assert "was rolled back" in said
    assert not HoodieTable.open(str(case.table)).timeline().pending_clusterings
    if theirs == "requested":
        (case.table / f".hoodie/{instant}.commit.requested").unlink()
    if theirs != "complete":
        held[0].complete()
    is_oracles(case, [*FIRST, *THEIRS, *OURS])


def test_it_waits_for_the_lock(tmp_path: Path, spark: SparkSession) -> None:
    case = begun(
        tmp_path,
        spark,
        "COPY_ON_WRITE",
        **{f"{LOCK}client.num_retries": "600", f"{LOCK}client.wait_time_ms_between_retry": "100"},
    )

    def take(point: str, batch: int) -> None:
        if point == "files_written" and batch == 1:
            lock_of(case).touch()
            threading.Timer(0.5, lock_of(case).unlink).start()

    case.run(at=take)
    is_oracles(case, [*FIRST, *OURS])


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({f"{LOCK}provider": "Zookeeper"}, "not a lock provider of this version"),
        ({f"{LOCK}provider": "StorageBasedLockProvider"}, "is not on an object store"),
        ({f"{LOCK}provider": "ZookeeperBasedLockProvider"}, "zookeeper.url"),
        ({f"{LOCK}conflict.resolution.strategy": "FirstWins"}, "is not a strategy of this version. Known"),
        (
            {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"},
            "merge-on-read table with a bucket index",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_the_start(
    tmp_path: Path, spark: SparkSession, conf: dict[str, str], words: str
) -> None:
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", {**CONF, **conf})
    ev.write_files(FIRST, case.source, 4)
    needs = SparkNeeds(java=False, connector=False, master=None)
    with pytest.raises(ConfigError, match=words):
        check_start(load_options(case.arguments()), {}, now_ms(), needs)
