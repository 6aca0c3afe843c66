"""Parquet base files: streaming writer with the footer Hudi's indexes ask for, and readers of footer and keys.

Footer keys: ``org.apache.hudi.bloomfilter`` (base64), ``hoodie_bloom_filter_type_code`` (absent for SIMPLE),
``hoodie_min_record_key`` and ``hoodie_max_record_key`` (absent in a file without rows), ``parquet.avro.schema`` (with
the meta columns), ``writer.model.name`` = ``avro``; of a file with vectors ``hoodie.vector.columns``; of one with columns of
floats also, Tagstream's own, ``tagstream.float.statistics``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tagstream.table.errors import CorruptFileError, InvalidKeyError
from tagstream.table.file_group.bloom import SIMPLE, BloomBuilder, BloomFilter, BloomParams
from tagstream.table.file_group.parquet_options import base_file_options, compression_of, float_columns, float_entries
from tagstream.table.schema.schema import RECORD_KEY, vector_columns
from tagstream.table.storage.storage import Storage

BLOOM_KEY = b"org.apache.hudi.bloomfilter"
BLOOM_TYPE_KEY = b"hoodie_bloom_filter_type_code"
MIN_KEY = b"hoodie_min_record_key"
MAX_KEY = b"hoodie_max_record_key"
AVRO_SCHEMA_KEY = b"parquet.avro.schema"
VECTORS_KEY = b"hoodie.vector.columns"
DEFAULT_ROW_GROUP_BYTES = 120 * 1024 * 1024  # hoodie.parquet.block.size


@dataclass(frozen=True)
class BaseFileResult:
    """What was written: rows, bytes of the file, the key range (None without rows), the text of the bloom filter, and
    Parquet's own footer."""

    rows: int
    bytes: int
    min_key: str | None
    max_key: str | None
    bloom: str
    footer: pq.FileMetaData


@dataclass(frozen=True)
class BaseFileFooter:
    """What an index asks a base file's footer; ``bloom`` and the keys are None where the writer left them out."""

    rows: int
    min_key: str | None
    max_key: str | None
    bloom: BloomFilter | None
    avro_schema: str | None


