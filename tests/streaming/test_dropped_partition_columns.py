"""Tables whose files leave out the partition columns: rows are the input's by every reader, in every kind of table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import tagstream
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import DROP_KEY
from tagstream.table.services.validate import validate
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare

pytestmark = pytest.mark.spark
COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
PER_FILE = 300
HIVE = "hoodie.datasource.write.hive_style_partitioning"


def base_files(table: Path) -> list[Path]:
    return [path for path in table.rglob("*.parquet") if ".hoodie" not in path.parts]


def check(case: StreamCase, live: Mapping[str, ev.Event]) -> None:
    expected = ev.rows(live.values())
    table = HoodieTable.open(str(case.table))
    assert table.config.drops_partition_columns
    for path in base_files(case.table):
        assert "part" not in pq.read_schema(path).names
    assert '"part"' not in (table.schema_json() or "")
    ours = tagstream.open_table(case.table).scan().to_arrow()
    assert ours.column_names[-1] == "part"
    assert not (wrong := compare(expected, ours, ["id"])), wrong
    assert validate(table) == []


@pytest.mark.extended("more kinds of tables", first=("COPY_ON_WRITE-true",))
@pytest.mark.parametrize("hive", ["true", "false"])
@pytest.mark.parametrize("table_type", [COW, MOR])
def test_a_disordered_stream_ends_in_the_oracles_rows(
    tmp_path: Path, spark: SparkSession, table_type: str, hive: str
) -> None:
    events = list(ev.generate(4 * PER_FILE, ev.Mix(keys=120), seed=17))
    case = StreamCase(tmp_path, spark, table_type, {DROP_KEY: "true", HIVE: hive})
    ev.write_files(events[: 2 * PER_FILE], case.source, PER_FILE)
    first = case.run()
    check(case, ev.oracle(events[: 2 * PER_FILE]))
    ev.write_files(events, case.source, PER_FILE)
    reports = first + case.run()
    assert sum(r.moves for r in reports) > 50
    check(case, ev.oracle(events))
