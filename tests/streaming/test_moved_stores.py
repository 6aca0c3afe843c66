"""Spark's own workers remove the stores of key groups that are on another host now."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
PER_FILE = 40
DAY, HOUR = 86_400, 3_600


def age(path: Path, seconds: float) -> None:
    for one in (path, *path.rglob("*")):
        at = one.stat().st_mtime - seconds
        os.utime(one, (at, at))


@pytest.mark.extended("a whole stream, for the thread beside a task; what is removed and when is tested in state/")
def test_a_store_that_no_task_opens_any_more_is_removed_beside_a_batch(tmp_path: Path, spark: SparkSession) -> None:
    events = list(ev.generate(3 * PER_FILE, ev.Mix(keys=25), seed=7))
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", {"index.key.groups": "2"})
    ev.write_files(events[:PER_FILE], case.source, PER_FILE)
    assert len(case.run()) == 1
    used = sorted((tmp_path / "local").rglob("store-0"))
    assert len(used) == 2
    local = used[0].parent.parent
    moved = local / "4711" / "store-0"
    shutil.copytree(used[0], moved)
    age(moved.parent, 2 * DAY)
    age(local / "looked", 2 * HOUR)
    ev.write_files(events[PER_FILE:], case.source, PER_FILE, first=1)
    assert len(case.run()) == 2
    assert (sorted((tmp_path / "local").rglob("store-0")), os.listdir(moved.parent)) == (used, [])
    expected = ev.rows(ev.oracle(events).values())
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), ["id"])), wrong
