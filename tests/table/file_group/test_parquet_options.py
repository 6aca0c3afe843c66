"""Which columns of a Parquet file have a dictionary: those whose values come again, inner columns of nested ones always."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tagstream.table.errors import ConfigError
from tagstream.table.file_group.parquet_options import writer_options
from tagstream.table.schema.schema import FILE_NAME

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


@pytest.mark.parametrize("count", [0, 1])
def test_files_without_rows_or_with_one(count: int) -> None:
    assert writer_options("zstd", TABLE.slice(0, count))["use_dictionary"][0] == FILE_NAME


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(ConfigError, match="lz5"):
        writer_options("lz5", TABLE)
