"""Parquet base files: a streaming writer that writes the footer of Hudi's indexes, and readers of footers and keys.

Footer keys: ``org.apache.hudi.bloomfilter`` (base64), ``hoodie_bloom_filter_type_code`` (absent for SIMPLE),
``hoodie_min_record_key`` and ``hoodie_max_record_key`` (absent in a file without rows), ``parquet.avro.schema``
(with the meta columns), ``writer.model.name`` = ``avro``; with vectors ``hoodie.vector.columns``; with columns of
floats also Tagstream's own ``tagstream.float.statistics``; and ``tagstream.bloom.keys`` (``BloomBefore``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tagstream.table.errors import CorruptFileError, InvalidKeyError, UnsupportedTableError
from tagstream.table.file_group.bloom import SIMPLE, BloomBuilder, BloomFilter, BloomParams
from tagstream.table.file_group.parquet_options import base_file_options, compression_of, float_columns, float_entries
from tagstream.table.file_group.repeated_texts import without_unused_values
from tagstream.table.schema.schema import RECORD_KEY, vector_columns
from tagstream.table.storage.storage import Storage

BLOOM_KEY = b"org.apache.hudi.bloomfilter"
BLOOM_TYPE_KEY = b"hoodie_bloom_filter_type_code"
BLOOM_KEYS_KEY = b"tagstream.bloom.keys"
MIN_KEY = b"hoodie_min_record_key"
MAX_KEY = b"hoodie_max_record_key"
AVRO_SCHEMA_KEY = b"parquet.avro.schema"
VECTORS_KEY = b"hoodie.vector.columns"
DEFAULT_ROW_GROUP_BYTES = 120 * 1024 * 1024  # hoodie.parquet.block.size


@dataclass(frozen=True)
class BaseFileResult:
    """A written file: rows, bytes, key range (None without rows), bloom filter as text, and Parquet's footer."""

    rows: int
    bytes: int
    min_key: str | None
    max_key: str | None
    bloom: str
    footer: pq.FileMetaData


_MOST_GONE = 0.05  # of a filter's keys; a key that is gone makes the filter a little less selective, and never wrong


@dataclass(frozen=True)
class BloomBefore:
    """The bloom filter of the base file before, to which the next one's writer adds only new keys.

    To hash all keys of a file is a quarter of the time of its merge. ``added``: keys that the filter has; ``gone``: those
    of them whose rows were deleted. Both are in the footer of every file that this project writes, as JSON. A filter
    without them is of another writer, and is not trusted.
    """

    bloom: BloomFilter
    added: int
    gone: int

    @staticmethod
    def of(footer: pq.FileMetaData, params: BloomParams, deletes: int) -> BloomBefore | None:
        """The filter of a footer; None where a new one must be made: it has another form, is damaged, or more than 5 %
        of its keys would be gone after ``deletes`` further ones.
        """
        entries = footer.metadata or {}
        try:
            keys = json.loads(entries[BLOOM_KEYS_KEY])
            added, gone = int(keys["added"]), int(keys["gone"])
            kind = entries.get(BLOOM_TYPE_KEY, SIMPLE.encode()).decode()
            if kind != params.kind or gone + deletes > _MOST_GONE * added:
                return None
            bloom = BloomFilter.from_base64(entries[BLOOM_KEY], kind, "the file before")
        except (KeyError, TypeError, ValueError, CorruptFileError, UnsupportedTableError):
            return None
        return BloomBefore(bloom, added, gone) if bloom.fits(params, added) else None


@dataclass(frozen=True)
class BaseFileFooter:
    """The entries of a base file's footer for indexes; ``bloom`` and the keys are None where the writer left them out."""

    rows: int
    min_key: str | None
    max_key: str | None
    bloom: BloomFilter | None
    avro_schema: str | None


