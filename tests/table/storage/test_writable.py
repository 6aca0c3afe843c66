"""Whether a folder could be written, found out without making anything."""

from __future__ import annotations

import os
from pathlib import Path

from tagstream.table.storage.opening import why_not_writable
from tagstream.table.storage.posix import PosixStorage

NOBODY = 65534


def as_nobody(path: Path) -> str | None:
    """What a user without rights is told; asked in a process of its own, for root may write everywhere."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os.write(write, (why_not_writable(PosixStorage(str(path))) or "").encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        return answer.read() or None


def test_a_folder_that_is_there_or_would_be_made(tmp_path: Path) -> None:
    assert why_not_writable(PosixStorage(str(tmp_path))) is None
    assert why_not_writable(PosixStorage(str(tmp_path / "a" / "b"))) is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    said = why_not_writable(PosixStorage(str(tmp_path / "file" / "table")))
    assert said is not None
    assert f"{tmp_path / 'file'} is a file" in said


def test_a_folder_of_another_user(tmp_path: Path) -> None:
    shared = Path("/tmp", f"tagstream-test-{os.getpid()}")  # nobody may pass pytest's own folders neither
    shared.mkdir()
    try:
        shared.chmod(0o755)
        said = as_nobody(shared / "table")
        assert said == f"user {NOBODY} cannot read and write in {shared}, or its file system is read-only"
        shared.chmod(0o777)
        assert as_nobody(shared / "table") is None
    finally:
        shared.rmdir()
