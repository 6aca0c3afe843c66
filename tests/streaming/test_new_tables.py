"""New tables of every key generator, with one and several key and partition fields: their keys and paths are Hudi's."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import fastavro
import pytest
from pyspark.sql import SparkSession

import tagstream
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.streaming.stream_case import UNSET, StreamCase
from tests.support import cdc, schema_registry
from tests.support import events as ev
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker
from tests.support.producer import send_captured

pytestmark = pytest.mark.spark
KEY, PARTITION = "hoodie.datasource.write.recordkey.field", "hoodie.datasource.write.partitionpath.field"
TYPE = "hoodie.datasource.write.keygenerator.type"
FILE = "hoodie.streamer.schemaprovider.source.schema.file"
NEW_ENCODING = "hoodie.write.complex.keygen.new.encoding"
TIMES = {
    "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
    "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
}
DAY = 86_400


@dataclass(frozen=True)
class Layout:
    """What a job says of keys and partitions, and the generator and the forms that Hudi makes of it.

    ``key`` and ``path`` are Python formats over the fields of an event, and over ``date``: the day of ``ts``.
    """

    keys: str
    partitions: str
    generator: str
    key: str
    path: str
    asked: str = ""

    @property
    def conf(self) -> dict[str, str]:
        times = TIMES if self.generator in ("TimestampBased", "Custom") else {}
        return {KEY: self.keys, PARTITION: self.partitions, **({TYPE: self.asked} if self.asked else {}), **times}


LAYOUTS = {
    "simple": Layout("id", "part", "Simple", "{id}", "{part}"),
    "simple asked for": Layout("id", "part", "Simple", "{id}", "{part}", "SIMPLE"),
    "one key, two partition fields": Layout("id", "part,name", "Complex", "{id}", "{part}/{name}"),
    "the same, complex asked for": Layout("id", "part,name", "Complex", "{id}", "{part}/{name}", "COMPLEX"),
    "one key, one partition field, complex asked for": Layout("id", "part", "Complex", "{id}", "{part}", "COMPLEX"),
    "two keys, one partition field": Layout("id,name", "part", "Complex", "id:{id},name:{name}", "{part}"),
    "two keys, two partition fields": Layout("id,name", "part,ts", "Complex", "id:{id},name:{name}", "{part}/{ts}"),
    "one key, no partition": Layout("id", "", "Nonpartitioned", "{id}", ""),
    "two keys, no partition": Layout("id,name", "", "Nonpartitioned", "id:{id},name:{name}", ""),
    "timestamp": Layout("id", "ts", "TimestampBased", "{id}", "{date}", "TIMESTAMP"),
    "custom, one field": Layout("id", "part:SIMPLE", "Custom", "{id}", "{part}", "CUSTOM"),
    "custom, two fields": Layout("id", "part:SIMPLE,ts:TIMESTAMP", "Custom", "{id}", "{part}/{date}", "CUSTOM"),
    "custom, two keys": Layout(
        "id,name", "ts:TIMESTAMP,part:SIMPLE", "Custom", "id:{id},name:{name}", "{date}/{part}", "CUSTOM"
    ),
}
# One key that the complex generator makes with its field's name: Hudi before 0.14.1, and from 1.1 on by its default.
NAMED = Layout("id", "part,name", "Complex", "id:{id}", "{part}/{name}")


def fields(event: ev.Event) -> dict[str, object]:
    assert event.ordering is not None
    return {**event.row(), "date": datetime.fromtimestamp(event.ordering, UTC).strftime("%Y-%m-%d")}


def run_and_check(case: StreamCase, layout: Layout) -> None:
    """Two runs: five rows, then a newer value, another partition, a delete, a late event and a new row."""
    first = [ev.Event(f"k{n}", f"p{n % 2}", 10 * DAY + n, name=f"n{n % 2}", amount=1.0) for n in range(5)]
    ev.write_files(first, case.source, 10)
    case.run()
    changed = ev.Event("k0", "p0", 10 * DAY, name="n0", amount=2.0)  # of equal order: the later one counts
    gone = ev.Event("k1", "p1", 10 * DAY + 1, deleted=True, name="n1")
    late = ev.Event("k2", "p0", 10 * DAY, name="n0", amount=9.0)
    moved = ev.Event("k3", "p9", 20 * DAY, name="n1", amount=3.0)
    fresh = ev.Event("k9", "p0", 30 * DAY, name="n0", amount=4.0)
    ev.write_files([changed, gone, late, moved, fresh], case.source, 10, first=1)
    (report,) = case.run()
    assert report.late == 1

    wanted = {
        layout.key.format(**fields(event)): (layout.path.format(**fields(event)), event.amount)
        for event in (changed, first[2], moved, first[4], fresh)
    }
    table = HoodieTable.open(str(case.table))
    rows = read_snapshot(table).to_pylist()
    assert {r["_hoodie_record_key"]: (r["_hoodie_partition_path"], r["amount"]) for r in rows} == wanted
    assert len(rows) == len(wanted)
    assert table.config.key_generator == f"org.apache.hudi.keygen.{layout.generator}KeyGenerator"
    assert table.config.record_key_fields == tuple(layout.keys.split(","))
    assert validate(table) == []


@pytest.mark.extended(
    "more ways to say the same generator",
    first=(
        "one key, no partition",
        "custom, two keys",
    ),
)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_new_table_of_each_key_generator(tmp_path: Path, spark: SparkSession, layout: Layout) -> None:
    run_and_check(StreamCase(tmp_path, spark, "MERGE_ON_READ", layout.conf), layout)


@pytest.mark.extended("more indexes", first=("STATE-6", "STATE-9"), second=("GLOBAL_BLOOM-8", "SIMPLE-6", "SIMPLE-9"))
@pytest.mark.parametrize("version", ["6", "8", "9"])
@pytest.mark.parametrize("index", ["STATE", "GLOBAL_BLOOM", "SIMPLE"])
def test_one_key_and_two_partition_fields_on_each_version_and_index(
    tmp_path: Path, spark: SparkSession, version: str, index: str
) -> None:
    layout = LAYOUTS["one key, two partition fields"]
    conf = {**layout.conf, "hoodie.write.table.version": version, "hoodie.index.type": index}
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", conf)
    if index != "SIMPLE":
        run_and_check(case, layout)
        return
    # An index that is not global keeps the row of the old partition: nothing moves.
    events = [ev.Event(f"k{n}", f"p{n % 2}", n, name="n") for n in range(5)]
    for first in (0, 1):
        ev.write_files(events, case.source, 10, first=first)
        case.run()
    rows = read_snapshot(HoodieTable.open(str(case.table))).to_pylist()
    wanted = {(f"k{n}", f"p{n % 2}/n") for n in range(5)}
    assert sorted((r["_hoodie_record_key"], r["_hoodie_partition_path"]) for r in rows) == sorted(wanted)


@pytest.mark.extended("more kinds of tables", first=("8",))
@pytest.mark.parametrize("version", ["6", "8"])
def test_the_key_with_its_fields_name_is_asked_for_and_kept(tmp_path: Path, spark: SparkSession, version: str) -> None:
    conf = {**NAMED.conf, "hoodie.write.table.version": version, NEW_ENCODING: "false"}
    run_and_check(StreamCase(tmp_path, spark, "COPY_ON_WRITE", conf), NAMED)
    with pytest.raises(ConfigError, match=r"new.encoding = true \(.*\): the rows of table .* other form \(id:value\)"):
        StreamCase(tmp_path, spark, "COPY_ON_WRITE", {**conf, NEW_ENCODING: "true"}).run()
    # The rows decide where nothing is said.
    conf.pop(NEW_ENCODING)
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", conf)
    ev.write_files([ev.Event("k9", "p0", 40 * DAY, name="n0", amount=5.0)], case.source, 10, first=2)
    (report,) = case.run()
    assert (report.inserts, report.updates) == (0, 1)


SQL = {
    "hoodie.streamer.transformer.class": "SqlQueryBasedTransformer",
    "hoodie.streamer.transformer.sql": "SELECT * FROM <SRC>",
}
INSIDE: dict[str, object] = {
    "type": "record",
    "name": "event",
    "fields": [
        {
            "name": "meta",
            "type": {
                "type": "record",
                "name": "meta",
                "fields": [
                    {"name": "id", "type": "string"},
                    {"name": "city", "type": ["null", "string"], "default": None},
                ],
            },
        },
        {"name": "ts", "type": "long"},
        {"name": "v", "type": "string"},
        {"name": "_hoodie_is_deleted", "type": "boolean", "default": False},
    ],
}


def inside(key: str, city: str | None, ts: int, v: str, *, deleted: bool = False) -> str:
    return json.dumps({"meta": {"id": key, "city": city}, "ts": ts, "v": v, "_hoodie_is_deleted": deleted}) + "\n"


@pytest.mark.extended(
    "more kinds of tables and indexes",
    first=("STATE-9-MERGE_ON_READ",),
    second=(
        "STATE-6-COPY_ON_WRITE", "GLOBAL_BLOOM-6-MERGE_ON_READ", "BLOOM-9-COPY_ON_WRITE", "BUCKET-8-MERGE_ON_READ",
        "RECORD_INDEX-8-COPY_ON_WRITE",
    ),
)  # fmt: skip
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("version", ["6", "8", "9"])
@pytest.mark.parametrize("index", ["STATE", "GLOBAL_BLOOM", "BLOOM", "BUCKET", "RECORD_INDEX"])
def test_key_and_partition_inside_a_struct(
    tmp_path: Path, spark: SparkSession, index: str, version: str, table_type: str
) -> None:
    conf = {
        KEY: "meta.id", PARTITION: "meta.city", "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.write.table.version": version, "hoodie.index.type": index, "hoodie.bucket.index.num.buckets": "3",
        "hoodie.record.index.update.partition.path": "true",
    }  # fmt: skip
    case = StreamCase(tmp_path, spark, table_type, conf, INSIDE)
    case.source.mkdir(parents=True)
    first = inside("a", "x", 1, "one") + inside("b", "y", 1, "two") + inside("c", None, 1, "three")
    ev.write_event_file(case.source, 0, first, modified=1_600_000_000)
    moved = "x" if index in ("BLOOM", "BUCKET") else "z"  # partition and key are a row: nothing moves
    second = inside("a", moved, 2, "moved") + inside("b", "y", 2, "", deleted=True) + inside("c", None, 0, "late")
    ev.write_event_file(case.source, 1, second, modified=1_600_000_001)
    case.run()
    nowhere = "meta.city=__HIVE_DEFAULT_PARTITION__"
    wanted = [(f"meta.city={moved}", "a", "moved"), (nowhere, "c", "three")]
    table = HoodieTable.open(str(case.table))
    names = ("_hoodie_partition_path", "_hoodie_record_key", "v")
    assert sorted(tuple(row[name] for name in names) for row in read_snapshot(table).to_pylist()) == sorted(wanted)
    assert validate(table) == [] and validate_metadata(table) == []
    with pytest.raises(Exception, match=r"Partition field `meta.city` .* not present"):  # a limit of hudi-rs 0.5.0
        read_table(case.table)


@pytest.mark.extended("more sources of typed rows", first=("DataFrame",))
@pytest.mark.parametrize("source", ["SQL", "DataFrame"])
def test_typed_rows_with_key_and_partition_inside_a_struct(tmp_path: Path, spark: SparkSession, source: str) -> None:
    conf = {KEY: "meta.id", PARTITION: "meta.city", "hoodie.table.ordering.fields": "ts"}
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", conf | SQL, INSIDE)
    case.source.mkdir(parents=True)
    ev.write_event_file(case.source, 0, inside("a", "x", 1, "one") + inside("b", "y", 1, "two"), modified=1_600_000_000)
    second = inside("a", "z", 2, "moved") + inside("b", "y", 2, "", deleted=True)
    ev.write_event_file(case.source, 1, second, modified=1_600_000_001)
    if source == "SQL":
        case.run()
    else:
        columns = "meta struct<id string, city string>, ts bigint, v string, _hoodie_is_deleted boolean"
        frame = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).json(str(case.source))
        own = {"hoodie.table.name": "t", "index.local.dir": tmp_path / "local", "spark.sql.shuffle.partitions": 2}
        query = tagstream.upsert(
            frame, str(case.table), str(case.checkpoint), options=conf | own, trigger="availableNow"
        )
        query.awaitTermination()
    names = ("_hoodie_partition_path", "_hoodie_record_key", "v")
    rows = read_snapshot(HoodieTable.open(str(case.table))).to_pylist()
    assert [tuple(row[name] for name in names) for row in rows] == [("z", "a", "moved")]


@pytest.mark.extended("more kinds of tables")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_rs_reads_keys_inside_a_struct(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    case = StreamCase(tmp_path, spark, table_type, {KEY: "meta.id", PARTITION: ""}, INSIDE)
    case.source.mkdir(parents=True)
    first = inside("a", "x", 1, "one") + inside("b", "y", 1, "two")
    ev.write_event_file(case.source, 0, first, modified=1_600_000_000)
    second = inside("a", "x", 2, "newer") + inside("b", "y", 2, "", deleted=True)
    ev.write_event_file(case.source, 1, second, modified=1_600_000_001)
    case.run()
    assert [(row["_hoodie_record_key"], row["v"]) for row in read_table(case.table).to_pylist()] == [("a", "newer")]


@pytest.mark.kafka
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_avro_with_key_and_partition_inside_a_struct(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker, table_type: str
) -> None:
    """The registry's schema makes the table; a tombstone names its row by the same path in its key."""
    topic = f"inside-{table_type.lower().replace('_', '-')}"
    kafka_broker.create_topic(topic, partitions=1)
    fields = [{"name": name, "type": ["null", "string"], "default": None} for name in ("id", "city")]
    meta = {"type": "record", "name": "meta_r", "fields": fields}
    schema = {"type": "record", "name": "event", "fields": [
        {"name": "meta", "type": meta}, {"name": "ts", "type": "long"}, {"name": "v", "type": ["null", "string"]},
    ]}  # fmt: skip
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))

    def event(offset: int, key: str, city: str | None, ts: int, v: str | None) -> cdc.Message:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, {"meta": {"id": key, "city": city}, "ts": ts, "v": v})
        value = b"\0\0\0\0\1" + out.getvalue() if v is not None else None
        return cdc.Message(0, offset, json.dumps({"meta": {"id": key}}).encode(), value, {})

    registry = schema_registry.Registry({"1": {"schema": json.dumps(schema)}}, {f"{topic}-value": [1]})
    with schema_registry.running(registry):
        conf = {
            KEY: "meta.id", PARTITION: "meta.city", "hoodie.table.ordering.fields": "ts", FILE: UNSET,
            "tagstream.source.format": "avro", "schema.registry.url": registry.url,
            "hoodie.streamer.source.kafka.topic": topic, **kafka_broker.java_client("plain"),
        }  # fmt: skip
        case = StreamCase(tmp_path, spark, table_type, conf)
        send_captured(kafka_broker, topic, [
            event(0, "a", "x", 1, "one"), event(1, "b", "y", 1, "two"), event(2, "c", None, 1, "three"),
        ])  # fmt: skip
        case.run()
        send_captured(kafka_broker, topic, [event(3, "a", "z", 2, "moved"), event(4, "b", None, 0, None)])
        case.run()
    names = ("_hoodie_partition_path", "_hoodie_record_key", "v")
    table = HoodieTable.open(str(case.table))
    assert sorted(tuple(row[name] for name in names) for row in read_snapshot(table).to_pylist()) == [
        ("__HIVE_DEFAULT_PARTITION__", "c", "three"), ("z", "a", "moved"),
    ]  # fmt: skip
    assert validate(table) == []


