"""Files on a POSIX file system, local or mounted: links create names, renames replace files, fsync makes them durable.

Hadoop's checksummed file system writes ``.<name>.crc`` files next to its files. They are never listed. When a file is
written or removed here, its checksum file is removed, because it would not match.
"""

from __future__ import annotations

import builtins
import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO, cast

import pyarrow as pa

from tagstream.table.storage.common import joined, read_numbered, swap_numbered
from tagstream.table.storage.storage import FileEntry, Register, each

_TEMP_PREFIX = ".tagstream_tmp_"


@dataclass(frozen=True)
class PosixStorage:
    """The files below ``root``, an absolute local path.

    ``sync``: whether a written file is forced to the disk. ``mode``: the permissions of new files.
    """

    root: str
    sync: bool = True
    mode: int = 0o644

    @property
    def publishes_by_copy(self) -> bool:
        """False: a link is atomic."""
        return False

    @property
    def is_remote(self) -> bool:
        """False: a system call takes less time than starting a thread."""
        return False

    def below(self, rel: str) -> PosixStorage:
        """The storage of a folder below this one."""
        return PosixStorage(self.where(rel), self.sync, self.mode)

    def where(self, rel: str) -> str:
        """The absolute path of ``rel``; InvalidPartitionPathError when it is outside of the root."""
        return joined(self.root, rel)

    def exists(self, rel: str) -> bool:
        """True when a file or folder with this name exists."""
        return os.path.lexists(self.where(rel))

    def size(self, rel: str) -> int:
        """Size of a file in bytes."""
        return os.stat(self.where(rel)).st_size

    def list(self, rel: str, prefixes: tuple[str, ...] = ("",)) -> builtins.list[FileEntry]:
        """The entries of a folder, sorted by name. Files without one of the prefixes are not opened or read (no stat)."""
        try:
            with os.scandir(self.where(rel)) as entries:
                found = [_entry(e) for e in entries if e.name.startswith(prefixes) and not _is_hidden(e.name)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted((e for e in found if e is not None), key=lambda e: e.name)

    def names(self, rel: str) -> tuple[str, ...]:
        """The names in a folder, sorted."""
        try:
            return tuple(sorted(name for name in os.listdir(self.where(rel)) if not _is_hidden(name)))
        except (FileNotFoundError, NotADirectoryError):
            return ()

    def walk_files(self, rel: str) -> Iterator[str]:
        """Names of all files below a folder, relative to the root, without a stat of each file."""
        try:
            with os.scandir(self.where(rel)) as entries:
                found = sorted((e.name, e.is_dir()) for e in entries if not _is_hidden(e.name))
        except (FileNotFoundError, NotADirectoryError):
            return
        for name, is_dir in found:
            child = f"{rel}/{name}" if rel else name
            if is_dir:
                yield from self.walk_files(child)
            else:
                yield child

    def stamp(self, rel: str) -> object | None:
        """Inode and modification time of the folder."""
        try:
            stat = os.stat(self.where(rel))
        except FileNotFoundError:
            return 0, 0
        return stat.st_ino, stat.st_mtime_ns

    def read(self, rel: str) -> bytes:
        """The whole content of a small file."""
        with open(self.where(rel), "rb") as f:
            return f.read()

    def read_range(self, rel: str, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``."""
        with open(self.where(rel), "rb") as f:
            f.seek(offset)
            return f.read(length)

    def open_input(self, rel: str) -> pa.NativeFile:
        """The file, memory-mapped."""
        path = self.where(rel)
        try:
            return pa.memory_map(path)
        except FileNotFoundError:  # Arrow's error has the name only in its text
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    def fetch(self, rel: str, local: str) -> None:
        """Copy a file to a local path."""
        shutil.copyfile(self.where(rel), local)

    def write_new(self, rel: str, data: bytes) -> None:
        """Create a small file by linking a complete one; FileExistsError when the name exists."""
        temp = self._stage(rel, data)
        try:
            self._link(temp, self.where(rel))
        finally:
            os.unlink(temp)

    def replace(self, rel: str, data: bytes) -> None:
        """Write a small file, over an existing one."""
        self._move(self._stage(rel, data), self.where(rel))

    @contextmanager
    def open_output(self, rel: str) -> Iterator[BinaryIO]:
        """A file to write: hidden, in the same folder, until it is complete and gets its name."""
        target = self.where(rel)
        fd, temp = self._temp(target)
        try:
            with os.fdopen(fd, "wb") as f:
                yield cast(BinaryIO, f)
                self._finish(f)
        except BaseException:
            with suppress(FileNotFoundError):  # its folder was removed meanwhile
                os.unlink(temp)
            raise
        self._move(temp, target)

    def put(self, rel: str, local: str) -> None:
        """Copy a local file to ``rel``."""
        with self.open_output(rel) as out, open(local, "rb") as source:
            shutil.copyfileobj(source, out, 1 << 20)

    def publish(self, pairs: Sequence[tuple[str, str]], *, are_free: bool = False) -> None:
        """Link staged files. A missing source and an existing target fail.

        Each folder is forced to the disk once, at the end.
        """
        del are_free
        folders = set()
        for staged, final in pairs:
            source, target = self.where(staged), self.where(final)
            folder = os.path.dirname(target)
            if folder not in folders:
                os.makedirs(folder, exist_ok=True)
                folders.add(folder)
            _unlink_crc(target)
            os.link(source, target)
        each(self._sync_folder, folders)

    def read_register(self, rel: str) -> Register | None:
        """The register: the file ``<rel>.<n>`` with the greatest ``n``, which is its version."""
        return read_numbered(self, rel)

    def swap(self, rel: str, data: bytes, expected: str | None) -> str:
        """Create the next number exclusively: of two concurrent writers one gets StaleVersionError."""
        return swap_numbered(self, rel, data, expected)

    def delete(self, rel: str) -> bool:
        """Remove a file; False when it did not exist."""
        target = self.where(rel)
        _unlink_crc(target)
        try:
            os.unlink(target)
        except FileNotFoundError:
            return False
        return True

    def delete_many(self, rels: Iterable[str]) -> None:
        """Remove files."""
        for rel in rels:
            self.delete(rel)

    def delete_tree(self, rel: str) -> None:
        """Remove a folder and everything below it."""
        if rel == "":
            raise ValueError(f"{self.root} is never deleted as a whole")
        target = self.where(rel)
        # Late tasks of a failed run may still add files while the tree is removed.
        for _ in range(3):
            try:
                shutil.rmtree(target)
            except FileNotFoundError:
                return
            except OSError:
                continue
            return
        shutil.rmtree(target, ignore_errors=True)

    def delete_empty(self, rel: str) -> None:
        """Remove folders without files."""
        if rel == "":
            raise ValueError(f"{self.root} is never deleted as a whole")
        for folder, _, _ in os.walk(self.where(rel), topdown=False):
            with suppress(OSError):  # it has files, perhaps new ones
                os.rmdir(folder)

    def clear_scratch(self, rel: str, before_ms: int) -> int:
        """Remove hidden files older than ``before_ms``; returns their number."""
        found = 0
        for folder, _, names in os.walk(self.where(rel)):
            for path in (os.path.join(folder, name) for name in names if name.startswith(_TEMP_PREFIX)):
                with suppress(FileNotFoundError):  # its writer has just finished
                    if os.stat(path).st_mtime_ns < before_ms * 1_000_000:
                        os.unlink(path)
                        found += 1
        return found

    def _temp(self, target: str) -> tuple[int, str]:
        folder = os.path.dirname(target)
        os.makedirs(folder, exist_ok=True)
        return tempfile.mkstemp(prefix=_TEMP_PREFIX, dir=folder)

    def _stage(self, rel: str, data: bytes) -> str:
        """Write ``data`` to a hidden file in the folder of ``rel``. Returns its absolute path."""
        fd, temp = self._temp(self.where(rel))
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            self._finish(cast(BinaryIO, f))
        return temp

    def _finish(self, f: BinaryIO) -> None:
        f.flush()
        os.fchmod(f.fileno(), self.mode)
        if self.sync:
            os.fsync(f.fileno())

    def _link(self, source: str, target: str) -> None:
        # A checksum file of an earlier file with this name would make Hadoop refuse the new one.
        _unlink_crc(target)
        os.link(source, target)
        self._sync_folder(os.path.dirname(target))

    def _move(self, source: str, target: str) -> None:
        _unlink_crc(target)
        os.replace(source, target)
        self._sync_folder(os.path.dirname(target))

    def _sync_folder(self, folder: str) -> None:
        if not self.sync:
            return
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _entry(entry: os.DirEntry[str]) -> FileEntry | None:
    try:
        stat = entry.stat()
    except FileNotFoundError:  # removed after the listing
        return None
    return FileEntry(entry.name, stat.st_size, entry.is_dir(), stat.st_mtime_ns // 1_000_000)


def _is_hidden(name: str) -> bool:
    return (name.startswith(".") and name.endswith(".crc")) or name.startswith(_TEMP_PREFIX)


def _unlink_crc(target: str) -> None:
    folder, name = os.path.split(target)
    try:
        os.unlink(os.path.join(folder, f".{name}.crc"))
    except FileNotFoundError:
        return
