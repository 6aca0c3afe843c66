"""File access below one table's base path: POSIX paths only, nothing outside the base path, nothing half written.

Every other module of the table layer names files by their path relative to the base path (``p=1/x.parquet``).
Hadoop's checksummed file system leaves ``.<name>.crc`` files beside its own; they are never listed here, and one that
would contradict a file written or removed here is removed with it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from tagstream.table.errors import ConfigError, InvalidPartitionPathError

META_FOLDER = ".hoodie"
_TEMP_PREFIX = ".tagstream_tmp_"


@dataclass(frozen=True)
class FileEntry:
    """One entry of a folder: ``size`` in bytes, ``mtime_ms`` since the epoch."""

    name: str
    size: int
    is_dir: bool
    mtime_ms: int


@dataclass(frozen=True)
class Storage:
    """The files below ``root`` (an absolute local path). Picklable: tasks open the same table by value."""

    root: str

    @staticmethod
    def open(url: str) -> Storage:
        """A storage for a path or ``file:`` URL; any other scheme raises ConfigError by its name."""
        if not url:
            raise ConfigError("the table's base path is empty: give a folder, for example /data/tables/orders")
        scheme = urlsplit(url).scheme if "://" in url or url.startswith("file:") else ""
        if scheme not in ("", "file"):
            raise ConfigError(
                f"base path {url}: the file system {scheme}:// is not supported; use a local or mounted (POSIX) path"
            )
        path = unquote(urlsplit(url).path) if scheme else url
        return Storage(os.path.abspath(path))

    def path(self, rel: str) -> str:
        """The absolute path of ``rel``; InvalidPartitionPathError when it would leave the base path."""
        if rel == "":
            return self.root
        if rel.startswith("/") or "\0" in rel or any(part in ("", ".", "..") for part in rel.split("/")):
            raise InvalidPartitionPathError(f"path {rel!r} is not below the table's base path {self.root}")
        return os.path.join(self.root, rel)

    def exists(self, rel: str) -> bool:
        """True when a file or folder of that name is there."""
        return os.path.lexists(self.path(rel))

    def size(self, rel: str) -> int:
        """Bytes of a file."""
        return os.stat(self.path(rel)).st_size

    def list(self, rel: str, prefixes: tuple[str, ...] = ("",)) -> list[FileEntry]:
        """The entries of a folder sorted by name; a missing folder is an empty one.

        ``prefixes``: only names that begin with one of them; the others cost no look at the file.
        """
        try:
            with os.scandir(self.path(rel)) as entries:
                found = [_entry(e) for e in entries if e.name.startswith(prefixes) and not _is_hidden(e.name)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted((e for e in found if e is not None), key=lambda e: e.name)

    def names(self, rel: str) -> tuple[str, ...]:
        """The names in a folder, sorted, without a look at what they are; a missing folder is an empty one."""
        try:
            return tuple(sorted(name for name in os.listdir(self.path(rel)) if not _is_hidden(name)))
        except (FileNotFoundError, NotADirectoryError):
            return ()

    def walk_files(self, rel: str) -> Iterator[str]:
        """Paths of all files below a folder, relative to the base path."""
        for entry in self.list(rel):
            child = f"{rel}/{entry.name}" if rel else entry.name
            if entry.is_dir:
                yield from self.walk_files(child)
            else:
                yield child

    def read(self, rel: str) -> bytes:
        """The whole content of a small file; FileNotFoundError when it is not there."""
        with open(self.path(rel), "rb") as f:
            return f.read()

    def write_new(self, rel: str, data: bytes) -> None:
        """Create a file with its whole content at once, durably; FileExistsError when the name is taken."""
        temp = self.stage(rel, data)
        try:
            self.publish(temp, self.path(rel))
        finally:
            os.unlink(temp)

    def stage(self, rel: str, data: bytes) -> str:
        """Write ``data`` durably to a hidden file in the folder of ``rel``; returns its absolute path."""
        target = self.path(rel)
        folder = os.path.dirname(target)
        os.makedirs(folder, exist_ok=True)
        fd, temp = tempfile.mkstemp(prefix=_TEMP_PREFIX, dir=folder)
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fchmod(f.fileno(), 0o644)
            os.fsync(f.fileno())
        return temp

    def publish(self, staged: str, target: str) -> None:
        """Give a staged file its final name; FileExistsError when taken, FileNotFoundError when it was removed."""
        # A stale checksum file of an earlier file of this name would make Hadoop refuse the new one.
        _unlink_crc(target)
        os.link(staged, target)
        _sync_folder(os.path.dirname(target))

    def replace(self, rel: str, data: bytes) -> None:
        """Write a file over the one of this name (or none) in one step."""
        temp = self.stage(rel, data)
        _unlink_crc(self.path(rel))
        os.replace(temp, self.path(rel))
        _sync_folder(os.path.dirname(self.path(rel)))

    def create_empty(self, rel: str) -> None:
        """Create an empty file; one that is there already stays."""
        target = self.path(rel)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))

    def make_folder(self, rel: str) -> None:
        """Create a folder and its parents where missing."""
        os.makedirs(self.path(rel), exist_ok=True)

    def delete(self, rel: str) -> bool:
        """Remove a file; False when it was not there."""
        target = self.path(rel)
        _unlink_crc(target)
        try:
            os.unlink(target)
        except FileNotFoundError:
            return False
        return True

    def delete_tree(self, rel: str) -> None:
        """Remove a folder and all below it; a missing one is fine. The base path itself is refused."""
        if rel == "":
            raise ValueError("the table's base path is never deleted as a whole")
        target = self.path(rel)
        # Late tasks of a dead run may still add markers while the tree is removed.
        for _ in range(3):
            try:
                shutil.rmtree(target)
            except FileNotFoundError:
                return
            except OSError:
                continue
            return
        shutil.rmtree(target, ignore_errors=True)


def _entry(entry: os.DirEntry[str]) -> FileEntry | None:
    try:
        stat = entry.stat()
    except FileNotFoundError:  # removed between the listing and the stat
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


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
