"""Properties files as HoodieStreamer's users have them: one message tells all, and only contradictions end a start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tagstream.streaming.options.cli import load_options
from tagstream.streaming.options.options import Options
from tagstream.table.errors import ConfigError
from tests.support.paths import ROOT

FILES = ROOT / "tests" / "fixtures" / "properties"
PATHS = ["--target-base-path", "/data/t", "--checkpoint-dir", "/data/c", "--target-table", "t"]
DEMO = FILES / "demo" / "kafka-source.properties"
DOCS = FILES / "docs" / "kafka-source.properties"
PRODUCTION = FILES / "production" / "stock-ticks.properties"
DOCS_FLAGS = [
    "--source-class", "JsonKafkaSource", "--source-ordering-field", "impresssiontime",
    "--hoodie-conf", f"hoodie.streamer.schemaprovider.source.schema.file={FILES / 'docs' / 'impressions.avsc'}",
]  # fmt: skip


def conf(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--hoodie-conf", pair)]


def load(props: Path, *more: str) -> Options:
    return load_options([*PATHS, "--props", str(props), *more])


def line_of(path: Path, key: str) -> int:
    return 1 + next(n for n, line in enumerate(path.read_text().splitlines()) if line.startswith(key))


def refusal(props: Path, *more: str) -> str:
    with pytest.raises(ConfigError) as e:
        load(props, *more)
    return str(e.value)


def given(tmp_path: Path, *lines: str) -> Path:
    """A properties file of a right job with more lines."""
    path = tmp_path / "job.properties"
    own = ["hoodie.streamer.source.kafka.topic=t", "bootstrap.servers=h:1", *lines]
    path.write_text("\n".join(own) + "\n")
    return path


def test_the_demos_file_starts_at_once() -> None:
    o = load(DEMO)
    assert (o.kafka.topic, o.source.schema_file) == ("stock_ticks", "/var/demo/config/schema.avsc")
    told = o.warnings[0]
    where = line_of(DEMO, "hoodie.deltastreamer.schemaprovider.target")
    assert f"target.schema.file = /var/demo/config/schema.avsc ({DEMO}:{where}): it is the source schema" in told
    assert "hoodie.filesystem.view.type = EMBEDDED_KV_STORE" in told
    assert "unknown key" not in told


def test_the_example_of_hudis_documentation_starts_at_once() -> None:
    o = load(DOCS, *DOCS_FLAGS)
    assert (o.kafka.topic, o.table.ordering_fields, o.table.record_key_fields) == (
        "impressions",
        ("impresssiontime",),
        ("impressionid",),
    )
    assert any("no schema registry is used" in warning for warning in o.warnings)
    assert any("schema.registry.url (" in warning for warning in o.warnings)
    records = load(DOCS).records
    assert (records.registry_url, records.registry_subject) == ("http://localhost:8081", "impressions-value")


def test_a_file_of_production_starts_after_one_message() -> None:
    text = refusal(PRODUCTION)
    first, *rest = text.splitlines()
    assert first.startswith("hoodie.datasource.write.payload.class = org.apache.hudi.common.model.OverwriteWithLatest")
    assert f"({PRODUCTION}:{line_of(PRODUCTION, 'hoodie.datasource.write.payload')}): known but not supported" in first
    # All that matters is in the same message, each key with its line.
    for key in ("hoodie.metrics.on", "hoodie.cleaner.policy.failed.writes"):
        value = next(line for line in PRODUCTION.read_text().splitlines() if line.startswith(key)).partition("=")[2]
        assert f"{key} = {value} ({PRODUCTION}:{line_of(PRODUCTION, key)})" in text, key
    assert "it may be false" not in text
    way_out = next(line for line in rest if line.startswith("to keep a file unchanged"))
    o = load(PRODUCTION, *way_out.partition(": ")[2].split())
    assert (o.table.ordering_fields, o.table.hive_style, o.index.type, o.writer.codec) == (
        ("ts",),
        True,
        "GLOBAL_BLOOM",
        "snappy",
    )
    assert o.sync.catalogs == ("hive",)
    assert "hoodie.clean.automatic" not in o.warnings[0]
    assert o.schema.missing == "null", "hoodie.datasource.write.reconcile.schema=true"


def test_every_contradiction_is_in_the_one_message(tmp_path: Path) -> None:
    props = given(
        tmp_path, "hoodie.populate.meta.fields=false", "hoodie.index.type=BUCKET2",
        "hoodie.parquet.block.size=1MB", "tagstream.nonsense=1", "hoodie.table.ordering.fields=a,a",
        "interceptor.classes=x.Y",
        "hoodie.datasource.write.keygenerator.class=org.apache.hudi.keygen.GlobalDeleteKeyGenerator",
    )  # fmt: skip
    text = refusal(props, "--transformer-class", "x.Y", "--op", "DELETE_PARTITION")
    assert text.startswith("9 settings prevent the start of this job:\n")
    for words in ("(it may be true)", "BUCKET2", "must be a whole number", "tagstream.nonsense",
                  "names the same item twice", "interceptor", "GlobalDelete", "--transformer-class",
                  "not an operation of a stream"):  # fmt: skip
        assert words in text


def test_unsupported_says_what_becomes_of_services(tmp_path: Path) -> None:
    props = given(tmp_path, "hoodie.metrics.on=true", "hoodie.archive.beyond.savepoint=true")
    assert "hoodie.archive.beyond.savepoint = true" in load(props).warnings[0]
    assert load(props, *conf("tagstream.unsupported=ignore")).warnings == ()
    text = refusal(props, *conf("tagstream.unsupported=fail"))
    assert text.startswith("2 settings prevent the start of this job:")
    assert "hoodie.metrics.on = true" in text
    # A contradiction is none of them.
    meta = given(tmp_path, "hoodie.populate.meta.fields=false")
    assert "need the meta columns" in refusal(meta, *conf("tagstream.unsupported=ignore"))


def test_an_empty_value_on_the_command_line_takes_a_key_out_of_the_file(tmp_path: Path) -> None:
    props = given(
        tmp_path, "hoodie.datasource.write.payload.class=x.Own", "hoodie.table.name=one", "security.protocol=SASL_SSL",
        "hoodie.datasource.write.partitionpath.field=p", "spark.executor.memory=1g", "hoodie.tabel=1",
    )  # fmt: skip
    keys = ("hoodie.datasource.write.payload.class", "hoodie.table.name", "security.protocol",
            "hoodie.datasource.write.partitionpath.field", "spark.executor.memory", "hoodie.tabel")  # fmt: skip
    o = load_options([*PATHS[:4], "--props", str(props), *conf(*(f"{key}=" for key in keys))])
    assert (o.table.name, o.table.partition_fields, o.run.spark_conf, o.warnings) == (None, (), {}, ())
    assert o.kafka.consumer == {"kafka.bootstrap.servers": "h:1"}
    assert not o.is_set("hoodie.datasource.write.partitionpath.field")
    # Another spelling of the same key does it, too, and so the file's two names do not contradict each other any more.
    both = given(tmp_path, "hoodie.deltastreamer.source.dfs.path.regex=a.*")
    assert load(both, *conf("hoodie.streamer.source.dfs.path.regex=")).warnings == ()


@pytest.mark.parametrize(
    "spelling", ["hoodie.keygen.timebased", "hoodie.deltastreamer.keygen.timebased", "hoodie.streamer.keygen.timebased"]
)
def test_old_spellings_are_treated_like_the_new(tmp_path: Path, spelling: str) -> None:
    (told,) = load(given(tmp_path, f"{spelling}.timestamp.type=UNIX_TIMESTAMP")).warnings
    assert re.search(
        r"timestamp.type.*UNIX_TIMESTAMP.*:3.*: only the key generators TIMESTAMP and CUSTOM read this key", told
    )


_PAYLOAD = "hoodie.datasource.write.payload.class=org.apache.hudi.common.model"


@pytest.mark.parametrize(
    ("lines", "starts"),
    [
        (["hoodie.datasource.write.payload.class=org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"], True),
        (["hoodie.compaction.payload.class=OverwriteWithLatestAvroPayload", "hoodie.table.ordering.fields=ts"], False),
        ([f"{_PAYLOAD}.debezium.PostgresDebeziumAvroPayload", "tagstream.source.format=debezium-json"], True),
        ([f"{_PAYLOAD}.debezium.PostgresDebeziumAvroPayload", "tagstream.source.format=debezium-json",
          "hoodie.table.ordering.fields=_event_lsn"], True),
        ([f"{_PAYLOAD}.debezium.PostgresDebeziumAvroPayload", "tagstream.source.format=debezium-json",
          "hoodie.table.ordering.fields=ts"], False),
        ([f"{_PAYLOAD}.debezium.PostgresDebeziumAvroPayload", "tagstream.source.format=debezium-json",
          "hoodie.index.type=GLOBAL_SIMPLE"], False),
        ([f"{_PAYLOAD}.debezium.PostgresDebeziumAvroPayload"], False),
        ([f"{_PAYLOAD}.debezium.MySqlDebeziumAvroPayload", "tagstream.source.format=debezium-json"], False),
        ([f"{_PAYLOAD}.debezium.MySqlDebeziumAvroPayload", "tagstream.source.format=debezium-json",
          "tagstream.debezium.order=binlog"], True),
        (["hoodie.bucket.index.remote.partitioner.enable=true"], True),
        (["hoodie.bucket.index.remote.partitioner.enable=true", "hoodie.index.type=BUCKET"], False),
        (["hoodie.streamer.source.kafka.value.deserializer.class=io.confluent.KafkaAvroDeserializer"], False),
        (["hoodie.write.concurrency.mode=non_blocking_concurrency_control"], False),
        (["hoodie.write.lock.hivemetastore.database=x"], True),
        (["hoodie.partition.ttl.inline=true"], False),
        (["hoodie.streamer.transformer.sql=select 1"], True),
    ],
)  # fmt: skip
def test_what_would_change_rows_or_files_contradicts(tmp_path: Path, lines: list[str], starts: bool) -> None:
    props = given(tmp_path, *lines)
    if starts:
        assert load(props).warnings
    else:
        assert lines[0].partition("=")[0] in refusal(props)


def test_another_schema_of_the_table_contradicts(tmp_path: Path) -> None:
    one, same, other = (tmp_path / name for name in ("one.avsc", "same.avsc", "other.avsc"))
    one.write_text('{"type": "record", "name": "r", "fields": []}')
    same.write_text('{"name":"r","type":"record","fields":[]}')
    other.write_text('{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}')
    prefix = "hoodie.streamer.schemaprovider"
    props = given(tmp_path, f"{prefix}.source.schema.file={one}")
    assert load(props, *conf(f"{prefix}.target.schema.file=file://{one}")).warnings
    assert load(props, *conf(f"{prefix}.target.schema.file={same}")).warnings
    assert "name the same file, or remove it" in refusal(props, *conf(f"{prefix}.target.schema.file={other}"))


def test_a_secret_is_masked_in_the_message(tmp_path: Path) -> None:
    props = given(tmp_path, "hoodie.metrics.datadog.api.key=hunter2", "hoodie.gcp.token=hunter2")
    assert "hunter2" not in load(props).warnings[0]
    assert "hunter2" not in refusal(props, *conf("tagstream.unsupported=fail"))
