"""RECORD_INDEX look-ups on tables whose record index real Hudi wrote: exactly the places of the rows, nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.index.base import RECORD_SCHEMA, OrderingCode, TableAsOf
from tagstream.index.family.record_index import RecordLevelIndex
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
    return TableAsOf(spark, table, timeline, timeline.newest_completed, OrderingCode(None, None, lambda c: c))


def tag(index: RecordLevelIndex, look: TableAsOf, keys: list[str]) -> dict[str, tuple[str, str]]:
    rows = pa.table({"record_key": pa.array(keys, pa.string()), "partition_path": pa.nulls(len(keys), pa.string())})
    records = look.spark.createDataFrame(rows, RECORD_SCHEMA)
    found = index.tag_location(records, look).toArrow().to_pylist()
    index.end_batch()
    assert len(found) == len({r["record_key"] for r in found})
    return {r["record_key"]: (r["partition_path"], r["file_id"]) for r in found}


@pytest.mark.parametrize("name", ["mor_v6_record_index_015", "mor_v8_global_record_index", "cow_v9_record_index"])
def test_every_key_is_where_its_row_is(tmp_path: Path, spark: SparkSession, name: str) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    assert RecordIndex.open(MetadataTable.open(table, table.timeline())) is not None
    columns = ["_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name"]
    rows = read_snapshot(table, columns=columns).to_pylist()
    expected = {}
    for r in rows:
        base = parse_base_file_name(r["_hoodie_file_name"])  # a row of a log names the file group alone
        expected[r["_hoodie_record_key"]] = (
            r["_hoodie_partition_path"],
            base.file_id if base else r["_hoodie_file_name"],
        )
    assert len(expected) > 50
    look = look_at(table, spark)
    index = RecordLevelIndex()
    assert tag(index, look, [*expected, *expected, "no such key", "", "é", "😀"]) == expected
    assert tag(index, look, ["nothing", "known"]) == {}
    assert tag(index, look, []) == {}


def test_a_table_without_one_is_refused_by_name(tmp_path: Path, spark: SparkSession) -> None:
    table = HoodieTable.open(str(unpack("cow_v6_hive_alltypes", tmp_path)))
    with pytest.raises(UnsupportedTableError, match="has no record index"):
        tag(RecordLevelIndex(), look_at(table, spark), ["a"])
