"""What the project needs of a store of files: the only access to a table's files and to a checkpoint's files.

Names are relative to the storage's root and use ``/`` on every store (``p=1/x.parquet``). Nothing outside the root
can be named. What each operation promises is the same on every store. How it is done (link, rename, conditional
put, copy) is the implementation's matter. ``tests/behaviours/test_storages.py`` checks every implementation.

The functions work on any storage: the creation of a file that only one writer can win, and several calls at a
time.
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
    """One entry of a folder: ``size`` in bytes, ``mtime_ms`` since the epoch as the store's own clock has it.

    A folder's is 0 where folders are only names.
    """

    name: str
    size: int
    is_dir: bool
    mtime_ms: int


@dataclass(frozen=True)
class Register:
    """A value that is changed by compare-and-swap, and the version that the next swap must name."""

    data: bytes
    version: str


class Storage(Protocol):
    """The files below ``root`` (an absolute path or a URL). Picklable: tasks get it by value, never by its URL."""

    @property
    def root(self) -> str:
        """The place as people know it: for messages, and equal for two spellings of one place."""
        ...

    @property
    def publishes_by_copy(self) -> bool:
        """Whether a publish may take effect after its process has died, and after the staged file was removed.

        A copy inside an object store that was under way then is carried out.
        """
        ...

    @property
    def is_remote(self) -> bool:
        """Whether each call waits for a server: calls that do not need one another are then worth making at once."""
        ...

    def below(self, rel: str) -> Storage:
        """The storage of a folder of this one."""
        ...

    def where(self, rel: str) -> str:
        """The full path or URL of a file, for messages; InvalidPartitionPathError when it would leave the root."""
        ...

    # Looking

    def exists(self, rel: str) -> bool:
        """True when a file or a folder of that name is there."""
        ...

    def size(self, rel: str) -> int:
        """Bytes of a file; FileNotFoundError when it is not there."""
        ...

    def list(self, rel: str, prefixes: tuple[str, ...] = ("",)) -> builtins.list[FileEntry]:
        """The entries of a folder whose names begin with one of ``prefixes``, sorted by name; a missing folder is empty.

        Scratch files of this project and checksum files of Hadoop are not among them.
        """
        ...

    def names(self, rel: str) -> tuple[str, ...]:
        """The names in a folder, sorted, as :meth:`list` but without a look at what they are."""
        ...

    def walk_files(self, rel: str) -> Iterator[str]:
        """Names of all files below a folder, relative to the root."""
        ...

    def stamp(self, rel: str) -> object | None:
        """A value that differs when a folder's names may have changed since; None where the store has no such thing."""
        ...

    # Reading

    def read(self, rel: str) -> bytes:
        """The whole content of a small file; FileNotFoundError when it is not there."""
        ...

    def read_range(self, rel: str, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    def open_input(self, rel: str) -> pa.NativeFile:
        """A file for Arrow's readers, read by ranges; the caller closes it.

        FileNotFoundError when it is not there, whose ``filename`` is :meth:`where`.
        """
        ...

    def fetch(self, rel: str, local: str) -> None:
        """Copy a file to the new local path ``local``; FileNotFoundError when it is not there."""
        ...

    # Writing: a file is visible whole or not at all, and durable when the call returns

    def write_new(self, rel: str, data: bytes) -> None:
        """Create a small file; FileExistsError when the name is taken (of two writers at once one wins)."""
        ...

    def replace(self, rel: str, data: bytes) -> None:
        """Write a small file over the one of this name, or none, in one step."""
        ...

    def open_output(self, rel: str) -> AbstractContextManager[BinaryIO]:
        """A file to stream into; it appears when the block ends, and not at all when an exception leaves it.

        A file of this name is written over: two writers at once are kept apart by their names.
        """
        ...

    def put(self, rel: str, local: str) -> None:
        """Copy a local file to ``rel``, with the promises of :meth:`open_output`."""
        ...

    def publish(self, pairs: Sequence[tuple[str, str]], *, are_free: bool = False) -> None:
        """Give staged files their final names: (staged, final) each, in any order, several at a time.

        FileNotFoundError when a staged file was taken away, FileExistsError when a final name is taken; some files may then
        have their names. The staged files may stay or go. Nothing is published of a staged file that was deleted before.
        ``are_free``: the caller knows that nobody else has one of the names. A store that would have to look first does not;
        such a name would be written over.
        """
        ...

    def read_register(self, rel: str) -> Register | None:
        """The value of a register; None when it was never written."""
        ...

    def swap(self, rel: str, data: bytes, expected: str | None) -> str:
        """Write a register if its version is still ``expected`` (None: it was never written); returns the new version.

        StaleVersionError when another writer came first. ``data`` must differ from what the register held.
        """
        ...

    # Removing

    def delete(self, rel: str) -> bool:
        """Remove a file; False when it was not there (True where the store does not tell)."""
        ...

    def delete_many(self, rels: Iterable[str]) -> None:
        """Remove files, as few requests as the store allows; missing ones are fine."""
        ...

    def delete_tree(self, rel: str) -> None:
        """Remove a folder and all below it; a missing one is fine. The root itself is refused by ValueError."""
        ...

    def delete_empty(self, rel: str) -> None:
        """Remove a folder, and folders below it, in which there is no file. Nothing happens on a store without folders.

        It takes no file that another process has written since somebody looked.
        """
        ...

    def clear_scratch(self, rel: str, before_ms: int) -> int:
        """Remove what killed writers left below a folder and no listing shows, if older than ``before_ms``; how many."""
        ...


def create(storage: Storage, rel: str, data: bytes) -> bool:
    """Create a small file; False when another writer's is there.

    A file that is there and holds exactly ``data`` counts as created: it is what an earlier, unanswered request of this call
    left. So two writers who must be told apart put something of their own into ``data``.
    """
    try:
        storage.write_new(rel, data)
    except FileExistsError:
        try:
            return storage.read(rel) == data
        except FileNotFoundError:  # another's, and removed since
            return False
    return True


_THREADS = 16
_T = TypeVar("_T")
_R = TypeVar("_R")


def each(task: Callable[[_T], _R], items: Iterable[_T], threads: int = _THREADS) -> list[_R]:
    """What a task returns for each of the items, in their order; one alone needs no thread.

    ``threads``: how many run at the same time at most. Raises what the first of the items that failed
    raised, once those under way have ended.
    """
    work = list(items)
    if len(work) < 2:
        return [task(item) for item in work]
    with ThreadPoolExecutor(min(threads, len(work))) as pool:
        return list(pool.map(task, work))


def at_once(storage: Storage, *calls: Callable[[], Any], threads: int = _THREADS) -> list[Any]:
    """What the calls return, in their order. Raises what the first of them raised, after all have ended.

    ``threads``: how many run at the same time at most. On a local storage a call that raises keeps those behind it from
    being made.
    """
    if not storage.is_remote or len(calls) < 2 or threads < 2:
        return [call() for call in calls]
    with ThreadPoolExecutor(min(threads, len(calls))) as pool:
        futures = [pool.submit(call) for call in calls]
    return [future.result() for future in futures]
