"""A new table without a schema file, before Spark: what the first records say, or why they cannot."""

from __future__ import annotations

import gzip
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tagstream.streaming.job.first_records import with_first_schema
from tagstream.streaming.job.main import main
from tagstream.streaming.options.cli import load_options
from tests.streaming.job.test_preflight import SCHEMA_KEY, arguments, no_spark, refused

__all__ = ["no_spark"]  # a fixture of all tests here
FIELDS = (("id", "string"), ("part", "string"), ("ts", "int64"))


def record(table: str = "d.s.t", flat: bool = False, columns: tuple[tuple[str, str], ...] = FIELDS) -> dict[str, Any]:
    fields = [{"field": name, "type": kind, "optional": name != "id"} for name, kind in columns]
    row: dict[str, Any] = {name: 1 if kind == "int64" else "x" for name, kind in columns}
    database, schema, name = table.split(".")
    source = {"db": database, "schema": schema, "table": name, "lsn": 1}
    if flat:
        beside = [{"field": f"__{key}", "type": "string", "optional": True} for key in ("op", "db", "schema", "table")]
        row |= {"__op": "c", **{f"__{key}": source[key] for key in ("db", "schema", "table")}}
        return {"schema": {"type": "struct", "fields": [*fields, *beside]}, "payload": row}
    after = {"field": "after", "type": "struct", "fields": fields, "optional": True}
    return {"schema": {"type": "struct", "fields": [after]}, "payload": {"after": row, "op": "c", "source": source}}


def job(folder: Path, *records: dict[str, Any], form: str = "debezium-json", **conf: str) -> list[str]:
    argv = arguments(folder, **{
        SCHEMA_KEY: None, "tagstream.source.format": form, "hoodie.table.ordering.fields": None, **conf,
    })  # fmt: skip
    if records:
        with gzip.open(folder / "in" / "b.json.gz", "wt") as file:
            file.write("".join(json.dumps(r) + "\n" for r in records))
        (folder / "in" / "a.json").write_text("\n")
    return argv


@pytest.mark.parametrize("form", ["debezium-json", "debezium-flat-json"])
def test_the_first_record_of_the_stream_s_tables_counts(form: str, tmp_path: Path) -> None:
    flat = form == "debezium-flat-json"
    heartbeat = {"schema": {"type": "struct", "fields": [{"field": "ts_ms", "type": "int64"}]}, "payload": {"ts_ms": 1}}
    signal = record(columns=(("id", "string"), ("type", "string"), ("data", "string")), flat=flat)
    other, own = record("d.s.other", flat), record("d.s.own", flat, (*FIELDS, ("more", "int32")))
    argv = job(tmp_path, heartbeat, signal, other, own, form=form)
    found = with_first_schema(load_options(argv)).source.first_schema
    assert found is not None and found.table == "d.s.other"
    assert [f["name"] for f in json.loads(found.avro_json)["fields"]] == ["id", "part", "ts"]
    named = job(tmp_path, form=form, **{"tagstream.source.tables": r"s\.own"})
    found = with_first_schema(load_options(named)).source.first_schema
    assert found is not None and found.table == "d.s.own"
    assert found.source == f"the first record of source folder {tmp_path}/in with a schema (table d.s.own)"
    fields = json.loads(found.avro_json)["fields"]
    assert [(f["name"], f["type"]) for f in fields] == [
        ("id", "string"), ("part", ["null", "string"]), ("ts", ["null", "long"]), ("more", ["null", "int"]),
    ]  # fmt: skip


def test_a_dry_run_says_where_the_columns_are_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*job(tmp_path, record()), "--dry-run"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "make the table (COPY_ON_WRITE) with the columns of the first record of source folder" in told


def test_of_a_topic_only_a_start_knows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        argv = job(tmp_path, **{
            "hoodie.streamer.source.kafka.topic": "t", "bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}",
        })  # fmt: skip
        argv[argv.index("JsonDFSSource")] = "JsonKafkaSource"
        assert main([*argv, "--dry-run"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "with the columns of the first record that contains its schema, which only a start reads" in told


def test_what_says_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = job(tmp_path)
    assert "has no record to take the columns from: start when it has one" in refused(tmp_path, argv, capsys, 1)
    bare = record()["payload"]
    argv = job(tmp_path, bare, bare)
    line = refused(tmp_path, argv, capsys, 2)
    assert "none of the first 2 records of source folder" in line and "value.converter.schemas.enable=true" in line
    argv = job(tmp_path, record(), **{"tagstream.source.tables": "s.own"})
    line = refused(tmp_path, argv, capsys, 2)
    assert "none of the first 1 records" in line and "of a table that tagstream.source.tables (s.own) names" in line
    argv = job(tmp_path, record(columns=(("n", "int64"),)))
    assert "record key field 'id' is not a column of the first record of" in refused(tmp_path, argv, capsys, 2)
