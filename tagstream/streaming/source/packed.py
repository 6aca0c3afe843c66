"""Records as bytes: Arrow tables that are packed into single values, so that a shuffle moves few rows instead of every
record.

Between two Python steps, Spark would convert each record to a row of its format and back, and the stateful operator
also uses pandas. A packed table passes through all of this as one value, and is read again without a copy. On one host
only its place passes (``task_files``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.task_files import TaskFile, is_place, read_place
from tagstream.table import chunks
from tagstream.table.chunks import flat

# Rows of an Arrow batch between Spark and Python, and the bytes of a packed value. Their product, 512 MiB, is below the
# 2 GiB limit for a column of an Arrow batch. A value that is larger, because one record is, gets empty rows
# (`empty_rows`), so that the number of rows still limits the bytes of a batch.
ROWS_PER_BATCH = 1024
PACKED_BYTES = 512 << 10

Codes = npt.NDArray[np.int64]


def pack(rows: pa.Table, file: TaskFile | None = None) -> Iterator[bytes]:
    """The rows as Arrow streams of about ``PACKED_BYTES`` each; nothing for no rows. With a ``file`` they are written to
    it, and the only value is their place.
    """
    count = rows.num_rows
    if not count:
        return
    if file is not None:
        yield file.keep(rows)
        return
    step = max(1, count // (rows.nbytes // PACKED_BYTES + 1))
    for start in range(0, count, step):
        yield from _packed(rows.slice(start, step))


def _packed(rows: pa.Table) -> Iterator[bytes]:
    """One value, or several where many large rows follow each other."""
    if rows.num_rows > 1 and rows.nbytes > 2 * PACKED_BYTES:
        half = rows.num_rows // 2
        yield from _packed(rows.slice(0, half))
        yield from _packed(rows.slice(half))
        return
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    yield sink.getvalue().to_pybytes()


def empty_rows(value: bytes) -> int:
    """How many empty rows a packed value needs: one for each ``PACKED_BYTES`` above twice that size."""
    return max(0, len(value) // PACKED_BYTES - 1)


def unpack(packed: Iterable[bytes | pa.Buffer | None]) -> pa.Table:
    """All rows, in one chunk unless they are larger than a chunk may be (``table.chunks``). None values are skipped.

    ValueError when there are no values, since the columns are unknown then. TaskFileError when rows that stayed in a
    task's file are gone.
    """
    tables = [
        read_place(value) if is_place(value) else pa.ipc.open_stream(value).read_all()
        for value in packed
        if value is not None
    ]
    if not tables:
        raise ValueError("no packed value to unpack: check for that before the call")
    return chunks.combined(tables)


def split(rows: pa.Table, code: Codes) -> Iterator[tuple[int, pa.Table]]:
    """(code, its rows in their order) for every code that occurs."""
    if not len(code):
        return
    order = np.argsort(code, kind="stable")
    by_code = code[order]
    starts = np.flatnonzero(np.concatenate(([True], by_code[1:] != by_code[:-1])))
    ends = np.append(starts[1:], len(code))
    if len(starts) > 1:
        rows = chunks.take(rows, order)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield int(by_code[start]), rows.slice(start, end - start)


def file_group_codes(parts: pa.Array, files: pa.Array) -> tuple[Codes, list[tuple[str, str]]]:
    """Dense code 0..n-1 of each row's (partition path, file id), and the pair of each code."""
    p, f = _encoded(parts), _encoded(files)
    both = p.indices.to_numpy().astype(np.int64) * max(1, len(f.dictionary)) + f.indices.to_numpy()
    distinct, code = np.unique(both, return_inverse=True)
    of_part, of_file = np.divmod(distinct, max(1, len(f.dictionary)))
    names = zip(
        p.dictionary.take(pa.array(of_part)).to_pylist(), f.dictionary.take(pa.array(of_file)).to_pylist(), strict=True
    )
    return code.astype(np.int64), list(names)


def _encoded(values: Any) -> pa.DictionaryArray:
    encoded = pc.dictionary_encode(values)
    return flat(encoded)
