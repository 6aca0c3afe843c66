"""How many tasks of a batch are done is what Spark says of the jobs of its query."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.monitor.probes import TaskProbe
from tests.streaming.monitor.case import Clock, run_status
from tests.support.process import wait_for

pytestmark = pytest.mark.spark


@pytest.mark.extended("the same decisions over another real stream")
def test_tasks_of_one_query_while_another_is_at_work(tmp_path: Path, spark: SparkSession) -> None:
    end, clock = tmp_path / "end", Clock()
    status = run_status(clock)
    status.step("reading, tagging and writing", 0)

    def task(number: int, _rows: Iterable[int]) -> Iterable[int]:
        if number > 0:  # the others wait until the test has looked
            wait_for(end.exists, 60, "the end of the test")
        yield number

    def run(group: str, partitions: int) -> None:
        spark.sparkContext.setJobGroup(group, "a batch")
        spark.sparkContext.parallelize(range(partitions), partitions).mapPartitionsWithIndex(task).count()

    from pyspark import InheritableThread

    look = TaskProbe(status, spark, lambda: "query-1", clock)
    threads: list[threading.Thread] = [
        InheritableThread(target=run, args=one) for one in (("query-1", 3), ("query-2", 2))
    ]
    for thread in threads:
        thread.start()
    try:

        def seen() -> bool:
            look()
            found = status.snapshot().tasks
            return found is not None and (found.total, found.done, found.failed) == (3, 1, 0)

        wait_for(seen, 60, "one of three tasks")
        moved = status.snapshot().tasks.moved_ms  # type: ignore[union-attr]
        clock.after(30)
        look()
        assert status.snapshot().tasks.moved_ms == moved  # type: ignore[union-attr]
    finally:
        end.touch()
        for thread in threads:
            thread.join()
    look()
    assert status.snapshot().tasks is None
