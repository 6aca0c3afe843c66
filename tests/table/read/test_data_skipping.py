"""A filtered read gives the rows of a full read that match, and leaves out what it can."""

from __future__ import annotations

import datetime as dt
import decimal
import operator
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import update_properties
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.read.data_skipping import SkipReport
from tagstream.table.read.filters import Comparison, Op
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import META_COLUMNS
from tests.table.reference import NAMES, unpack
from tests.table.writer import Writer, row

Row = dict[str, Any]
COMPARE: dict[Op, Callable[[Any, Any], bool]] = {
    Op.EQ: operator.eq, Op.NE: operator.ne, Op.LT: operator.lt, Op.LE: operator.le, Op.GT: operator.gt, Op.GE: operator.ge,
}  # fmt: skip


def passes(found: Row, comparison: Comparison) -> bool:
    """The comparison as Python makes it: the oracle."""
    value = found[comparison.column]
    match comparison.op:
        case Op.IS_NULL:
            return value is None
        case Op.IS_NOT_NULL:
            return value is not None
        case Op.IN:
            return value is not None and value in comparison.value
    return value is not None and COMPARE[comparison.op](value, comparison.value)


def keys(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted(tuple(found[name] for name in META_COLUMNS) for found in rows)


class Opened:
    """A reference table with all of its rows."""

    def __init__(self, base_path: Path) -> None:
        self.table = HoodieTable.open(str(base_path))
        full = read_snapshot(self.table)
        self.rows: list[Row] = full.to_pylist()
        self.schema = full.schema

    def check(self, filters: list[Comparison]) -> SkipReport:
        report = SkipReport()
        found = read_snapshot(self.table, filters=filters, report=report)
        assert found.schema == self.schema
        assert keys(found.to_pylist()) == keys([r for r in self.rows if all(passes(r, f) for f in filters)])
        return report


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Opened]:
    return cache(lambda name: Opened(unpack(name, tmp_path_factory.mktemp("tables"))))


