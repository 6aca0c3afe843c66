"""The keys of one file slice: which are live in it, and which its logs deleted. Their ordering values are read with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.bootstrap.plan import BootstrapPlan
from tagstream.table.chunks import flat
from tagstream.table.errors import CorruptFileError, FileGoneError
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.read.merge import MergedLog, merge_base, merge_log
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import key_reader as table_key_reader
from tagstream.table.schema.schema import RECORD_KEY


@dataclass(frozen=True)
class SliceKeys:
    """Some keys of a slice, all live or all deleted in its logs.

    ``ordering`` has the ordering column's type, with null where a row has no value; None for a table without the column.
    A deleted key may come several times: the greatest ordering value counts. ``read``: rows read from the base file.
    """

    keys: pa.Array
    ordering: pa.Array | None
    deleted: bool
    read: int = 0


def key_reader(plan: BootstrapPlan, ordering_type: pa.DataType | None) -> SliceReader | None:
    """Reader of the key and ordering columns, the latter in the stream's type. None when there is nothing to read."""
    if plan.instant is None or not plan.slices:
        return None
    return table_key_reader(plan.table, plan.timeline, plan.instant, ordering_type)


def scan_slice(reader: SliceReader, file_slice: FileSlice) -> Iterator[SliceKeys]:
    """The keys of a slice in bounded batches. CorruptFileError names a file that cannot be read.

    A delete without an ordering value gets the greatest one of the key in the slice, from the base file or an earlier log
    record. So a late event is still recognised as late.
    """
    with _missing_named(reader):
        if file_slice.log_files:
            yield from _merged(reader, file_slice)
        else:
            for batch in reader.base_batches(file_slice, reader.columns):
                yield SliceKeys(_keys(batch, file_slice), _ordering(reader, batch), False, batch.num_rows)


def damaged_blocks(reader: SliceReader, file_slice: FileSlice) -> int:
    """Number of damaged blocks in the slice's logs (cut or overwritten). Readers skip them: a killed writer leaves such.

    CorruptFileError names a log that is missing.
    """
    storage = reader.table.storage
    blocks = (block for rel in file_slice.log_paths for block in scan_log_file(storage, rel))
    with _missing_named(reader):
        return sum(block.type is BlockType.CORRUPT for block in blocks)


@contextmanager
def _missing_named(reader: SliceReader) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as e:
        raise FileGoneError(
            f"{e.filename} is part of the table as of {reader.as_of} and is missing; restore it, or start again if a "
            "cleaner has just removed it"
        ) from e


def _merged(reader: SliceReader, file_slice: FileSlice) -> Iterator[SliceKeys]:
    batches = reader.log_batches(file_slice)
    log = merge_log(batches, reader.event_time, reader.hole_rule.both_ways)
    natural = _natural_deletes(log)
    lost = np.zeros(len(log.keys), dtype=np.bool_)
    for batch in reader.base_batches(file_slice, reader.columns):
        keys, ordering = _keys(batch, file_slice), _ordering(reader, batch)
        keep, lost = merge_base(keys, ordering if reader.event_time else None, log, lost)
        yield SliceKeys(*_some(keys, ordering, keep), False, batch.num_rows)
        if ordering is not None and not keep.all():
            yield _tombstones(*_some(keys, ordering, ~keep), natural)
    live = (log.row >= 0) & ~lost
    yield SliceKeys(*_some(log.keys, log.winner_orderings, live), False)
    if log.winner_orderings is not None:
        yield SliceKeys(*_some(log.keys, log.winner_orderings, (log.row < 0) & ~lost), True)
        for earlier in batches:
            if len(natural) and earlier.orderings is not None:
                yield _tombstones(earlier.keys, flat(earlier.orderings), natural)


def _natural_deletes(log: MergedLog) -> pa.Array:
    """Keys whose winning log record is a delete without an ordering value."""
    if log.winner_orderings is None:
        return log.keys.slice(0, 0)
    return log.keys.filter(pa.array((log.row < 0) & log.winner_orderings.is_null().to_numpy(zero_copy_only=False)))


def _tombstones(keys: pa.Array, ordering: pa.Array, wanted: pa.Array) -> SliceKeys:
    """The `wanted` keys with their ordering values, as deleted keys."""
    mask = pc.and_(pc.is_in(keys, value_set=wanted), ordering.is_valid())
    return SliceKeys(keys.filter(mask), ordering.filter(mask), True)


def _some(keys: pa.Array, ordering: pa.Array | None, mask: npt.NDArray[np.bool_]) -> tuple[pa.Array, pa.Array | None]:
    if mask.all():
        return keys, ordering
    chosen = pa.array(mask)
    return keys.filter(chosen), ordering.filter(chosen) if ordering is not None else None


def _keys(batch: pa.Table, file_slice: FileSlice) -> pa.Array:
    keys = flat(batch.column(RECORD_KEY))
    if keys.null_count:
        raise CorruptFileError(
            f"base file {file_slice.base_path} has rows without {RECORD_KEY}; it was not written by Hudi"
        )
    return keys


def _ordering(reader: SliceReader, batch: pa.Table) -> pa.Array | None:
    return reader.ordering(batch) if len(reader.columns) > 1 else None
