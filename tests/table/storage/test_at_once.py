"""Calls at once: on a server's storage, and on this machine's, where they come one after another."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.storage import at_once


@dataclass(frozen=True)
class Remote(PosixStorage):
    """As if it were a server."""

    @property
    def is_remote(self) -> bool:
        return True


def test_calls_to_a_server_wait_for_one_another_only_in_the_caller(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=10)
    assert at_once(Remote(str(tmp_path)), lambda: (both.wait(), 1)[1], lambda: (both.wait(), 2)[1]) == [1, 2]


def test_on_this_machine_they_come_in_their_order(tmp_path: Path) -> None:
    came: list[str] = []

    def fail() -> None:
        raise OSError("first")

    with pytest.raises(OSError, match="first"):
        at_once(PosixStorage(str(tmp_path)), lambda: came.append("before"), fail, lambda: came.append("behind"))
    assert came == ["before"]


def test_the_first_error_is_raised_when_all_have_ended(tmp_path: Path) -> None:
    came: list[int] = []

    def fail(text: str) -> None:
        raise OSError(text)

    with pytest.raises(OSError, match="one"):
        at_once(Remote(str(tmp_path)), lambda: fail("one"), lambda: fail("two"), lambda: came.append(3))
    assert came == [3]


def test_no_more_than_so_many_at_once(tmp_path: Path) -> None:
    running, most, lock = [0], [0], threading.Lock()

    def call() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.01)
        with lock:
            running[0] -= 1

    at_once(Remote(str(tmp_path)), *[call] * 20, threads=3)
    assert most[0] <= 3
