"""A storage that goes wrong as stores do: at one call of a whole run, counted over all of its processes.

Wraps any storage and is a value like it, so tasks get it with all that it will do. What it has done is kept in a local
folder that all processes see, under a lock.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO, TypeVar

import pyarrow as pa

from tagstream.table.errors import StaleVersionError
from tagstream.table.storage.storage import FileEntry, Register, Storage

R = TypeVar("R")
CHANGES = (
    *("write_new", "replace", "open_output", "put", "publish", "swap"),
    *("delete", "delete_many", "delete_tree", "delete_empty"),
)


class InjectedError(OSError):
    """What a fault looks like to the caller."""


@dataclass(frozen=True)
class Faults:
    """What goes wrong. ``folder``: a local one, empty at first, that is shared by all who use the storage.

    ``fail``: number (from 1) of the call that has no effect and raises OSError; ``kill``: of the one at which its process is
    killed before it has an effect; ``lose``: of the one that takes effect and
    then raises OSError; ``repeat``: of the one whose answer the store's client loses and which it sends again: a name it
    wants to be the first at is then taken, by itself. ``only``: the kinds of calls that are counted, by default all.
    ``late``: a new name is missing from listings during the next so many calls. ``copies``: staged files are published one
    by one, by a copy after a look, as object stores do. ``slow``: called before each call, with its kind.
    """

    folder: str
    fail: int = 0
    kill: int = 0
    lose: int = 0
    repeat: int = 0
    only: tuple[str, ...] = ()
    late: int = 0
    copies: bool = False
    slow: Callable[[str], None] | None = None

    def count(self, kind: str, rel: str) -> int:
        """The number of this call; 0 for one of a kind that is not counted."""
        if self.only and kind not in self.only:
            return 0
        with self._locked("count") as f:
            number = int(f.read() or 0) + 1
            f.truncate(0)
            f.write(str(number))
            with self._file("calls").open("a", encoding="utf-8") as calls:
                calls.write(f"{kind} {rel}\n")
        return number

    def calls(self) -> list[tuple[str, str]]:
        """(kind, name) of the calls that were counted, in their order."""
        lines = self._file("calls").read_text("utf-8").splitlines() if self._file("calls").exists() else []
        return [(kind, rel) for kind, _, rel in (line.partition(" ") for line in lines)]

    def born(self, name: str) -> None:
        """Note when a name was made."""
        number = len(self.calls())
        with self._locked("names") as f:
            f.seek(0, os.SEEK_END)
            f.write(json.dumps([name, number]) + "\n")

    def unseen(self) -> set[str]:
        """Names that are too new for listings."""
        number = len(self.calls())
        with self._locked("names") as f:
            return {name for name, made in map(json.loads, f) if made + self.late >= number}

    @contextmanager
    def _locked(self, name: str) -> Iterator[TextIO]:
        with self._file(name).open("a+", encoding="utf-8") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            f.seek(0)
            yield f

    def _file(self, name: str) -> Path:
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        return Path(self.folder, name)


@dataclass(frozen=True)
class FaultyStorage:
    """``inner`` with ``faults``."""

    inner: Storage
    faults: Faults

    @property
    def root(self) -> str:
        return self.inner.root

    @property
    def publishes_by_copy(self) -> bool:
        return self.faults.copies or self.inner.publishes_by_copy

    @property
    def is_remote(self) -> bool:
        return self.inner.is_remote

    def below(self, rel: str) -> FaultyStorage:
        return FaultyStorage(self.inner.below(rel), self.faults)

    def where(self, rel: str) -> str:
        return self.inner.where(rel)

    def stamp(self, rel: str) -> object | None:
        return None if self.faults.copies or self.faults.late else self.inner.stamp(rel)

    def exists(self, rel: str) -> bool:
        return self._call("exists", rel, lambda: self.inner.exists(rel))

    def size(self, rel: str) -> int:
        return self._call("size", rel, lambda: self.inner.size(rel))

    def list(self, rel: str, prefixes: tuple[str, ...] = ("",)) -> builtins.list[FileEntry]:
        found = self._call("list", rel, lambda: self.inner.list(rel, prefixes))
        unseen = self._unseen()
        return [e for e in found if self._full(rel, e.name) not in unseen]

    def names(self, rel: str) -> tuple[str, ...]:
        found = self._call("names", rel, lambda: self.inner.names(rel))
        unseen = self._unseen()
        return tuple(name for name in found if self._full(rel, name) not in unseen)

    def walk_files(self, rel: str) -> Iterator[str]:
        found = self._call("walk_files", rel, lambda: [*self.inner.walk_files(rel)])
        unseen = self._unseen()
        yield from (name for name in found if self.where(name) not in unseen)

    def read(self, rel: str) -> bytes:
        return self._call("read", rel, lambda: self.inner.read(rel))

    def read_range(self, rel: str, offset: int, length: int) -> bytes:
        return self._call("read_range", rel, lambda: self.inner.read_range(rel, offset, length))

    def open_input(self, rel: str) -> pa.NativeFile:
        return self._call("open_input", rel, lambda: self.inner.open_input(rel))

    def fetch(self, rel: str, local: str) -> None:
        self._call("fetch", rel, lambda: self.inner.fetch(rel, local))

    def write_new(self, rel: str, data: bytes) -> None:
        self._born(rel)
        self._call("write_new", rel, lambda: self.inner.write_new(rel, data), FileExistsError(rel))

    def replace(self, rel: str, data: bytes) -> None:
        self._born(rel)
        self._call("replace", rel, lambda: self.inner.replace(rel, data))

    @contextmanager
    def open_output(self, rel: str) -> Iterator[BinaryIO]:
        number = self._begin("open_output", rel)
        with self.inner.open_output(rel) as out:
            yield out
            self._born(rel)
            self._fail("open_output", rel, number)
        self._end("open_output", rel, number, None)

    def put(self, rel: str, local: str) -> None:
        self._born(rel)
        self._call("put", rel, lambda: self.inner.put(rel, local))

    def publish(self, pairs: Sequence[tuple[str, str]], *, are_free: bool = False) -> None:
        if not self.faults.copies:
            name = pairs[0][1] if pairs else ""
            self._call("publish", name, lambda: self.inner.publish(pairs, are_free=are_free), FileExistsError())
            return
        for staged, final in pairs:
            self._call("publish", final, lambda s=staged, f=final: self._copy(s, f), FileExistsError(final))  # type: ignore[misc]

    def read_register(self, rel: str) -> Register | None:
        return self._call("read_register", rel, lambda: self.inner.read_register(rel))

    def swap(self, rel: str, data: bytes, expected: str | None) -> str:
        return self._call("swap", rel, lambda: self.inner.swap(rel, data, expected), StaleVersionError(rel))

    def delete(self, rel: str) -> bool:
        return self._call("delete", rel, lambda: self.inner.delete(rel))

    def delete_many(self, rels: Iterable[str]) -> None:
        names = [*rels]
        if names:
            self._call("delete_many", names[0], lambda: self.inner.delete_many(names))

    def delete_tree(self, rel: str) -> None:
        self._call("delete_tree", rel, lambda: self.inner.delete_tree(rel))

    def delete_empty(self, rel: str) -> None:
        self._call("delete_empty", rel, lambda: self.inner.delete_empty(rel))

    def clear_scratch(self, rel: str, before_ms: int) -> int:
        return self._call("clear_scratch", rel, lambda: self.inner.clear_scratch(rel, before_ms))

    def _copy(self, staged: str, final: str) -> None:
        if self.inner.exists(final):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.where(final))
        self.inner.replace(final, self.inner.read(staged))

    def _call(self, kind: str, rel: str, action: Callable[[], R], taken: Exception | None = None) -> R:
        number = self._begin(kind, rel)
        self._fail(kind, rel, number)
        result = action()
        self._end(kind, rel, number, taken)
        return result

    def _begin(self, kind: str, rel: str) -> int:
        number = self.faults.count(kind, self.where(rel))
        if self.faults.slow is not None:
            self.faults.slow(kind)
        return number

    def _fail(self, kind: str, rel: str, number: int) -> None:
        if number and number == self.faults.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if number and number == self.faults.fail:
            raise InjectedError(errno.EIO, f"call {number}, {kind}, was made to fail", self.where(rel))

    def _end(self, kind: str, rel: str, number: int, taken: Exception | None) -> None:
        if number and number == self.faults.lose:
            raise InjectedError(errno.EIO, f"the answer to call {number}, {kind}, was lost", self.where(rel))
        if number and number == self.faults.repeat and taken is not None:
            raise taken

    def _born(self, rel: str) -> None:
        if self.faults.late and not self.inner.exists(rel):
            self.faults.born(self.where(rel))

    def _unseen(self) -> set[str]:
        return self.faults.unseen() if self.faults.late else set()

    def _full(self, folder: str, name: str) -> str:
        return self.where(f"{folder}/{name}" if folder else name)
