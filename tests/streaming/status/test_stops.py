"""How runs ended, noted in the checkpoint for the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.streaming.status.stops import STOPS_FILE, Stops, read_stops, write_stops
from tagstream.table.storage.posix import PosixStorage
from tests.streaming.status.case import HOSTILE


def test_what_is_noted_is_read_again(tmp_path: Path) -> None:
    checkpoint = PosixStorage(str(tmp_path))
    assert read_stops(checkpoint) == Stops()
    stops = Stops().one_more("StateError", "no room", 5).one_more("BadRecordsError", HOSTILE + "x" * 9_000, 9)
    write_stops(checkpoint, stops)
    found = read_stops(checkpoint)
    assert found == stops
    assert (found.counts, found.in_row) == ({"StateError": 1, "BadRecordsError": 1}, 2)
    assert found.last is not None and len(found.last.text) == 1_000
    write_stops(checkpoint, found.after_commit())
    again = read_stops(checkpoint)
    assert (again.in_row, again.counts, again.last) == (0, found.counts, found.last)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version": 2}', '{"version": 1, "counts": 3, "last": null}'])
def test_a_file_that_cannot_be_read_counts_as_none(tmp_path: Path, text: str) -> None:
    checkpoint = PosixStorage(str(tmp_path))
    checkpoint.replace(STOPS_FILE, text.encode())
    assert read_stops(checkpoint) == Stops()
