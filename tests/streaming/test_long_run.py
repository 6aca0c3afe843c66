"""Many batches: snapshots replace deltas, old files of the index go, and what is left restores every key group."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.state.layout import StateLayout
from tagstream.table.storage.posix import PosixStorage
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
PER_FILE = 40
RETAIN = "spark.sql.streaming.minBatchesToRetain"


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.extended("longer random histories")
def test_the_index_stays_small_and_can_be_restored(tmp_path: Path, spark: SparkSession) -> None:
    batches = StateLayout(PosixStorage(""), "").snapshot_every + 6
    events = list(ev.generate((batches + 2) * PER_FILE, ev.Mix(keys=25), seed=13))
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", {"index.key.groups": "2"})
    ev.write_files(events[: batches * PER_FILE], case.source, PER_FILE)
    spark.conf.set(RETAIN, "2")
    try:
        assert len(case.run()) == batches
        home = case.checkpoint / "tagstream"
        (home / "profiles" / ".tagstream_tmp_x").touch()  # as a kill in the middle of a write leaves it
        assert len(names(home / "profiles")) <= 5
        assert len(names(home / "manifests")) <= 4
        for group in (home / "index" / "deltas").iterdir():
            assert (home / "index" / "snapshots" / group.name).is_dir()
            oldest = int(names(group)[0].split("-")[0])
            assert oldest >= batches - 7, f"group {group.name} still has the delta of batch {oldest}"

        shutil.rmtree(tmp_path / "local")  # the executors' disks are gone
        ev.write_files(events[batches * PER_FILE :], case.source, PER_FILE, first=batches)
        assert len(case.run()) == 2
    finally:
        spark.conf.unset(RETAIN)
    expected = ev.rows(ev.oracle(events).values())
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), ["id"])), wrong
