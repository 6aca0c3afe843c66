"""Options of the job's source: Kafka, files or a Hudi table, the part that is read, and the schema of its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tagstream.streaming.options.transformer_options import TransformerOption
from tagstream.table.config import ConfigKey, Kind
from tagstream.table.option_fields import derived, option

_TRANSFORMATIONS = "Transformations"  # a section of the documentation
_NO_SOURCE = (
    "this version reads Kafka (JsonKafkaSource, AvroKafkaSource, ProtoKafkaSource, Debezium's), files (JsonDFSSource, "
    "ParquetDFSSource, AvroDFSSource, CsvDFSSource) and Hudi tables (HoodieIncrSource)"
)
FILE_CLASSES = ("JsonDFSSource", "ParquetDFSSource", "AvroDFSSource", "CsvDFSSource")
_HOUR_MS = 3_600_000


def _hours(hours: float) -> int:
    return int(hours * _HOUR_MS)


@dataclass(frozen=True)
class FirstSchema:
    """The schema of a new table from a record: its Avro JSON, its position ``source``, and the record's ``table``."""

    avro_json: str
    source: str
    table: str | None


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """``limit`` of a batch: events of Kafka, bytes of files. ``frame_schema``: the Avro schema of typed rows: of the source
    DataFrame, or of the result of transformers; the records then have the schema ``transformed_from``. ``first_schema``:
    for a table without a schema, from its records."""

    kind: Literal["kafka", "dfs", "hudi", "frame"] = derived(
        ConfigKey(
            "--source-class",
            Kind.CHOICE,
            "The source of the records. Full HoodieStreamer class names are accepted.",
            default="JsonKafkaSource",
            flag="--source-class",
            values={
                "JSONKAFKASOURCE": "JsonKafkaSource",
                "ORG.APACHE.HUDI.UTILITIES.SOURCES.JSONKAFKASOURCE": "JsonKafkaSource",
                **{
                    prefix + name.upper(): name
                    for name in (*FILE_CLASSES, "HoodieIncrSource")
                    for prefix in ("", "ORG.APACHE.HUDI.UTILITIES.SOURCES.")
                },
                **{
                    prefix + name.upper(): name
                    for prefix in (
                        "",
                        "ORG.APACHE.HUDI.UTILITIES.SOURCES.",
                        "ORG.APACHE.HUDI.UTILITIES.SOURCES.DEBEZIUM.",
                    )
                    for name in ("AvroKafkaSource", "ProtoKafkaSource", "PostgresDebeziumSource", "MysqlDebeziumSource")
                },
            },
            refused_values={
                prefix + name.upper(): _NO_SOURCE
                for prefix in ("", "ORG.APACHE.HUDI.UTILITIES.SOURCES.", "ORG.APACHE.HUDI.UTILITIES.SOURCES.DEBEZIUM.")
                for name in (
                    "ORCDFSSource",
                    "JdbcSource",
                    "SqlSource",
                    "SqlFileBasedSource",
                    "HiveIncrPullSource",
                    "PulsarSource",
                    "JsonKinesisSource",
                    "S3EventsSource",
                    "S3EventsHoodieIncrSource",
                    "GcsEventsSource",
                    "GcsEventsHoodieIncrSource",
                )
            },
        ),
    )
    limit: int = derived(
        ConfigKey(
            "--source-limit",
            Kind.INT,
            "Limit of a batch: events for Kafka (see also `tagstream.kafka.max.batch.bytes`); bytes for "
            "files, rounded to whole files, at least one file; bytes of a Hudi table, rounded to whole commits.",
            default_note="1,000,000 events for Kafka, 512 MiB for files and tables",
            minimum=1,
            flag="--source-limit",
            section="Job",
        ),
        ConfigKey(
            "hoodie.streamer.kafka.source.maxEvents",
            Kind.INT,
            "Limit of events that a batch reads from Kafka. `--source-limit` has precedence.",
            default_note="see `--source-limit`",
            minimum=1,
        ),
    )
    schema_file: str | None = option(
        "hoodie.streamer.schemaprovider.source.schema.file",
        Kind.PATH,
        "Avro schema (JSON) of the records.",
        default_note="the table's own schema; for a new table that of the registry, or of the first records if they have "
        "their schema (Debezium's JSON); required for other records of a new table",
    )
    frame_schema: str | None = None
    first_schema: FirstSchema | None = None
    transformed_from: str | None = None
    transformers: tuple[TransformerOption, ...] = derived(
        ConfigKey(
            "hoodie.streamer.transformer.class",
            Kind.LIST,
            "Transformers that are applied to the records in order: SqlQueryBasedTransformer, "
            "SqlFileBasedTransformer, FlatteningTransformer, IdentityTransformer. Each may have an id, "
            "`ID:CLASS`, and then its own keys (`hoodie.streamer.transformer.sql.ID`). They see one record "
            "at a time (docs/guide/dataframes.md#transformations).",
            default=(),
            flag="--transformer-class",
            section=_TRANSFORMATIONS,
        ),
        ConfigKey(
            "hoodie.streamer.transformer.sql",
            Kind.STRING,
            "The query of SqlQueryBasedTransformer; `<SRC>` is the table of the records.",
            default_note="none",
            section=_TRANSFORMATIONS,
        ),
        ConfigKey(
            "hoodie.streamer.transformer.sql.file",
            Kind.PATH,
            "File with the statements of SqlFileBasedTransformer, separated by semicolons; the last "
            "statement returns the rows.",
            default_note="none",
            section=_TRANSFORMATIONS,
        ),
        ConfigKey(
            "tagstream.transformer",
            Kind.STRING,
            "A Python function from DataFrame to DataFrame, as `module:function`. It runs after the "
            "transformer classes. The job's Python must be able to import the module.",
            default_note="none",
            section=_TRANSFORMATIONS,
        ),
        default=(),
    )


