"""Which columns of a Parquet file have a dictionary: those whose values come again, inner columns of nested ones always."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tagstream.table.errors import ConfigError
from tagstream.table.file_group.base_file import BaseFileWriter
from tagstream.table.file_group.parquet_options import has_nan_counts, writer_options
from tagstream.table.metadata.column_ranges import ranges_of_footer
from tagstream.table.schema.schema import FILE_NAME, RECORD_KEY, with_meta

ROWS = 2000
NESTED = pa.struct([("a", pa.struct([("b", pa.int32())])), ("l", pa.list_(pa.struct([("x", pa.string())])))])
TABLE = pa.table(
    {
        FILE_NAME: ["f"] * ROWS,
        "key": [f"k{n}" for n in range(ROWS)],
        "city": [f"c{n % 7}" for n in range(ROWS)],
        "nothing": pa.nulls(ROWS, pa.string()),
        "coded": pa.array([f"c{n}" for n in range(ROWS)]).dictionary_encode(),
        "null": pa.nulls(ROWS),
        "nearly": [f"k{n % (ROWS - 10)}" for n in range(ROWS)],
        "nested": pa.array([{"a": {"b": n}, "l": [{"x": str(n)}]} for n in range(ROWS)], NESTED),
        "map": pa.array([[(str(n), n)] for n in range(ROWS)], pa.map_(pa.string(), pa.int64())),
    }
)


NULLS = {"null"}  # a column that can have no value, whose one page is written so


def with_dictionary(rows: pa.Table) -> set[str]:
    out = io.BytesIO()
    pq.write_table(rows, out, **writer_options("zstd", rows))
    group = pq.ParquetFile(out).metadata.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    return {c.path_in_schema for c in columns if "PLAIN_DICTIONARY" in c.encodings}


def test_unique_columns_have_none() -> None:
    inner = {"nested.a.b", "nested.l.list.element.x", "map.key_value.key", "map.key_value.value"}
    assert with_dictionary(TABLE) == {FILE_NAME, "city", "nothing", "coded", *inner} | NULLS


def test_a_column_of_a_hundredth_of_repeated_values_has_one() -> None:
    rows = pa.table({"often": [f"k{n % (ROWS - 30)}" for n in range(ROWS)]})
    assert with_dictionary(rows) == {"often"}


def test_the_first_rows_decide_whatever_comes_later() -> None:
    rows = pa.table({"n": [*range(10_000), *([7] * 50_000)]})
    assert with_dictionary(rows) == set()


def statistics_of(path: Path) -> dict[str, list[tuple[object, object] | None]]:
    """(least, greatest) of each column by row group; None where the footer tells none."""
    found: dict[str, list[tuple[object, object] | None]] = {}
    metadata = pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        for n in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(n)
            stats = chunk.statistics if chunk.is_stats_set and chunk.statistics.has_min_max else None
            found.setdefault(chunk.path_in_schema, []).append(stats and (stats.min, stats.max))
    return found


FLOATS = {
    "plain": pa.float64(),
    "odd": pa.float32(),
    "zero": pa.float64(),
    "n": pa.int32(),
    "s": pa.struct([("f", pa.float64()), ("t", pa.string())]),
}


@pytest.mark.parametrize("groups", [1, 2])
def test_a_column_of_floats_has_statistics_where_no_chunk_can_have_nan(tmp_path: Path, groups: int) -> None:
    """Spark leaves a chunk out by its greatest value, and NaN, which Arrow does not count there, is greater than all."""
    schema = with_meta(pa.schema(list(FLOATS.items())))
    values = [
        {"plain": 1.5, "odd": 3.0, "zero": -0.0, "n": 1, "s": {"f": 1.0, "t": "a"}},
        {"plain": 2.5, "odd": math.nan, "zero": 0.0, "n": 2, "s": {"f": math.nan, "t": "b"}},
    ]
    lines = [{**dict.fromkeys(schema.names), RECORD_KEY: str(n), **v} for n, v in enumerate(values)]
    path = tmp_path / "f.parquet"
    with (
        path.open("wb") as out,
        BaseFileWriter(out, "f", schema, "{}", row_group_bytes=1 if groups == 2 else 1 << 20) as writer,
    ):
        writer.append(pa.Table.from_pylist(lines, schema))
        result = writer.close()
    found = statistics_of(path)
    assert found["odd"] == found["s.f"] == [None] * groups
    assert found["n"] == ([(1, 2)] if groups == 1 else [(1, 1), (2, 2)])
    assert found["s.t"] == ([("a", "b")] if groups == 1 else [("a", "a"), ("b", "b")])
    # Where rows come behind those that the writer is opened with, they may have NaN.
    assert found["plain"] == ([(1.5, 2.5)] if groups == 1 else [None, None])
    assert str(found["zero"]) == ("[(-0.0, 0.0)]" if groups == 1 else "[None, None]")
    assert has_nan_counts(result.footer)
    ranges = ranges_of_footer(result.footer, ["plain", "odd", "n"])
    assert (ranges["odd"].low, ranges["odd"].high) == (-math.inf, math.inf)
    assert (ranges["plain"].low, ranges["plain"].high) == ((1.5, 2.5) if groups == 1 else (-math.inf, math.inf))


@pytest.mark.parametrize("row_group_bytes", [1, 1 << 20])
def test_nulls_beside_nan_are_counted(tmp_path: Path, row_group_bytes: int) -> None:
    """A chunk without statistics does not tell of them, and readers would leave the file out of ``is null``."""
    schema = with_meta(pa.schema([("odd", pa.float32()), ("none", pa.float64()), ("all", pa.float64())]))
    values = [{"odd": math.nan, "all": 1.0}, {"all": 2.0}, {"odd": 1.0, "all": math.nan}]
    lines = [{**dict.fromkeys(schema.names), RECORD_KEY: str(n), **v} for n, v in enumerate(values)]
    path = tmp_path / "f.parquet"
    with path.open("wb") as out, BaseFileWriter(out, "f", schema, "{}", row_group_bytes=row_group_bytes) as writer:
        writer.append(pa.Table.from_pylist(lines, schema))
        footer = writer.close().footer
    found = ranges_of_footer(footer, ["odd", "none", "all"])
    assert {name: (r.nulls, r.rows) for name, r in found.items()} == {"odd": (1, 3), "none": (3, 3), "all": (0, 3)}
    assert (found["none"].low, found["none"].high) == (None, None)


def test_files_of_arrow_from_before_do_not_tell_of_nan() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"f": [1.0, math.nan]}), out)
    footer = pq.ParquetFile(out).metadata
    assert not has_nan_counts(footer)
    found = ranges_of_footer(footer, ["f"])["f"]
    assert (found.low, found.high) == (1.0, math.inf)


@pytest.mark.parametrize("count", [0, 1])
def test_files_without_rows_or_with_one(count: int) -> None:
    assert writer_options("zstd", TABLE.slice(0, count))["use_dictionary"][0] == FILE_NAME


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(ConfigError, match="lz5"):
        writer_options("lz5", TABLE)
