"""Parquet files of the source: row groups for the tasks, and their rows as Arrow columns.

A file is written once: the footer at its end has the places of the row groups (Parquet's format, "File Format"). A
split is a range of bytes; it has the row groups that begin in it. The position of a record is its row number in the
file.

A file without the magic bytes at its end is not whole: its writer has not finished it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.decode.file_rows import ARROW_SCHEMA
from tagstream.streaming.source.decode.typed_rows import ROW
from tagstream.streaming.source.source_file import DamagedFileError, FilePart, SourceFile
from tagstream.table.storage.storage import Storage

MAGIC = b"PAR1"
YOUNG_MS = 60_000  # a file that is younger may still be written
_LEAST = 12  # bytes of a file without rows: two times the magic bytes, and the length of the footer
_ROWS = 1 << 16
_FAULTS = (pa.ArrowException, OSError, ValueError)


@dataclass(frozen=True)
class ParquetFiles:
    """The form of Parquet files (``source_file.FileForm``)."""

    name = "Parquet"
    magic = MAGIC
    grows = False
    compressed = False

    def whole_part(self, storage: Storage, file: SourceFile, start: int, now_ms: int) -> tuple[int, int]:
        """The whole file, when it has its footer. An old file without one counts as whole: the task reports it."""
        young = now_ms - file.mtime_ms < YOUNG_MS
        if young and (file.size < _LEAST or storage.read_range(file.path, file.size - len(MAGIC), len(MAGIC)) != MAGIC):
            return start, file.size
        return file.size, 0

    def cuts(self, storage: Storage, path: str, start: int, end: int, step: int) -> list[int]:
        """The beginnings of row groups, at least ``step`` bytes apart. None in a file that cannot be read."""
        found: list[int] = []
        try:
            begins = _begins(_open(storage, path).metadata)
        except DamagedFileError:  # the task reports it
            return found
        for at in begins[1:]:
            if at - (found[-1] if found else start) >= step and at < end:
                found.append(at)
        return found

    def records(
        self, storage: Storage, part: FilePart, columns: Mapping[str, pa.DataType]
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The rows of the row groups that begin in the part, see ``FileForm.records``."""
        path = part.path
        file = _open(storage, path)
        schema = _meant(file)
        twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
        if twice:
            raise SourceError(
                f"source file {storage.where(path)} has more than one column {twice[0]}; write it with other names"
            )
        names = [name for name in schema.names if name in columns]
        metadata = {ARROW_SCHEMA: schema.serialize().to_pybytes()}
        first = 0
        for number, at in enumerate(_begins(file.metadata)):
            count = file.metadata.row_group(number).num_rows
            if part.start <= at < part.end:
                yield from _group(file, storage, path, number, first, count, names, metadata)
            first += count


def _group(
    file: pq.ParquetFile,
    storage: Storage,
    path: str,
    number: int,
    first: int,
    count: int,
    names: list[str],
    metadata: dict[bytes, bytes],
) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """The rows of one row group. ``first``: the number of its first row."""
    done = 0
    batches = file.iter_batches(_ROWS, row_groups=[number], columns=names, use_threads=False)
    while True:
        try:
            batch = next(batches, None)
        except _FAULTS as e:
            _check_readable(storage, path, file.metadata.row_group(number))
            raise DamagedFileError(f"row group {number}, after row {first + done:,}: {e}") from e
        if batch is None:
            break
        n = batch.num_rows
        row = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)) if names else _empty_rows(n)
        schema = pa.schema([pa.field(ROW, row.type)], metadata=metadata)
        places = pa.array(np.arange(first + done, first + done + n, dtype=np.int64))
        yield pa.RecordBatch.from_arrays([row], schema=schema), places
        done += n
    if done != count:
        raise DamagedFileError(f"row group {number} has {done:,} rows, but the footer says {count:,}")


def _empty_rows(count: int) -> pa.StructArray:
    """Rows of a file that has none of the columns."""
    return pa.StructArray.from_arrays([pa.nulls(count)], names=[""])


def _check_readable(storage: Storage, path: str, group: pq.RowGroupMetaData) -> None:
    """OSError when the storage does not answer: then the file may be good."""
    at = _begin(group)
    storage.read_range(path, at, max(1, group.total_byte_size))


def schema_of(storage: Storage, path: str) -> pa.Schema:
    """The columns of a file. DamagedFileError when it has no readable footer."""
    return _meant(_open(storage, path))


def _meant(file: pq.ParquetFile) -> pa.Schema:
    """The columns with their meaning: timestamps of the old type INT96 are instants, as in Spark and Hive."""
    leaves = (file.schema.column(i) for i in range(len(file.schema.names)))
    old = {leaf.path.split(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}
    return pa.schema([f.with_type(_instants(f.type)) if f.name in old else f for f in file.schema_arrow])


def _instants(kind: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC")
    if t.is_struct(kind):
        return pa.struct([f.with_type(_instants(f.type)) for f in kind])
    if t.is_list(kind):
        return pa.list_(_instants(kind.value_type))
    return pa.map_(kind.key_type, _instants(kind.item_type)) if t.is_map(kind) else kind


def _open(storage: Storage, path: str) -> pq.ParquetFile:
    source = storage.open_input(path)  # an error of the storage is not one of the file
    try:
        return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", arrow_extensions_enabled=True)
    except _FAULTS as e:
        storage.read_range(path, 0, len(MAGIC))
        raise DamagedFileError(f"it has no readable footer ({e})") from e


def _begins(metadata: pq.FileMetaData) -> list[int]:
    return [_begin(metadata.row_group(i)) for i in range(metadata.num_row_groups)]


def _begin(group: pq.RowGroupMetaData) -> int:
    """The first byte of a row group."""
    column = group.column(0)
    dictionary = column.dictionary_page_offset
    return int(column.data_page_offset if dictionary is None else min(dictionary, column.data_page_offset))
