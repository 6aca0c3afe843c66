"""Keys on their way from the scan to the load: one file a scan task, cut by key group, beside the index.

They need not survive the machine, so no disk is waited for: a task whose files a power cut took or shortened is done
again.

A file is a run of pieces, each a whole Arrow stream of rows of one key group; the task's JSON says where which piece
lies and what its CRC-32 is, so a load reads only its own group's bytes and knows them for the ones written. The JSON is
made last and once: a task that has one is done.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.bootstrap.errors import BootstrapError
from tagstream.state.durable.files import publish, temp_path, write_new
from tagstream.state.layout import OrderingKind

CHUNK_ROWS = 500_000


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
    ordering = pa.binary() if kind == "bytes" else pa.int64()
    return pa.schema([("skey", pa.binary()), ("slice", pa.int32()), ("ordering", ordering), ("flags", pa.uint8())])


def done_path(folder: str, task: int) -> str:
    """The file that says a task is done."""
    return os.path.join(folder, f"{task}.json")


def read_done(folder: str, task: int) -> ScanDone | None:
    """A task's account of itself; None when it is not done."""
    try:
        with open(done_path(folder, task), encoding="utf-8") as f:
            doc = json.load(f)
        pieces = tuple(Piece(*p) for p in doc["pieces"])
        return ScanDone(doc["task"], doc["file"], pieces, tuple(SliceDone(**s) for s in doc["slices"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as e:
        raise _damaged(done_path(folder, task), repr(e)) from e


def whole_done(folder: str, task: int) -> ScanDone | None:
    """The account of a task whose files are all there; None, with nothing left of it, when the task must be done again."""
    path = done_path(folder, task)
    try:
        done = read_done(folder, task)
    except BootstrapError:
        done = None
    if done is not None and (not done.pieces or _size(os.path.join(folder, done.file)) == done.size):
        return done
    with suppress(FileNotFoundError):
        os.unlink(path)
    return None


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return -1


@dataclass
class SpillWriter:
    """Collects rows with their key groups and writes them in chunks; memory is that of one chunk."""

    folder: str
    task: int
    kind: OrderingKind
    batch_id: int
    _parts: list[tuple[pa.RecordBatch, npt.NDArray[np.int32]]] = field(default_factory=list)
    _waiting: int = 0
    _pieces: list[Piece] = field(default_factory=list)
    _file: BinaryIO | None = None
    _temp: str = ""

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
        name = ""
        if self._file is not None:
            self._file.close()
            name = f"{self.task}-{os.path.basename(self._temp).lstrip('.')}.arrows"
            publish(self._temp, os.path.join(self.folder, name), fsync=False)
        doc = {
            "task": self.task,
            "file": name,
            "pieces": [list(asdict(p).values()) for p in self._pieces],
            "slices": [asdict(s) for s in slices],
        }
        data = json.dumps(doc, separators=(",", ":")).encode()
        write_new(done_path(self.folder, self.task), data, self.batch_id, fsync=False)
        done = read_done(self.folder, self.task)
        assert done is not None
        return done

    def abandon(self) -> None:
        """Remove what was written of a task that failed."""
        if self._file is not None:
            self._file.close()
            os.unlink(self._temp)

    def _flush(self) -> None:
        if not self._parts:
            return
        if self._file is None:
            os.makedirs(self.folder, exist_ok=True)
            self._temp = temp_path(self.folder, self.batch_id)
            self._file = open(self._temp, "xb")  # noqa: SIM115 (closed by close or abandon)
        rows = pa.Table.from_batches([part for part, _ in self._parts]).combine_chunks()
        groups = np.concatenate([g for _, g in self._parts])
        order = np.argsort(groups, kind="stable")
        rows, groups = rows.take(pa.array(order)).combine_chunks(), groups[order]
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        ends = np.append(starts[1:], len(groups))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):  # one step a key group
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as stream:
                stream.write_table(rows.slice(start, end - start))
            data = memoryview(sink.getvalue())
            piece = Piece(int(groups[start]), self._file.tell(), len(data), zlib.crc32(data), end - start)
            self._file.write(data)
            self._pieces.append(piece)
        self._parts, self._waiting = [], 0


def read_pieces(folder: str, done: Sequence[ScanDone], group: int) -> Iterator[pa.Table]:
    """All rows of one key group, piece by piece; BootstrapError when a file is damaged."""
    for task in done:
        mine = [p for p in task.pieces if p.group == group]
        if not mine:
            continue
        path = os.path.join(folder, task.file)
        try:
            with open(path, "rb") as f:
                for piece in mine:
                    f.seek(piece.offset)
                    data = f.read(piece.size)
                    if zlib.crc32(data) != piece.crc:
                        raise _damaged(path, f"the piece at byte {piece.offset} has another checksum")
                    yield pa.ipc.open_stream(pa.py_buffer(data)).read_all()
        except FileNotFoundError as e:
            raise _damaged(path, "it is missing") from e


def _damaged(path: str, why: str) -> BootstrapError:
    return BootstrapError(
        f"{path}, keys scanned by this bootstrap, cannot be used ({why}); remove the folder {os.path.dirname(path)} and "
        "run the bootstrap again"
    )
