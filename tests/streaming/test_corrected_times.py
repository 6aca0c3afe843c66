"""A table whose schema says microseconds where its values are milliseconds, and a source that says what they are."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.job.main import main
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tests.streaming.public_tables_case import PublicCase
from tests.support import events as ev

NAME = "hudi_trips_logical_types_json_cow_write"
KINDS = {
    "ts_millis": "timestamp-millis",
    "local_ts_millis": "local-timestamp-millis",
    "local_ts_micros": "local-timestamp-micros",
}
FIRST = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


def _schema(case: PublicCase) -> str:
    """The table's schema with the types that the source means."""
    record = json.loads(case.table.schema_json() or "")
    for column in record["fields"]:
        if column["name"] in KINDS:
            column["type"] = {"type": "long", "logicalType": KINDS[column["name"]]}
    path = case.case.folder / "right.avsc"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    return str(path)


@pytest.mark.spark
def test_the_source_s_types_take_the_place_of_the_wrong_ones(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    case = PublicCase.of(NAME, tmp_path, spark)
    key = "hoodie.streamer.schemaprovider.source.schema.file"
    conf = {**case.case.conf, key: _schema(case)}
    case.case.conf = conf
    assert main([*case.case.arguments(), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "column 'ts_millis' is timestamp-millis, in the table it is timestamp-micros" in said
    assert "set tagstream.schema.correct.times=true" in said
    case.case.conf = {**conf, "tagstream.schema.correct.times": "true"}
    assert main([*case.case.arguments(), "--dry-run"]) == 0
    row = next(row for row in case.rows.values() if row["ts_millis"] is not None)
    event = {**row, "ts_millis": "2021-06-01T00:00:00.123Z", "local_ts_millis": "2015-05-20T12:34:56.001",
             "local_ts_micros": "2017-07-07T07:07:07.000001", "ts_micros": "2020-06-01T12:00:00.000001Z"}  # fmt: skip
    event |= {"event_date": str(row["event_date"]), "timestamp": row["timestamp"] + 1}
    event |= {name: str(row[name]) for name in ("dec_fixed_small", "dec_fixed_large")}
    event = {k: v for k, v in event.items() if k not in ("_hoodie_record_key", "_hoodie_partition_path")}
    case.case.source.mkdir(exist_ok=True)
    ev.write_event_file(case.case.source, 0, json.dumps(event) + "\n", modified=1_700_000_000)
    (report,) = case.case.run()
    assert report.updates == 1
    table = HoodieTable.open(str(case.case.table))
    found = read_snapshot(table, columns=["_row_key", *KINDS]).to_pylist()
    times = {r["_row_key"]: r["ts_millis"] for r in found}
    assert times.pop(row["_row_key"]) == dt.datetime(2021, 6, 1, 0, 0, 0, 123000, tzinfo=dt.UTC)
    assert {abs(time - FIRST) <= dt.timedelta(milliseconds=1) for time in times.values()} == {True}
    assert {r["local_ts_millis"].year for r in found} == {2015}
    assert {r["local_ts_micros"].year for r in found} == {2017}
