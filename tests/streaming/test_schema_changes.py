"""Schemas that change while a stream runs, taken up with the index kept, or refused with nothing lost."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tagstream.state.checkpoint import read_meta
from tagstream.table.errors import SchemaRefusedError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import META_COLUMNS, avro_to_arrow
from tagstream.table.services.validate import validate
from tagstream.table.storage.posix import PosixStorage
from tests.streaming.stream_case import StreamCase
from tests.support import cdc, schema_registry
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker
from tests.support.producer import send_captured
from tests.support.table_version import using

pytestmark = pytest.mark.spark
BOTH = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
FILE = "hoodie.streamer.schemaprovider.source.schema.file"
Row = dict[str, Any]


def column(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, **more}


def schema(*columns: dict[str, Any]) -> dict[str, Any]:
    plain = [{"name": "id", "type": "string"}, {"name": "part", "type": "string"}, {"name": "ts", "type": "long"}]
    return {"type": "record", "name": "event", "fields": [*plain, *columns]}


def decimal(precision: int, scale: int = 2) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


FIRST = schema(column("n", "int"), column("f", "float"), column("d", decimal(8)), column("gone", "string"))
SECOND = schema(column("n", "long"), column("f", "double"), column("d", decimal(14)), column("new", "string"))


def put(case: StreamCase, name: str, rows: list[Row]) -> None:
    """A file of the source; later names are later files."""
    case.source.mkdir(parents=True, exist_ok=True)
    (case.source / f"{name}.json").write_text("".join(json.dumps(r) + "\n" for r in rows))


def row(key: str, ts: int, part: str = "p", **more: Any) -> Row:
    return {"id": key, "part": part, "ts": ts, **more}


def expected(rows: list[Row], columns: list[str], floats: Mapping[str, Any] = {}) -> dict[str, Row]:
    """By key the newest row; what it lacks is null."""
    out: dict[str, Row] = {}
    for r in rows:
        if r["id"] not in out or r["ts"] >= out[r["id"]]["ts"]:
            out[r["id"]] = {c: r.get(c) for c in columns}
    return out


def found(
    case: StreamCase, read: Callable[[Path], Any] = lambda path: read_table(path, meta_columns=False)
) -> dict[str, Row]:
    rows = read(case.table).to_pylist()
    assert len({r["id"] for r in rows}) == len(rows)
    return {r["id"]: {k: str(v) if isinstance(v, Decimal) else v for k, v in r.items()} for r in rows}


def ours(path: Path) -> Any:
    rows = read_snapshot(HoodieTable.open(str(path)))
    return rows.drop_columns([c for c in META_COLUMNS if c in rows.column_names])


def check(case: StreamCase, rows: list[Row], columns: list[str]) -> None:
    """hudi-rs and our own reader give the oracle's rows, and the table is sound."""
    wanted = expected(rows, columns)
    assert found(case) == wanted, "hudi-rs"
    assert found(case, ours) == wanted, "ours"
    table = HoodieTable.open(str(case.table))
    assert avro_to_arrow(table.schema_json() or "").names == columns
    assert validate(table) == []


def query_of(case: StreamCase) -> tuple[str, int]:
    """What a start anew would change: Spark's query and the index's generation."""
    generations = list((case.root / "tagstream" / "index").glob("gen-[1-9]*"))
    return (case.root / "metadata").read_text(), len(generations)


@pytest.mark.extended("more kinds of tables", first=("9-MERGE_ON_READ",))
@BOTH
@pytest.mark.parametrize("version", [6, 9])
def test_a_schema_file_that_changes_between_two_starts(
    tmp_path: Path, spark: SparkSession, table_type: str, version: int
) -> None:
    """Columns are added and dropped, types widened; files of both ages stay in the table, rows move between them."""
    with using(version):
        case = StreamCase(tmp_path, spark, table_type, {"hoodie.metadata.enable": "true"}, FIRST)
        old = [row(f"k{i}", i, f"p{i % 3}", n=i, f=i + 0.3, d=f"{i}.25", gone=f"g{i}") for i in range(12)]
        put(case, "1", old)
        case.run()
        query = query_of(case)
        case.schema = SECOND
        big = {"n": 2**40, "f": 1e300, "d": "123456789012.75", "new": "x"}
        rows = [row("k0", 100, "p0", **big), row("k1", 100, "p2", **big), row("new", 100, "p9", **big)]
        put(case, "2", rows)
        case.run()
        columns = ["id", "part", "ts", "n", "f", "d", "gone", "new"]
        check(case, old + rows, columns)
        more = [row("k2", 200, "p1", n=5, f=0.5, d="1.50"), row("k0", 50, "p1", n=0)]
        put(case, "3", more)
        case.run()
        check(case, old + rows + more, columns)
        assert query_of(case) == query, "the query and its index go on"


