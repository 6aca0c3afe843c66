"""What a file's numbers mean under the table's schema, at any depth."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.streaming.job.column_checks import check_corrected
from tagstream.table.errors import SchemaRefusedError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.column_ranges import read_file_stats
from tagstream.table.read.snapshot import read_snapshot, snapshot_schema
from tagstream.table.schema.conform import as_meant, from_file, meant
from tagstream.table.schema.evolve import EvolutionRules, evolve
from tests.cli.running import run_json
from tests.support.public_tables import unpack

US, MS = pa.timestamp("us", tz="UTC"), pa.timestamp("ms", tz="UTC")
LOCAL_US, LOCAL_MS = pa.timestamp("us"), pa.timestamp("ms")
NOON_MS = 1_577_880_000_000
NOON = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("file", "table", "wanted"),
    [
        (US, MS, MS),
        (US, US, US),
        (MS, US, MS),  # such a file says what it means: its values are brought to microseconds
        (MS, MS, MS),
        (pa.int64(), LOCAL_MS, LOCAL_MS),
        (pa.int64(), LOCAL_US, LOCAL_US),
        (pa.int64(), MS, pa.int64()),
        (LOCAL_US, LOCAL_MS, LOCAL_US),
        (pa.list_(US), pa.list_(MS), pa.list_(MS)),
        (pa.list_(pa.field("array", US)), pa.list_(pa.field("element", MS)), pa.list_(pa.field("array", MS))),
        (pa.map_(pa.string(), US), pa.map_(pa.string(), MS), pa.map_(pa.string(), MS)),
        (pa.struct([("a", US), ("b", US)]), pa.struct([("b", MS), ("a", US)]), pa.struct([("a", US), ("b", MS)])),
        (
            pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.int64()))])),
            pa.list_(pa.struct([("m", pa.map_(pa.string(), LOCAL_MS))])),
            pa.list_(pa.struct([("m", pa.map_(pa.string(), LOCAL_MS))])),
        ),
        (pa.struct([("gone", US)]), pa.struct([("new", MS)]), pa.struct([("gone", US)])),
    ],
)
def test_the_type_that_numbers_have(file: pa.DataType, table: pa.DataType, wanted: pa.DataType) -> None:
    assert meant(file, table) == wanted


def test_numbers_stay_as_they_are_at_any_depth() -> None:
    kinds = [
        (US, MS, NOON_MS, NOON),
        (pa.list_(US), pa.list_(MS), [NOON_MS, None], [NOON, None]),
        (pa.map_(pa.string(), US), pa.map_(pa.string(), MS), [("k", NOON_MS)], [("k", NOON)]),
        (pa.struct([("t", US), ("x", US)]), pa.struct([("t", MS), ("x", US)]), {"t": NOON_MS, "x": NOON_MS * 1000},
         {"t": NOON, "x": NOON}),
        (pa.list_(pa.struct([("t", pa.int64())])), pa.list_(pa.struct([("t", LOCAL_MS)])), [{"t": NOON_MS}],
         [{"t": NOON.replace(tzinfo=None)}]),
    ]  # fmt: skip
    for number, (file, table, value, wanted) in enumerate(kinds):
        numbers = pa.array([None, value, value], _numbers(file)).view(file)
        rows = pa.table({"c": pa.chunked_array([numbers.slice(0, 2), numbers.slice(2)])})
        schema = pa.schema([("c", table), ("new", MS)])
        found = from_file(rows, schema, "a file")
        assert found.schema == schema
        assert found["c"].to_pylist() == [None, wanted, wanted], number
        assert as_meant(rows, pa.schema([("other", table)])) is rows


def _numbers(kind: pa.DataType) -> pa.DataType:
    t = pa.types
    if t.is_list(kind):
        return pa.list_(_numbers(kind.value_type))
    if t.is_map(kind):
        return pa.map_(kind.key_type, _numbers(kind.item_type))
    if t.is_struct(kind):
        return pa.struct([(member.name, _numbers(member.type)) for member in kind])
    return pa.int64() if t.is_timestamp(kind) else kind


PUBLIC = (
    "hudi_trips_logical_types_json_cow_read_v6",
    "hudi_trips_logical_types_json_mor_read_v6",
    "hudi_trips_logical_types_json_mor_read_v8_parquet_log",
)


def _times(table: HoodieTable) -> list[dt.datetime]:
    return sorted(set(read_snapshot(table, columns=["ts_millis"])["ts_millis"].to_pylist()))


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_table_as_hudi_reads_it(name: str, tmp_path: Path) -> None:
    """Base files, Avro blocks and Parquet blocks of logs."""
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    millisecond = dt.timedelta(milliseconds=1)
    first = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    found = _times(table)
    assert (found[0], found[-1]) == (first - millisecond, first + millisecond)
    rows = read_snapshot(table, columns=["local_ts_millis", "local_ts_micros"])
    assert min(rows["local_ts_millis"].to_pylist()) == dt.datetime(2015, 5, 20, 12, 34, 55, 999000)
    assert min(rows["local_ts_micros"].to_pylist()) == dt.datetime(2017, 7, 7, 7, 7, 6, 999999)


def test_whole_seconds_are_read_and_a_clustering_keeps_them(tmp_path: Path) -> None:
    """Nothing told of these before: whole seconds divide by a thousand."""
    table = HoodieTable.open(str(unpack("ms_in_us_whole_seconds", tmp_path)))
    wanted = [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)]
    assert _times(table) == wanted
    before = read_snapshot(table).drop_columns(["_hoodie_file_name"]).sort_by("_hoodie_record_key")
    assert run_json("table", "cluster", "--target-base-path", table.base_path, "--yes")["files"]
    assert _times(table.reload()) == wanted
    after = read_snapshot(table.reload()).drop_columns(["_hoodie_file_name"]).sort_by("_hoodie_record_key")
    assert after.equals(before)


@pytest.mark.parametrize("name", PUBLIC)
def test_statistics_are_of_the_numbers_in_the_table_s_unit(name: str, tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    timeline = table.timeline()
    view = table.view(timeline)
    schema = snapshot_schema(table, timeline, view)
    files = [rel for part in view.partitions() for s in view.latest_merged_slices(part) for rel in _files(s)]
    assert files
    for rel in files:
        ranges, _ = read_file_stats(table.storage, rel, {"ts_millis", "local_ts_millis", "ts_micros"}, schema)
        kinds = {column: found.kind for column, found in ranges.items()}
        assert kinds == {
            "ts_millis": "timestamp-millis", "local_ts_millis": "local-timestamp-millis", "ts_micros": "timestamp-micros",
        }, rel  # fmt: skip
        assert 1_577_836_799_999 <= ranges["ts_millis"].low <= ranges["ts_millis"].high <= 1_577_836_800_001


def _files(found: object) -> list[str]:
    return [*([found.base_path] if found.base_path else []), *found.log_paths]  # type: ignore[attr-defined]


def test_a_table_that_says_micros_is_corrected_on_request_alone(tmp_path: Path) -> None:
    """The way forward of a table whose schema has the wrong type, and whose source has the right one."""
    own = pa.schema([("id", pa.string()), ("t", US), ("l", pa.int64()), ("s", pa.struct([("t", US)]))])
    right = pa.schema([("id", pa.string()), ("t", MS), ("l", LOCAL_MS), ("s", pa.struct([("t", MS)]))])
    for name in ("t", "l", "s"):
        with pytest.raises(SchemaRefusedError, match=r"tagstream\.schema\.correct\.times=true"):
            evolve(own.remove(own.get_field_index(name)).append(own.field(name)),
                   pa.schema([own.field(n) if n != name else right.field(n) for n in own.names]),
                   EvolutionRules(given=True), "the file")  # fmt: skip
    made = evolve(own, right, EvolutionRules(given=True, corrected=True), "the file")
    assert made.schema == right
    assert len(made.changes) == 3
    same = evolve(right, right, EvolutionRules(given=True, corrected=True), "the file")
    assert same.schema == right and not same.changes


def test_real_microseconds_are_not_taken_for_milliseconds(tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack("hudi_trips_logical_types_json_cow_write", tmp_path)))
    timeline = table.timeline()
    own = snapshot_schema(table, timeline, table.view(timeline))
    own = pa.schema([f for f in own if not f.name.startswith("_hoodie_")])

    def with_millis(name: str) -> pa.Schema:
        return own.set(own.get_field_index(name), own.field(name).with_type(MS))

    check_corrected(table, own, own)
    check_corrected(table, own, with_millis("ts_millis"))  # its numbers are milliseconds
    with pytest.raises(SchemaRefusedError, match=r"'ts_micros' .* values that are microseconds"):
        check_corrected(table, own, with_millis("ts_micros"))