class BaseFileWriter:
    """Writes one base file batch by batch to a stream, with at most one row group in memory.

    The stream is not closed. ``where`` names the file in messages. The file is incomplete before :meth:`close`.
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
        before: BloomBefore | None = None,
    ) -> None:
        """``schema`` and ``avro_json`` include the meta columns; ``row_group_bytes`` counts uncompressed Arrow bytes.
        ``before``: the filter to continue.
        """
        compression_of(codec)  # an error for a codec that cannot be written, before anything is
        self._out = out
        self._codec = codec
        self._where = where
        self._schema = schema
        self._avro_json = avro_json
        self._params = bloom or BloomParams()
        self._before = before
        self._bloom = (
            BloomBuilder(self._params) if before is None else BloomBuilder(self._params, before.bloom, before.added)
        )
        self._row_group_bytes = row_group_bytes
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._rows = 0
        self._min: str | None = None
        self._max: str | None = None
        self._footers: list[pq.FileMetaData] = []
        self._nulls = dict.fromkeys(float_columns(schema), 0)
        self._opened: pq.ParquetWriter | None = None

    def append(self, rows: pa.RecordBatch | pa.Table, *, known: bool = False) -> None:
        """Add rows in the writer's schema. Raises InvalidKeyError for a null or empty record key. ``known``: their keys
        have rows in the file before.
        """
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        if rows.num_rows == 0:
            return
        for keys in rows.column(RECORD_KEY).chunks:
            self._index(keys, known=known)
        self._rows += rows.num_rows
        # batches are split where a row group is full, so that its size does not depend on the caller's batches
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
        """Bytes of the finished row groups."""
        return self._out.tell()

    def close(self, gone: int = 0) -> BaseFileResult:
        """Write the footer, which completes the file. ``gone``: rows of the file before that were deleted."""
        self._flush(whole=True)
        footer = self._footer(gone)
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
        # The first error is raised. Arrow's second one, of a failed close, only says that there is no footer.
        with suppress(Exception):
            self._opened.close()
        self._opened.is_open = False

    def _writer(self, first: pa.Table, *, whole: bool) -> pq.ParquetWriter:
        """Parquet's writer, with options for the file's first rows; ``whole``: they are all rows of the file."""
        if self._opened is None:
            options = base_file_options(self._codec, first, whole=whole)
            self._opened = pq.ParquetWriter(self._out, self._schema, metadata_collector=self._footers, **options)
        return self._opened

    def _index(self, keys: pa.Array, *, known: bool) -> None:
        if len(keys) == 0:
            return
        if keys.null_count or pc.min(pc.binary_length(keys)).as_py() == 0:
            raise InvalidKeyError(
                f"a row for {self._where} has a null or empty record key; reject such rows before they are written"
            )
        if not (known and self._before is not None):
            self._bloom.add(keys)
        low, high = (value.as_py() for value in pc.min_max(keys).values())
        self._min = low if self._min is None else min(self._min, low)
        self._max = high if self._max is None else max(self._max, high)

    def _flush(self, *, whole: bool = False) -> None:
        if self._pending:
            rows = without_unused_values(pa.concat_tables(self._pending))
            for name in self._nulls:
                self._nulls[name] += rows.column(name).null_count
            self._writer(rows, whole=whole).write_table(rows, row_group_size=1 << 40)
        self._pending, self._pending_bytes = [], 0

    def _footer(self, gone: int) -> dict[bytes, bytes]:
        footer = {BLOOM_KEY: self._bloom.to_base64().encode("ascii")}
        gone = 0 if self._before is None else self._before.gone + gone
        footer[BLOOM_KEYS_KEY] = json.dumps({"added": self._bloom.added, "gone": gone}).encode()
        if self._params.kind != SIMPLE:
            footer[BLOOM_TYPE_KEY] = self._params.kind.encode("ascii")
        if self._min is not None and self._max is not None:
            footer[MIN_KEY], footer[MAX_KEY] = self._min.encode(), self._max.encode()
        footer |= float_entries(self._schema, self._nulls)
        vectors = vector_columns(self._avro_json)
        if vectors:
            footer[VECTORS_KEY] = vectors.encode()
        return {**footer, b"writer.model.name": b"avro", AVRO_SCHEMA_KEY: self._avro_json.encode()}


def encoded_bytes(rows: pa.Table, codec: str) -> int:
    """Bytes of the rows as the one row group of a base file, without the entries of its footer. They are not stored."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, **base_file_options(codec, rows, whole=True)) as writer:
        writer.write_table(rows)
    return int(sink.tell())


@contextmanager
def open_base_file(
    storage: Storage, rel: str, as_dictionaries: Callable[[pq.ParquetFile], Collection[str]] | None = None
) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; CorruptFileError names it when it is truncated or not Parquet.

    ``as_dictionaries``: the columns of the opened file that are read as dictionaries.
    """
    with storage.open_input(rel) as source:
        try:
            file = pq.ParquetFile(source)
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptFileError(
                f"base file {storage.where(rel)} is not a readable Parquet file ({error}); restore it or roll back the "
                "commit that wrote it"
            ) from error
        names = as_dictionaries(file) if as_dictionaries is not None else ()
        if names:
            file = pq.ParquetFile(source, metadata=file.metadata, read_dictionary=sorted(names))
        with file:
            yield file


def range_of(metadata: pq.FileMetaData) -> tuple[str | None, str | None]:
    """(least, greatest) record key in the footer; None where the writer left them out."""
    entries: dict[bytes, bytes] = metadata.metadata or {}
    return _text(entries.get(MIN_KEY)), _text(entries.get(MAX_KEY))


def comparable_range(low: str | None, high: str | None) -> tuple[str, str] | None:
    """The key range of a footer where this program orders its keys as the writer does; None: any key may be in the file.

    Hudi orders keys by UTF-16 units, this program by code points. They differ only for limits with characters from
    U+E000 on.
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