@pytest.mark.extended("the same decisions over another real stream")
@BOTH
def test_a_schema_file_that_changes_while_the_job_runs(
    tmp_path: Path, spark: SparkSession, table_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = StreamCase(tmp_path, spark, table_type, schema=FIRST)
    path = tmp_path / "event.avsc"
    batches = [
        [row(f"k{i}", 10 * b + i, n=i, f=0.5, d="1.00", gone="g", new=f"n{b}") for i in range(4)] for b in range(4)
    ]
    for b, rows in enumerate(batches):
        put(case, str(b), rows)

    def change(report: Any) -> None:
        if report.batch_id == 0:
            path.write_text('{"type": "rec')  # half written
        if report.batch_id == 1:
            path.write_text(json.dumps(SECOND))

    with caplog.at_level(logging.WARNING):
        reports = case.run(on_batch=change)
    assert [r.batch_id for r in reports] == [0, 1, 2, 3]
    assert "can't be used" in caplog.text and "continues with the schema that it had" in caplog.text
    assert "column 'n' changes from int to long" in caplog.text
    wanted = expected([r for rows in batches for r in rows], ["id", "part", "ts", "n", "f", "d", "gone", "new"])
    assert found(case) == wanted
    assert found(case, ours) == wanted


@pytest.mark.extended("more changes that are refused", first=("bad0-",))
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (schema(column("n", "string"), *FIRST["fields"][4:]), "column 'n' is string, in the table it is int"),
        ({**FIRST, "fields": [{"name": "id", "type": "long"}, *FIRST["fields"][1:]]}, "record key field, whose type"),
        ({**FIRST, "fields": [FIRST["fields"][0], {"name": "part", "type": "int"}, *FIRST["fields"][2:]]},
         "partition path field, whose type never changes"),
    ],
)  # fmt: skip
def test_a_refused_change_keeps_the_batch(tmp_path: Path, spark: SparkSession, bad: dict[str, Any], words: str) -> None:
    """In mid-run: nothing of the batch is written, and the next start with a mended file reads it."""
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", schema=FIRST)
    batches = [[row(f"k{b}", b, n=b, f=0.5, d="1.00", gone="g")] for b in range(3)]
    for b, rows in enumerate(batches):
        put(case, str(b), rows)

    def change(report: Any) -> None:
        if report.batch_id == 0:
            (tmp_path / "event.avsc").write_text(json.dumps(bad))

    with pytest.raises(SchemaRefusedError, match=words):
        case.run(on_batch=change)
    assert set(found(case)) == {"k0"}
    pending = HoodieTable.open(str(case.table)).timeline().pending
    case.schema = bad
    with pytest.raises(SchemaRefusedError, match=words):
        case.run()
    case.schema = FIRST
    assert [r.batch_id for r in case.run()] == [1, 2]
    check(case, [r for rows in batches for r in rows], ["id", "part", "ts", "n", "f", "d", "gone"])
    assert not pending