class BaseFileWriter:
    """Writes one base file batch by batch into a stream; holds at most one row group in memory.

    The stream stays open; ``where`` names it in messages. What stands in it is no whole file before :meth:`close`.
    """

    def __init__(
        self,
        out: BinaryIO,
        where: str,
        schema: pa.Schema,
        avro_json: str,
        codec: str = "gzip",
        bloom: BloomParams | None = None,
        row_group_bytes: int = DEFAULT_ROW_GROUP_BYTES,
    ) -> None:
        """``schema`` and ``avro_json`` hold the meta columns; ``row_group_bytes`` counts uncompressed Arrow bytes."""
        compression_of(codec)  # what cannot be written is refused before anything is
        self._out = out
        self._codec = codec
        self._where = where
        self._schema = schema
        self._avro_json = avro_json
        self._params = bloom or BloomParams()
        self._bloom = BloomBuilder(self._params)
        self._row_group_bytes = row_group_bytes
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._rows = 0
        self._min: str | None = None
        self._max: str | None = None
        self._footers: list[pq.FileMetaData] = []
        self._nulls = dict.fromkeys(float_columns(schema), 0)
        self._opened: pq.ParquetWriter | None = None

    def append(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Add rows in the writer's schema. Raises InvalidKeyError for a null or empty record key."""
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        if rows.num_rows == 0:
            return
        for keys in rows.column(RECORD_KEY).chunks:
            self._index(keys)
        self._rows += rows.num_rows
        # a batch is cut where a row group is full, so that a group's size does not depend on the caller's batches
        row_bytes = max(rows.nbytes, 1) / rows.num_rows
        start = 0
        while start < rows.num_rows:
            room = max(1, int((self._row_group_bytes - self._pending_bytes) / row_bytes))
            part = rows.slice(start, room)
            start += part.num_rows
            self._pending.append(part)
            self._pending_bytes += int(part.num_rows * row_bytes) + 1
            if part.num_rows == room:
                self._flush()

    @property
    def written_bytes(self) -> int:
        """Bytes of the row groups finished so far."""
        return self._out.tell()

    def close(self) -> BaseFileResult:
        """Write the footer: the file is whole."""
        self._flush(whole=True)
        footer = self._footer()
        writer = self._writer(self._schema.empty_table(), whole=True)
        writer.add_key_value_metadata(footer)
        writer.close()
        bloom = footer[BLOOM_KEY].decode("ascii")
        return BaseFileResult(self._rows, self._out.tell(), self._min, self._max, bloom, self._footers[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is None:
            return
        if error is None:
            self._opened.close()
            return
        # The first error is the one to be told. After a close that failed Arrow's second says only that there is no footer.
        with suppress(Exception):
            self._opened.close()
        self._opened.is_open = False

    def _writer(self, first: pa.Table, *, whole: bool) -> pq.ParquetWriter:
        """Parquet's writer, which is told by the file's first rows how to write its columns; ``whole``: these are all."""
        if self._opened is None:
            options = base_file_options(self._codec, first, whole=whole)
            self._opened = pq.ParquetWriter(self._out, self._schema, metadata_collector=self._footers, **options)
        return self._opened

    def _index(self, keys: pa.Array) -> None:
        if len(keys) == 0:
            return
        if keys.null_count or pc.min(pc.binary_length(keys)).as_py() == 0:
            raise InvalidKeyError(
                f"a row for {self._where} has a null or empty record key; such rows must not get here"
            )
        self._bloom.add(keys)
        low, high = (value.as_py() for value in pc.min_max(keys).values())
        self._min = low if self._min is None else min(self._min, low)
        self._max = high if self._max is None else max(self._max, high)

    def _flush(self, *, whole: bool = False) -> None:
        if self._pending:
            rows = pa.concat_tables(self._pending)
            for name in self._nulls:
                self._nulls[name] += rows.column(name).null_count
            self._writer(rows, whole=whole).write_table(rows, row_group_size=1 << 40)
        self._pending, self._pending_bytes = [], 0

    def _footer(self) -> dict[bytes, bytes]:
        footer = {BLOOM_KEY: self._bloom.to_base64().encode("ascii")}
        if self._params.kind != SIMPLE:
            footer[BLOOM_TYPE_KEY] = self._params.kind.encode("ascii")
        if self._min is not None and self._max is not None:
            footer[MIN_KEY], footer[MAX_KEY] = self._min.encode(), self._max.encode()
        footer |= float_entries(self._schema, self._nulls)
        vectors = vector_columns(self._avro_json)
        if vectors:
            footer[VECTORS_KEY] = vectors.encode()
        return {**footer, b"writer.model.name": b"avro", AVRO_SCHEMA_KEY: self._avro_json.encode()}


@contextmanager
def open_base_file(storage: Storage, rel: str) -> Iterator[pq.ParquetFile]:
    """The Parquet file; raises CorruptFileError naming it when it is cut short or no Parquet at all."""
    with storage.open_input(rel) as source:
        try:
            file = pq.ParquetFile(source)
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptFileError(
                f"base file {storage.where(rel)} is no readable Parquet file ({error}); restore it or roll back the commit "
                "that wrote it"
            ) from error
        with file:
            yield file


def range_of(metadata: pq.FileMetaData) -> tuple[str | None, str | None]:
    """Least and greatest record key as the footer tells; None where the writer left them out."""
    entries: dict[bytes, bytes] = metadata.metadata or {}
    return _text(entries.get(MIN_KEY)), _text(entries.get(MAX_KEY))


def comparable_range(low: str | None, high: str | None) -> tuple[str, str] | None:
    """The key range of a footer where our comparison is the writer's; None: any key may be in the file.

    Hudi orders keys by UTF-16 units, we by code points; these differ only where such a character stands in a limit.
    """
    if low is None or high is None or any(c >= "\ue000" for c in low + high) or low > high:
        return None
    return low, high


def read_footer(storage: Storage, rel: str) -> BaseFileFooter:
    """Rows, key range and bloom filter of a base file."""
    with open_base_file(storage, rel) as file:
        metadata = file.metadata
    entries: dict[bytes, bytes] = metadata.metadata or {}
    bloom = None
    if BLOOM_KEY in entries:
        kind = entries.get(BLOOM_TYPE_KEY, SIMPLE.encode()).decode()
        bloom = BloomFilter.from_base64(entries[BLOOM_KEY], kind, storage.where(rel))
    return BaseFileFooter(
        rows=metadata.num_rows,
        min_key=_text(entries.get(MIN_KEY)),
        max_key=_text(entries.get(MAX_KEY)),
        bloom=bloom,
        avro_schema=_text(entries.get(AVRO_SCHEMA_KEY)),
    )


def read_keys(storage: Storage, rel: str) -> pa.ChunkedArray:
    """The record keys of a base file, in file order."""
    with open_base_file(storage, rel) as file:
        if RECORD_KEY not in file.schema_arrow.names:
            raise CorruptFileError(
                f"base file {storage.where(rel)} has no column {RECORD_KEY}; it was not written by Hudi"
            )
        try:
            return file.read([RECORD_KEY]).column(0)
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptFileError(
                f"the record keys of base file {storage.where(rel)} cannot be read ({error}); restore the file"
            ) from error


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8")