def near(value: Any) -> Any:
    """A value beside one that is in the table."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value[:-1]
        case bytes():
            return value + b"\0"
        case decimal.Decimal():
            return value - decimal.Decimal(1).scaleb(int(value.as_tuple().exponent))
        case dt.datetime() | dt.date():
            return value + dt.timedelta(days=1)
    raise TypeError(type(value))


@st.composite
def comparisons(draw: st.DrawFn, opened: Opened) -> Comparison:
    field = draw(st.sampled_from(list(opened.schema)))
    ops = [Op.IS_NULL, Op.IS_NOT_NULL] if pa.types.is_nested(field.type) else list(Op)
    op = draw(st.sampled_from(ops))
    if op in (Op.IS_NULL, Op.IS_NOT_NULL):
        return Comparison(field.name, op)
    there = sorted({r[field.name] for r in opened.rows if r[field.name] is not None})
    assume(there)
    ends = st.sampled_from([there[0], there[-1]])
    values = st.sampled_from(there) | ends | ends.map(near) | st.sampled_from(there).map(near)
    if op is Op.IN:
        return Comparison(field.name, op, draw(st.lists(values, max_size=3)))
    return Comparison(field.name, op, draw(values))


@pytest.mark.extended(
    "more tables that real Hudi wrote",
    first=(
        "cow_v6_global_bloom_moves",
        "mor_v6_compaction_pending",
        "cow_v9_record_index",
        "mor_v9_services",
        "cow_v6_hive_alltypes",
        "mor_v6_avro_log_deletes",
    ),
)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_a_filtered_read_is_a_full_read_filtered(
    name: str, data: st.DataObject, tables: Callable[[str], Opened]
) -> None:
    opened = tables(name)
    opened.check(data.draw(st.lists(comparisons(opened), min_size=1, max_size=2)))


CLUSTERED = [  # a filter on columns whose values lie apart in the partitions of these tables
    Comparison("amount", Op.GE, 300.0),
    Comparison("price", Op.LT, decimal.Decimal(0)),
    Comparison("day", Op.EQ, dt.date(2024, 1, 3)),
    Comparison("at", Op.LE, dt.datetime(2024, 1, 20, tzinfo=dt.UTC)),
    Comparison("name", Op.IN, ["name 101", "name 150", "name 155"]),
    Comparison("qty", Op.GT, 149),
]


@pytest.mark.parametrize("name", ["cow_v9_record_index", "mor_v6_record_index_015"])
@pytest.mark.parametrize("comparison", CLUSTERED, ids=lambda c: f"{c.column}")
def test_files_are_skipped_by_the_metadata_table(
    name: str, comparison: Comparison, tables: Callable[[str], Opened]
) -> None:
    report = tables(name).check([comparison])
    assert report.files_skipped == sum(report.skipped_by.values())
    assert report.skipped_by["metadata table"] > 0
    assert report.skipped_by.keys() == {"metadata table"}


@pytest.mark.parametrize("comparison", CLUSTERED, ids=lambda c: f"{c.column}")
def test_files_are_skipped_by_footers_without_a_metadata_table(comparison: Comparison, tmp_path: Path) -> None:
    base_path = unpack("cow_v9_record_index", tmp_path)
    with_metadata = Opened(base_path).check([comparison])
    update_properties(HoodieTable.open(str(base_path)).storage, {"hoodie.table.metadata.partitions": ""}, 0)
    report = Opened(base_path).check([comparison])
    assert report.skipped_by.keys() == {"footers"}
    assert report.files_skipped >= with_metadata.files_skipped > 0


def test_files_without_values_of_a_column_are_skipped(tmp_path: Path) -> None:
    base_path = unpack("cow_v9_record_index", tmp_path)
    report = Opened(base_path).check([Comparison("qty", Op.IS_NOT_NULL)])
    update_properties(HoodieTable.open(str(base_path)).storage, {"hoodie.table.metadata.partitions": ""}, 0)
    by_footers = Opened(base_path).check([Comparison("qty", Op.IS_NOT_NULL)])
    assert report.files_skipped == by_footers.files_skipped == 4
    assert (report.skipped_by, by_footers.skipped_by) == ({"metadata table": 4}, {"footers": 4})


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("cow_v9_record_index", "part", "2024-02"),
        ("mor_v6_record_index_015", "part", "2024-02"),  # hive style
        ("cow_v6_complexkey_replace", "region", "r0"),  # one of two fields
        ("cow_v6_native015_days", "part", "2024/01/01"),  # three folders
    ],
)
def test_partitions_are_skipped_by_their_paths(
    name: str, column: str, value: str, tables: Callable[[str], Opened]
) -> None:
    opened = tables(name)
    value = value if name != "cow_v6_complexkey_replace" else opened.rows[0][column]
    report = opened.check([Comparison(column, Op.EQ, value)])
    assert report.partitions > 1
    # A path of more segments than there are fields names no values; then files are skipped by their statistics.
    assert (report.partitions_skipped > 0) == (name != "cow_v6_native015_days")
    nothing = opened.check([Comparison(column, Op.EQ, "nowhere")])
    assert nothing.partitions_skipped == nothing.partitions or name == "cow_v6_native015_days"


def test_a_slice_with_logs_is_skipped_only_if_neither_matches(tables: Callable[[str], Opened]) -> None:
    opened = tables("mor_v6_parquet_log")
    report = opened.check([Comparison("ver", Op.GT, 100)])
    assert report.files_skipped > 0
    partly = opened.check([Comparison("ver", Op.EQ, max(r["ver"] for r in opened.rows))])
    assert partly.files_skipped < report.files_skipped


def test_an_update_in_a_log_is_found_and_what_it_replaced_is_not(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, MERGE_ON_READ)
    writer.write([row(n, "p", 1) for n in range(20)])
    writer.write([{**row(3, "p", 2), "amount": 500.0}])
    opened = Opened(Path(writer.table.base_path))
    assert opened.check([Comparison("amount", Op.EQ, 500.0)]).files_skipped == 0
    assert len(read_snapshot(writer.table, filters=[Comparison("amount", Op.EQ, 500.0)])) == 1
    assert len(read_snapshot(writer.table, filters=[Comparison("amount", Op.EQ, 0.5)])) == 19
    assert len(read_snapshot(writer.table, filters=[Comparison("ver", Op.LE, 1), Comparison("id", Op.EQ, "k3")])) == 0


def test_rows_that_compare_strangely(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    amounts = [float("nan"), 1.0, 1.0, None, -0.0, float("inf")]
    writer.write([{**row(n, "p", 1), "amount": amount, "name": None} for n, amount in enumerate(amounts)])
    opened = Opened(Path(writer.table.base_path))
    for op in COMPARE:
        for value in (1.0, 0.0, float("inf"), 2.0):
            opened.check([Comparison("amount", op, value)])
    for filters in (
        [Comparison("name", Op.IS_NULL)],
        [Comparison("name", Op.NE, "x")],
        [Comparison("amount", Op.IN, [])],
    ):
        opened.check(filters)
    opened.check([Comparison("amount", Op.IN, [0.0, 1.0])])


def test_more_partitions_than_are_asked_about_together(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE, groups=1)
    writer.write([row(n, f"p{n:03d}", 1 + n) for n in range(150)])
    report = Opened(Path(writer.table.base_path)).check([Comparison("ver", Op.IN, [3, 100, 150, 151])])
    assert (report.partitions, report.files, report.files_skipped) == (150, 150, 147)


def test_only_the_columns_asked_for_are_given(tables: Callable[[str], Opened]) -> None:
    table = tables("cow_v9_record_index").table
    found = read_snapshot(table, ["name"], filters=[Comparison("amount", Op.LT, 50.0), Comparison("ver", Op.EQ, 1)])
    assert found.column_names == ["name"]
    assert found.num_rows > 0


def test_time_travel_with_a_filter(tables: Callable[[str], Opened]) -> None:
    table = tables("mor_v6_record_index_015").table
    for instant in table.timeline().completed_writes:
        rows = read_snapshot(table, as_of=instant.time).to_pylist()
        wanted = Comparison("price", Op.GT, decimal.Decimal(100))
        found = read_snapshot(table, as_of=instant.time, filters=[wanted])
        assert keys(found.to_pylist()) == keys([r for r in rows if passes(r, wanted)])


def test_an_empty_table(tmp_path: Path) -> None:
    table = Writer.create(tmp_path, COPY_ON_WRITE).table
    assert read_snapshot(table, filters=[Comparison("amount", Op.GT, 1.0)]).num_rows == 0
    with pytest.raises(ConfigError, match="column nothing"):
        read_snapshot(table, filters=[Comparison("nothing", Op.GT, 1.0)])
