"""Flags, files and keys into options: precedence, aliases, what is refused and how it is said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tagstream.streaming.options.cli import load_options, parser
from tagstream.streaming.options.options import Options
from tagstream.streaming.options.registry import REGISTRY
from tagstream.table.config import Kind, Status
from tagstream.table.errors import ConfigError
from tests.support.paths import ROOT

PATHS = ["--target-base-path", "/data/t", "--checkpoint-dir", "/data/c"]
KAFKA = ["--hoodie-conf", "hoodie.streamer.source.kafka.topic=orders", "--hoodie-conf", "bootstrap.servers=h:9092"]
FILES = ["--source-class", "JsonDFSSource", "--hoodie-conf", "hoodie.streamer.source.dfs.root=/in"]


def load(*more: str, source: list[str] = KAFKA) -> Options:
    return load_options([*PATHS, *source, *more])


def conf(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--hoodie-conf", pair)]


def test_defaults() -> None:
    o = load()
    assert (o.table.base_path, o.run.checkpoint_dir, o.table.name) == ("/data/t", "/data/c", None)
    assert (o.table.type, o.table.operation, o.table.version, o.source.kind) == ("COPY_ON_WRITE", "UPSERT", 6, "kafka")
    assert (o.kafka.topic, o.kafka.starting_offsets, o.kafka.fail_on_data_loss) == ("orders", "earliest", True)
    assert o.kafka.consumer == {"kafka.bootstrap.servers": "h:9092"}
    assert (o.source.limit, o.run.min_sync_interval_seconds, o.run.continuous) == (1_000_000, 0, False)
    assert (o.run.commit_on_errors, o.run.max_bad_records, o.status.port) == (False, 0, None)
    assert (o.status.host, o.status.stuck_after, o.status.behind_after) == ("127.0.0.1", 900.0, 600.0)
    assert (o.index.type, o.state.is_global, o.state.bootstrap_enabled) == ("STATE", True, True)
    assert (o.state.ttl_ms, o.state.partition_regex, o.state.key_groups) == (0, ".*", None)
    assert (o.file_sizes.max_file_bytes, o.file_sizes.small_file_limit, o.writer.codec) == (
        125829120,
        104857600,
        "zstd",
    )
    assert (o.metadata.enable, o.stream_id, o.warnings) == (None, "orders", ())
    assert load(source=FILES).source.limit == 512 * 1024 * 1024
    assert load(source=FILES).stream_id == "/in"


def test_a_flag_wins_over_hoodie_conf_and_that_over_the_file(tmp_path: Path) -> None:
    props = tmp_path / "job.properties"
    props.write_text(
        "hoodie.table.name=file\nhoodie.datasource.write.recordkey.field=file\nhoodie.parquet.block.size=2048\n"
    )
    o = load("--props", str(props), "--target-table", "flag",
             *conf("hoodie.table.name=conf", "hoodie.datasource.write.recordkey.field=conf"))  # fmt: skip
    assert (o.table.name, o.table.record_key_fields, o.writer.row_group_bytes) == ("flag", ("conf",), 2048)
    assert o.origin("hoodie.table.name") == "--target-table"
    assert o.origin("hoodie.parquet.block.size") == f"{props}:3"
    assert o.is_set("hoodie.table.name")
    assert not o.is_set("hoodie.index.type")


def test_names_of_hoodiestreamer_flink_and_older_versions() -> None:
    o = load_options([
        *PATHS, "--source-class", "org.apache.hudi.utilities.sources.JsonKafkaSource", "--op", "upsert",
        "--table-type", "merge_on_read", "--source-ordering-field", "ts", "--commit-on-errors", "false", "--continuous",
        "--schemaprovider-class", "org.apache.hudi.utilities.schema.FilebasedSchemaProvider",
        *conf("hoodie.deltastreamer.source.kafka.topic=old", "kafka.bootstrap.servers=h:1", "index.type=FLINK_STATE",
              "hoodie.datasource.write.keygenerator.class=org.apache.hudi.keygen.ComplexKeyGenerator",
              "hoodie.datasource.write.recordkey.field=a,b", "hoodie.datasource.write.partitionpath.field=p"),
    ])  # fmt: skip
    assert (o.kafka.topic, o.index.type, o.table.operation, o.table.type) == ("old", "STATE", "UPSERT", "MERGE_ON_READ")
    assert (o.table.ordering_fields, o.table.merge_mode, o.table.key_generator) == (
        ("ts",),
        "EVENT_TIME_ORDERING",
        "COMPLEX",
    )
    assert (o.run.continuous, o.run.commit_on_errors) == (True, False)
    assert load(*conf("hoodie.datasource.write.precombine.field=ts")).table.ordering_fields == ("ts",)
    assert load("--source-ordering-fields", "epoch,step", *conf()).table.ordering_fields == ("epoch", "step")


@pytest.mark.parametrize(
    ("keys", "partitions", "expected"),
    [("a", "p", "SIMPLE"), ("a", "", "NON_PARTITION"), ("a,b", "p", "COMPLEX"), ("a", "p,q", "COMPLEX")],
)
def test_the_key_generator_follows_from_the_fields(keys: str, partitions: str, expected: str) -> None:
    o = load(*conf(f"hoodie.datasource.write.recordkey.field={keys}",
                   f"hoodie.datasource.write.partitionpath.field={partitions}"))  # fmt: skip
    assert o.table.key_generator == expected


def test_kafka_keys_pass_through_with_their_prefix_and_secrets_are_masked() -> None:
    o = load(*conf(
        "security.protocol=SASL_SSL", "sasl.jaas.config=x required password=\"hunter2\";", "group.id=g",
        "kafka.ssl.truststore.password=hunter2", "auto.offset.reset=latest", "value.deserializer=x.Y",
        "enable.auto.commit=true", "sasl.mechnism=PLAIN", "ssl.keystore.key=hunter2", "spark.driver.memory=2g",
    ))  # fmt: skip
    assert o.kafka.consumer == {
        "kafka.bootstrap.servers": "h:9092", "kafka.security.protocol": "SASL_SSL", "kafka.group.id": "g",
        "kafka.sasl.jaas.config": 'x required password="hunter2";', "kafka.ssl.truststore.password": "hunter2",
        "kafka.sasl.mechnism": "PLAIN", "kafka.ssl.keystore.key": "hunter2",
    }  # fmt: skip
    assert (o.kafka.starting_offsets, o.run.spark_conf) == ("latest", {"spark.driver.memory": "2g"})
    described = "\n".join(o.describe())
    assert "hunter2" not in described
    assert "hunter2" not in "\n".join(o.warnings)
    assert "kafka.sasl.jaas.config = ****" in described
    assert "kafka.security.protocol = SASL_SSL  (--hoodie-conf)" in described
    told = "\n".join(o.warnings)
    for words in (
        "value.deserializer = x.Y",
        "enable.auto.commit = true",
        "did you mean sasl.mechanism?",
        "group.id = g",
    ):
        assert words in told


def test_source_limit_and_kafkas_own_key() -> None:
    assert load(*conf("hoodie.deltastreamer.kafka.source.maxEvents=7")).source.limit == 7
    assert load("--source-limit", "9", *conf("hoodie.streamer.kafka.source.maxEvents=7")).source.limit == 9


def test_unknown_hoodie_keys_warn_with_the_nearest_and_harmless_ones_pass() -> None:
    o = load(*conf("hoodie.tabel.name=x", "hoodie.clean.automatic=false", "hoodie.upsert.shuffle.parallelism=200",
                   "hoodie.datasource.write.payload.class=org.apache.hudi.common.model.DefaultHoodieRecordPayload"),
             "--max-pending-compactions", "3")  # fmt: skip
    (told,) = o.warnings
    assert (
        "unknown key, it has no effect:\n  hoodie.tabel.name = x (--hoodie-conf); did you mean hoodie.table.name?"
        in told
    )
    assert "hoodie.upsert.shuffle.parallelism" in told
    assert "--max-pending-compactions" in told
    assert "hoodie.clean.automatic" not in told
    assert o.run.shuffle_partitions is None


def test_what_a_tombstones_end_risks_is_said() -> None:
    told = load(*conf("index.tombstone.ttl=7"))
    assert told.state.tombstone_ttl_ms == 7 * 86_400_000
    (warning,) = [w for w in told.warnings if "index.tombstone.ttl" in w]
    assert "deleted more than 7 days ago is removed from the index" in warning and "inserts the row again" in warning
    other = load(*conf("index.tombstone.ttl=7", "hoodie.index.type=BLOOM"))
    assert any("index.tombstone.ttl" in w and "only the state index uses it" in w for w in other.warnings)


def test_what_ttl_and_a_partial_regex_risk_is_said() -> None:
    told = "\n".join(load(*conf("index.state.ttl=1.5", "index.partition.regex=2024.*")).warnings)
    assert "1.5 days" in told
    assert "partitions that do not match" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (conf("index.bootstrap.enbled=true"), "unknown key; did you mean index.bootstrap.enabled?"),
        (conf("tagstream.inserts=true"), "unknown key"),
        (conf("hoodie.index.type=RECORD_INDEX", "hoodie.metadata.enable=false"), "is in the metadata table; remove one"),
        (conf("hoodie.index.type=STTE"), "did you mean STATE?"),
        (conf("hoodie.allow.operation.metadata.field=true"), "known but not supported (it may be false)"),
        (conf("hoodie.archive.beyond.savepoint=true", "tagstream.unsupported=fail"), "newer than a savepoint"),
        (["--schemaprovider-class", "HiveSchemaProvider"], "this version reads the schema from a file"),
        (["--props", "a.properties", "--props", "b.properties"], "--props is given 2 times (a.properties, b.properties)"),
        (["--target-table", "a b/c"], "--target-table 'a b/c': a table's name has no slash"),
        (conf("changelog.enabled=true"), "known but not supported"),
        (conf("hoodie.populate.meta.fields=false"), "it may be true"),
        (conf("interceptor.classes=x.Y"), "refused"),
        (conf("kafka.auto.offset.reset=group"), "does not use consumer groups"),
        (conf("hoodie.table.ordering.fields=a,b,a"), "names the same item twice"),
        (conf("hoodie.table.ordering.fields=a", "hoodie.datasource.write.precombine.field=b"), "two names of one key"),
        (conf("hoodie.table.ordering.fields=a", "hoodie.write.record.merge.mode=COMMIT_TIME_ORDERING"), "contradicts"),
        (conf("hoodie.write.record.merge.mode=EVENT_TIME_ORDERING"), "needs an ordering field"),
        (conf("hoodie.datasource.write.recordkey.field=a,b", "hoodie.datasource.write.partitionpath.field=p",
              "hoodie.datasource.write.keygenerator.type=SIMPLE"), "one key and one partition field"),
        (conf("hoodie.datasource.write.recordkey.field=a", "hoodie.datasource.write.partitionpath.field=p",
              "hoodie.datasource.write.keygenerator.type=NON_PARTITION"), "its tables have no partitions"),
        (conf("hoodie.datasource.write.keygenerator.class=com.example.Own"), "must be one of"),
        (conf("hoodie.parquet.max.file.size=120MB"), "must be a whole number"),
        (conf("hoodie.logfile.data.block.format=avro"), "Avro blocks are read, and Parquet blocks are written"),
        (conf("hoodie.logfile.data.block.format=HFILE"), "HFile blocks are written to the metadata table only"),
        (conf("hoodie.streamer.source.kafka.topic=a,b"), "one topic"),
        (conf("nonsense"), "expected key=value"),
        (["--op", "DELETE_PARTITION"], "not an operation of a stream of records"),
        (["--table-type", "MERGE_ON_REED"], "did you mean MERGE_ON_READ?"),
        (["--source-class", "PulsarSource"], "known but not supported"),
        (["--source-limit", "0"], "must not be less than 1"),
        (["--status-port", "70000"], "must not be greater than 65535"),
        (["--metrics-port", "70000"], "must not be greater than 65535"),
        (["--status-port", "1", "--metrics-port", "2"], "--metrics-port is the older name of --status-port; remove it"),
        (["--checkpoint", "orders,0:5"], "known but not supported"),
        (["--filter-dupes"], "no record is dropped because its key exists"),
        (["--contiuous"], "unknown argument --contiuous; did you mean --continuous?"),
        (["--source-limit"], "expected one argument"),
        (["--props", "/nowhere/x.properties"], "cannot read properties file"),
        (["--checkpoint-dir", "/data/t/.hoodie/ckp"], "contain one another"),
        (["--checkpoint-dir", "/data"], "contain one another"),
        ([*FILES, "--hoodie-conf", "hoodie.streamer.source.dfs.root=/data"], "the job would read its own files as records"),
        ([*FILES, "--hoodie-conf", "hoodie.streamer.source.dfs.root=/data/t/in"], "contain one another"),
        ([*FILES, "--hoodie-conf", "hoodie.streamer.source.dfs.root=file:///data/c"], "contain one another"),
    ],
)  # fmt: skip
def test_what_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as e:
        load(*arguments)
    assert message in str(e.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checkpoint-dir", "/c", *KAFKA], "--target-base-path is missing"),
        (["--target-base-path", "/t", *KAFKA], "--checkpoint-dir is missing"),
        (PATHS, "hoodie.streamer.source.kafka.topic is missing"),
        ([*PATHS, *KAFKA[:2]], "bootstrap.servers is missing"),
        ([*PATHS, "--source-class", "JsonDFSSource"], "hoodie.streamer.source.dfs.root is missing"),
    ],
)
def test_what_is_missing(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as e:
        load_options(arguments)
    assert message in str(e.value)


def test_a_source_folder_is_one_stream_however_it_is_spelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spellings = ("in", "./in/", str(tmp_path / "in"), f"file://{tmp_path}/in", f"{tmp_path}/x/../in")
    source = ["--source-class", "JsonDFSSource", "--hoodie-conf"]
    found = {load_options([*PATHS, *source, f"hoodie.streamer.source.dfs.root={s}"]).stream_id for s in spellings}
    assert found == {str(tmp_path / "in")}


def test_links_do_not_hide_that_a_source_holds_the_table(tmp_path: Path) -> None:
    (tmp_path / "in" / "table").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "in" / "table")
    argv = ["--target-base-path", str(tmp_path / "link"), "--checkpoint-dir", str(tmp_path / "c"), *FILES[:2]]
    with pytest.raises(ConfigError, match="contain one another"):
        load_options([*argv, "--hoodie-conf", f"hoodie.streamer.source.dfs.root={tmp_path / 'in'}"])


def test_a_flag_in_a_file_is_refused_by_line(tmp_path: Path) -> None:
    props = tmp_path / "job.properties"
    props.write_text("\n--continuous=true\n")
    with pytest.raises(ConfigError, match=r"--continuous \(.*job.properties:2\) is a flag of the command line"):
        load("--props", str(props))


def test_a_secret_never_appears_in_an_error() -> None:
    with pytest.raises(ConfigError) as e:
        load(*conf("index.password=hunter2"))
    assert "hunter2" not in str(e.value)


def test_help_shows_every_supported_flag_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as e:
        load_options(["--help"])
    assert e.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for key in REGISTRY.keys:
        if key.flag and key.status is Status.SUPPORTED:
            assert key.flag in text
    assert "default: 1,000,000 events for Kafka" in text
    assert "--checkpoint " not in parser().format_help()
    assert "default: ()" not in text
    assert "(default: none; property hoodie.table.ordering.fields)" in text
    assert parser("tagstream stream").format_usage().startswith("usage: tagstream stream ")


def test_every_default_is_a_value_of_its_key() -> None:
    for key in REGISTRY.keys:
        if key.default in (None, ()):
            continue
        text = str(key.default).lower() if key.kind is Kind.BOOL else str(key.default)
        assert key.parse(text, "default") == key.default, key.name


def test_every_properties_file_of_the_project_is_understood() -> None:
    files = sorted(ROOT.glob("conf/*.properties"))
    jobs = [f for f in files if f.name != "log4j2.properties"]
    assert jobs
    for path in jobs:
        text = path.read_text(encoding="utf-8")
        source = KAFKA if "source.kafka.topic" in text else FILES
        options = load_options([*PATHS, "--props", str(path), *source])
        assert not [w for w in options.warnings if "unknown" in w or "not a consumer key" in w], path


TIMES = (
    "hoodie.keygen.timebased.timestamp.type=EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat=yyyy/MM/dd",
)


def test_partitions_by_time() -> None:
    o = load(
        *conf("hoodie.datasource.write.keygenerator.class=org.apache.hudi.keygen.TimestampBasedKeyGenerator", *TIMES)
    )
    assert (o.table.key_generator, o.table.time_fields) == ("TIMESTAMP", o.table.partition_fields)
    assert o.table.times is not None
    assert o.table.times.output.text == "yyyy/MM/dd"
    o = load(
        *conf(
            "hoodie.datasource.write.keygenerator.type=CUSTOM",
            "hoodie.datasource.write.partitionpath.field=city:simple,at:TIMESTAMP",
            *TIMES,
        )
    )
    assert (o.table.partition_fields, o.table.time_fields) == (("city", "at"), ("at",))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("hoodie.datasource.write.keygenerator.type=CUSTOM", "hoodie.table.partition.fields=a,b"),
            "needs a kind",
        ),
        (
            ("hoodie.datasource.write.partitionpath.field=a:SIMPLE,b:TIMESTAMP",),
            "only the CUSTOM key generator has kinds",
        ),
        (
            (
                "hoodie.datasource.write.keygenerator.type=TIMESTAMP",
                *TIMES,
                "hoodie.table.recordkey.fields=id,sub",
                "hoodie.table.partition.fields=at",
            ),
            "partitionpath.field with a kind after each field (at:TIMESTAMP, or",
        ),
        (("hoodie.datasource.write.keygenerator.type=TIMESTAMP", TIMES[0], f"{TIMES[1]} EEE"), "'EEE', which is not"),
    ],
)
def test_partitions_by_time_that_cannot_be(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        load(*conf(*arguments))
