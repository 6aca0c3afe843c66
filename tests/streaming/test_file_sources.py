"""Streams from files of Parquet, Avro and CSV: rows, bad records, other columns, and files of other programs."""

from __future__ import annotations

import io
import json
import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.errors import BadRecordsError
from tagstream.table.file_group.log_format import zigzag
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.streaming.stream_case import UNSET, StreamCase
from tests.streaming.test_bad_records import quarantined
from tests.support import event_files
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
FORMS = ("parquet", "avro", "csv")
NO_SCHEMA = {"hoodie.streamer.schemaprovider.source.schema.file": UNSET}


def case_of(folder: Path, spark: SparkSession, form: str, *, kind: str = "COPY_ON_WRITE", **conf: str) -> StreamCase:
    given = event_files.CONF[form] | {key.replace("_", "."): value for key, value in conf.items()}
    return StreamCase(folder, spark, kind, given, source_class=event_files.CLASSES[form])


def put(case: StreamCase, name: str, data: bytes | pa.Table, *, tick: int) -> Path:
    case.source.mkdir(parents=True, exist_ok=True)
    path = case.source / name
    if isinstance(data, bytes):
        path.write_bytes(data)
    else:
        pq.write_table(data, path)
    os.utime(path, (1_600_000_000 + tick, 1_600_000_000 + tick))
    return path


