"""The first run of a stream of changes knows its table before the query: nothing fails, and no trace is in the log."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.recovery.same_source import read_table
from tagstream.table.storage.posix import PosixStorage
from tests.streaming.stream_case import StreamCase
from tests.support.hudi_rs import read_table as rows_of

pytestmark = pytest.mark.spark
SCHEMA = {
    "type": "record", "name": "r",
    "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": "string"}, {"name": "ts", "type": "long"}],
}  # fmt: skip
KEYS = {
    "hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.table.ordering.fields": "ts",
}  # fmt: skip


def maxwell(table: str, row: dict[str, object]) -> str:
    return json.dumps({"database": "d", "table": table, "type": "insert", "ts": 1, "data": row})


def debezium(table: str, row: dict[str, object]) -> str:
    return json.dumps(
        {"op": "c", "before": None, "after": row, "source": {"db": "d", "table": table, "lsn": row["ts"]}}
    )


def canal(table: str, row: dict[str, object]) -> str:
    return json.dumps({"database": "d", "table": table, "type": "INSERT", "isDdl": False, "data": [row], "old": None})


FORMATS = {"maxwell-json": maxwell, "debezium-json": debezium, "canal-json": canal}


@pytest.mark.extended("more formats", first=("maxwell",))
@pytest.mark.parametrize("record_format", FORMATS)
def test_its_query_begins_once(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture, record_format: str
) -> None:
    caplog.set_level(logging.INFO, "tagstream")
    write = FORMATS[record_format]
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", KEYS | {"tagstream.source.format": record_format}, SCHEMA)
    case.source.mkdir()
    (case.source / "a.json").write_text("\n\n".join(write("t", {"id": n, "v": "a", "ts": 1}) for n in range(3)))
    assert [(r.records, r.quarantined) for r in case.run()] == [(3, 0)]
    assert read_table(PosixStorage(str(case.checkpoint))) == "d.t"
    told = [line for line in caplog.messages if "starts again" in line or "the stream reads table" in line]
    assert [line.partition(";")[0] for line in told] == ["the stream reads table d.t"]
    (case.source / "b.json").write_text(write("other", {"id": 9, "v": "b", "ts": 2}))
    assert [r.quarantined for r in case.run("--commit-on-errors")] == [1]
    assert sorted(rows_of(case.table)["id"].to_pylist()) == [0, 1, 2]


def test_a_stream_without_a_record_learns_it_later(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tagstream")
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", KEYS | {"tagstream.source.format": "maxwell-json"}, SCHEMA)
    assert case.run() == []
    assert read_table(PosixStorage(str(case.checkpoint))) is None
    (case.source / "a.json").write_text(maxwell("t", {"id": 1, "v": "a", "ts": 1}))
    assert [r.records for r in case.run()] == [1]
    assert read_table(PosixStorage(str(case.checkpoint))) == "d.t"
    assert not [line for line in caplog.messages if "starts again" in line]
