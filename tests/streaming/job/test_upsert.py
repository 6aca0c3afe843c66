"""``tagstream.upsert``: a DataFrame's rows in the table, exactly once, whatever its sources are."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tagstream
from tagstream.bootstrap.errors import IndexCoverageError
from tagstream.streaming.errors import BadRecordsError
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import META_COLUMNS
from tagstream.table.services.validate import validate
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tests.streaming.job.frame_case import FrameCase
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.foreign_writer import ForeignWriter
from tests.support.hudi_rs import read_table
from tests.support.table_version import timeline_of

pytestmark = [pytest.mark.spark, pytest.mark.platform("upsert of a DataFrame")]
PER_FILE = 300
BEGIN_MS = 1_767_225_600_000  # 2026-01-01
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def ticks(spark: SparkSession, rows: int) -> DataFrame:
    """``timestamp, value``: the whole numbers from 0 on, so many a batch, a second apart from batch to batch."""
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2)
    return reader.option("startTimestamp", BEGIN_MS).load()


def user_columns(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([name for name in META_COLUMNS if name in rows.column_names])


def commit_records(table: Path) -> list[dict[str, Any]]:
    files = sorted(timeline_of(table).glob("*.*commit"))
    extra = (CommitMetadata.from_bytes(path.read_bytes(), str(path)).extra for path in files)
    return [json.loads(e["tagstream.commit"]) for e in extra if "tagstream.commit" in e]


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_disordered_events_in_several_runs_end_in_the_oracles_rows(
    tmp_path: Path, spark: SparkSession, table_type: str
) -> None:
    events = list(ev.generate(5 * PER_FILE, ev.Mix(keys=120), seed=11))
    case = FrameCase(tmp_path, spark, {"--table-type": table_type})
    ev.write_files(events[: 3 * PER_FILE], case.source, PER_FILE)
    case.run()
    case.is_oracles(events[: 3 * PER_FILE])
    ev.write_files(events[3 * PER_FILE :], case.source, PER_FILE, first=3)
    case.run()
    case.is_oracles(events)
    assert validate(HoodieTable.open(str(case.table))) == []
    done = commit_records(case.table)
    assert [record["batch_id"] for record in done] == list(range(5))
    assert [record["end_offsets"] for record in done] == [{"sources": [{"logOffset": n}]} for n in range(5)]


@pytest.mark.extended("the same decisions over another real stream")
def test_every_type_of_a_joined_stream_arrives_as_it_is(tmp_path: Path, spark: SparkSession) -> None:
    rooms = spark.createDataFrame([(n, f"room {n}") for n in range(3)], "n long, room string")
    rows = (
        ticks(spark, 40)
        .join(rooms, F.col("value") % 3 == F.col("n"))
        .select(
            (F.col("value") % 25).cast("int").alias("id"),
            "room",
            F.col("value").alias("ts"),
            (F.col("value") * F.lit("1.25").cast("decimal(5,2)")).cast("decimal(18,2)").alias("price"),
            "timestamp",
            F.date_add(F.lit("2026-01-01").cast("date"), F.col("value").cast("int")).alias("day"),
            F.col("value").cast("short").alias("small"),
            F.col("value").cast("string").cast("binary").alias("raw"),
            F.array(F.lit("a"), F.col("value").cast("string")).alias("list"),
            F.struct((F.col("value") / 4).alias("x"), F.array(F.col("value")).alias("y")).alias("inner"),
            F.create_map(F.lit("k"), F.col("value")).alias("by"),
            (F.col("value") % 7 == 0).alias("gone"),
        )
    )
    conf = {
        "hoodie.table.name": "typed",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "room",
        "hoodie.table.ordering.fields": "ts",
        "tagstream.delete.field": "gone",
    }
    case = FrameCase(tmp_path, spark, conf)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    query = case.start(rows, processingTime="0 seconds")
    try:
        while len(commit_records(case.table)) < 3:
            assert not query.awaitTermination(1), "the stream has ended"
        assert query.isActive and query.lastProgress is not None and query.exception() is None
    finally:
        query.stop()
    assert not query.isActive
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    batches = len(commit_records(case.table))
    last: dict[int, int] = {}
    for value in range(40 * batches):
        last[value % 25] = value
    expected = [
        {
            "id": key,
            "room": f"room {value % 3}",
            "ts": value,
            "price": Decimal(value) * Decimal("1.25"),
            "timestamp": BEGIN + timedelta(seconds=value // 40),
            "day": date(2026, 1, 1) + timedelta(days=value),
            "small": value,
            "raw": str(value).encode(),
            "list": ["a", str(value)],
            "inner": {"x": value / 4, "y": [value]},
            "by": [("k", value)],
        }
        for key, value in sorted(last.items())
        if value % 7
    ]
    found = user_columns(read_snapshot(HoodieTable.open(str(case.table))))
    assert found.column_names == list(expected[0])
    assert found.sort_by("id").to_pylist() == expected
    theirs = read_table(case.table, meta_columns=False)
    names = [name for name in found.column_names if name != "by"]
    assert theirs.select(names).sort_by("id").to_pylist() == found.select(names).sort_by("id").to_pylist()


@pytest.mark.extended("a longer history of a DataFrame")
def test_the_offsets_of_several_sources_tell_a_batch(tmp_path: Path, spark: SparkSession) -> None:
    def half(name: str) -> DataFrame:
        return ticks(spark, 10).select(
            F.concat(F.lit(name), F.col("value") % 4).alias("id"), F.lit("p").alias("part"), F.col("value").alias("ts")
        )

    case = FrameCase(tmp_path, spark)
    case.run(half("a").union(half("b")))
    (first,) = commit_records(case.table)
    assert len(first["end_offsets"]["sources"]) == 2 and first["start_offsets"] == {}
    commits = case.checkpoint / "commits"
    for name in ("0", ".0.crc"):
        (commits / name).unlink(missing_ok=True)
    before = sorted(path.name for path in case.table.rglob("*.parquet"))
    case.run(half("a").union(half("b")))
    second = commit_records(case.table)
    assert second[0] == first and len(second) <= 2
    assert set(before) <= {path.name for path in case.table.rglob("*.parquet")}
    count = 10 * len(second)
    last = {f"{name}{value % 4}": value for name in "ab" for value in range(count)}
    found = read_table(case.table, meta_columns=False).select(["id", "ts"])
    assert dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True)) == last


def test_a_bad_row_is_kept_with_its_columns_and_ends_the_run(tmp_path: Path, spark: SparkSession) -> None:
    case = FrameCase(tmp_path, spark)
    ev.write_files([ev.Event("k1", "p0", 1, name="good"), ev.Event("", "p0", 2, name="bad")], case.source, 2)
    query = case.start()
    with pytest.raises(BadRecordsError, match="1 bad records in batch 0"):
        query.awaitTermination()
    assert isinstance(query.exception(), BadRecordsError) and not query.isActive
    kept = [
        json.loads(line) for path in case.checkpoint.rglob("part-*.jsonl") for line in path.read_text().splitlines()
    ]
    assert "record key" in kept[0]["reason"] or "key" in kept[0]["reason"]
    case.conf = {"--commit-on-errors": True}
    case.run()
    case.is_oracles([ev.Event("k1", "p0", 1, name="good")])


@pytest.mark.extended("the same decisions over another real stream")
def test_another_writers_commit_is_taken_in_and_the_query_goes_on(tmp_path: Path, spark: SparkSession) -> None:
    first = [ev.Event(f"k{i}", "p0", 1, name="first") for i in range(4)]
    case = FrameCase(tmp_path, spark)
    ev.write_files(first, case.source, 4)
    StreamCase(tmp_path, spark, place=tmp_path / "of-json").run()  # its table keeps the mark of deletes as a column
    query = case.start(processingTime="0 seconds")
    try:
        query.processAllAvailable()
        theirs = [ev.Event("k2", "p0", 50, name="theirs")]
        ForeignWriter(case.table).upsert(theirs)
        ours = [ev.Event("k0", "p1", 60, name="ours"), ev.Event("k2", "p1", 40, name="late")]
        ev.write_files(ours, case.source, 2, first=1)
        run_before = query.runId
        while len(commit_records(case.table)) < 3:
            assert not query.awaitTermination(1), "the stream has ended"
        query.processAllAvailable()
        assert query.runId != run_before and query.isActive
    finally:
        query.stop()
    assert query.exception() is None
    case.is_oracles([*first, *theirs, *ours])


def test_a_table_that_was_restored_is_no_reason_to_guess(tmp_path: Path, spark: SparkSession) -> None:
    case = FrameCase(tmp_path, spark)
    for n in range(2):
        ev.write_files([ev.Event(f"k{n}", "p0", n + 1, name="x")], case.source, 1, first=n)
    case.run()
    newest = sorted(timeline_of(case.table).glob("*.*commit"))[-1]
    newest.unlink()
    with pytest.raises(IndexCoverageError, match="The source is a DataFrame, and only the code that made it") as told:
        case.run()
    assert "read from the source again" not in str(told.value)


@pytest.mark.extended("the same decisions over another real stream")
def test_a_new_checkpoint_loads_the_index_and_what_comes_again_is_late_or_the_same(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    case = FrameCase(tmp_path, spark)
    events = list(
        ev.generate(2 * PER_FILE, ev.Mix(keys=60, deletes=0, late_deletes=0, deletes_without_partition=0), seed=5)
    )
    ev.write_files(events, case.source, PER_FILE)
    case.run()
    shutil.rmtree(case.checkpoint)
    case.run()
    case.is_oracles(events)
    assert "the stream starts where the options of its DataFrame's readers say" in caplog.text


@pytest.mark.extended("the same decisions over another real stream")
def test_a_wider_type_and_a_new_column_against_the_tables(tmp_path: Path, spark: SparkSession) -> None:
    case = FrameCase(tmp_path, spark)
    ev.write_files([ev.Event("k1", "p0", 1, name="x", amount=1.5)], case.source, 1)
    case.run()
    rows = case.frame().select(
        "id", "part", "ts", F.col("amount").cast("float").alias("amount"), F.lit(7).alias("more")
    )
    ev.write_files([ev.Event("k1", "p0", 2, name="y", amount=2.5)], case.source, 1, first=1)
    case.run(rows)
    found = read_table(case.table, meta_columns=False).to_pylist()
    assert found == [{"id": "k1", "part": "p0", "ts": 2, "name": None, "amount": 2.5, "more": 7}]
    with pytest.raises(ConfigError, match="the DataFrame: column 'ts' is string, in the table it is long"):
        case.run(case.frame().withColumn("ts", F.col("ts").cast("string")))


def test_rows_with_texts_that_are_not_utf8_are_bad_records(tmp_path: Path, spark: SparkSession) -> None:
    """Spark casts any bytes to a string. The message names the row, which has no position in a source."""
    case = FrameCase(tmp_path, spark)
    ev.write_files([ev.Event("k1", "p0", 1, name="good"), ev.Event("k2", "p0", 1, name="bad")], case.source, 1)
    wrong = F.expr("case when name = 'bad' then cast(X'61ff' as string) else name end")
    frame = case.frame().withColumn("name", wrong)
    with pytest.raises(BadRecordsError, match=r"The first \(row 0 of task 0\): field name: a text is not UTF-8"):
        case.run(frame)
    assert [row["id"] for row in read_table(case.table).to_pylist()] == ["k1"]


def test_what_cannot_be_a_stream_is_refused_by_name(tmp_path: Path, spark: SparkSession) -> None:
    case = FrameCase(tmp_path, spark)
    good, path, checkpoint = case.frame(), str(case.table), str(case.checkpoint)

    def refused(text: str, df: Any = good, trigger: Any = None, **options: Any) -> None:
        told = {**case.options(), **{name.replace("_", "."): value for name, value in options.items()}}
        with pytest.raises(ConfigError, match=text):
            tagstream.upsert(df, path, checkpoint, options=told, trigger=trigger)

    refused("is not a streaming one", spark.range(3))
    refused("df is a pyarrow.Table", pa.table({"a": [1]}))
    remote = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    refused("belongs to Spark Connect", remote)
    refused("trigger", trigger={"once": True})
    refused("the source is a DataFrame", hoodie_streamer_source_kafka_topic="t")
    refused("the source is a DataFrame", bootstrap_servers="h:1")
    refused("is the argument path", hoodie_base_path="x")
    refused("rows of a DataFrame have no order", hoodie_table_ordering_fields="")
    refused("it marks deletes and must be boolean", tagstream_delete_field="ts")
    for kind, made in {"map<void,void>": "map()", "interval year": "make_ym_interval(1, 0)"}.items():
        refused(
            f"column 'odd' of the DataFrame has the type {kind}.*; cast the column",
            good.withColumn("odd", F.expr(made)),
        )
    refused("column 'odd' has the Arrow type map<int32", good.withColumn("odd", F.expr("map(1, 'x')")))
    refused("ordering field 'nope' is not a column of the DataFrame", hoodie_table_ordering_fields="nope")
    assert not case.table.exists()


def test_columns_by_argument_and_a_name_by_the_folder(tmp_path: Path, spark: SparkSession) -> None:
    case = FrameCase(tmp_path, spark)
    events = [ev.Event("k1", "p0", 1, name="x"), ev.Event("k2", "p1", 1, name="y"), ev.Event("k1", "p1", 2, name="z")]
    ev.write_files(events, case.source, 3)
    where = {"path": case.table, "checkpoint": case.checkpoint}
    columns: dict[str, Any] = {"key": ["id"], "partition_by": "part", "order_by": "ts"}
    options = {"index.local.dir": case.folder / "local", "spark.sql.shuffle.partitions": 2}
    tagstream.upsert(case.frame(), **where, **columns, options=options, trigger="availableNow").awaitTermination()
    case.is_oracles(events)
    table = tagstream.open_table(case.table)
    assert table.name == "table" and table.scan(filter="id = k1").to_arrow()["name"].to_pylist() == ["z"]
    ev.write_files([ev.Event("k2", "p1", 3, name="again")], case.source, 1, first=1)
    tagstream.upsert(
        case.frame(), **where, options=options, trigger="availableNow"
    ).awaitTermination()  # as the table says
    assert table.scan(since=table.timeline()[0].time, filter="ts = 3").to_arrow()["id"].to_pylist() == ["k2"]
    with pytest.raises(ConfigError, match="nope"):
        tagstream.upsert(
            case.frame(), case.folder / "t2", case.folder / "c2", key="nope", order_by="ts", options=options
        )
    assert not (case.folder / "t2").exists()
