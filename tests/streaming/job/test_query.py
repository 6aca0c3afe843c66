"""The query of a run: what is left of it when it has ended."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tagstream.streaming.job.sink import BatchSink
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev


def alive() -> set[int]:
    gc.collect()
    return {id(found) for found in gc.get_objects() if isinstance(found, BatchSink | StreamingQuery)}


@pytest.mark.spark
def test_a_query_that_has_ended_leaves_nothing_in_memory(tmp_path: Path, spark: SparkSession) -> None:
    """A job that starts its query again and again would otherwise keep all of them, in Python and in the JVM."""
    before = alive()
    case = StreamCase(tmp_path, spark)
    for number in range(2):
        ev.write_files([ev.Event("k", "p0", number, name="n")], case.source, 1, first=number)
        assert len(case.run()) == 1
    assert alive() <= before


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.spark
def test_nor_does_one_that_failed(tmp_path: Path, spark: SparkSession) -> None:
    """An error has the frames that it went through, and PySpark keeps the error."""
    before = alive()
    case = StreamCase(tmp_path, spark)
    ev.write_files([ev.Event("k", "p0", 1, name="n")], case.source, 1)

    def fail(step: str, batch: int) -> None:
        if step == "files_written":
            raise ValueError(f"no luck with batch {batch}")

    for _ in range(2):
        with pytest.raises(ValueError, match="no luck with batch 0"):
            case.run(at=fail)
    assert alive() <= before
