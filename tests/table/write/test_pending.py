"""Asking whether a write is pending: each time on a file system, at most once a second on an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.storage.posix import PosixStorage
from tagstream.table.write.markers import is_inflight
from tests.support.faulty_storage import Faults, FaultyStorage

TIME = "20260101000000000"


@pytest.mark.parametrize("copies", [False, True])
def test_a_yes_counts_for_a_second_on_an_object_store(copies: bool, tmp_path: Path) -> None:
    inner, faults = PosixStorage(str(tmp_path / "table")), Faults(str(tmp_path / "faults"), copies=copies)
    storage, clock = FaultyStorage(inner, faults), [100.0]

    def asked() -> tuple[bool, int]:
        before = len(faults.calls())
        found = is_inflight(storage, ".hoodie", TIME, "deltacommit", lambda: clock[0])
        return found, len(faults.calls()) - before

    assert asked() == (False, 1)  # a no is never kept
    assert asked() == (False, 1)
    inner.write_new(f".hoodie/{TIME}.deltacommit.inflight", b"{}")
    assert asked() == (True, 1)
    clock[0] += 0.9
    assert asked() == (True, 0 if copies else 1)
    inner.delete(f".hoodie/{TIME}.deltacommit.inflight")
    assert asked() == ((True, 0) if copies else (False, 1))
    clock[0] += 0.2
    assert asked() == (False, 1)


def test_another_instant_is_asked_for(tmp_path: Path) -> None:
    inner = PosixStorage(str(tmp_path / "table"))
    storage = FaultyStorage(inner, Faults(str(tmp_path / "faults"), copies=True))
    inner.write_new(f".hoodie/{TIME}.inflight", b"{}")
    assert is_inflight(storage, ".hoodie", TIME, "commit", lambda: 1.0)
    assert not is_inflight(storage, ".hoodie", "20260101000000001", "commit", lambda: 1.0)
