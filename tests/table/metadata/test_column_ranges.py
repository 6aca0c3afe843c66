"""Ranges of columns, of footers and of rows: every value is between the ends, whatever it is, but not-a-number."""

from __future__ import annotations

import io
import json
import math
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.table.metadata.column_ranges import (
    ColumnRange,
    kind_of,
    merged_ranges,
    ranges_from_json,
    ranges_of_footer,
    ranges_of_rows,
    ranges_to_json,
)
from tagstream.table.metadata.record_encoding import encode_records, stats_record

# Long values are replaced, if they must be, by ends that only thousands of the very last character would pass.
_LETTERS = st.characters(max_codepoint=0x10FFFE, exclude_categories=["Cs"])
_BYTES = st.integers(0, 254)
WIDE = Context(prec=80)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(max_size=5) | _LETTERS.map(lambda text: text * 3000),
    pa.binary(): st.binary(max_size=5) | _BYTES.map(lambda byte: bytes([byte]) * 5000),
    pa.binary(2): st.binary(min_size=2, max_size=2),
    pa.decimal128(12, 3): st.decimals(-(10**9) + 1, 10**9 - 1, places=3),
    pa.decimal128(38, 10): st.integers(1 - 10**38, 10**38 - 1).map(lambda n: WIDE.scaleb(Decimal(n), -10)),
    pa.date32(): st.dates(),
    pa.timestamp("us", tz="UTC"): st.integers(-(2**60), 2**60),
    pa.timestamp("ms"): st.integers(-(2**50), 2**50),
    pa.time64("us"): st.times(),
}


def greater(left: Any, right: Any) -> bool:
    """Spark's order: texts by their UTF-8."""
    if isinstance(left, str):
        return left.encode() > right.encode()
    return bool(left > right)


def plain(value: Any, arrow: pa.DataType) -> Any:
    if pa.types.is_decimal(arrow):
        return int(WIDE.scaleb(Decimal(value), arrow.scale))
    return pa.scalar(value, arrow).value if pa.types.is_temporal(arrow) else pa.scalar(value, arrow).as_py()


@settings(max_examples=200, deadline=None)
@given(data=st.data(), arrow=st.sampled_from(list(VALUES)))
def test_every_value_is_between_the_ends(data: st.DataObject, arrow: pa.DataType) -> None:
    values = data.draw(st.lists(st.none() | VALUES[arrow], max_size=12))
    column = pa.array(values, arrow)
    rows = pa.table({"other": pa.nulls(len(column), pa.list_(pa.int32())), "c": column})
    out = io.BytesIO()
    pq.write_table(rows, out, row_group_size=5, store_schema=False)
    footer = pq.ParquetFile(out).metadata
    for found in (ranges_of_footer(footer, ["c", "other", "missing"]), ranges_of_rows(rows, ["c", "other", "missing"])):
        assert list(found) == ["c"]
        (known,) = found.values()
        assert ranges_from_json(json.loads(json.dumps(ranges_to_json(found)))).keys() == found.keys()
        assert (known.rows, known.nulls) == (len(values), values.count(None))
        there = [plain(value, arrow) for value in values if value is not None]
        assert (known.low is None) == (known.high is None) == (not there)
        numbers = [value for value in there if not (isinstance(value, float) and math.isnan(value))]
        if len(numbers) < len(there):
            assert known.low < known.high == math.inf
        for value in numbers:
            assert not greater(known.low, value)
            assert not greater(value, known.high)
        for version in (9,) if arrow == pa.decimal128(38, 10) else (6, 8, 9):  # before 9 such a column has none
            encode_records(dict([stats_record("p", "f", "c", known, version)]), version)


def test_ends_are_exact_where_they_can_be() -> None:
    rows = pa.table({"s": ["b", "a", None], "f": pa.array([1.5, -2.0, None]), "n": pa.nulls(3, pa.int32())})
    assert ranges_of_rows(rows, rows.column_names) == {
        "s": ColumnRange("string", "a", "b", 3, 1),
        "f": ColumnRange("double", -2.0, 1.5, 3, 1),
        "n": ColumnRange("int", None, None, 3, 3),
    }


@pytest.mark.parametrize(
    ("values", "low"), [([math.nan, 2.5, None], 2.5), ([math.nan], -math.inf), ([math.nan, math.inf], -math.inf)]
)
def test_not_a_number_is_no_end(values: list[float | None], low: float) -> None:
    """As the greatest value it hides the file from Hudi's readers; infinity twice would say that all values are it."""
    rows = pa.table({"f": pa.array(values, pa.float64())})
    found = ranges_of_rows(rows, ["f"])["f"]
    assert (found.low, found.high) == (low, math.inf)
    out = io.BytesIO()
    pq.write_table(rows, out)
    found = ranges_of_footer(pq.ParquetFile(out).metadata, ["f"])["f"]
    assert (found.low, found.high) == (low, math.inf)
    assert (found.rows, found.nulls) == (len(values), values.count(None))


def test_a_file_without_statistics_gets_ends_that_hold() -> None:
    rows = pa.table({"i": pa.array([1, 2], pa.int32()), "s": ["x", None]})
    out = io.BytesIO()
    pq.write_table(rows, out, write_statistics=False)
    found = ranges_of_footer(pq.ParquetFile(out).metadata, ["i", "s"])
    assert (found["i"].low, found["i"].high) == (-(2**31), 2**31 - 1)
    assert found["s"].low == ""
    assert found["s"].high > "\U0010ffff"


@pytest.mark.parametrize("values", [[1.5], [None], [1.5, None], [None, None], [1.5, math.nan]])
def test_a_file_that_does_not_tell_of_nulls_may_have_some(values: list[float | None]) -> None:
    """Readers look for ``IS NULL`` where there is a null, for ``IS NOT NULL`` where not all are."""
    out = io.BytesIO()
    pq.write_table(pa.table({"f": pa.array(values, pa.float64())}), out, write_statistics=False)
    found = ranges_of_footer(pq.ParquetFile(out).metadata, ["f"])["f"]
    assert 0 < found.nulls < found.rows


def test_a_file_without_row_groups() -> None:
    out = io.BytesIO()
    pq.ParquetWriter(out, pa.schema([("i", pa.int32())])).close()
    assert ranges_of_footer(pq.ParquetFile(out).metadata, ["i"]) == {"i": ColumnRange("int", None, None, 0, 0)}


def test_ranges_of_several_files_are_joined() -> None:
    parts = [
        ColumnRange("int", 3, 5, 2, 0, 10, 20), ColumnRange("int", None, None, 4, 4, 1, 2),
        ColumnRange("int", -1, 4, 2, 1, 3, 4),
    ]  # fmt: skip
    assert merged_ranges(parts) == ColumnRange("int", -1, 5, 8, 5, 14, 26)


@pytest.mark.parametrize(
    "arrow", [pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.map_(pa.string(), pa.int32())]
)
def test_nested_columns_have_no_range(arrow: pa.DataType) -> None:
    assert kind_of(arrow) is None
