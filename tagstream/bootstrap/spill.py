"""Spill files with the keys between scan and load: one file a scan task, cut by key group, next to the index.

They need not survive the machine, so no disk is waited for where that can be requested (`unsynced`): a task whose
files were lost or shortened by a power cut is done again.

A file is a run of pieces, each a whole Arrow stream of rows of one key group. The task's JSON has the offset and
the CRC-32 of each piece, so a load reads only its own group's bytes and knows them for the ones written. The JSON
is made last and once: a task that has one is done.

Several sources are read at once, by threads, for a reader that takes them one after another: on a remote store
each read is a wait.
"""

from __future__ import annotations

import itertools
import json
import os
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from functools import partial
from queue import Queue
from threading import Event
from typing import BinaryIO, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.bootstrap.errors import BootstrapError
from tagstream.state.layout import OrderingKind, has_bytes
from tagstream.table.storage.storage import Storage, create

T = TypeVar("T")
_WAITING = 2  # items of a source that are read and not yet taken


class _End:
    """The last item of a source; ``why`` it ended before its time."""

    def __init__(self, why: BaseException | None) -> None:
        self.why = why


class _Reading(Generic[T]):
    """A source that a thread reads."""

    def __init__(self, source: Callable[[], Iterator[T]], stop: Event) -> None:
        self._source = source
        self._stop = stop
        self._items: Queue[T | _End] = Queue(_WAITING)
        self._ended = False

    def read(self) -> None:
        """What the thread does: it waits where nobody takes the items, and leaves an end whatever happens."""
        why: BaseException | None = None
        try:
            for item in self._source():
                self._items.put(item)
                if self._stop.is_set():
                    break
        except BaseException as e:  # raised again in the thread that takes the items
            why = e
        self._items.put(_End(why))

    def items(self) -> Iterator[T]:
        """The items; raises what the source raised, where it raised it."""
        while not self._ended:
            item = self._items.get()
            if isinstance(item, _End):
                self._ended = True
                if item.why is not None:
                    raise item.why
            else:
                yield item

    def drop(self) -> None:
        """Let the thread come to its end."""
        while not self._ended:
            self._ended = isinstance(self._items.get(), _End)


def ahead(sources: Iterable[Callable[[], Iterator[T]]], at_once: int) -> Generator[Iterator[T], None, None]:
    """The items of each source, one source after another, ``at_once`` of them being read; 1: without threads.

    Take all items of one before going on to the next: what is left is dropped. In memory are a few items of each source that
    is being read. Close this when it is not read to its end.
    """
    if at_once < 2:
        for source in sources:
            yield source()
        return
    stop, reading = Event(), deque[_Reading[T]]()
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for source in sources:
                reading.append(_Reading(source, stop))
                pool.submit(reading[-1].read)
                if len(reading) == at_once:
                    yield reading[0].items()
                    reading.popleft().drop()
            while reading:
                yield reading[0].items()
                reading.popleft().drop()
        finally:
            stop.set()
            for each in reading:
                each.drop()


CHUNK_ROWS = 500_000
_PIECES_AT_ONCE = 8  # of a load on a store
# A fifth to a half of the bytes, for 60-130 ns a row: less than the bytes cost on their way to a store and back.
_PACKED = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))
_DONE = ".json"
_counter = itertools.count()


@dataclass(frozen=True)
class Piece:
    """Rows of one key group in a task's file: `group` is the group's place in the list of labels."""

    group: int
    offset: int
    size: int
    crc: int
    rows: int


@dataclass(frozen=True)
class SliceDone:
    """What became of a slice: rows read from its base file, keys passed on, damaged log blocks; `skipped` says why."""

    number: int
    rows: int
    live: int
    deleted: int
    damaged_blocks: int
    skipped: str | None = None


@dataclass(frozen=True)
class ScanDone:
    """A scan task that is done."""

    task: int
    file: str
    pieces: tuple[Piece, ...]
    slices: tuple[SliceDone, ...]

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return sum(piece.size for piece in self.pieces)


def spill_schema(kind: OrderingKind) -> pa.Schema:
    """Columns of a piece: state key, number of the slice, ordering value, flags of the location record."""
    ordering = pa.binary() if has_bytes(kind) else pa.int64()
    return pa.schema([("skey", pa.binary()), ("slice", pa.int32()), ("ordering", ordering), ("flags", pa.uint8())])


def done_name(task: int) -> str:
    """The file that says a task is done."""
    return f"{task}{_DONE}"


def done_tasks(spills: Storage) -> set[int]:
    """The tasks that are done."""
    names = (name.removesuffix(_DONE) for name in spills.names("") if name.endswith(_DONE))
    return {int(name) for name in names if name.isdigit()}


