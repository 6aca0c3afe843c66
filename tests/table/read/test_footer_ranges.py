"""Ranges from footers of every form a column can have in a file; what they rule out."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.read.column_stats import (
    NO_ROWS,
    NO_VALUES,
    UNKNOWN,
    ColumnRange,
    footer_ranges,
    may_match,
    partition_ranges,
)
from tagstream.table.read.filters import Comparison, Op, bind
from tests.support.stored import stored

D = decimal.Decimal


def range_of(
    folder: Path, values: list[Any], kind: pa.DataType, wanted: pa.DataType | None = None, **options: Any
) -> ColumnRange:
    path = folder / "f.parquet"
    pq.write_table(pa.table({"c": pa.array(values, kind)}), path, **options)
    return footer_ranges(*stored(path), [pa.field("c", wanted or kind)])["c"]


@pytest.mark.parametrize("as_integer", [False, True])
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([3, 1, 2], pa.int32()),
        ([2**40, -5], pa.int64()),
        ([0.5, -0.5], pa.float32()),
        (["b", "a", "é", "😀"], pa.string()),
        ([b"\xff", b"\x01"], pa.binary()),
        ([D("1.25"), D("-3.50")], pa.decimal128(8, 2)),
        ([D("1.25"), D("-3.50")], pa.decimal128(15, 2)),
        ([D("1.25"), D("-3.50")], pa.decimal128(30, 2)),
        ([dt.date(1969, 1, 1), dt.date(2024, 2, 29)], pa.date32()),
        ([dt.datetime(2024, 1, 1, 1, 2, 3, 456000, tzinfo=dt.UTC)], pa.timestamp("us", tz="UTC")),
        ([dt.datetime(2024, 1, 1), dt.datetime(1900, 1, 1)], pa.timestamp("ms")),
        ([True, False], pa.bool_()),
    ],
)
def test_types(values: list[Any], kind: pa.DataType, as_integer: bool, tmp_path: Path) -> None:
    found = range_of(tmp_path, [*values, None], kind, row_group_size=1, store_decimal_as_integer=as_integer)
    ends = [None if end is None else end.as_py() for end in (found.lower, found.upper)]
    # A reader may tell nothing of an end; what it tells is true.
    assert ends[0] in (None, min(values))
    assert ends[1] in (None, max(values))
    assert pa.types.is_boolean(kind) or None not in ends
    assert found.has_nulls
    assert not found.all_null


def test_nulls_and_absent_columns(tmp_path: Path) -> None:
    assert range_of(tmp_path, [None, None], pa.int32()) == NO_VALUES
    assert range_of(tmp_path, [], pa.int32()) == NO_ROWS
    assert range_of(tmp_path, [1, 2], pa.int32()) == ColumnRange(
        pa.scalar(1, pa.int32()), pa.scalar(2, pa.int32()), False
    )
    assert footer_ranges(*stored(tmp_path / "f.parquet"), [pa.field("new", pa.int32())])["new"] == NO_VALUES
    assert range_of(tmp_path, [1, 2], pa.int32(), pa.int64()) == UNKNOWN
    assert range_of(tmp_path, [1, 2], pa.int32(), write_statistics=False) == UNKNOWN
    assert range_of(tmp_path, [[1]], pa.list_(pa.int32())) == UNKNOWN


def test_nan_is_in_no_range(tmp_path: Path) -> None:
    found = range_of(tmp_path, [float("nan"), 1.0], pa.float64())
    (unequal,) = bind([Comparison("c", Op.NE, 1.0)], pa.schema([("c", pa.float64())]))
    assert may_match(unequal, found)
    only = range_of(tmp_path, [float("nan")], pa.float64())
    assert may_match(unequal, only)


RANGE = ColumnRange(pa.scalar(10), pa.scalar(20), has_nulls=False)
ONE = ColumnRange(pa.scalar(10), pa.scalar(10))
BELOW = ColumnRange(None, pa.scalar(20))


@pytest.mark.parametrize(
    ("known", "op", "value", "expected"),
    [
        (RANGE, Op.EQ, 10, True), (RANGE, Op.EQ, 20, True), (RANGE, Op.EQ, 9, False), (RANGE, Op.EQ, 21, False),
        (RANGE, Op.LT, 10, False), (RANGE, Op.LT, 11, True), (RANGE, Op.LE, 10, True), (RANGE, Op.LE, 9, False),
        (RANGE, Op.GT, 20, False), (RANGE, Op.GT, 19, True), (RANGE, Op.GE, 20, True), (RANGE, Op.GE, 21, False),
        (RANGE, Op.IN, [1, 99], False), (RANGE, Op.IN, [1, 15], True), (RANGE, Op.IN, [], False),
        (RANGE, Op.NE, 10, True), (ONE, Op.NE, 10, False), (ONE, Op.NE, 11, True), (BELOW, Op.NE, 20, True),
        (BELOW, Op.EQ, 21, False), (BELOW, Op.EQ, -99, True), (BELOW, Op.LT, -99, True), (BELOW, Op.GT, 20, False),
        (RANGE, Op.IS_NULL, None, False), (ONE, Op.IS_NULL, None, True), (RANGE, Op.IS_NOT_NULL, None, True),
        (NO_VALUES, Op.IS_NOT_NULL, None, False), (NO_VALUES, Op.IS_NULL, None, True), (NO_VALUES, Op.NE, 1, False),
        (NO_ROWS, Op.IS_NULL, None, False), (UNKNOWN, Op.EQ, 1, True), (UNKNOWN, Op.IS_NULL, None, True),
    ],
)  # fmt: skip
def test_what_a_range_rules_out(known: ColumnRange, op: Op, value: Any, expected: bool) -> None:
    (wanted,) = bind([Comparison("c", op, value)], pa.schema([("c", pa.int64())]))
    assert may_match(wanted, known) is expected


@pytest.mark.parametrize(
    ("path", "options", "expected"),
    [
        ("a/7", {}, {"s": "a", "n": 7}),
        ("s=a/n=7", {"hive_style": True}, {"s": "a", "n": 7}),
        ("s=a%2Fb/n=7", {"hive_style": True, "url_encode": True}, {"s": "a/b", "n": 7}),
        ("a%2Fb/7", {}, {"s": "a%2Fb", "n": 7}),
        ("a/seven", {}, {"s": "a", "n": None}),
        ("__HIVE_DEFAULT_PARTITION__/default", {}, {"s": None, "n": None}),
        ("a/7", {"hive_style": True}, {"s": None, "n": None}),
        ("a/b/7", {}, {}),
        ("a/7", {"key_generator": "org.apache.hudi.keygen.TimestampBasedKeyGenerator"}, {}),
        ("a%2Fb/n=7", {"drops_partition_columns": True}, {"s": "a/b", "n": "7"}),
        ("a/b/7", {"drops_partition_columns": True}, {}),
    ],
)
def test_values_by_partition_paths(path: str, options: dict[str, Any], expected: dict[str, Any]) -> None:
    generator = {"key_generator": "org.apache.hudi.keygen.ComplexKeyGenerator"}
    config = TableConfig("t", partition_fields=("s", "n"), **{**generator, **options})
    found = partition_ranges(config, path, pa.schema([("s", pa.string()), ("n", pa.int32())]))
    assert {name: known.lower and known.lower.as_py() for name, known in found.items()} == expected
    assert all(known == UNKNOWN or (known.lower == known.upper and not known.has_nulls) for known in found.values())
