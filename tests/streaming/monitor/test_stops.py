"""How runs ended, noted in the checkpoint for the next one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.streaming.monitor.health import KILLED, STOPS_FILE, Begun, Stops, read_stops, write_stops
from tagstream.streaming.monitor.snapshot import Stop
from tagstream.table.storage.posix import PosixStorage
from tests.streaming.monitor.case import HOSTILE


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


def test_a_run_that_left_no_word_was_killed(tmp_path: Path) -> None:
    checkpoint = PosixStorage(str(tmp_path))
    noted = Stops()
    for number in range(2):
        write_stops(checkpoint, replace(noted, begun=Begun(f"run {number}", 100 * number, "h", number)))
        noted = read_stops(checkpoint).killed(17, seen_ms=50)
    assert (noted.counts, noted.in_row, noted.killed_in_row, noted.begun) == ({KILLED: 2}, 2, 2, None)
    assert noted.last == noted.end and noted.last is not None
    assert noted.last.at_ms == 100, "the later of its beginning and its last sign of life"
    assert noted.last.text.startswith("killed in batch 17; out of memory? ")
    assert read_stops(checkpoint).killed(None, 1).last.text.startswith("killed between two batches")  # type: ignore[union-attr]


def test_a_commit_ends_the_row_of_kills_and_the_run_may_be_killed_later() -> None:
    begun = Begun("run", 1, "h", 2)
    noted = replace(Stops().one_more("StateError", "no room", 1), begun=begun)
    assert not noted.knows_commit
    noted = noted.after_commit()
    assert (noted.in_row, noted.knows_commit) == (0, True)
    killed = noted.killed(3, None)
    assert (killed.in_row, killed.killed_in_row) == (1, 1)
    assert replace(killed, begun=begun).killed(3, None).killed_in_row == 2, "without a commit in between"
    assert replace(killed, begun=replace(begun, committed=True)).killed(4, None).killed_in_row == 1


def test_an_end_in_order_is_no_kill() -> None:
    noted = replace(Stops(), begun=Begun("run", 1, "h", 2)).in_order("stopped by SIGTERM", 9)
    assert (noted.begun, noted.end, noted.counts) == (None, Stop(9, "", "stopped by SIGTERM"), {})


def test_the_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    checkpoint = PosixStorage(str(tmp_path))
    text = '{"version": 1, "counts": {"StateError": 4}, "in_row": 2, "last": {"at_ms": 5, "error": "E", "text": "t"}}'
    checkpoint.replace(STOPS_FILE, text.encode())
    assert read_stops(checkpoint) == Stops({"StateError": 4}, 2, Stop(5, "E", "t"))
