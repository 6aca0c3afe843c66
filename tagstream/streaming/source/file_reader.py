"""The lines of a plan's splits, read in the tasks: blocks of a file become Arrow columns, without a loop over lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.file_lister import CHANGED_KEY, Changed
from tagstream.streaming.source.file_plans import Split, checksum, plan_number, splits_of
from tagstream.streaming.source.source_file import DAMAGED, content
from tagstream.table.storage.storage import Storage

RAW_SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("src", pa.string()), ("pos_hi", pa.int64()), ("pos_lo", pa.int64())]
)
_BLOCK = 8 << 20


@dataclass(frozen=True)
class FilesSpec:
    """Where a task finds the files of a plan, and what it does with a file that was changed.

    ``redone``: files that were overwritten after they were planned, and for which a later plan exists.
    """

    storage: Storage
    changed: Changed
    redone: frozenset[str] = frozenset()


def plan_rows(src: pa.Array) -> np.ndarray:
    """Mask of the rows that are lines of plans, by their paths. The others are lines of data."""
    codes = pc.dictionary_encode(src)
    of_plan = np.array([plan_number(path) is not None for path in codes.dictionary.to_pylist()], np.bool_)
    mask: np.ndarray = of_plan[codes.indices.to_numpy()]
    return mask


def planned_lines(spec: FilesSpec, tasks: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """The records (``RAW_SCHEMA``) of a plan's task lines."""
    for line in tasks:
        for split in splits_of(json.loads(line)):
            yield from split_lines(spec, split)


def split_lines(spec: FilesSpec, split: Split) -> Iterator[pa.RecordBatch]:
    """The lines of one split. SourceError when the file was changed after it was planned."""
    if not split.size:
        return
    where = spec.storage.where(split.path)
    try:
        size = spec.storage.size(split.path)
        if size < split.end or (split.codec is not None and size != split.end):
            what = f"source file {where} has {size:,} bytes now, but had {split.end:,} when it was listed"
            _not_as_planned(spec, split, what)
            return
        if split.check is not None and checksum(spec.storage, split) != split.check:
            _not_as_planned(spec, split, f"source file {where} was overwritten after it was listed")
            return
        blocks = (
            _bytes_of(spec.storage, split)
            if split.codec is None
            else content(spec.storage, split.path, split.codec, split.end)
        )
        src = PurePosixPath(where).as_uri() if where.startswith("/") else where
        yield from _lines(blocks, split.start, src, split.mtime_ms * 1000)
    except FileNotFoundError:
        what = f"source file {where} is gone: it was listed, and its lines are not in the table yet"
        if spec.changed != "ignore" and split.path not in spec.redone:
            raise SourceError(
                f"{what}; restore it, or continue without its lines with {CHANGED_KEY}=ignore; on a cluster each host must "
                "be able to read it"
            ) from None
        _report(what)
    except DAMAGED as e:
        if split.codec is None:
            raise SourceError(f"source file {where} can't be read: {e}") from e
        _not_as_planned(spec, split, f"source file {where} is not a complete {split.codec} stream ({e})")


def _not_as_planned(spec: FilesSpec, split: Split, what: str) -> None:
    if spec.changed == "fail" and split.path not in spec.redone:
        raise SourceError(
            f"{what}; the batch was not committed. Start again when the file is complete, then it is read from its "
            f"beginning; or continue with the lines so far with {CHANGED_KEY}=ignore"
        )
    _report(what)  # the lister plans the changed file again


def _report(what: str) -> None:
    print(f"tagstream: warning: {what}", file=sys.stderr)


def _bytes_of(storage: Storage, split: Split) -> Iterator[bytes]:
    at = split.start
    while at < split.end:
        block = storage.read_range(split.path, at, min(_BLOCK, split.end - at))
        if not block:
            raise OSError(f"it ends at byte {at:,}, but had {split.end:,} bytes before")
        yield block
        at += len(block)


def _lines(blocks: Iterable[bytes], start: int, src: str, mtime_us: int) -> Iterator[pa.RecordBatch]:
    """Lines of successive blocks. A line may extend over several blocks."""
    pieces: list[bytes] = []
    at = start
    size = 0
    for block in blocks:
        cut = block.rfind(b"\n") + 1
        if not cut or size + len(block) < _BLOCK:
            pieces.append(block)
            size += len(block)
            continue
        whole = b"".join([*pieces, block[:cut]])
        yield _batch(whole, at, src, mtime_us)
        at += len(whole)
        pieces, size = [block[cut:]], len(block) - cut
    rest = b"".join(pieces)
    if rest:
        yield _batch(rest, at, src, mtime_us)


def _batch(lines: bytes, start: int, src: str, mtime_us: int) -> pa.RecordBatch:
    text = lines[:-1] if lines.endswith(b"\n") else lines
    values = pc.split_pattern(pa.array([text], pa.binary()), "\n").flatten()
    length = pc.binary_length(values).to_numpy().astype(np.int64) + 1
    n = len(values)
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(n, pa.binary()),
            values,
            pa.repeat(pa.scalar(src, pa.string()), n),
            pa.array(np.full(n, mtime_us, np.int64)),
            pa.array(start + np.cumsum(length) - length),
        ],
        schema=RAW_SCHEMA,
    )
