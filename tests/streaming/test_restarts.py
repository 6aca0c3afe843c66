"""A query that ended is started again only where that can help, and not for ever."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.errors import TagstreamError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate_metadata import validate_metadata
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.support.table_version import metadata

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
    return begun(StreamCase(tmp_path, spark, request.param))


def begun(case: StreamCase) -> StreamCase:
    ev.write_files([*events_of("a", 1), *events_of("b", 1)], case.source, 100)
    assert len(case.run()) == 1
    return case


def lists_by_metadata(case: StreamCase) -> bool:
    """Whether the files are listed by a metadata table, which knows nothing of what was done by hand."""
    return bool(HoodieTable.open(str(case.table)).config.metadata_partitions)


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("case", TYPES, indirect=True)
def test_a_file_group_that_is_gone_though_nobody_committed(case: StreamCase, caplog: pytest.LogCaptureFixture) -> None:
    lose_partition(case, "a")
    if lists_by_metadata(case) and case.table_type == "MERGE_ON_READ":
        # A log is begun without a look at the base file; only a file that is rewritten is opened.
        assert any("'a'" in p or "a/" in p for p in validate_metadata(HoodieTable.open(str(case.table))))
    else:
        goes_on_without_it(case, caplog)


@pytest.mark.extended("the same decisions over another real stream")
def test_a_metadata_table_does_not_hide_what_is_gone(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """It lists the files still, and each start would fail at the first of them."""
    with metadata(True):
        case = begun(StreamCase(tmp_path, spark))
        lose_partition(case, "a")
        goes_on_without_it(case, caplog)
        assert lists_by_metadata(case)


def goes_on_without_it(case: StreamCase, caplog: pytest.LogCaptureFixture) -> None:
    """The next run loads the index from what is left, and takes its batch."""
    listed = lists_by_metadata(case)
    case.conf = {"index.bootstrap.corrupt.files": "skip"}
    ev.write_files([*events_of("a", 2, range(5)), *events_of("b", 2)], case.source, 100, first=1)
    with caplog.at_level(logging.WARNING):
        assert [r.batch_id for r in case.run()] == [1]
    assert caplog.text.count("The query starts again") == 1
    assert ("is missing, though the metadata table or a listing has it" if listed else "has no slice") in caplog.text
    assert "the index is loaded from the table" in caplog.text
    assert ("dropped its metadata table" in caplog.text) is listed
    assert validate_metadata(HoodieTable.open(str(case.table))) == []
    rows = ev.rows([*events_of("a", 2, range(5)), *events_of("b", 2)])
    assert not (wrong := compare(rows, read_table(case.table, meta_columns=False), ["id"])), wrong


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("case", ["COPY_ON_WRITE"], indirect=True)
def test_what_is_lost_is_named_where_it_must_not_be_passed_over(case: StreamCase) -> None:
    lost = lose_partition(case, "a")
    ev.write_files(events_of("a", 2), case.source, 100, first=1)
    with pytest.raises(TagstreamError, match=lost[0].name):
        case.run()
