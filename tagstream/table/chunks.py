"""Arrow tables whose text columns are larger than one Arrow array: 2 GiB, the reach of 32-bit offsets.

Arrow's own ``take`` and ``combine_chunks`` make one array of all chunks and fail on such a table. The functions of this
module keep every chunk below :data:`CHUNK_BYTES`. A smaller table, the usual case, has one chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

CHUNK_BYTES = 1 << 30

Rows = npt.NDArray[np.int64]


def combined(tables: Iterable[pa.Table]) -> pa.Table:
    """Concatenate at least one table, in as few chunks as their size allows."""
    chunks: list[pa.Table] = []
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        if held and size + table.nbytes > CHUNK_BYTES:
            chunks.append(_one_piece(held))
            held, size = [], 0
        held.append(table)
        size += table.nbytes
    return pa.concat_tables([*chunks, _one_piece(held)])


def flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one Arrow array. Its values must fit into one array (2 GiB of text)."""
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def content(values: pa.Array) -> tuple[Rows, Rows, npt.NDArray[np.uint8]]:
    """(length, begin, all bytes concatenated) of a binary or text array. Nulls are empty."""
    filled = pc.fill_null(values.cast(pa.binary()), b"")
    offsets = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset : filled.offset + len(filled) + 1].astype(
        np.int64
    )
    content = filled.buffers()[2]
    data = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    begin = offsets[:-1] - first
    return np.diff(offsets), begin, data[first:last]


def take(rows: pa.Table, order: Rows | pa.Array) -> pa.Table:
    """The rows at these positions, each position at most once. A null position gives a row of nulls."""
    if isinstance(order, pa.Array):
        known = order.is_valid().to_numpy(zero_copy_only=False)
        numbers: Rows = order.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    else:
        known, numbers = np.ones(len(order), np.bool_), order
    if rows.nbytes <= CHUNK_BYTES:
        return rows.combine_chunks().take(pa.array(numbers, mask=~known))
    batches = rows.to_batches()
    ends = np.cumsum([batch.num_rows for batch in batches])
    step = max(1, rows.num_rows * CHUNK_BYTES // (2 * rows.nbytes))
    parts = [
        part
        for start in range(0, len(numbers), step)
        for part in _gather(batches, ends, numbers[start : start + step], known[start : start + step])
    ]
    return pa.concat_tables([*parts, rows.schema.empty_table()])


def gather(rows: pa.Table, numbers: Rows) -> pa.Table:
    """As :func:`take`, without concatenating the rows first: for rows in a memory-mapped file, and for many calls."""
    batches = rows.to_batches()
    if not batches or not len(numbers):
        return rows.schema.empty_table()
    ends = np.cumsum([batch.num_rows for batch in batches])
    step = max(1, rows.num_rows * CHUNK_BYTES // (2 * max(rows.nbytes, 1)))
    parts = [
        part
        for start in range(0, len(numbers), step)
        for part in _gather(
            batches, ends, numbers[start : start + step], np.ones(min(step, len(numbers) - start), np.bool_)
        )
    ]
    return pa.concat_tables(parts)


def _gather(
    batches: list[pa.RecordBatch], ends: Any, numbers: Rows, known: npt.NDArray[np.bool_]
) -> Iterator[pa.Table]:
    """The rows at some positions, in chunks below :data:`CHUNK_BYTES`: the positions are halved until each chunk fits."""
    wanted = np.flatnonzero(known)
    of_batch = np.searchsorted(ends, numbers[wanted], side="right")
    by_batch = np.argsort(of_batch, kind="stable")
    wanted, of_batch = wanted[by_batch], of_batch[by_batch]
    pieces = [batches[0].slice(0, 0)]
    size = 0
    for which in np.unique(of_batch).tolist():
        first = ends[which] - batches[which].num_rows
        piece = batches[which].take(pa.array(numbers[wanted[of_batch == which]] - first))
        pieces.append(piece)
        size += piece.nbytes
        if size > CHUNK_BYTES and len(numbers) > 1:
            del pieces
            half = len(numbers) // 2
            yield from _gather(batches, ends, numbers[:half], known[:half])
            yield from _gather(batches, ends, numbers[half:], known[half:])
            return
    place = np.zeros(len(numbers), np.int64)
    place[wanted] = np.arange(len(wanted))
    yield pa.Table.from_batches(pieces).combine_chunks().take(pa.array(place, mask=~known))


def _one_piece(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()
