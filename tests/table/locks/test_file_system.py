"""The lock file: what Hudi's writers on the same disk may do to it."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import pytest

from tagstream.table.errors import LockError
from tagstream.table.locks.file_system import FileSystemLock
from tagstream.table.locks.lock import Surroundings
from tagstream.table.storage.posix import PosixStorage
from tests.behaviours.lock_places import Clock, surroundings


def made(folder: Path, clock: Clock | None = None, expire_min: int = 0, writer: str = "me") -> FileSystemLock:
    return FileSystemLock(PosixStorage(str(folder)), expire_min, surroundings(writer, clock or Clock()))


def test_the_content_is_in_the_form_of_hudi(tmp_path: Path) -> None:
    ids = itertools.count(1)
    here = Surroundings(writer="job orders", new_id=lambda: f"id{next(ids)}", wall_ms=lambda: 1_700_000_000_000)
    lock = FileSystemLock(PosixStorage(str(tmp_path)), 0, here)
    assert lock.try_acquire(0)
    assert (tmp_path / "lock").read_text() == (
        '{"lockCreateTime": "1700000000000", "lockThreadName": "job orders", "lockStackInfo": ["id1"]}'
    )
    assert "job orders" in lock.holder()
    lock.release()
    assert os.listdir(tmp_path) == []


def test_a_file_that_hadoop_empties_in_between_is_lost(tmp_path: Path) -> None:
    """Hadoop's local file system looks whether the file exists, and then opens it, which empties it: the same inode."""
    lock = made(tmp_path)
    assert lock.try_acquire(0)
    inode = os.stat(tmp_path / "lock").st_ino
    os.truncate(tmp_path / "lock", 0)
    assert os.stat(tmp_path / "lock").st_ino == inode
    assert not lock.is_held()
    lock.release()
    assert (tmp_path / "lock").exists()
    assert "left no name" in lock.holder()


def test_checksums_of_hadoop_go_with_the_file(tmp_path: Path) -> None:
    (tmp_path / ".lock.crc").write_bytes(b"crc\0")
    lock = made(tmp_path)
    assert lock.try_acquire(0)
    lock.release()
    assert os.listdir(tmp_path) == []


def test_a_file_of_unknown_content_is_held_by_somebody(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"\xff\x00 what")
    lock = made(tmp_path)
    assert not lock.try_acquire(1)
    assert "what" in lock.holder()


def test_validity_ends_before_the_file_expires(tmp_path: Path) -> None:
    clock = Clock()
    lock, other = made(tmp_path, clock, 1), made(tmp_path, clock, 1, "other")
    assert lock.try_acquire(0)
    clock.sleep(49.9)
    assert lock.is_held()
    clock.sleep(0.2)  # less than ten seconds are left
    assert not lock.is_held()
    clock.sleep(9.8)
    assert not other.try_acquire(0)
    clock.sleep(1)
    assert other.try_acquire(0)
    lock.release()
    assert other.is_held()


class Refusing(PosixStorage):
    """A disk that refuses to create files."""

    code = errno.EACCES

    def write_new(self, rel: str, data: bytes) -> None:
        """Refused."""
        raise OSError(self.code, os.strerror(self.code), self.where(rel))


def test_rights_that_are_missing_are_named(tmp_path: Path) -> None:
    lock = FileSystemLock(Refusing(str(tmp_path)), 0, surroundings("me", Clock()))
    with pytest.raises(LockError, match=f"{tmp_path}/lock cannot be created: Permission denied; let user") as error:
        lock.try_acquire(60)
    assert not error.value.may_pass


def test_a_disk_that_is_full_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Refusing, "code", errno.ENOSPC)
    lock = FileSystemLock(Refusing(str(tmp_path)), 0, surroundings("me", Clock()))
    with pytest.raises(LockError, match="No space left") as error:
        lock.try_acquire(60)
    assert error.value.may_pass