def read_done(spills: Storage, task: int) -> ScanDone | None:
    """A task's account of itself; None when it is not done."""
    try:
        doc = json.loads(spills.read(done_name(task)))
        pieces = tuple(Piece(*p) for p in doc["pieces"])
        return ScanDone(doc["task"], doc["file"], pieces, tuple(SliceDone(**s) for s in doc["slices"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as e:
        raise _damaged(spills, done_name(task), repr(e)) from e


def whole_done(spills: Storage, task: int) -> ScanDone | None:
    """The account of a task whose files are all there; None, with nothing left of it, when the task must be done again."""
    try:
        done = read_done(spills, task)
    except BootstrapError:
        done = None
    else:
        if done is None or not done.pieces or _size(spills, done.file) == done.size:
            return done
    spills.delete(done_name(task))
    return None


def _size(spills: Storage, name: str) -> int:
    try:
        return spills.size(name)
    except FileNotFoundError:
        return -1


@dataclass
class SpillWriter:
    """Collects rows with their key groups and writes them in chunks; memory is that of one chunk."""

    spills: Storage
    task: int
    kind: OrderingKind
    batch_id: int
    _parts: list[tuple[pa.RecordBatch, npt.NDArray[np.int32]]] = field(default_factory=list)
    _waiting: int = 0
    _pieces: list[Piece] = field(default_factory=list)
    _name: str = ""
    _file: BinaryIO | None = None
    _size: int = 0
    _open: ExitStack = field(default_factory=ExitStack)

    def add(self, rows: pa.RecordBatch, groups: npt.NDArray[np.int32]) -> None:
        """Take rows of `spill_schema`; `groups` are their key groups."""
        if rows.num_rows == 0:
            return
        self._parts.append((rows, groups))
        self._waiting += rows.num_rows
        if self._waiting >= CHUNK_ROWS:
            self._flush()

    def close(self, slices: Sequence[SliceDone]) -> ScanDone:
        """Publish the file and the task's JSON; another attempt's, if it was first, is the one that counts."""
        self._flush()
        self._open.close()
        doc = {
            "task": self.task,
            "file": self._name,
            "pieces": [list(asdict(p).values()) for p in self._pieces],
            "slices": [asdict(s) for s in slices],
        }
        data = json.dumps(doc, separators=(",", ":")).encode()
        create(self.spills, done_name(self.task), data)
        done = read_done(self.spills, self.task)
        assert done is not None
        return done

    def abandon(self, why: BaseException) -> None:
        """Leave nothing of what was written of a task that failed."""
        self._open.__exit__(type(why), why, why.__traceback__)

    def _flush(self) -> None:
        if not self._parts:
            return
        if self._file is None:
            attempt = f"{os.uname().nodename}-{os.getpid()}-{next(_counter)}"  # which no other live attempt has
            self._name = f"{self.task}-{self.batch_id:012d}-{attempt}.arrows"
            self._file = self._open.enter_context(self.spills.open_output(self._name))
        rows = pa.Table.from_batches([part for part, _ in self._parts]).combine_chunks()
        groups = np.concatenate([g for _, g in self._parts])
        order = np.argsort(groups, kind="stable")
        rows, groups = rows.take(pa.array(order)).combine_chunks(), groups[order]
        options = _PACKED if self.spills.is_remote else None
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        ends = np.append(starts[1:], len(groups))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):  # one step a key group
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
                stream.write_table(rows.slice(start, end - start))
            data = memoryview(sink.getvalue())
            piece = Piece(int(groups[start]), self._size, len(data), zlib.crc32(data), end - start)
            self._file.write(data)
            self._size += len(data)
            self._pieces.append(piece)
        self._parts, self._waiting = [], 0


def read_pieces(spills: Storage, done: Sequence[ScanDone], group: int) -> Iterator[pa.Table]:
    """All rows of one key group, piece by piece; BootstrapError when a file is damaged."""
    sources = [partial(_read_piece, spills, task.file, p) for task in done for p in task.pieces if p.group == group]
    with closing(ahead(sources, _PIECES_AT_ONCE if spills.is_remote else 1)) as pieces:
        for piece in pieces:
            yield from piece


def _read_piece(spills: Storage, file: str, piece: Piece) -> Iterator[pa.Table]:
    try:
        data = spills.read_range(file, piece.offset, piece.size)
    except FileNotFoundError as e:
        raise _damaged(spills, file, "it is missing") from e
    if zlib.crc32(data) != piece.crc:
        raise _damaged(spills, file, f"the piece at byte {piece.offset} has another checksum")
    yield pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def _damaged(spills: Storage, name: str, why: str) -> BootstrapError:
    return BootstrapError(
        f"{spills.where(name)}, keys scanned by this bootstrap, cannot be used ({why}); remove the folder {spills.root} and "
        "run the bootstrap again"
    )
