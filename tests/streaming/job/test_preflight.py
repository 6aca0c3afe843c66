"""A start that is refused leaves nothing, and a dry run refuses the same, in the same words and with the same exit code."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark import SparkContext

from tagstream.state.checkpoint import open_or_create_meta
from tagstream.streaming.job.main import main
from tagstream.streaming.options.table_options import NEW_ENCODING
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.storage.opening import open_storage
from tagstream.table.timeline import lease
from tests.support import events as ev
from tests.support.table_version import ordering_key, table_version

PARTITIONS = "hoodie.datasource.write.partitionpath.field"
ROOT_KEY = "hoodie.streamer.source.dfs.root"
CLEAN, ARCHIVE = "tagstream.source.dfs.clean", "tagstream.source.dfs.archive.dir"
SCHEMA_KEY = "hoodie.streamer.schemaprovider.source.schema.file"


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark context that is asked for fails the test."""

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(SparkContext, "__init__", never)


def arguments(folder: Path, **conf: str | None) -> list[str]:
    """A right command line on files, with the keys of ``conf`` over it; None leaves one out."""
    (folder / "in").mkdir(exist_ok=True)
    if not (folder / "event.avsc").exists():
        (folder / "event.avsc").write_text(json.dumps(ev.AVRO_SCHEMA))
    given: dict[str, str | None] = {
        **ev.properties(),
        "hoodie.base.path": str(folder / "table"),
        "hoodie.table.name": "events",
        ROOT_KEY: str(folder / "in"),
        SCHEMA_KEY: str(folder / "event.avsc"),
        **conf,
    }
    pairs = [word for key, value in given.items() if value is not None for word in ("--hoodie-conf", f"{key}={value}")]
    return ["--checkpoint-dir", str(folder / "checkpoint"), "--source-class", "JsonDFSSource", *pairs]


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    paths = [Path(at, name) for at, folders, names in os.walk(folder) for name in [*folders, *names]]
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in paths}


def refused(folder: Path, argv: list[str], capsys: pytest.CaptureFixture[str], code: int) -> str:
    """The line that a start and a dry run end with; neither may have changed anything."""
    before, said = tree(folder), []
    for more in ([], ["--dry-run"]):
        capsys.readouterr()
        assert main([*argv, *more]) == code
        said += [line for line in capsys.readouterr().err.splitlines() if line.startswith("tagstream: error: ")]
        assert tree(folder) == before
    assert len(said) == 2
    assert said[0] == said[1]
    return said[0]


