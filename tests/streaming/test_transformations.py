"""Records through SQL, flattening and a Python function on their way to the table."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.batch.report import BatchReport
from tagstream.table.errors import ConfigError, SchemaRefusedError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tests.drills.stream_job import PROJECT
from tests.streaming.stream_case import StreamCase
from tests.streaming.test_kafka_stream import kafka_case, send
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker
from tests.support.process import Process
from tests.support.stored import newest_extra
from tests.support.table_version import timeline_of

pytestmark = pytest.mark.spark
PER_FILE = 300
CLASS, QUERY = "hoodie.streamer.transformer.class", "hoodie.streamer.transformer.sql"
# Only some columns, one made of two, one filter; the key and the order stay.
SQL = (
    "SELECT a.id, a.part, a.ts, concat(a.name, '@', a.part) AS name, a.amount * 2 AS twice FROM <SRC> a "
    "WHERE a.amount IS NULL OR a.amount < 2000 OR a._hoodie_is_deleted"
)
CONF = {CLASS: "SqlQueryBasedTransformer", QUERY: SQL}


def passes(event: ev.Event) -> bool:
    return event.amount is None or event.amount < 2000 or event.deleted


def expected(events: Iterable[ev.Event]) -> pa.Table:
    """What :data:`SQL` makes of the rows that its filter lets pass."""
    live = ev.oracle(event for event in events if passes(event)).values()
    rows = [
        {
            "id": e.key,
            "part": e.partition,
            "ts": e.ordering,
            "name": None if e.name is None or e.partition is None else f"{e.name}@{e.partition}",
            "twice": None if e.amount is None else e.amount * 2,
        }
        for e in live
    ]
    names = [
        ("id", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("name", pa.string()),
        ("twice", pa.float64()),
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(names)).sort_by("id")


def is_expected(case: StreamCase, events: Iterable[ev.Event]) -> None:
    assert not (wrong := compare(expected(events), read_table(case.table, meta_columns=False), ["id"])), wrong
    assert validate(HoodieTable.open(str(case.table))) == []


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_query_on_files_with_bad_records_and_a_restored_table(
    tmp_path: Path, spark: SparkSession, table_type: str
) -> None:
    case = StreamCase(tmp_path, spark, table_type, CONF)
    events = list(ev.generate(4 * PER_FILE, ev.Mix(keys=100), seed=31))
    ev.write_files(events[: 2 * PER_FILE], case.source, PER_FILE)
    bad = case.source / "events-00007.json"
    bad.write_text('{"id": "x"} more\n{"part": "p0", "ts": 5}\n')
    reports = case.run("--commit-on-errors")
    assert sum(report.quarantined for report in reports) == 2
    kept = [json.loads(s) for p in case.checkpoint.rglob("part-*.jsonl") for s in p.read_text().splitlines()]
    assert {(line["path"].rpartition("/")[2], line["offset"]) for line in kept} == {(bad.name, 0), (bad.name, 17)}
    undecoded = next(line for line in kept if line["offset"] == 0)
    assert base64.b64decode(undecoded["value_base64"]) == b'{"id": "x"} more'
    ev.write_files(events[2 * PER_FILE :], case.source, PER_FILE, first=2)
    case.run("--commit-on-errors")
    is_expected(case, events)

    # Our newest commit is taken away: a new query reads its source again, through the same query.
    newest = max(timeline_of(case.table).glob("*.*commit"))
    newest.unlink()
    case.run("--commit-on-errors")
    is_expected(case, events)


@pytest.mark.kafka
def test_tombstones_go_around_a_query_and_offsets_stay_those_of_the_topic(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker
) -> None:
    kafka_broker.create_topic("transformed", partitions=3)
    events = list(ev.generate(1200, ev.Mix(keys=90, tombstones=0.08), seed=17))
    send(kafka_broker, "transformed", events[:800], 3)
    case = kafka_case(tmp_path, spark, kafka_broker, "transformed")
    case = replace(case, conf={**case.conf, **CONF})
    case.run("--source-limit", "300")
    send(kafka_broker, "transformed", events[800:], 3)
    shutil.rmtree(case.checkpoint)  # the topic goes on where the table's newest commit ended
    case.run()
    is_expected(case, events)
    newest = newest_extra(case.table)
    ends = json.loads(newest["tagstream.commit"])["end_offsets"]
    assert sum(ends["transformed"].values()) == len(events)


NESTED: dict[str, Any] = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "customer",
            "type": {
                "type": "record",
                "name": "customer",
                "fields": [
                    {"name": "name", "type": ["null", "string"], "default": None},
                    {
                        "name": "home",
                        "type": {"type": "record", "name": "home", "fields": [{"name": "city", "type": "string"}]},
                    },
                ],
            },
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


def test_a_chain_with_ids_a_file_flattening_and_a_function(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = tmp_path / "last.sql"
    statements.write_text(
        "CREATE OR REPLACE TEMPORARY VIEW both AS SELECT *, upper(customer_home_city) AS city FROM <SRC>;\n"
        "SELECT * EXCEPT (customer_home_city) FROM both;\n"
    )
    conf = {
        CLASS: "one:org.apache.hudi.utilities.transform.SqlQueryBasedTransformer, "
        "two:org.apache.hudi.utilities.transform.FlatteningTransformer, three:SqlFileBasedTransformer",
        f"{QUERY}.one": "SELECT *, 3.5D AS amount FROM <SRC>",
        f"{QUERY}.file.three": str(statements),
        "tagstream.transformer": "tests.streaming.transformers:doubled",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.table.ordering.fields": "at",
    }
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", conf, NESTED)
    case.source.mkdir()
    rows = [
        {"id": "a", "at": 5, "customer": {"name": "Ann", "home": {"city": "Bonn"}}, "tags": ["x"]},
        {"id": "a", "at": 9, "customer": {"name": None, "home": {"city": "Kiel"}}, "tags": []},
    ]
    (case.source / "1.json").write_text("\n".join(map(json.dumps, rows)) + "\n")
    case.run()
    found = read_table(case.table, meta_columns=False)
    assert found.column_names == ["id", "at", "customer_name", "tags", "amount", "city"]
    (row,) = found.to_pylist()
    assert row["at"].timestamp() == 0.009
    assert {name: row[name] for name in row if name != "at"} == {
        "id": "a", "customer_name": None, "tags": [], "amount": 7.0, "city": "KIEL",
    }  # fmt: skip


@pytest.mark.extended("the same decisions over another real stream")
def test_another_schema_of_the_records_while_the_job_runs(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """A column more comes through the query from the next batch on; a change that the table cannot follow is refused, and
    nothing of its batch is lost."""
    more = {"name": "city", "type": ["null", "string"], "default": None}
    wider = {**ev.AVRO_SCHEMA, "fields": [*ev.AVRO_SCHEMA["fields"], more]}
    other = {**wider, "fields": [*wider["fields"][:-1], {**more, "type": ["null", "long"]}]}
    query = "SELECT *, concat(part, '!') AS loud FROM <SRC>"
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", {CLASS: "SqlQueryBasedTransformer", QUERY: query})
    case.source.mkdir()
    for number in range(4):
        row = {"id": f"k{number % 3}", "part": "p", "ts": number, "city": f"c{number}"}
        text = json.dumps(row | ({"city": number} if number == 3 else {})) + "\n"
        ev.write_event_file(case.source, number, text, modified=1_700_000_000 + number)

    def on_batch(report: BatchReport) -> None:
        changed = {0: wider, 2: other}.get(report.batch_id)
        if changed is not None:
            (tmp_path / "event.avsc").write_text(json.dumps(changed))

    with pytest.raises(SchemaRefusedError, match="column 'city'"):
        case.run(on_batch=on_batch)
    wanted = {"k0": None, "k1": "c1", "k2": "c2"}
    rows = {row["id"]: row for row in read_table(case.table).to_pylist()}
    assert {key: row["city"] for key, row in rows.items()} == wanted
    assert {row["loud"] for row in rows.values()} == {"p!"}
    assert len([r for r in caplog.records if "The query starts again" in r.getMessage()]) == 2

    case.schema = wider
    (report,) = case.run()
    assert (report.batch_id, report.records, report.quarantined) == (3, 1, 0)
    assert {row["id"]: row["city"] for row in read_table(case.table).to_pylist()} == wanted | {"k0": "3"}


@pytest.mark.parametrize(
    ("conf", "text"),
    [
        (
            {**CONF, QUERY: "SELECT id, part, max(ts) ts, false _hoodie_is_deleted FROM <SRC> GROUP BY 1, 2"},
            "Aggregate",
        ),
        ({**CONF, QUERY: "SELECT DISTINCT id, part, ts, _hoodie_is_deleted FROM <SRC>"}, "Distinct"),
        ({**CONF, QUERY: "SELECT * FROM <SRC> ORDER BY ts"}, "Sort"),
        ({**CONF, QUERY: "SELECT * FROM <SRC> LIMIT 3"}, "GlobalLimit"),
        ({**CONF, QUERY: "SELECT a.* FROM <SRC> a JOIN <SRC> b USING (id)"}, "Join of the records with themselves"),
        ({**CONF, QUERY: "SELECT nope FROM <SRC>"}, "UNRESOLVED_COLUMN"),
        ({**CONF, QUERY: "WITH x AS (SELECT id, part, ts FROM <SRC>) SELECT * FROM x"}, "which records are deletes"),
        ({"tagstream.transformer": "tests.streaming.transformers:counted"}, "Aggregate"),
        (
            {"tagstream.transformer": "tests.streaming.transformers:nothing"},
            "it returned int, but must return a DataFrame",
        ),
        ({"tagstream.transformer": "tests.streaming.nowhere:f"}, "make the module available to the job's Python"),
    ],
)
def test_what_no_transformation_may_do(tmp_path: Path, spark: SparkSession, conf: dict[str, str], text: str) -> None:
    case = StreamCase(tmp_path, spark, conf=conf)
    ev.write_files([ev.Event("k", "p", 1)], case.source, 1)
    with pytest.raises(ConfigError, match=text):
        case.run()


@pytest.mark.extended("processes that are killed, paused or ended; a minute of starts")
def test_the_command_takes_hudis_own_properties(tmp_path: Path) -> None:
    case = StreamCase(tmp_path, None)  # type: ignore[arg-type]
    events = list(ev.generate(PER_FILE, ev.Mix(keys=40), seed=3))
    ev.write_files(events, case.source, PER_FILE)
    properties = tmp_path / "job.properties"
    properties.write_text(f"hoodie.deltastreamer.transformer.sql={SQL}\n")
    flags = [
        "--props",
        str(properties),
        "--transformer-class",
        "org.apache.hudi.utilities.transform.SqlQueryBasedTransformer",
    ]
    command = [sys.executable, PROJECT / "run_stream.py", *case.arguments(), *flags]
    with Process(command, tmp_path / "run.log", cwd=tmp_path) as process:
        assert process.wait(240) == 0, process.output()[-4000:]
    is_expected(case, events)