def rows_of(case: StreamCase) -> list[dict[str, Any]]:
    return sorted(read_table(case.table, meta_columns=False).to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_of_files(tmp_path: Path, spark: SparkSession, form: str) -> None:
    events = [e for e in ev.generate(500, seed=4) if not e.is_tombstone]
    case = case_of(tmp_path, spark, form)
    event_files.write_file(form, events[:200], case.source, 0)
    event_files.write_file(form, events[200:], case.source, 1)
    reports = case.run("--source-limit", "1000000000")
    assert [r.records for r in reports] == [len(events)]
    wrong = compare(ev.rows(ev.oracle(events).values()), read_table(case.table, meta_columns=False), ["id"])
    assert not wrong, wrong
    assert case.run() == []


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("form", FORMS)
def test_a_large_file_is_shared_by_the_tasks(
    tmp_path: Path, spark: SparkSession, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tagstream.streaming.source.file_plans._LEAST_SPLIT", 4_000)
    events = [e for e in ev.generate(3_000, seed=5) if not e.is_tombstone]
    case = case_of(tmp_path, spark, form, kind="MERGE_ON_READ")
    event_files.write_file(form, events, case.source, 0)
    (report,) = case.run()
    assert report.records == len(events)
    (plan,) = (case.root / "tagstream" / "source" / "plans").glob("*.jsonl")
    splits = [split for line in plan.read_text().splitlines()[1:] for split in json.loads(line)["splits"]]
    assert len(splits) > 2
    wrong = compare(ev.rows(ev.oracle(events).values()), read_table(case.table, meta_columns=False), ["id"])
    assert not wrong, wrong


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("form", FORMS)
def test_bad_records_are_in_the_quarantine_with_their_place(tmp_path: Path, spark: SparkSession, form: str) -> None:
    """A record without a key, one of them in the second file: the others are written if the options allow it."""
    case = case_of(tmp_path, spark, form)
    good = [ev.Event(f"k{n}", "p", n) for n in range(4)]
    event_files.write_file(form, good[:2], case.source, 0)
    rows = [good[2].row(), {**good[3].row(), "ts": None}]
    schema = {**ev.AVRO_SCHEMA, "fields": [
        {**f, "type": ["null", "long"]} if f["name"] == "ts" else f for f in ev.AVRO_SCHEMA["fields"]
    ]}  # fmt: skip
    path = case.source / f"bad.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows, ev.ARROW_SCHEMA), path)
    elif form == "avro":
        with path.open("wb") as f:
            fastavro.writer(f, schema, rows)
    else:
        text = event_files.content("csv", good[2:3]).decode() + "k3,p,,,,false\n"
        path.write_text(text)
    with pytest.raises(BadRecordsError, match=rf"in/bad\.{form}"):
        case.run("--source-limit", "1000000")
    report = case.run("--source-limit", "1000000", "--commit-on-errors", "--max-bad-records", "5")[0]
    assert (report.records, report.quarantined) == (4, 1)
    assert [row["id"] for row in rows_of(case)] == ["k0", "k1", "k2"]


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("form", FORMS)
def test_texts_that_are_not_utf8_are_bad_records(
    tmp_path: Path, spark: SparkSession, form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a key, in another column, and in a line of CSV with a field too many."""
    case = case_of(tmp_path, spark, form)
    put(case, "f", with_wrong_texts(form), tick=1)
    report = case.run("--source-limit", "1000000", "--commit-on-errors", "--max-bad-records", "5")[0]
    assert (report.records, report.quarantined) == (4, 3)
    assert [row["id"] for row in rows_of(case)] == ["k3"]
    found = [bad["reason"] for bad in quarantined(case)]
    assert sum("UTF-8" in reason or "utf-8" in reason for reason in found) == (2 if form == "csv" else 3), found
    assert "Traceback" not in capfd.readouterr().err


def with_wrong_texts(form: str) -> bytes:
    """A file of the records k0 to k3, of which only the last one has no byte that is not UTF-8."""
    rows = [ev.Event(f"k{n}", "part", n, name=f"name{n}").row() for n in range(4)]
    wrong = {"k0": b"k\xff", "name1": b"nam\xe9!", "k2": b"\xfe"}
    if form == "csv":
        data = event_files.content("csv", [ev.Event(f"k{n}", "part", n, name=f"name{n}") for n in range(4)])
        for text, raw in {**wrong, "k2": b"\xfe,k2"}.items():
            data = data.replace(text.encode(), raw)
        return data
    for row in rows:
        for name, value in row.items():
            row[name] = wrong.get(value, value) if isinstance(value, str) else value
            row[name] = row[name].encode() if isinstance(row[name], str) else row[name]
    out = io.BytesIO()
    if form == "avro":
        raw = json.loads(json.dumps(ev.AVRO_SCHEMA).replace('"string"', '"bytes"'))
        sync = b"0123456789abcdef"
        fastavro.writer(out, ev.AVRO_SCHEMA, [], sync_marker=sync)  # bytes and texts have the same form in records
        records = io.BytesIO()
        for row in rows:
            fastavro.schemaless_writer(records, fastavro.parse_schema(raw), row)
        data = records.getvalue()
        return b"".join([out.getvalue(), zigzag(len(rows)), zigzag(len(data)), data, sync])
    fields = [pa.field(f.name, pa.binary() if pa.types.is_string(f.type) else f.type) for f in ev.ARROW_SCHEMA]
    table = pa.Table.from_pylist(rows, pa.schema(fields))
    texts = [
        pa.Array.from_buffers(f.type, len(c), c.buffers()) if pa.types.is_string(f.type) else c
        for f, c in zip(ev.ARROW_SCHEMA, (column.combine_chunks() for column in table.columns), strict=True)
    ]
    pq.write_table(pa.table(texts, names=ev.ARROW_SCHEMA.names), out)
    return out.getvalue()


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("form", ["parquet", "avro"])
def test_a_new_table_gets_the_columns_of_its_files(tmp_path: Path, spark: SparkSession, form: str) -> None:
    """The first file has the columns; later ones have a column more, a wider type, and a column less."""
    case = case_of(tmp_path, spark, form)
    case.conf = {**case.conf, **NO_SCHEMA}
    kinds = (
        {"id": "string", "part": "string", "ts": "long", "n": "int"},
        {"id": "string", "part": "string", "ts": "long", "n": "long", "note": "string"},
        {"id": "string", "part": "string", "ts": "long"},
    )
    for n, kind in enumerate(kinds):
        row = {"id": f"k{n}", "part": "p", "ts": n, "n": 2**40 if n else 7, "note": "new"}
        row = {name: row[name] for name in kind}
        if form == "parquet":
            arrow = {"string": pa.string(), "int": pa.int32(), "long": pa.int64()}
            data: bytes | pa.Table = pa.table({name: pa.array([row[name]], arrow[t]) for name, t in kind.items()})
            put(case, f"f{n}", data, tick=n)
            continue
        path = put(case, f"f{n}", b"", tick=n)
        fields = [{"name": name, "type": ["null", t]} for name, t in kind.items()]
        with path.open("wb") as f:
            fastavro.writer(f, {"type": "record", "name": "r", "fields": fields}, [row])
        os.utime(path, (1_600_000_000 + n, 1_600_000_000 + n))
    case.run()
    assert rows_of(case) == [
        {"id": "k0", "part": "p", "ts": 0, "n": 7, "note": None},
        {"id": "k1", "part": "p", "ts": 1, "n": 2**40, "note": "new"},
        {"id": "k2", "part": "p", "ts": 2, "n": None, "note": None},
    ]


TYPED = """id string, part string, ts bigint, amount decimal(20,4), day date, moment timestamp, text string, flag boolean,
 ratio double, small int"""
TYPED_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "typed",
    "fields": [
        {"name": "id", "type": "string"},
        *({"name": name, "type": ["null", kind], "default": None} for name, kind in (
            ("part", "string"), ("ts", "long"),
            ("amount", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}),
            ("day", {"type": "int", "logicalType": "date"}),
            ("moment", {"type": "long", "logicalType": "timestamp-micros"}),
            ("text", "string"), ("flag", "boolean"), ("ratio", "double"), ("small", "int"),
        )),
    ],
}  # fmt: skip


def typed_rows() -> list[dict[str, Any]]:
    texts = ['q"q', "two\nlines", "comma,", "b\\b", "end\\", " blank ", "ü", None, '\\"']
    return [
        {
            "id": f"k{n:03d}", "part": f"p{n % 3}", "ts": n, "amount": Decimal(n * 12345 - 7) / 10_000,
            "day": date(1960 + n, 1, 1 + n % 28), "moment": datetime(2001, 1, 1, n % 24, 5, 6, n * 1000, UTC),
            "text": texts[n % len(texts)], "flag": [True, False, None][n % 3], "ratio": n / 7, "small": -n,
        }
        for n in range(60)
    ]  # fmt: skip


@pytest.mark.extended("files that Spark writes, over real streams")
@pytest.mark.parametrize(
    ("form", "more"),
    [
        ("parquet", {}),
        ("parquet", {"compression": "zstd"}),
        ("csv", {"header": "true", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}),
        ("csv", {"header": "true", "escape": '"', "compression": "gzip", "quoteAll": "true",
                 "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSSXXX", "ignoreTrailingWhiteSpace": "false",
                 "ignoreLeadingWhiteSpace": "false"}),
    ],
    ids=["snappy", "zstd", "defaults", "rfc4180"],
)  # fmt: skip
def test_files_of_sparks_own_writers(tmp_path: Path, spark: SparkSession, form: str, more: dict[str, str]) -> None:
    rows = typed_rows()
    rows = [{**row, "text": "x" if form == "csv" and "escape" not in more and row["text"] == " blank " else row["text"]}
            for row in rows]  # fmt: skip
    case = case_of(tmp_path, spark, form)
    case.conf = {"hoodie.streamer.csv.header": "true", "hoodie.streamer.csv.multiLine": "true"} if form == "csv" else {}
    case.conf = dict(case.conf) | ({"hoodie.streamer.csv.escape": more["escape"]} if "escape" in more else {})
    case.schema = TYPED_SCHEMA
    zone = spark.conf.get("spark.sql.session.timeZone")
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], TYPED).repartition(2)
    frame.write.options(**more).format(form).mode("overwrite").save(str(case.source))
    report = case.run("--source-limit", "100000000")
    assert sum(r.records for r in report) == len(rows), zone
    assert rows_of(case) == rows


@pytest.mark.extended("files that Spark writes, over real streams")
def test_nested_columns_of_sparks_parquet(tmp_path: Path, spark: SparkSession) -> None:
    case = case_of(tmp_path, spark, "parquet")
    case.conf = {**case.conf, **NO_SCHEMA}
    full = ("k1", "p", 1, {"a": [1, None]}, [("x", 2.5)], datetime(2020, 1, 1, tzinfo=UTC))
    nested = [full, ("k2", "p", 2, None, None, None)]
    kind = (
        "id string, part string, ts bigint, m map<string,array<int>>, l array<struct<n:string,v:double>>, t timestamp"
    )
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        spark.createDataFrame(nested, kind).coalesce(1).write.parquet(str(case.source))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    case.run()
    (base,) = case.table.rglob("*.parquet")  # hudi-rs does not read maps
    found = pq.ParquetFile(base).read().drop_columns([n for n in pq.read_schema(base).names if n.startswith("_hoodie")])
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == [
        {"id": "k1", "part": "p", "ts": 1, "m": [("a", [1, None])], "l": [{"n": "x", "v": 2.5}],
         "t": datetime(2020, 1, 1, tzinfo=UTC)},
        {"id": "k2", "part": "p", "ts": 2, "m": None, "l": None, "t": None},
    ]  # fmt: skip


@pytest.mark.extended("the same decisions over another real stream")
def test_transformers_see_the_rows_of_parquet_files(tmp_path: Path, spark: SparkSession) -> None:
    events = [ev.Event(f"k{n}", "p", n, amount=n / 2) for n in range(20)] + [ev.Event("k3", "p", 99, deleted=True)]
    case = case_of(tmp_path, spark, "parquet")
    case.conf = {
        **case.conf,
        "hoodie.streamer.transformer.class": "org.apache.hudi.utilities.transform.SqlQueryBasedTransformer",
        "hoodie.streamer.transformer.sql": "SELECT id, part, ts, amount * 2 AS twice FROM <SRC>",
    }
    event_files.write_file("parquet", events, case.source, 0)
    case.run()
    found = {row["id"]: row["twice"] for row in rows_of(case)}
    assert found == {f"k{n}": float(n) for n in range(20) if n != 3}


DMS = {
    "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.AWSDmsAvroPayload",
    "hoodie.streamer.transformer.class": "org.apache.hudi.utilities.transform.AWSDmsTransformer",
}


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize(("form", "kind"), [("parquet", "MERGE_ON_READ"), ("csv", "COPY_ON_WRITE")])
def test_a_full_load_and_changes_of_aws_dms(tmp_path: Path, spark: SparkSession, form: str, kind: str) -> None:
    """LOAD files have no operation, change files have it first. A delete has the row before it."""
    case = case_of(tmp_path, spark, form, kind=kind)
    case.conf = {**case.conf, **DMS, **(NO_SCHEMA if form == "parquet" else {})}
    case.schema = {"type": "record", "name": "r", "fields": [
        {"name": "id", "type": "string"},
        *({"name": n, "type": ["null", t], "default": None}
          for n, t in (("part", "string"), ("ts", "long"), ("v", "string"))),
    ]}  # fmt: skip
    load = pa.table({"id": ["a", "b", "c"], "part": ["p"] * 3, "ts": [1, 1, 1], "v": ["a1", "b1", "c1"]})
    change = pa.table({"Op": ["U", "D", "I", "I", "D"], "id": ["a", "b", "d", "e", "e"], "part": ["p"] * 5,
                       "ts": [2, 2, 2, 2, 3], "v": ["a2", "b1", "d1", "e1", "e1"]})  # fmt: skip
    for n, (name, table) in enumerate((("LOAD00000001", load), ("20240101-120000", change))):
        if form == "parquet":
            put(case, f"{name}.parquet", table, tick=n)
        else:
            lines = [",".join(table.column_names), *(",".join(map(str, row.values())) for row in table.to_pylist())]
            put(case, f"{name}.csv", ("\n".join(lines) + "\n").encode(), tick=n)
    case.run()
    found = [(row["id"], row["v"], row["Op"]) for row in rows_of(case)]
    assert found == [("a", "a2", "U"), ("c", "c1", ""), ("d", "d1", "I")]
    assert HoodieTable.open(str(case.table)).config.is_event_time