@pytest.mark.parametrize(
    ("conf", "code", "words"),
    [
        ({ROOT_KEY: "{folder}/nowhere"}, 1, "source folder {folder}/nowhere does not exist; correct"),
        ({ROOT_KEY: "{folder}/event.avsc"}, 3, "source folder {folder}/event.avsc is a file; set hoodie.streamer"),
        ({"hoodie.table.ordering.fields": None}, 2, "files have no order: set hoodie.table.ordering"),
        ({"hoodie.table.ordering.fields": None, "hoodie.index.type": "BLOOM", "tagstream.source.format": "debezium-json"}, 2,
         "newer event), or hoodie.index.type=STATE, which stores the positions of the log"),
        ({"hoodie.index.type": "RECORD_INDEX", "hoodie.metadata.enable": "false"}, 2, "is in the metadata table"),
        ({PARTITIONS: "part,name", "hoodie.write.table.version": "9", NEW_ENCODING: "false"},
         2, "a table of version 9 has keys with only the value; remove the option, or use version 6 or 8"),
        ({"hoodie.index.type": "RECORD_LEVEL_INDEX", "hoodie.write.table.version": "6", "hoodie.metadata.enable": None}, 2,
         "would get version 6, whose"),
        ({"hoodie.metadata.record.level.index.enable": "true", "hoodie.metadata.record.index.enable": "true"}, 2,
         "is for the other form"),
        ({"hoodie.metadata.record.index.enable": "true", "hoodie.index.type": "BUCKET"}, 2,
         "BUCKET does not look up the keys of a bucket, so the record index would lack new keys"),
        ({"hoodie.metadata.record.level.index.enable": "true", "hoodie.index.type": "BUCKET"}, 2, "would lack new keys"),
        ({"hoodie.metadata.record.index.enable": "true", "index.global.enabled": "false"}, 2,
         "with index.global.enabled=false a key can have a row in each partition"),
        ({"hoodie.metadata.record.index.enable": "true", "hoodie.index.type": "SIMPLE"}, 2,
         "with hoodie.index.type=SIMPLE a key can have a row in each partition"),
        ({CLEAN: "archive"}, 2, " moves files, but tagstream.source.dfs.archive.dir is missing; set it"),
        ({ARCHIVE: "{folder}/old"}, 2, "files are moved there only with tagstream.source.dfs.clean=archive"),
        ({CLEAN: "archive", ARCHIVE: "{folder}/in/old"}, 2, "tagstream.source.dfs.archive.dir {folder}/in/old and"),
        ({CLEAN: "archive", ARCHIVE: "{folder}/event.avsc/x"}, 3, "archive.dir {folder}/event.avsc/x can't be written"),
        ({CLEAN: "delete", ROOT_KEY: "webhdfs://h/in"}, 2, "Spark lists and reads hoodie.streamer.source.dfs.root webhdfs"),
        ({"hoodie.base.path": "{folder}/event.avsc/t"}, 3, "{folder}/event.avsc/t can't be written: {folder}/ev"),
        ({"hoodie.base.path": "{folder}/in/table"}, 2, "contain one another; the job would read its own files as records"),
        ({"hoodie.table.name": "a/b"}, 2, "a table's name has no slash"),
        ({"hoodie.datasource.write.recordkey.field": "nokey"}, 2, "record key field 'nokey' is not a column"),
        ({SCHEMA_KEY: "{folder}/none.avsc"}, 2, "schema file {folder}/none.avsc: No such file"),
        ({"hoodie.table.name": None}, 2, "no table exists at {folder}/table yet; to create it, set --target-table"),
        ({"hoodie.datasource.write.keygenerator.type": "TIMESTAMP"}, 2, "needs hoodie.keygen.timebased.timestamp.type"),
        ({"hoodie.datasource.write.recordkey.field": "raw"}, 2, "field 'raw' is binary and cannot be part of a record key"),
        ({PARTITIONS: "tags"}, 2, "field 'tags' is list<element: string not null> and cannot be part of"),
        ({"hoodie.datasource.write.operation": "DELETE_PARTITION"}, 2, "not an operation of a stream of records"),
        ({"hoodie.datasource.write.table.type": "MOR"}, 2, "must be one of COPY_ON_WRITE, MERGE_ON_READ; did you mean ME"),
        ({"hoodie.parquet.max.file.size": "120MB # size"}, 2, "a whole number of bytes; did you mean 125829120?"),
        ({"hoodie.clean.commits.retained": "10 # few"}, 2, "must be a whole number; did you mean 10?"),
    ],
)  # fmt: skip
def test_what_the_options_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], conf: dict[str, str | None], code: int, words: str
) -> None:
    more = [{"name": "raw", "type": "bytes"}, {"name": "tags", "type": {"type": "array", "items": "string"}}]
    (tmp_path / "event.avsc").write_text(json.dumps({**ev.AVRO_SCHEMA, "fields": [*ev.AVRO_SCHEMA["fields"], *more]}))
    filled = {key: value and value.format(folder=tmp_path) for key, value in conf.items()}
    line = refused(tmp_path, arguments(tmp_path, **filled), capsys, code)
    assert words.format(folder=tmp_path) in line
    assert "Spark failed" not in line
    assert "batch" not in line


@pytest.mark.parametrize(
    ("topic", "servers", "code", "words"),
    [
        ("shop.*", "127.0.0.1:1", 2, "not the name of a topic"),
        ("shop", "localhost", 1, "localhost (it has no port: write for example localhost:9092)"),
    ],
)
def test_a_topic_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], topic: str, servers: str, code: int, words: str
) -> None:
    conf = {"hoodie.streamer.source.kafka.topic": topic, "bootstrap.servers": servers}
    argv = [*arguments(tmp_path, **conf), "--source-class", "JsonKafkaSource"]
    assert words in refused(tmp_path, argv, capsys, code)


def test_one_message_says_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a broker, too; of several faults the one decides the exit code that no restart cures."""
    conf = {"hoodie.datasource.write.recordkey.field": "nokey", "bootstrap.servers": "127.0.0.1:1",
            "hoodie.streamer.source.kafka.topic": "t"}  # fmt: skip
    assert main([*arguments(tmp_path, **conf), "--source-class", "JsonKafkaSource", "--dry-run"]) == 2
    first, *rest = [line for line in capsys.readouterr().err.splitlines() if line.strip()][-3:]
    assert first == "tagstream: error: 2 problems keep this job from starting:"
    assert rest[0].startswith("  no Kafka broker answers: 127.0.0.1:1 (")
    assert rest[1].startswith("  record key field 'nokey' is not a column of")


def test_a_flag_without_a_value_is_as_if_it_were_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A variable of a script that is not set."""
    assert main([*arguments(tmp_path), "--table-type", "", "--dry-run"]) == 0
    assert "make the table (COPY_ON_WRITE)" in capsys.readouterr().out