@dataclass(frozen=True, kw_only=True)
class KafkaOptions:
    """``consumer``: options for Spark's reader (prefix ``kafka.``), with secrets.

    ``batch_bytes``: approximate bytes of a batch's records.
    """

    topic: str | None = option(
        "hoodie.streamer.source.kafka.topic",
        Kind.STRING,
        "Kafka topic to read.",
        default_note="required with JsonKafkaSource",
    )
    consumer: Mapping[str, str] = derived(
        ConfigKey(
            "bootstrap.servers",
            Kind.STRING,
            "Kafka brokers, `host:port`, separated by commas. This and every other Kafka consumer key "
            "(SASL, TLS, timeouts) is passed to Spark's connector with the prefix `kafka.`.",
            default_note="required with JsonKafkaSource",
        ),
        shown=False,
    )
    starting_offsets: str = option(
        "auto.offset.reset",
        Kind.CHOICE,
        "Where a new checkpoint begins to read Kafka. HoodieStreamer's default is `latest`. A job that "
        "reads the existing records and ends would then find none, so the default here is `earliest`.",
        default="earliest",
        values={"EARLIEST": "earliest", "LATEST": "latest"},
        refused_values={
            "GROUP": "Spark stores its offsets in the checkpoint and does not use consumer groups; use earliest or latest",
            "NONE": "a new checkpoint needs a start position; use earliest or latest",
        },
    )
    fail_on_data_loss: bool = option(
        "hoodie.streamer.source.kafka.enable.failOnDataLoss",
        Kind.BOOL,
        "Fail when unread offsets have expired, or when the topic was deleted and created again. "
        "HoodieStreamer's default is false; with true no loss is silent.",
        default=True,
    )
    batch_bytes: int = option(
        "tagstream.kafka.max.batch.bytes",
        Kind.BYTES,
        "Approximate limit of bytes that a batch reads from Kafka. Spark's Kafka source counts only "
        "events. So each start reads some records at the stream's position and at the topic's end, and "
        "derives the number of events from their mean size. 0: only `--source-limit` counts.",
        default=1 << 30,
    )
    min_partitions: int = option(
        "hoodie.streamer.source.kafka.minPartitions",
        Kind.INT,
        "Least number of Spark tasks that read Kafka; 0 means one per topic partition.",
        default=0,
        minimum=0,
    )


@dataclass(frozen=True, kw_only=True)
class FileSourceOptions:
    """``form``: of the files. ``clean_after_ms``: since a file's last change. ``archive``: the folder to which files are
    moved; None if they are not moved."""

    form: Literal["json", "parquet", "avro", "csv"] = "json"
    root: str | None = option(
        "hoodie.streamer.source.dfs.root",
        Kind.PATH,
        "Folder of files (JSON lines, Parquet, Avro or CSV, by the source class), which are read with those of its "
        "subfolders. Producers write a file in another folder and rename it into this one, or append "
        "whole records to an existing file (not of Parquet). Names that begin with `_` or `.` or end in "
        "`._COPYING_` are ignored (docs/guide/records.md, Files).",
        default_note="required with a source of files",
    )
    changed: Literal["fail", "again", "ignore"] = option(
        "tagstream.source.dfs.changed.files",
        Kind.CHOICE,
        "What happens when a file that was read has become shorter or was overwritten: the job ends "
        "and names it (`fail`), the file is read again from its beginning (`again`), or its present "
        "content counts as read (`ignore`). This does not apply to a file that has only grown: its new "
        "lines are read.",
        default="fail",
        values={"FAIL": "fail", "AGAIN": "again", "IGNORE": "ignore"},
    )
    clean: Literal["off", "delete", "archive"] = option(
        "tagstream.source.dfs.clean",
        Kind.CHOICE,
        "What happens with a source file when all its rows are in the table: it is kept (`off`), "
        "removed (`delete`), or moved to `tagstream.source.dfs.archive.dir` (`archive`). The job lists "
        "the whole folder for each batch, so a folder that only grows becomes slow. A removed file "
        "cannot be read again, neither after a restore nor by a new stream.",
        default="off",
        values={"OFF": "off", "DELETE": "delete", "ARCHIVE": "archive"},
    )
    clean_after_ms: int = option(
        "tagstream.source.dfs.clean.after.hours",
        Kind.FLOAT,
        "Hours from the last change of such a file until it is removed or moved. Set more than a "
        "producer's longest pause between appends to a file.",
        default=24.0,
        minimum=0,
        convert=_hours,
    )
    archive: str | None = option(
        "tagstream.source.dfs.archive.dir",
        Kind.PATH,
        "Folder to which source files are moved, with their relative paths. They are copied, then "
        "removed, so it may be on another disk or store.",
        default_note="required with `tagstream.source.dfs.clean=archive`",
    )


def file_form(source_class: str) -> Literal["json", "parquet", "avro", "csv"]:
    """The form of the files that a source class reads."""
    found: dict[str, Literal["json", "parquet", "avro", "csv"]] = {
        "ParquetDFSSource": "parquet",
        "AvroDFSSource": "avro",
        "CsvDFSSource": "csv",
    }
    return found.get(source_class, "json")