@pytest.mark.extended("more kinds of tables", first=("COPY_ON_WRITE",))
@BOTH
def test_a_column_that_may_be_dropped(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    conf = {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"}
    case = StreamCase(tmp_path, spark, table_type, conf, FIRST)
    old = [row(f"k{i}", i, n=i, f=0.5, d="1.00", gone="g") for i in range(3)]
    put(case, "1", old)
    case.run()
    rest = schema(*[f for f in FIRST["fields"][3:] if f["name"] != "gone"])
    case.schema = rest
    rows = [row("k0", 10, n=7, f=0.5, d="1.00")]
    put(case, "2", rows)
    case.run()
    check(case, old + rows, ["id", "part", "ts", "n", "f", "d"])


def test_a_column_that_must_not_be_missing(tmp_path: Path, spark: SparkSession) -> None:
    conf = {"hoodie.write.set.null.for.missing.columns": "false"}
    case = StreamCase(tmp_path, spark, conf=conf, schema=FIRST)
    put(case, "1", [row("k", 1, n=1, gone="g")])
    case.run()
    case.schema = schema(*FIRST["fields"][3:6])
    put(case, "2", [row("k", 2, n=2)])
    with pytest.raises(SchemaRefusedError, match="column 'gone', and hoodie.write.set.null.for.missing.columns=false"):
        case.run()
    replace(case, conf={**conf, "hoodie.datasource.write.reconcile.schema": "true"}).run()
    assert found(case)["k"] == {"id": "k", "part": "p", "ts": 2, "n": 2, "f": None, "d": None, "gone": None}


@pytest.mark.extended("more kinds of tables", first=("MERGE_ON_READ",))
@BOTH
def test_a_column_that_is_renamed_by_an_alias(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    """Records under the old name and under the new one fill the column that the table has."""
    case = StreamCase(tmp_path, spark, table_type, schema=schema(column("qty", "int")))
    put(case, "1", [row("a", 1, qty=1), row("b", 1, qty=2)])
    case.run()
    case.schema = schema(column("amount", "long", aliases=["qty"]))
    put(case, "2", [row("a", 2, amount=2**40), row("c", 2, qty=5), row("d", 2, amount=None)])
    case.run()
    assert {k: r["qty"] for k, r in found(case).items()} == {"a": 2**40, "b": 2, "c": 5, "d": None}
    assert {k: r["qty"] for k, r in found(case, ours).items()} == {"a": 2**40, "b": 2, "c": 5, "d": None}


# ---------------------------------------------------------------------------------------------- schemas of records


def items_case(
    folder: Path, spark: SparkSession, broker: KafkaBroker, table_type: str, conf: dict[str, str]
) -> StreamCase:
    every = {
        "hoodie.streamer.source.kafka.topic": "shop.items",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.table.ordering.fields": "",
        **broker.java_client("plain"),
    }
    return StreamCase(folder, spark, table_type, every | conf, cdc.schema_by_id(4))


# Rows that no event came for since: `grade` is the default of the source, `colour` was `color`, and a widened float
# is read by its shortest digits.
APART = ["grade", "colour", "weight"]


def items_differ(rows: list[Row], phase: str) -> list[str]:
    """Row 8 is left out: its price has four digits behind the point from then on, and the table's scale stays two."""
    wanted = [row for row in cdc.truth("shop.items", phase) if row["id"] != 8]
    return cdc.differences([row for row in rows if row["id"] != 8], wanted, ["id"], APART)[:5]


@pytest.mark.kafka
@BOTH
@pytest.mark.parametrize("in_one", [False, True])
def test_the_registry_s_schemas_are_taken_up(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker, items_topic: str, table_type: str, in_one: bool
) -> None:
    """From the first of nine schemas on, each phase in a run of its own or all in one batch."""
    topic = items_topic
    with schema_registry.captured({f"{topic}-value": [4]}) as registry:
        conf = {"tagstream.source.format": "debezium-avro", "schema.registry.url": registry.url, FILE: ""}
        case = items_case(tmp_path, spark, kafka_broker, table_type, conf)
        phases = [(phase, messages) for phase, messages in cdc.phases("avro", topic) if messages]
        if in_one:
            phases = [("rename_column", [m for phase, ms in phases if phase != "resnapshot" for m in ms])]
        for phase, messages in phases:
            if phase == "resnapshot":
                continue
            send_captured(kafka_broker, topic, messages)
            case.run("--commit-on-errors")
            for rows in (read_table(case.table, meta_columns=False).to_pylist(), ours(case.table).to_pylist()):
                assert not (wrong := items_differ(rows, phase)), (phase, wrong)
    kinds = avro_to_arrow(HoodieTable.open(str(case.table)).schema_json() or "")
    assert {f.name: str(f.type) for f in kinds} == {
        "id": "int32", "name": "string", "price": "decimal128(14, 2)", "count": "int64", "weight": "double",
        "color": "string", "grade": "int32", "colour": "string",
    }  # fmt: skip
    assert read_meta(PosixStorage(str(case.checkpoint))) is not None
    assert not list((case.root / "tagstream" / "index").glob("gen-[1-9]*"))
    with schema_registry.captured({f"{topic}-value": [4]}) as registry:
        again = replace(case, conf={**case.conf, "schema.registry.url": registry.url})
        assert again.run() == []
    notes = case.root / "tagstream" / "schemas"
    assert not notes.exists() or not os.listdir(notes)


@pytest.mark.kafka
@BOTH
def test_schemas_that_records_have_with_them(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker, items_topic: str, table_type: str
) -> None:
    """Debezium's JSON with its schema; the file is the first schema alone."""
    topic = items_topic
    conf = {"tagstream.source.format": "debezium-json", "tagstream.schema.evolution": "records"}
    case = items_case(tmp_path, spark, kafka_broker, table_type, conf)
    for phase, messages in cdc.phases("jsonschema", topic):
        if not messages or phase == "resnapshot":
            continue
        send_captured(kafka_broker, topic, messages)
        case.run("--commit-on-errors")
        rows = read_table(case.table, meta_columns=False).to_pylist()
        assert not (wrong := items_differ(rows, phase)), (phase, wrong)
    names = avro_to_arrow(HoodieTable.open(str(case.table)).schema_json() or "").names
    assert names == ["id", "name", "price", "count", "weight", "color", "grade", "colour"]
