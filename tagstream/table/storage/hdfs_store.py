"""Files on HDFS. Needs the extra ``hdfs``.

HDFS shows a file while it is written, at first empty. So a file is written under a hidden name in the same folder and
then renamed. The NameNode refuses a rename to an existing name. So creating, publishing and replacing are one step
each.
"""

from __future__ import annotations

import builtins
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, TypeVar, cast

import pyarrow as pa
from hdfs_native import Client, FileReader, FileStatus, WriteOptions

from tagstream.table.storage.common import RangeReader, joined, read_numbered, swap_numbered
from tagstream.table.storage.hdfs_client import NOT_COMPLETE, client, is_no_folder, translated_errors, until_done
from tagstream.table.storage.settings import Options, hdfs_options, parse_hdfs_url
from tagstream.table.storage.storage import FileEntry, Register, at_once

R = TypeVar("R")
_TEMP_PREFIX = ".tagstream_tmp_"
_CHUNK = 512  # the size of a block is a multiple of it
_WHOLE = 4 << 20  # files of at most this size are read at once
_IN_MEMORY = 16 << 20  # of a file that is written; the rest is on the local disk
_PIECE = 4 << 20


@dataclass(frozen=True)
class HdfsStorage:
    """The files below ``path`` of the cluster ``url``."""

    url: str
    path: str
    options: Options = ()

    @classmethod
    def of_url(cls, url: str, settings: Mapping[str, str]) -> HdfsStorage:
        """The storage of a URL; ``settings`` are Hadoop's. ConfigError for a wrong URL."""
        return cls(*parse_hdfs_url(url), hdfs_options(settings))

    @property
    def root(self) -> str:
        """The URL as Hadoop and Spark use it."""
        return self.url + self.path

    @property
    def publishes_by_copy(self) -> bool:
        """False: a rename is atomic."""
        return False

    @property
    def is_remote(self) -> bool:
        """True: each call waits for the NameNode."""
        return True

    def below(self, rel: str) -> HdfsStorage:
        """The storage of a folder below this one."""
        return HdfsStorage(self.url, self._path(rel), self.options)

    def where(self, rel: str) -> str:
        """The URL of ``rel``; InvalidPartitionPathError when it is outside of the root."""
        return self.url + self._path(rel)

    def exists(self, rel: str) -> bool:
        """True when a file or folder with this name exists."""
        with suppress(FileNotFoundError):
            self._info(rel)
            return True
        return False

    def size(self, rel: str) -> int:
        """Size of a file in bytes."""
        return self._info(rel).size

    def list(self, rel: str, prefixes: tuple[str, ...] = ("",)) -> builtins.list[FileEntry]:
        """The entries of a folder, sorted by name."""
        found = self._entries(rel)
        return sorted((e for _, e in found if e.name.startswith(prefixes)), key=lambda e: e.name)

    def names(self, rel: str) -> tuple[str, ...]:
        """The names in a folder, sorted."""
        return tuple(e.name for e in self.list(rel))

    def walk_files(self, rel: str) -> Iterator[str]:
        """Names of all files below a folder, relative to the root."""
        start = len(self.path.rstrip("/")) + 1
        for path, entry in sorted(self._entries(rel, recursive=True)):
            if not entry.is_dir:
                yield path[start:]

    def stamp(self, rel: str) -> object | None:
        """None: a folder's modification time is in milliseconds, and two changes can have the same."""
        self._path(rel)
        return None

    def read(self, rel: str) -> bytes:
        """The whole content of a small file."""
        return self._do(rel, lambda c, path: _opened(c, path).read())

    def read_range(self, rel: str, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``."""

        def read(c: Client, path: str) -> bytes:
            file = _opened(c, path)
            length_ = max(0, min(length, len(file) - offset))
            return file.read_range(offset, length_) if length_ else b""

        return self._do(rel, read)

    def open_input(self, rel: str) -> pa.NativeFile:
        """A file for Arrow: in memory when it is small, else read by ranges."""
        file = self._do(rel, _opened)
        size = len(file)

        def get(offset: int, length: int) -> bytes:
            return self._do(rel, lambda _c, _path: file.read_range(offset, length))

        if size <= _WHOLE:
            return pa.BufferReader(get(0, size) if size else b"")
        return pa.PythonFile(RangeReader(get, size, b""), mode="r")

    def fetch(self, rel: str, local: str) -> None:
        """Copy a file to a local path."""

        def fetch(c: Client, path: str) -> None:
            file = _opened(c, path)
            with open(local, "wb") as out:
                for piece in file.read_range_stream(0, len(file)) if len(file) else ():
                    out.write(piece)

        self._do(rel, fetch)

    def write_new(self, rel: str, data: bytes) -> None:
        """Create a small file; FileExistsError when the name exists."""
        self._write(rel, lambda: [data], overwrite=False)

    def replace(self, rel: str, data: bytes) -> None:
        """Write a small file, over an existing one."""
        self._write(rel, lambda: [data], overwrite=True)

    @contextmanager
    def open_output(self, rel: str) -> Iterator[BinaryIO]:
        """A file to write. It is buffered in memory or on the local disk, so that the write to HDFS can be repeated."""
        self._file(rel)
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as out:
            yield cast(BinaryIO, out)
            self._write(rel, lambda: _pieces(cast(BinaryIO, out)), overwrite=True)

    def put(self, rel: str, local: str) -> None:
        """Copy a local file to ``rel``."""
        self._file(rel)
        with open(local, "rb") as source:
            self._write(rel, lambda: _pieces(source), overwrite=True)

    def publish(self, pairs: Sequence[tuple[str, str]], *, are_free: bool = False) -> None:
        """Rename staged files. The NameNode refuses a missing source and an existing target."""
        del are_free
        named = [(self._file(staged), self._file(final)) for staged, final in pairs]
        folders = sorted({final.rpartition("/")[0] for _, final in named})
        at_once(self, *(partial(self._do_at, folder, _make_folder) for folder in folders))
        at_once(self, *(partial(self._rename, staged, final, overwrite=False) for staged, final in named))

    def read_register(self, rel: str) -> Register | None:
        """The register: the file ``<rel>.<n>`` with the greatest ``n``, which is its version."""
        return read_numbered(self, rel)

    def swap(self, rel: str, data: bytes, expected: str | None) -> str:
        """Create the next number exclusively: of two concurrent writers one gets StaleVersionError."""
        return swap_numbered(self, rel, data, expected)

    def delete(self, rel: str) -> bool:
        """Remove a file; False when it did not exist."""
        self._file(rel)
        return self._do(rel, lambda c, path: c.delete(path))

    def delete_many(self, rels: Iterable[str]) -> None:
        """Remove files, several in parallel."""
        at_once(self, *(partial(self.delete, rel) for rel in rels))

    def delete_tree(self, rel: str) -> None:
        """Remove a folder and everything below it."""
        if rel == "":
            raise ValueError(f"{self.root} is never deleted as a whole")
        self._do(rel, lambda c, path: c.delete(path, True))

    def delete_empty(self, rel: str) -> None:
        """Remove folders without files, the deepest ones first."""
        if rel == "":
            raise ValueError(f"{self.root} is never deleted as a whole")
        folders = [path for path, e in self._entries(rel, recursive=True, hidden=True) if e.is_dir]
        for path in (*sorted(folders, key=len, reverse=True), self._path(rel)):
            if self._do_at(path, _is_empty_folder):
                self._do_at(path, lambda c, p: c.delete(p, False))  # HDFS refuses it when a file was added meanwhile

    def clear_scratch(self, rel: str, before_ms: int) -> int:
        """Remove hidden files older than ``before_ms``; returns their number."""
        found = self._entries(rel, recursive=True, hidden=True)
        old = [path for path, e in found if e.name.startswith(_TEMP_PREFIX) and e.mtime_ms < before_ms]
        return sum(self._do_at(path, lambda c, p: c.delete(p)) for path in old)

    def _path(self, rel: str) -> str:
        return joined(self.path, rel)

    def _file(self, rel: str) -> str:
        if rel == "":
            raise ValueError(f"{self.root} is a folder, not a file")
        return self._path(rel)

    def _do(self, rel: str, action: Callable[[Client, str], R]) -> R:
        return self._do_at(self._path(rel), action)

    def _do_at(self, path: str, action: Callable[[Client, str], R]) -> R:
        """One call, repeated while HDFS cannot serve it, with its errors translated."""
        where = self.url + path
        with translated_errors(where):
            return until_done(lambda: action(client(self.url, self.options), path), where)

    def _info(self, rel: str) -> FileEntry:
        return self._do(rel, lambda c, path: _entry(c.get_file_info(path)))

    def _entries(
        self, rel: str, *, recursive: bool = False, hidden: bool = False
    ) -> builtins.list[tuple[str, FileEntry]]:
        """(path, entry) of each entry of a folder, or of everything below it."""

        def find(c: Client, path: str) -> builtins.list[tuple[str, FileEntry]]:
            for _ in range(3):
                try:
                    found = [(s.path, _entry(s)) for s in c.list_status(path, recursive)]
                    return [each for each in found if each[0] != path]
                except FileNotFoundError:  # the folder, or one inside it that was removed meanwhile
                    if not _is_there(c, path):
                        return []
                except RuntimeError as e:
                    if is_no_folder(e):
                        return []
                    raise
            return [(s.path, _entry(s)) for s in c.list_status(path, recursive)]

        return [(path, e) for path, e in self._do(rel, find) if hidden or not _is_hidden(e.name)]

    def _write(self, rel: str, pieces: Callable[[], Iterable[bytes]], *, overwrite: bool) -> None:
        """Write a whole file under a hidden name and rename it. Each attempt has its own name: HDFS cannot resume a file."""
        target = self._file(rel)
        temps: builtins.list[str] = []

        def write(c: Client, path: str) -> str:
            temps.append(f"{path.rpartition('/')[0]}/{_TEMP_PREFIX}{secrets.token_hex(8)}")
            with c.create(temps[-1], WriteOptions(create_parent=True)) as out:
                for piece in pieces():
                    out.write(piece)
            return temps.pop()

        try:
            temps.append(self._do_at(target, write))
            self._rename(temps[-1], target, overwrite=overwrite)
            temps.pop()
        finally:
            for temp in temps:
                with suppress(OSError):
                    self._do_at(temp, lambda c, path: c.delete(path))

    def _rename(self, source: str, target: str, *, overwrite: bool) -> None:
        """Rename a file. When the answer of a rename was lost, the repeated one finds no source, which counts as done."""

        def rename(c: Client, path: str) -> None:
            try:
                c.rename(source, path, overwrite)
            except FileExistsError:
                if _is_there(c, source):
                    raise
            except FileNotFoundError:
                if _is_there(c, source) or not _is_there(c, path):
                    raise

        self._do_at(target, rename)


def _is_there(c: Client, path: str) -> bool:
    with suppress(FileNotFoundError):
        c.get_file_info(path)
        return True
    return False


def _is_empty_folder(c: Client, path: str) -> bool:
    with suppress(FileNotFoundError):
        return c.get_file_info(path).isdir and not list(c.list_status(path, False))
    return False


def _make_folder(c: Client, path: str) -> None:
    c.mkdirs(path, create_parent=True)


def _opened(c: Client, path: str) -> FileReader:
    """Open a file for reading, with all its blocks.

    With ``dfs.namenode.file.close.num-committed-allowed`` a NameNode closes a file before its last block is complete.
    hdfs-native 0.14.7 silently omits that block: the file seems to be shorter, or empty. The error of this function is
    retried until the block is complete.
    """
    file = c.read(path)
    if len(file) % _CHUNK == 0 and (size := c.get_file_info(path).length) != len(file):
        raise RuntimeError(f"{NOT_COMPLETE} ({len(file):,} of {size:,} bytes)")
    return file


def _entry(status: FileStatus) -> FileEntry:
    return FileEntry(status.path.rpartition("/")[2], status.length, status.isdir, status.modification_time)


def _is_hidden(name: str) -> bool:
    return name.startswith(_TEMP_PREFIX) or (name.startswith(".") and name.endswith(".crc"))


def _pieces(source: BinaryIO) -> Iterator[bytes]:
    source.seek(0)
    while piece := source.read(_PIECE):
        yield piece
