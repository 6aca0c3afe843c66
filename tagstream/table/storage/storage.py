"""The interface of a storage: the only access to a table's files and to a checkpoint's files.

Names are relative to the storage's root and use ``/`` on every store (``p=1/x.parquet``). A name cannot be outside of
the root. The promises of each operation are the same on every store; the means (link, rename, conditional put, copy)
depend on the implementation. ``tests/behaviours/test_storages.py`` checks every implementation.
The functions work on any storage: exclusive creation of a file, and calls in parallel.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, TypeVar

import pyarrow as pa

META_FOLDER = ".hoodie"


@dataclass(frozen=True)
class FileEntry:
    """One entry of a folder: ``size`` in bytes, ``mtime_ms`` since 1970 by the store's clock.

    ``mtime_ms`` of a folder is 0 where folders are only names.
    """

    name: str
    size: int
    is_dir: bool
    mtime_ms: int


@dataclass(frozen=True)
class Register:
    """The value of a register, which is changed by compare-and-swap, and its version, which the next swap must name."""

    data: bytes
    version: str


class Storage(Protocol):
    """The files below ``root`` (an absolute path or a URL). Picklable: tasks get it by value, never by its URL."""

    @property
    def root(self) -> str:
        """The path or URL in its one spelling: for messages, and to compare places."""
        ...

    @property
    def publishes_by_copy(self) -> bool:
        """Whether a publish may take effect after its process died and after the staged file was removed.

        It may on object stores, which complete a copy that has begun.
        """
        ...

    @property
    def is_remote(self) -> bool:
        """Whether each call waits for a server, so that independent calls should be made in parallel."""
        ...

    def below(self, rel: str) -> Storage:
        """The storage of a folder of this one."""
        ...

    def where(self, rel: str) -> str:
        """The full path or URL of a file, for messages; InvalidPartitionPathError when it is outside of the root."""
        ...

    # Listing

    def exists(self, rel: str) -> bool:
        """True when a file or a folder with this name exists."""
        ...

    def size(self, rel: str) -> int:
        """Size of a file in bytes; FileNotFoundError when it does not exist."""
        ...

    def list(self, rel: str, prefixes: tuple[str, ...] = ("",)) -> builtins.list[FileEntry]:
        """The entries of a folder whose names begin with one of ``prefixes``, sorted by name; none for a missing folder.

        Scratch files of this project and checksum files of Hadoop are left out.
        """
        ...

    def names(self, rel: str) -> tuple[str, ...]:
        """The names in a folder, sorted: as :meth:`list`, without sizes and kinds."""
        ...

    def walk_files(self, rel: str) -> Iterator[str]:
        """Names of all files below a folder, relative to the root."""
        ...

    def stamp(self, rel: str) -> object | None:
        """A value that changes when names in a folder change; None where the store has no such value."""
        ...

    # Reading

    def read(self, rel: str) -> bytes:
        """The whole content of a small file; FileNotFoundError when it does not exist."""
        ...

    def read_range(self, rel: str, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    def open_input(self, rel: str) -> pa.NativeFile:
        """A file for Arrow's readers, read by ranges; the caller closes it.

        FileNotFoundError when it does not exist; its ``filename`` is :meth:`where`.
        """
        ...

    def fetch(self, rel: str, local: str) -> None:
        """Copy a file to the new local path ``local``; FileNotFoundError when it does not exist."""
        ...

    # Writing: a file is visible whole or not at all, and durable when the call returns

    def write_new(self, rel: str, data: bytes) -> None:
        """Create a small file; FileExistsError when the name exists. Of two concurrent writers one succeeds."""
        ...

    def replace(self, rel: str, data: bytes) -> None:
        """Write a small file in one step, over an existing one."""
        ...

    def open_output(self, rel: str) -> AbstractContextManager[BinaryIO]:
        """A file to write. It appears when the block ends, and does not appear after an exception.

        It replaces an existing file: concurrent writers must use different names.
        """
        ...

    def put(self, rel: str, local: str) -> None:
        """Copy a local file to ``rel``, with the promises of :meth:`open_output`."""
        ...

    def publish(self, pairs: Sequence[tuple[str, str]], *, are_free: bool = False) -> None:
        """Give staged files their final names: pairs of (staged, final), in any order, several in parallel.

        FileNotFoundError when a staged file is missing, FileExistsError when a final name exists; some files may then
        have their final names. Staged files may remain or not. A staged file that was deleted before is never
        published. ``are_free``: the caller knows that nobody else creates these names. A store that would have to check
        first skips the check and would overwrite an existing file.
        """
        ...

    def read_register(self, rel: str) -> Register | None:
        """The value of a register; None when it was never written."""
        ...

    def swap(self, rel: str, data: bytes, expected: str | None) -> str:
        """Write a register if its version is still ``expected`` (None: it was never written); returns the new version.

        StaleVersionError when another writer was first. ``data`` must differ from the register's present value.
        """
        ...

    # Removing

    def delete(self, rel: str) -> bool:
        """Remove a file; False when it did not exist (True where the store does not say)."""
        ...

    def delete_many(self, rels: Iterable[str]) -> None:
        """Remove files, with as few requests as the store allows. Missing files are no error."""
        ...

    def delete_tree(self, rel: str) -> None:
        """Remove a folder and everything below it, if it exists. ValueError for the root itself."""
        ...

    def delete_empty(self, rel: str) -> None:
        """Remove a folder, and folders below it, that have no files. Does nothing on a store without folders.

        A file that another process writes at the same time is not removed.
        """
        ...

    def clear_scratch(self, rel: str, before_ms: int) -> int:
        """Remove hidden files of killed writers below a folder that are older than ``before_ms``; returns their number."""
        ...


def create(storage: Storage, rel: str, data: bytes) -> bool:
    """Create a small file; False when another writer's file exists.

    An existing file with exactly the content ``data`` counts as created: an earlier request of this call that got no
    answer may have written it. So writers that must be distinguished need different ``data``.
    """
    try:
        storage.write_new(rel, data)
    except FileExistsError:
        try:
            return storage.read(rel) == data
        except FileNotFoundError:  # another writer's, which was removed since
            return False
    return True


_THREADS = 16
_T = TypeVar("_T")
_R = TypeVar("_R")


def each(task: Callable[[_T], _R], items: Iterable[_T], threads: int = _THREADS) -> list[_R]:
    """The results of a task for each item, in their order. A single item needs no thread.

    ``threads``: the most that run in parallel. Raises the error of the first item that failed, after the running ones
    have ended.
    """
    work = list(items)
    if len(work) < 2:
        return [task(item) for item in work]
    with ThreadPoolExecutor(min(threads, len(work))) as pool:
        return list(pool.map(task, work))


def at_once(storage: Storage, *calls: Callable[[], Any], threads: int = _THREADS) -> list[Any]:
    """The results of the calls, in their order. Raises the error of the first call that failed, after all have ended.

    ``threads``: the most that run in parallel. On a local storage the calls run one after the other, and an error ends
    them.
    """
    if not storage.is_remote or len(calls) < 2 or threads < 2:
        return [call() for call in calls]
    with ThreadPoolExecutor(min(threads, len(calls))) as pool:
        futures = [pool.submit(call) for call in calls]
    return [future.result() for future in futures]
