"""Parquet base files: a streaming writer that writes the footer of Hudi's indexes, and readers of footers and keys.

Footer keys: ``org.apache.hudi.bloomfilter`` (base64), ``hoodie_bloom_filter_type_code`` (absent for SIMPLE),
``hoodie_min_record_key`` and ``hoodie_max_record_key`` (absent in a file without rows), ``parquet.avro.schema``
(with the meta columns), ``writer.model.name`` = ``avro``; with vectors ``hoodie.vector.columns``; with columns of
floats also Tagstream's own ``tagstream.float.statistics``. Log blocks have the same Parquet options.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tagstream.table.errors import ConfigError, CorruptFileError, InvalidKeyError
from tagstream.table.file_group.bloom import SIMPLE, BloomBuilder, BloomFilter, BloomParams
from tagstream.table.file_group.repeated_texts import without_unused_values
from tagstream.table.schema.schema import COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY, vector_columns
from tagstream.table.storage.storage import Storage

# (codec, level). The JVM writes gzip at level 6, Arrow by default at 9. Level 4 takes a third to nine tenths of the
# time of 6, for files that are 0 to 4 % larger (`python -m bench.codecs`). The JVM writes zstd at level 3; 1 takes
# three quarters of its time, for files that are 6 % smaller to 4 % larger.
_CODECS: dict[str, tuple[str, int | None]] = {
    "gzip": ("gzip", 4),
    "snappy": ("snappy", None),
    "zstd": ("zstd", 1),
    "uncompressed": ("none", None),
}


# In the footer of a file that has no statistics for chunks with NaN. parquet-mr never writes such statistics; Arrow
# does. The value is JSON: the number of nulls for each column of floats, because chunks without statistics do not have
# it. It is "1" in older files.
FLOAT_STATISTICS_KEY = b"tagstream.float.statistics"
_KNOWS_NAN = "parquet-mr"

# A column with this share of different values among its first rows has about 400,000 in a large file. Its dictionary
# would outgrow its page, and Parquet's writer would drop it after the work was done.
_SAMPLE, _UNIQUE_SHARE = 8192, 0.99
# A log block is small, so the choice matters little: to count 8192 of its about 10,000 rows would be a third of its
# time.
BLOCK_SAMPLE = 1024
_ALWAYS_REPEATED = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)


def writer_options(codec: str, rows: pa.Table, sample: int = _SAMPLE) -> dict[str, Any]:
    """Keyword arguments of a Parquet writer for a codec of ``hoodie.parquet.compression.codec`` (any case).

    ``rows``: the first rows of the file. The first ``sample`` of them decide which columns get a dictionary.
    ConfigError as of :func:`compression_of`.
    """
    compression, level = compression_of(codec)
    return {
        "compression": compression,
        "compression_level": level,
        "version": "1.0",
        "data_page_version": "1.0",
        "use_dictionary": list(_repeated(rows.slice(0, sample))),
        "store_schema": False,
    }


def base_file_options(codec: str, rows: pa.Table, *, whole: bool) -> dict[str, Any]:
    """As :func:`writer_options`, for a base file, whose footer has statistics. ``whole``: ``rows`` are all rows of the file.

    Arrow excludes NaN from the minimum and maximum of a chunk. Spark, for which NaN is greater than every number, then
    skips the chunk for ``> 1000``. parquet-mr writes no statistics for a chunk with NaN. Arrow must know such columns
    before the first rows: a column of floats gets statistics only if all rows are known and none is NaN. Nested floats
    have none.
    """
    options = writer_options(codec, rows)
    return options | {"write_statistics": list(_with_statistics(rows, whole))} if _floats(rows.schema) else options


def float_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Names of the columns of floats, without nested ones."""
    return tuple(field.name for field in schema if pa.types.is_floating(field.type))


def float_entries(schema: pa.Schema, nulls: Mapping[str, int]) -> dict[bytes, bytes]:
    """The footer entries for the statistics of columns of floats; empty without such columns. ``nulls``: count by column."""
    return {FLOAT_STATISTICS_KEY: json.dumps(nulls, sort_keys=True).encode()} if _floats(schema) else {}


def float_nulls(footer: pq.FileMetaData) -> Mapping[str, int]:
    """Number of nulls for each column of floats in the file; empty where the footer does not have it."""
    null_counts = json.loads((footer.metadata or {}).get(FLOAT_STATISTICS_KEY, b"{}"))
    return null_counts if isinstance(null_counts, dict) else {}


def has_nan_counts(footer: pq.FileMetaData) -> bool:
    """Whether no chunk of this footer with NaN has statistics, so that the statistics of floats can be used."""
    return FLOAT_STATISTICS_KEY in (footer.metadata or {}) or (footer.created_by or "").startswith(_KNOWS_NAN)


def _floats(schema: pa.Schema) -> bool:
    leaves = (kind for field in schema for _, kind in _typed_leaves(field.name, field.type))
    return any(map(pa.types.is_floating, leaves))


def _with_statistics(rows: pa.Table, whole: bool) -> Iterator[str]:
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_nested(field.type):
            leaves = _typed_leaves(field.name, field.type)
            yield from (path for path, kind in leaves if not pa.types.is_floating(kind))
        elif not pa.types.is_floating(field.type) or (whole and not pc.any(pc.is_nan(column)).as_py()):
            yield field.name


def compression_of(codec: str) -> tuple[str, int | None]:
    """(Arrow's name of a codec, its level). ConfigError for a codec that cannot be written."""
    found = _CODECS.get(codec.lower())
    if found is None:
        known = ", ".join(sorted(_CODECS))
        raise ConfigError(f"hoodie.parquet.compression.codec={codec!r} cannot be written; use one of {known}")
    return found


def _repeated(sample: pa.Table) -> Iterator[str]:
    """Parquet's names of the columns with repeated values. A dictionary for others would cost a sixth of the encoding."""
    for field, column in zip(sample.schema, sample.columns, strict=True):
        if pa.types.is_nested(field.type):
            yield from (path for path, _ in _typed_leaves(field.name, field.type))
        elif field.name in _ALWAYS_REPEATED or not _is_unique(column):
            yield field.name


def _is_unique(column: pa.ChunkedArray) -> bool:
    if pa.types.is_dictionary(column.type) or pa.types.is_null(column.type):
        return False
    return len(column) > 1 and pc.count_distinct(column, mode="all").as_py() >= _UNIQUE_SHARE * len(column)


def _typed_leaves(name: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The leaf columns of a column by Parquet's paths, with their types."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _typed_leaves(f"{name}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _typed_leaves(f"{name}.key_value.key", kind.key_type)
        yield from _typed_leaves(f"{name}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _typed_leaves(f"{name}.list.element", kind.value_type)
    else:
        yield name, kind


BLOOM_KEY = b"org.apache.hudi.bloomfilter"
BLOOM_TYPE_KEY = b"hoodie_bloom_filter_type_code"
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
    ) -> None:
        """``schema`` and ``avro_json`` include the meta columns; ``row_group_bytes`` counts uncompressed Arrow bytes."""
        compression_of(codec)  # an error for a codec that cannot be written, before anything is
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

    def close(self) -> BaseFileResult:
        """Write the footer, which completes the file."""
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

    def _index(self, keys: pa.Array) -> None:
        if len(keys) == 0:
            return
        if keys.null_count or pc.min(pc.binary_length(keys)).as_py() == 0:
            raise InvalidKeyError(
                f"a row for {self._where} has a null or empty record key; reject such rows before they are written"
            )
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