@pytest.mark.parametrize(
    ("conf", "line"),
    [
        ({"hoodie.table.ordering.fields": "meta.nope"}, "ordering field 'meta.nope' is not a column"),
        (
            {"hoodie.table.ordering.fields": "meta.city", KEY: "ts", "tagstream.source.format": "maxwell-json"},
            "ordering field 'meta.city' is inside a struct, .* name a column",
        ),
        ({KEY: "meta.nope"}, "record key field 'meta.nope' is not a column"),
        ({KEY: "ts.id"}, "record key field 'ts.id' is not a column"),
        (
            {"tagstream.source.format": "maxwell-json"},
            "record key field 'meta.id' is inside a struct, .* name a column",
        ),
    ],
)
def test_fields_that_cannot_be_inside_a_struct(
    tmp_path: Path, spark: SparkSession, conf: dict[str, str], line: str
) -> None:
    with pytest.raises(ConfigError, match=line):
        StreamCase(tmp_path, spark, "COPY_ON_WRITE", {KEY: "meta.id", PARTITION: "", **conf}, INSIDE).run()


def test_a_table_with_keys_inside_a_struct_takes_no_changes_of_a_database(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path / "first", spark, "COPY_ON_WRITE", {KEY: "meta.id", PARTITION: ""}, INSIDE)
    case.source.mkdir(parents=True)
    ev.write_event_file(case.source, 0, inside("a", "x", 1, "one"), modified=1_600_000_000)
    case.run()
    (tmp_path / "second").mkdir()
    formats = {"tagstream.source.format": "debezium-json"}
    with pytest.raises(ConfigError, match="record key field 'meta.id' is inside a struct, .* name a column"):
        StreamCase(tmp_path / "second", spark, conf=formats, existing=case.table).run()