def test_a_checkpoint_below_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [*arguments(tmp_path), "--checkpoint-dir", str(tmp_path / "event.avsc" / "c")]
    line = refused(tmp_path, argv, capsys, 3)
    assert f"--checkpoint-dir {tmp_path}/event.avsc/c can't be written: {tmp_path}/event.avsc is a file" in line


@pytest.mark.parametrize("inside", [False, True])
def test_names_that_differ_in_their_case_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], inside: bool
) -> None:
    fields: list[dict[str, object]] = [{"name": name, "type": ["null", "long"]} for name in ("v", "w", "V")]
    if inside:
        kind = {"type": "record", "name": "r", "fields": fields}
        fields = [{"name": "m", "type": {"type": "map", "values": kind}}]
    schema = {**ev.AVRO_SCHEMA, "fields": [*ev.AVRO_SCHEMA["fields"], *fields]}  # type: ignore[misc]
    (tmp_path / "event.avsc").write_text(json.dumps(schema))
    line = refused(tmp_path, arguments(tmp_path), capsys, 2)
    path = "m.value." if inside else ""
    assert f"event.avsc has the columns '{path}v' and '{path}V', which differ only in upper and lower case" in line


@pytest.mark.parametrize(("name", "words"), [("PATH", "the PATH has no java"), ("JAVA_HOME", "has no bin/java")])
def test_no_java(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv(name, str(tmp_path))
    line = refused(tmp_path, arguments(tmp_path), capsys, 3)
    assert "Spark needs Java 17" in line
    assert words in line


def test_a_master_that_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        line = refused(tmp_path, [*arguments(tmp_path), "--spark-master", master], capsys, 1)
    assert f"the Spark master {master} does not answer: 127.0.0.1:" in line


def test_what_is_no_master(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(tmp_path, [*arguments(tmp_path), "--spark-master", "host:7077"], capsys, 2)
    assert "--spark-master host:7077 is not a Spark master; set it to local[N,retries], spark://HOST:PORT" in line


def test_a_column_that_can_hold_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = [*ev.AVRO_SCHEMA["fields"], {"name": "nothing", "type": "null"}]
    (tmp_path / "event.avsc").write_text(json.dumps({**ev.AVRO_SCHEMA, "fields": fields}))
    line = refused(tmp_path, arguments(tmp_path), capsys, 2)
    assert f"schema file {tmp_path}/event.avsc can't be used: column 'nothing' has only the type null, which" in line
    assert "remove it, or give it one" in line


def test_an_hbase_that_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        conf = {
            "hoodie.index.type": "HBASE",
            "hoodie.index.hbase.table": "keys",
            "tagstream.hbase.thrift.host": "127.0.0.1",
            "tagstream.hbase.thrift.port": str(taken.getsockname()[1]),
            "tagstream.hbase.thrift.retries": "0",
        }
        line = refused(tmp_path, arguments(tmp_path, **conf), capsys, 1)
    assert "127.0.0.1" in line


def test_a_table_that_is_being_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = arguments(tmp_path)
    (tmp_path / "table").mkdir()
    storage = open_storage(str(tmp_path / "table"))
    fields = {"record_key_fields": ("id",), "partition_fields": ("part",), "ordering_fields": ("ts",)}
    config = TableConfig("events", version=table_version(), **fields)
    HoodieTable.create(storage, config, 0)
    owner = lease.LeaseOwner("other-host", "boot", 4711, 1, "stream orders")
    now_ms = time.time_ns() // 1_000_000
    lease.acquire(storage, owner, now_ms, 3_600_000)
    line = refused(tmp_path, argv, capsys, 1)
    assert "is being written by process 4711 on other-host (stream orders); its lease lasts until 20" in line
    assert " UTC (35" in line or " UTC (3600 s" in line


META = {"shuffle_partitions": 2, "key_groups": 8, "ordering": "int64", "global_index": True}


def in_use(folder: Path, stream_id: str) -> Path:
    """A checkpoint that has planned a batch."""
    checkpoint = folder / "checkpoint"
    table = {"table_name": "events", "table_path": str(folder / "table")}
    open_or_create_meta(open_storage(str(checkpoint)), **META, **table, stream_id=stream_id)  # type: ignore[arg-type]
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / "0").write_text("v1\n")
    return checkpoint


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"index.key.groups": "64"}, "fixes key_groups as 8, but index.key.groups is now 64; set that value again, or"
         " make a checkpoint with the new value from this one: tagstream rescale"),
        ({"hoodie.index.type": "BLOOM"}, "fixes index as STATE (keys kept as the stream's state), but hoodie.index.type is"
         " now one that looks keys up in the table"),
        ({"index.global.enabled": "false"}, "fixes global_index as True, but index.global.enabled is now False"),
        ({"hoodie.datasource.write.streaming.checkpoint.identifier": "x"}, "but hoodie.datasource.write.streaming.checkpoint"
         ".identifier is now 'x'; this checkpoint belongs to another source"),
    ],
)  # fmt: skip
def test_what_a_checkpoint_fixes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], conf: dict[str, str], words: str
) -> None:
    in_use(tmp_path, str(tmp_path / "in"))
    assert words in refused(tmp_path, arguments(tmp_path, **conf), capsys, 1)


