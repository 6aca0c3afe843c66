"""Files of the source that are in the table: what goes, what stays, and what a kill leaves."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from tagstream.streaming.source.file_cleaner import CleanOptions, SourceCleaner
from tagstream.streaming.source.file_lister import FileLister, ListerOptions, list_files
from tagstream.streaming.source.file_plans import PlanLog
from tagstream.table.errors import LeaseLostError
from tagstream.table.storage.posix import PosixStorage

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000


class Case:
    """A source folder, an archive, and a clock; ``unfinished``: the files of batches that are not done."""

    def __init__(self, folder: Path, *, archived: bool) -> None:
        self.folder, self.old = folder / "in", folder / "old"
        self.folder.mkdir()
        self.now = NOW_MS
        self.unfinished: set[str] = set()
        self.archive = PosixStorage(str(self.old)) if archived else None
        self.source = PosixStorage(str(self.folder))
        self.cleaner = self.restart()

    def restart(self) -> SourceCleaner:
        options = CleanOptions(HOUR_MS, self.archive)
        self.cleaner = SourceCleaner(
            self.source, options, lambda: self.now, lambda: None, lambda: frozenset(self.unfinished)
        )
        return self.cleaner

    def write(self, name: str, text: str, age_ms: int = 2 * HOUR_MS) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        at = (self.now - age_ms) / 1000
        os.utime(path, (at, at))
        return path

    def clean(self) -> int:
        self.now += 60_000
        return self.cleaner.clean(list(list_files(self.source)))

    def left(self) -> list[str]:
        return sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file())

    def archived(self) -> dict[str, str]:
        return {str(p.relative_to(self.old)): p.read_text() for p in self.old.rglob("*") if p.is_file()}


@pytest.fixture(params=["delete", "archive"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return Case(tmp_path, archived=request.param == "archive")


def test_old_files_of_finished_batches_go(case: Case) -> None:
    case.write("a.json", "1")
    case.write("day=1/b.json", "2")
    case.write("young.json", "3", HOUR_MS // 2)
    case.write("unfinished.json", "4")
    case.unfinished = {"unfinished.json"}
    assert case.clean() == 2
    assert case.left() == ["unfinished.json", "young.json"]
    assert case.archived() == ({"a.json": "1", "day=1/b.json": "2"} if case.archive else {})
    case.unfinished.clear()
    case.now += HOUR_MS
    assert case.clean() == 2 and case.left() == []


def test_once_a_minute(case: Case) -> None:
    assert case.cleaner.clean([]) == 0
    case.write("a.json", "1")
    files = list(list_files(case.source))
    assert case.cleaner.clean(files) == 0, "the same minute"
    case.now += 60_000
    assert case.cleaner.clean(files) == 1


def test_a_file_that_has_grown_since_the_look_stays(case: Case) -> None:
    case.write("a.json", "1")
    files = list(list_files(case.source))
    case.write("a.json", "1\n2")
    case.now += 60_000
    assert case.cleaner.clean(files) == 0 and case.left() == ["a.json"]
    assert case.archived() == {}


def test_nothing_goes_without_the_lease(tmp_path: Path) -> None:
    case = Case(tmp_path, archived=False)
    case.write("a.json", "1")

    def lost() -> None:
        raise LeaseLostError("another run")

    cleaner = SourceCleaner(case.source, CleanOptions(HOUR_MS), lambda: NOW_MS, lost, lambda: frozenset())
    with pytest.raises(LeaseLostError):
        cleaner.clean(list(list_files(case.source)))
    assert case.left() == ["a.json"]


def test_a_name_that_is_in_the_archive(tmp_path: Path) -> None:
    case = Case(tmp_path, archived=True)
    for text in ("first", "first", "second"):  # the second time a kill had left the file
        path = case.write("a.json", text)
        mtime_ms = int(path.stat().st_mtime_ns // 1_000_000)
        assert case.clean() == 1
    assert case.archived() == {"a.json": "first", f"a.json.{mtime_ms}": "second"}


def test_killed_while_it_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a copy has no name; the next run does it again."""
    case = Case(tmp_path, archived=True)
    case.write("a.json", "1" * 100)
    opened = PosixStorage.open_output

    @contextmanager
    def killed(self: PosixStorage, rel: str) -> Iterator[BinaryIO]:
        with opened(self, rel) as out:
            yield out
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PosixStorage, "open_output", killed)
        with pytest.raises(KeyboardInterrupt):
            case.clean()
    assert (case.left(), case.archived()) == (["a.json"], {})
    case.restart()
    assert case.clean() == 1 and case.archived() == {"a.json": "1" * 100}


def test_a_file_that_cannot_be_removed_is_told_once(
    case: Case, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    case.write("a.json", "1")

    def refused(self: PosixStorage, rel: str) -> bool:
        raise PermissionError(13, "Permission denied", rel)

    monkeypatch.setattr(PosixStorage, "delete", refused)
    with caplog.at_level(logging.INFO, "tagstream"):
        assert [case.clean(), case.clean()] == [0, 0]
    (line,) = caplog.messages
    assert "a.json can't be removed: Permission denied. It stays" in line and "tagstream.source.dfs.clean=off" in line


def test_the_lister_gives_what_is_read_whole(tmp_path: Path) -> None:
    case = Case(tmp_path, archived=False)
    log = PlanLog(PosixStorage(str(tmp_path / "checkpoint"), sync=False))
    case.write("whole.json", '{"n": 1}\n')
    case.write("blank.json", "\n \n")
    case.write("waiting.json", '{"n": 1}\n{"n"')
    lister = FileLister(case.source, log, ListerOptions(1 << 30, 2), lambda: case.now, cleaner=case.cleaner)
    assert lister.look() == 1
    assert case.left() == ["blank.json", "waiting.json", "whole.json"], "planned, and not yet known as read"
    case.now += 60_000
    assert lister.look() == 0 and case.left() == ["waiting.json"]
    case.write("waiting.json", '{"n": 1}\n{"n": 2}\n')
    assert lister.look() == 1
