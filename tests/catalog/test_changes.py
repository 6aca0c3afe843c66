"""What the timeline says since a cursor."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tagstream.catalog.changes import Cursor, PartitionChanges, commits_since, newest_cursor, partition_changes
from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tagstream.table.services.cleaning import clean
from tagstream.table.services.options import CleanOptions
from tagstream.table.services.replaced_partitions import delete_partitions
from tests.table.writer import Writer, row


def cursor_of(writer: Writer) -> Cursor:
    found = newest_cursor(writer.table, writer.table.timeline())
    assert found is not None
    return found


def test_a_clean_after_the_cursor_drops_a_partition(tmp_path: Path) -> None:
    """Also where the first commit after the cursor is newer than the clean."""
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    writer.write([row(1, "p1", 1), row(2, "p2", 1)])
    clock = itertools.count(writer.now_ms + 60_000, 1000)
    delete_partitions(writer.table, ["p1"], lambda: next(clock))
    writer.now_ms = next(clock)
    for version in range(2, 5):
        writer.write([row(2, "p2", version)])
    since = cursor_of(writer)
    clock = itertools.count(writer.now_ms + 60_000, 1000)
    assert clean(writer.table, CleanOptions(commits=1), lambda: next(clock)) is not None
    writer.now_ms = next(clock)
    writer.write([row(2, "p2", 9)])
    timeline = writer.table.timeline()
    commits = commits_since(timeline, since)
    assert commits is not None
    assert partition_changes(writer.table, timeline, commits, since) == PartitionChanges(("p2",), ("p1",))


def test_a_cursor_that_was_rolled_back_is_not_known(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    writer.write([row(1, "p1", 1)])
    assert commits_since(writer.table.timeline(), Cursor("20991231235959999", None)) is None
    assert commits_since(writer.table.timeline(), None) is None
    assert commits_since(writer.table.timeline(), cursor_of(writer)) == ()


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("tokyo")
@pytest.mark.parametrize(("utc", "completed"), [(True, "20260102030405678"), (False, "20260102120405678")])
def test_the_time_of_a_file_is_in_the_zone_of_the_timeline(tmp_path: Path, utc: bool, completed: str) -> None:
    writer = Writer.without_metadata(tmp_path, COPY_ON_WRITE, settings={"version": 6, "timezone_utc": utc})
    writer.write([row(1, "p1", 1)])
    folder = tmp_path / "t" / writer.table.config.timeline_folder
    ns = 1_767_323_045_678_000_000  # 2026-01-02 03:04:05.678 UTC
    os.utime(folder / writer.table.timeline().completed_writes[-1].file_name(), ns=(ns, ns))
    assert cursor_of(writer).completion_time == completed