def test_a_checkpoint_of_another_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": "5b0ea4b0-0b6c-4d42-b0f4-6f4c4f9d1b11"}))
    assert "is the checkpoint of another Spark query" in refused(tmp_path, arguments(tmp_path), capsys, 1)


def test_the_dry_run_tells_the_warnings_of_a_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stamp = {"type": "long", "logicalType": "local-timestamp-micros"}
    nested = {"type": "array", "items": {"type": "record", "name": "r", "fields": [{"name": "at", "type": stamp}]}}
    fields = [*ev.AVRO_SCHEMA["fields"], {"name": "at", "type": stamp}, {"name": "ats", "type": nested}]
    (tmp_path / "event.avsc").write_text(json.dumps({**ev.AVRO_SCHEMA, "fields": fields}))
    argv = arguments(tmp_path, **{"hoodie.tabel.name": "x", "hoodie.upsert.shuffle.parallelism": "2"})
    before = tree(tmp_path)
    assert main([*argv, "--dry-run"]) == 0
    assert tree(tmp_path) == before
    out = capsys.readouterr().out
    assert "would do: make the table" in out
    assert "columns of a local-timestamp type (at, ats): hudi-rs 0.5.0 can't read" in out
    assert "hoodie.tabel.name = x" in out
    assert "hoodie.upsert.shuffle.parallelism = 2" in out


def a_wrong_table(folder: Path, **changes: object) -> HoodieTable:
    config: dict[str, object] = {"name": "wrong", "record_key_fields": ("name",), "table_type": "MERGE_ON_READ"}
    config["version"] = table_version()
    return HoodieTable.create(str(folder / "table"), TableConfig(**{**config, **changes}), 0)  # type: ignore[arg-type]


def test_a_table_without_commits_takes_the_jobs_properties(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_wrong_table(tmp_path)
    argv = arguments(tmp_path)
    before = tree(tmp_path)
    assert main([*argv, "--dry-run"]) == 0
    assert tree(tmp_path) == before
    out = capsys.readouterr().out
    assert "new properties: the table has no commit yet and gets the job's properties: " in out
    for words in (f"{ordering_key()}=ts (was none)", "hoodie.table.recordkey.fields=id (was name)",
                  "hoodie.table.type=COPY_ON_WRITE (was MERGE_ON_READ)"):  # fmt: skip
        assert words in out


@pytest.mark.parametrize(
    "spoil",
    [
        lambda table: table.storage.write_new(
            f"{table.config.timeline_folder}/20260101000000000.commit.requested", b""
        ),
        lambda table: (Path(table.base_path) / "p0").mkdir(),
        lambda table: (Path(table.base_path) / ".hoodie" / "archived" / ".commits").mkdir(parents=True),
    ],
)
def test_one_that_was_written_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[HoodieTable], None]
) -> None:
    spoil(a_wrong_table(tmp_path))
    assert "hoodie.table.name=wrong, but the job has events" in refused(tmp_path, arguments(tmp_path), capsys, 1)


def test_one_that_was_described_by_a_schema_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_wrong_table(tmp_path, create_schema=json.dumps(ev.AVRO_SCHEMA))
    assert "hoodie.table.name=wrong, but the job has events" in refused(tmp_path, arguments(tmp_path), capsys, 1)


def test_an_error_table_that_is_one_of_other_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_wrong_table(tmp_path / "other")
    there = str(tmp_path / "other" / "table")
    argv = arguments(tmp_path, **{"hoodie.errortable.enable": "true", "hoodie.errortable.base.path": there})
    line = refused(tmp_path, argv, capsys, 2)
    assert f"hoodie.errortable.base.path: {there} is table wrong, which is not an error table (record key: " in line


def test_a_table_that_cannot_be_upgraded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = TableConfig(
        "events",
        "MERGE_ON_READ",
        record_key_fields=("id",),
        partition_fields=("part",),
        ordering_fields=("ts",),
        version=6,
    )
    table = HoodieTable.create(str(tmp_path / "table"), config, 0)
    table.storage.write_new(f"{table.config.timeline_folder}/20260101000000000.indexing.requested", b"")
    argv = arguments(tmp_path, **{"hoodie.write.table.version": "9", "hoodie.table.type": "MERGE_ON_READ"})
    assert "indexing 20260101000000000 of" in refused(tmp_path, argv, capsys, 1)
