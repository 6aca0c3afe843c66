"""Partition values with slashes: all partitions of a table are equally deep, whatever the stream brings."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.errors import BadRecordsError
from tagstream.table.file_group.names import list_partitions
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.storage.opening import open_storage
from tests.streaming.recovery.test_takeover import is_oracles
from tests.streaming.stream_case import StreamCase
from tests.streaming.test_bad_records import quarantined
from tests.support import events as ev

pytestmark = pytest.mark.spark


def sent(case: StreamCase, number: int, *partitions: str | None) -> list[ev.Event]:
    """A file with an event for each of these partitions."""
    events = [ev.Event(f"k{number}-{i}", p, 1, name="x") for i, p in enumerate(partitions)]
    ev.write_files(events, case.source, len(events), first=number)
    return events


@pytest.mark.extended("more indexes", first=("STATE",))
@pytest.mark.parametrize("index", ["STATE", "BLOOM"])
def test_a_partition_inside_another_is_quarantined(tmp_path: Path, spark: SparkSession, index: str) -> None:
    case = StreamCase(tmp_path, spark, conf={"hoodie.index.type": index})
    good = sent(case, 0, "a", None, "b")
    sent(case, 1, "a/b", "c/d/e")  # the second batch of the query that wrote the first
    assert [r.quarantined for r in case.run("--commit-on-errors")] == [0, 2]
    assert [r["reason"].split(":")[0] for r in quarantined(case)] == [
        "partition path 'a/b' is 2 folders deep, the table's partitions are 1",
        "partition path 'c/d/e' is 3 folders deep, the table's partitions are 1",
    ]
    good += sent(case, 2, "c")
    case.run()
    sent(case, 3, "x/y")
    with pytest.raises(BadRecordsError):  # the table says it now, not the batch before
        case.run()
    rows = read_snapshot(HoodieTable.open(str(case.table)))
    assert sorted(rows["id"].to_pylist()) == sorted(e.key for e in good)
    assert list_partitions(open_storage(str(case.table))) == ["__HIVE_DEFAULT_PARTITION__", "a", "b", "c"]


def test_dates_with_slashes_go_on_working(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark)
    good = sent(case, 0, "2026/01/05", "2026/01/06")
    good += sent(case, 1, "2026/01/05", "2027/01/01")
    assert [r.inserts for r in case.run()] == [2, 2]
    good += sent(case, 2, "2026/01/07")
    sent(case, 3, "2026/01")
    assert [(r.inserts, r.quarantined) for r in case.run("--commit-on-errors")] == [(1, 0), (0, 1)]
    is_oracles(case, good)


def test_a_first_batch_of_several_depths_keeps_that_of_most(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    case = StreamCase(tmp_path, spark)
    sent(case, 0, "2026", "2026/01/05", "2026/01/06", "x/y")
    (report,) = case.run("--commit-on-errors")
    assert (report.batch_id, report.inserts, report.quarantined) == (0, 2, 2)
    assert "paths of different depth: '2026' (1 deep, 1 records), 'x/y' (2 deep, 1 records)" in caplog.text
    assert list_partitions(open_storage(str(case.table))) == ["2026/01/05", "2026/01/06"]
    assert not (case.table / "x").exists() or not any(p.is_file() for p in (case.table / "x").rglob("*"))
    is_oracles(case, [ev.Event("k0-1", "2026/01/05", 1, name="x"), ev.Event("k0-2", "2026/01/06", 1, name="x")])
