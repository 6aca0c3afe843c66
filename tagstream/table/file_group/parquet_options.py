"""How Parquet files are written: codec, dictionaries and statistics, for base files and log blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tagstream.table.errors import ConfigError
from tagstream.table.schema.schema import COMMIT_TIME, FILE_NAME, PARTITION_PATH

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
