"""Reads as of the past: right where the files are there, refused by name where a clean has deleted them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.errors import CleanedPastError
from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tagstream.table.services.cleaning import clean
from tagstream.table.services.cleaning_plan import check_past
from tagstream.table.services.options import CleanOptions, CleanPolicy
from tagstream.table.services.savepoint import create_savepoint
from tests.table.services.tables import clock, rounds, rows
from tests.table.writer import Writer

pytestmark = pytest.mark.table_versions(6, 8, 9)


def refused(writer: Writer, times: list[str]) -> list[bool]:
    table = writer.table.reload()
    found = []
    for time in times:
        try:
            check_past(table, table.timeline(), time)
        except CleanedPastError as error:
            found.append(True)
            assert time in str(error) and "can be read as of" in str(error)
        else:
            found.append(False)
    return found


def test_before_a_clean_everything_can_be_read(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    times = rounds(writer, 6)
    assert refused(writer, times) == [False] * 6
    assert clean(writer.table, CleanOptions(commits=9), clock()) is None
    assert refused(writer, times) == [False] * 6


def test_what_commits_retained_holds_can_be_read(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    times = rounds(writer, 6)
    before = {time: rows(writer.table, time) for time in times}
    assert clean(writer.table, CleanOptions(commits=3), clock()) is not None
    assert refused(writer, times) == [True, True, True, False, False, False]
    for time in times[3:]:
        assert rows(writer.table, time) == before[time]
    assert rows(writer.table, times[0]) != before[times[0]], "the read would have been wrong without a word"


def test_a_clean_that_counts_versions_names_no_commit(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    times = rounds(writer, 4)
    options = CleanOptions(CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions=1)
    assert clean(writer.table, options, clock()) is not None
    times += rounds(writer, 1)
    assert refused(writer, times) == [True, True, True, False, False]


def test_a_savepoint_can_be_read(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    times = rounds(writer, 6)
    before = rows(writer.table, times[1])
    create_savepoint(writer.table, times[1], "me", "", clock())
    assert clean(writer.table, CleanOptions(commits=2), clock()) is not None
    assert refused(writer, times) == [True, False, True, True, False, False]
    assert rows(writer.table, times[1]) == before
    with pytest.raises(CleanedPastError, match=f"and the savepoints {times[1]}"):
        check_past(writer.table, writer.table.timeline(), times[0])
