"""The records of a plan's splits, read in the tasks: blocks of a file become Arrow columns, without a loop over records."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.file_lister import CHANGED_KEY, Changed
from tagstream.streaming.source.file_plans import Split, checksum, plan_number, splits_of
from tagstream.streaming.source.source_file import DAMAGED, DamagedFileError, FileForm, FilePart, content
from tagstream.table.storage.storage import Storage

RAW_SCHEMA = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("src", pa.string()), ("pos_hi", pa.int64()), ("pos_lo", pa.int64())]
)
_BLOCK = 8 << 20
NO_COLUMNS: Mapping[str, pa.DataType] = {}


class PlanReader(Protocol):
    """Reads the records of plans in a task."""

    def planned(self, tasks: Iterable[bytes], columns: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        """The records of a plan's task lines: the columns of ``RAW_SCHEMA``, and those that the source adds.

        ``columns``: the fields that are needed, with their types.
        """
        ...


@dataclass(frozen=True)
class FilesSpec:
    """Where a task finds the files of a plan, and what it does with a file that was changed.

    ``redone``: files that were overwritten after they were planned, and for which a later plan exists. ``form``: of the
    files; None for lines of JSON.
    """

    storage: Storage
    changed: Changed
    redone: frozenset[str] = frozenset()
    form: FileForm | None = None

    def planned(
        self, tasks: Iterable[bytes], columns: Mapping[str, pa.DataType] = NO_COLUMNS
    ) -> Iterator[pa.RecordBatch]:
        """See :meth:`PlanReader.planned`."""
        return planned_lines(self, tasks, columns)


def plan_rows(src: pa.Array) -> np.ndarray:
    """Mask of the rows that are lines of plans, by their paths. The others are lines of data."""
    codes = pc.dictionary_encode(src)
    of_plan = np.array([plan_number(path) is not None for path in codes.dictionary.to_pylist()], np.bool_)
    mask: np.ndarray = of_plan[codes.indices.to_numpy()]
    return mask


def planned_lines(
    spec: FilesSpec, tasks: Iterable[bytes], columns: Mapping[str, pa.DataType] = NO_COLUMNS
) -> Iterator[pa.RecordBatch]:
    """The records of a plan's task lines, see :func:`split_lines`."""
    for line in tasks:
        for split in splits_of(json.loads(line)):
            yield from split_lines(spec, split, columns)


def split_lines(
    spec: FilesSpec, split: Split, columns: Mapping[str, pa.DataType] = NO_COLUMNS
) -> Iterator[pa.RecordBatch]:
    """The records of one split: the columns of ``RAW_SCHEMA``, and those that the form of the files adds. SourceError
    when the file was changed after it was planned.

    ``columns``: the fields that are needed, with their types. A form may leave out other fields.
    """
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
        src = PurePosixPath(where).as_uri() if where.startswith("/") else where
        if spec.form is not None:
            yield from _of_form(spec.form, spec.storage, split, src, columns)
            return
        blocks = (
            bytes_of(spec.storage, split.path, split.start, split.end)
            if split.codec is None
            else content(spec.storage, split.path, split.codec, split.end)
        )
        yield from _lines(blocks, split.start, src, split.mtime_ms * 1000)
    except FileNotFoundError:
        what = f"source file {where} is gone: it was listed, and its lines are not in the table yet"
        if spec.changed != "ignore" and split.path not in spec.redone:
            raise SourceError(
                f"{what}; restore it, or continue without its lines with {CHANGED_KEY}=ignore; on a cluster each host must "
                "be able to read it"
            ) from None
        _report(what)
    except DamagedFileError as e:
        _not_as_planned(spec, split, f"source file {where} is damaged: {e}")
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


def _of_form(
    form: FileForm, storage: Storage, split: Split, src: str, columns: Mapping[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    """The records of a split in the form's columns, with the columns of ``RAW_SCHEMA``."""
    for rows, places in form.records(storage, FilePart(split.path, split.start, split.end, split.codec), columns):
        n = rows.num_rows
        given = dict(zip(rows.schema.names, rows.columns, strict=True))
        raw = {
            "key": pa.nulls(n, pa.binary()),
            "value": given.pop("value") if "value" in given else pa.nulls(n, pa.binary()),
            "src": pa.repeat(pa.scalar(src, pa.string()), n),
            "pos_hi": pa.array(np.full(n, split.mtime_ms * 1000, np.int64)),
            "pos_lo": places,
            **given,
        }
        yield pa.RecordBatch.from_pydict(raw, metadata=rows.schema.metadata)


def bytes_of(storage: Storage, path: str, start: int, end: int) -> Iterator[bytes]:
    """The bytes of a part of a file, in blocks. OSError when it is shorter."""
    at = start
    while at < end:
        block = storage.read_range(path, at, min(_BLOCK, end - at))
        if not block:
            raise OSError(f"it ends at byte {at:,}, but had {end:,} bytes before")
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
