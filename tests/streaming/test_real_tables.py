"""Every version 6 table that real Hudi wrote is continued by the stream, read by us and by hudi-rs afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.bootstrap.plan import plan_bootstrap
from tagstream.bootstrap.scan import key_reader
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.streaming.real_tables import CONTINUED, NOT_BY_HUDI_RS, continue_table, send
from tests.streaming.stream_case import StreamCase
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.table.reference import expected, unpack

pytestmark = [pytest.mark.spark, pytest.mark.interop]


@pytest.mark.extended(
    "more tables that real Hudi wrote",
    first=("mor_v6_compaction_pending",),
)
@pytest.mark.parametrize("name", CONTINUED)
def test_an_update_a_move_and_an_insert(name: str, tmp_path: Path, spark: SparkSession) -> None:
    done = continue_table(name, tmp_path, spark)
    table = HoodieTable.open(str(done.table))
    assert validate(table) == []
    assert validate_metadata(table) == []
    done.check(read_snapshot(table), "this project")
    if name not in NOT_BY_HUDI_RS:
        done.check(read_table(done.table), "hudi-rs")


def announced_twice(table: HoodieTable) -> int:
    """Keys in more than one place for whoever takes every key of base files and logs and looks at no delete."""
    plan = plan_bootstrap(table)
    reader = key_reader(plan, pa.int64())
    assert isinstance(reader, SliceReader)
    places: dict[str, set[str]] = {}
    for planned in plan.slices:
        batches = [b.column(RECORD_KEY) for b in reader.base_batches(planned.file_slice, (RECORD_KEY,))]
        batches += [log.keys for log in reader.log_batches(planned.file_slice)]
        for key in (key for batch in batches for key in batch.to_pylist()):
            places.setdefault(key, set()).add(planned.file_slice.file_id)
    return sum(len(found) > 1 for found in places.values())


@pytest.mark.extended("the same decisions over another real stream")
def test_moves_that_are_not_compacted_double_no_key(tmp_path: Path, spark: SparkSession) -> None:
    """On this table a new job of Hudi's Flink writer, which loads its index without looking at deletes, doubled 8 of
    750 keys with the very same events.
    """
    case = StreamCase(tmp_path / "job", spark, existing=unpack("flink_mor_moves", tmp_path))
    table = HoodieTable.open(str(case.table))
    assert announced_twice(table) > 60
    rows = {r["_hoodie_record_key"]: r["row"] for r in expected(case.table)["records"]}
    for number in (4, 5):
        events = [json.loads(x) for x in (case.table.parent / "next" / f"{number}.json").read_text().splitlines()]
        send(case, events, number)
        rows |= {event["id"]: event for event in events}
    case.bootstrap()
    reports = case.run()
    assert [(r.updates, r.moves, r.inserts) for r in reports] == [(90, 30, 30)] * 2
    assert len(rows) == 750
    schema = read_snapshot(table.reload(), columns=["id", "part", "ts", "name", "city", "amount", "qty", "note"]).schema
    wanted = pa.Table.from_pylist(list(rows.values()), schema=schema)
    for found in (read_snapshot(table.reload()), read_table(case.table)):
        assert not (wrong := compare(wanted, found, ["id"])), str(wrong)
        assert found["_hoodie_partition_path"].to_pylist() == found["part"].to_pylist()
