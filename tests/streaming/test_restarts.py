"""A query that ended is started again only where that can help, and not for ever."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.errors import TagstreamError
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]


def events_of(partition: str, ordering: int, keys: Sequence[int] = range(20)) -> list[ev.Event]:
    return [ev.Event(f"{partition}-{i}", partition, ordering, name=f"at {ordering}", amount=1.0) for i in keys]


def lose_partition(case: StreamCase, partition: str) -> list[Path]:
    """Delete the data files of a partition by hand, which no commit tells of."""
    lost = [p for p in (case.table / partition).iterdir() if not p.name.startswith(".hoodie_partition")]
    assert lost
    for path in lost:
        path.unlink()
    return lost


@pytest.fixture
def case(tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest) -> StreamCase:
    """A stream of one batch with partitions a and b."""
    case = StreamCase(tmp_path, spark, request.param)
    ev.write_files([*events_of("a", 1), *events_of("b", 1)], case.source, 100)
    assert len(case.run()) == 1
    return case


@pytest.mark.parametrize("case", TYPES, indirect=True)
def test_a_file_group_that_is_gone_though_nobody_committed(case: StreamCase, caplog: pytest.LogCaptureFixture) -> None:
    lose_partition(case, "a")
    case.conf = {"index.bootstrap.corrupt.files": "skip"}
    ev.write_files([*events_of("a", 2, range(5)), *events_of("b", 2)], case.source, 100, first=1)
    with caplog.at_level(logging.WARNING):
        assert [r.batch_id for r in case.run()] == [1]
    assert caplog.text.count("The query starts again") == 1
    assert "has no slice" in caplog.text and "the index is loaded from the table" in caplog.text
    rows = ev.rows([*events_of("a", 2, range(5)), *events_of("b", 2)])
    assert not (wrong := compare(rows, read_table(case.table, meta_columns=False), ["id"])), wrong


@pytest.mark.parametrize("case", ["COPY_ON_WRITE"], indirect=True)
def test_what_is_lost_is_named_where_it_must_not_be_passed_over(case: StreamCase) -> None:
    lost = lose_partition(case, "a")
    ev.write_files(events_of("a", 2), case.source, 100, first=1)
    with pytest.raises(TagstreamError, match=lost[0].name):
        case.run()
