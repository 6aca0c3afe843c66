"""RECORD_INDEX look-ups on tables whose record index real Hudi wrote: exactly the places of the rows, nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.index.base import RECORD_SCHEMA, OrderingCode, TableAsOf
from tagstream.index.record_index import GlobalRecordLevelIndex, RecordLevelIndex
from tagstream.table.errors import UnsupportedTableError
from tagstream.table.file_group.names import parse_base_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.record_index import RecordIndex
from tagstream.table.read.snapshot import read_snapshot
from tests.table.reference import unpack

pytestmark = pytest.mark.spark


def look_at(table: HoodieTable, spark: SparkSession) -> TableAsOf:
    timeline = table.timeline()
    return TableAsOf(spark, table, timeline, timeline.newest_completed, OrderingCode(None, lambda c: c))


Found = dict[tuple[str | None, str], tuple[str, str]]


def tag(index: GlobalRecordLevelIndex, look: TableAsOf, keys: list[tuple[str | None, str]]) -> Found:
    """Places of keys (partition path or None, record key), by the same."""
    rows = pa.table(
        {"record_key": [key for _, key in keys], "partition_path": [path for path, _ in keys]},
        pa.schema([("record_key", pa.string()), ("partition_path", pa.string())]),
    )
    records = look.spark.createDataFrame(rows, RECORD_SCHEMA)
    found = index.tag_location(records, look).toArrow().to_pylist()
    index.end_batch()
    named = {
        (None if index.is_global else r["partition_path"], r["record_key"]): (r["partition_path"], r["file_id"])
        for r in found
    }
    assert len(named) == len(found)
    return named


def rows_of(table: HoodieTable, *, is_global: bool) -> Found:
    """Where the rows are."""
    columns = ["_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name"]
    found = {}
    for r in read_snapshot(table, columns=columns).to_pylist():
        name, path = r["_hoodie_file_name"], r["_hoodie_partition_path"]
        base = parse_base_file_name(name)  # a row of a log names the file group alone
        found[None if is_global else path, r["_hoodie_record_key"]] = (path, base.file_id if base else name)
    return found


@pytest.mark.parametrize("name", ["mor_v6_record_index_015", "mor_v8_global_record_index", "cow_v9_record_index"])
def test_every_key_is_where_its_row_is(tmp_path: Path, spark: SparkSession, name: str) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    assert RecordIndex.open(MetadataTable.open(table, table.timeline())) is not None
    expected = rows_of(table, is_global=True)
    assert len(expected) > 50
    look, index = look_at(table, spark), GlobalRecordLevelIndex()
    others: list[tuple[str | None, str]] = [(None, key) for key in ("no such key", "", "é", "😀")]
    assert tag(index, look, [*expected, *expected, *others]) == expected
    assert tag(index, look, others[:2]) == {}
    assert tag(index, look, []) == {}


def test_a_key_has_a_place_in_each_partition(tmp_path: Path, spark: SparkSession) -> None:
    table = HoodieTable.open(str(unpack("mor_v9_partitioned_record_index", tmp_path)))
    expected = rows_of(table, is_global=False)
    assert len(expected) > len({key for _, key in expected}), "keys that are in two partitions"
    look, index = look_at(table, spark), RecordLevelIndex()
    elsewhere = [(path, key) for path in ("a_b", "no such") for _, key in expected if (path, key) not in expected]
    assert elsewhere
    assert tag(index, look, [*expected, *expected, *elsewhere, ("a_b", "é")]) == expected
    assert tag(index, look, [*elsewhere[-2:], ("no such", "k")]) == {}
    assert tag(index, look, []) == {}


def test_a_table_without_one_is_refused_by_name(tmp_path: Path, spark: SparkSession) -> None:
    table = HoodieTable.open(str(unpack("cow_v6_hive_alltypes", tmp_path)))
    with pytest.raises(UnsupportedTableError, match="has no record index"):
        tag(GlobalRecordLevelIndex(), look_at(table, spark), [(None, "a")])


@pytest.mark.parametrize(
    ("name", "index", "words"),
    [
        ("cow_v9_record_index", RecordLevelIndex(), "over all partitions; set hoodie.index.type=RECORD_INDEX"),
        (
            "mor_v9_partitioned_record_index",
            GlobalRecordLevelIndex(),
            "by partition; set hoodie.index.type=RECORD_LEVEL",
        ),
    ],
)
def test_one_of_the_other_form_is_refused_by_name(
    tmp_path: Path, spark: SparkSession, name: str, index: GlobalRecordLevelIndex, words: str
) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    with pytest.raises(UnsupportedTableError, match=words):
        tag(index, look_at(table, spark), [("a_b", "a")])
