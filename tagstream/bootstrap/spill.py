"""Spill files with the keys between scan and load: one file per scan task, divided by key group, next to the index.

They need not survive a failure of the machine, so they are written without fsync where possible (`unsynced`). A task
whose files a power failure destroyed or shortened is done again.

A file is a sequence of pieces. Each piece is a whole Arrow stream with rows of one key group. The task's JSON file has
the offset and the CRC-32 of each piece. So a load reads only the bytes of its own group, and checks them. The JSON file
is written last and once: a task that has one is done.

Threads read several sources in parallel for a reader that takes one after another, because each read on a remote store
has a latency.
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
    """The last item of a source; ``why``: the error that ended it early, None without one."""

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
        """Run in the thread. Waits while the queue is full, and always puts an end, whatever happens."""
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
        """The items. An error of the source is raised where it happened."""
        while not self._ended:
            item = self._items.get()
            if isinstance(item, _End):
                self._ended = True
                if item.why is not None:
                    raise item.why
            else:
                yield item

    def drop(self) -> None:
        """Let the thread end, and ignore the rest of its items."""
        while not self._ended:
            self._ended = isinstance(self._items.get(), _End)


def read_ahead(sources: Iterable[Callable[[], Iterator[T]]], at_once: int) -> Generator[Iterator[T], None, None]:
    """The items of each source, one source after another, while ``at_once`` of them are read in parallel; 1: no threads.

    Take all items of one source before the next: the rest is dropped. Memory has a few items of each source that is being
    read. Close the generator when it is not read to its end.
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
_PIECES_AT_ONCE = 8  # of a load on a remote store
# A fifth to a half of the bytes, for 60-130 ns per row: less than it costs to send the bytes to a store and back.
_PACKED = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))
_DONE = ".json"
_counter = itertools.count()


@dataclass(frozen=True)
class Piece:
    """Rows of one key group in a task's file. `group`: index in the list of labels. `offset` and `size` in bytes."""

    group: int
    offset: int
    size: int
    crc: int
    rows: int


@dataclass(frozen=True)
class SliceDone:
    """The result of a slice: rows read from its base file, keys written, damaged log blocks; `skipped`: the reason."""

    number: int
    rows: int
    live: int
    deleted: int
    damaged_blocks: int
    skipped: str | None = None


@dataclass(frozen=True)
class ScanDone:
    """The result of a scan task."""

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
    """Name of the file that marks a task as done."""
    return f"{task}{_DONE}"


def done_tasks(spills: Storage) -> set[int]:
    """The numbers of the tasks that are done."""
    names = (name.removesuffix(_DONE) for name in spills.names("") if name.endswith(_DONE))
    return {int(name) for name in names if name.isdigit()}


def read_done(spills: Storage, task: int) -> ScanDone | None:
    """A task's result; None when it is not done, BootstrapError when its file is damaged."""
    try:
        doc = json.loads(spills.read(done_name(task)))
        pieces = tuple(Piece(*p) for p in doc["pieces"])
        return ScanDone(doc["task"], doc["file"], pieces, tuple(SliceDone(**s) for s in doc["slices"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as e:
        raise _damaged(spills, done_name(task), repr(e)) from e


def whole_done(spills: Storage, task: int) -> ScanDone | None:
    """A task's result when its files are complete. Else its JSON is removed, and None says that it must be done again."""
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
    """Collects rows with their key groups and writes them in chunks. Memory is that of one chunk."""

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
        """Take rows of `spill_schema`; `groups`: the key group of each."""
        if rows.num_rows == 0:
            return
        self._parts.append((rows, groups))
        self._waiting += rows.num_rows
        if self._waiting >= CHUNK_ROWS:
            self._flush()

    def close(self, slices: Sequence[SliceDone]) -> ScanDone:
        """Publish the file and the task's JSON. When another attempt was first, its result counts and is returned."""
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
        """Remove the file of a task that failed; `why`: its error."""
        self._open.__exit__(type(why), why, why.__traceback__)

    def _flush(self) -> None:
        if not self._parts:
            return
        if self._file is None:
            attempt = f"{os.uname().nodename}-{os.getpid()}-{next(_counter)}"  # unique among live attempts
            self._name = f"{self.task}-{self.batch_id:012d}-{attempt}.arrows"
            self._file = self._open.enter_context(self.spills.open_output(self._name))
        rows = pa.Table.from_batches([part for part, _ in self._parts]).combine_chunks()
        groups = np.concatenate([g for _, g in self._parts])
        order = np.argsort(groups, kind="stable")
        rows, groups = rows.take(pa.array(order)).combine_chunks(), groups[order]
        options = _PACKED if self.spills.is_remote else None
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        ends = np.append(starts[1:], len(groups))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):  # one step per key group
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
    with closing(read_ahead(sources, _PIECES_AT_ONCE if spills.is_remote else 1)) as pieces:
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
