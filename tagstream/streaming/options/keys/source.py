"""Keys of the job's source: Kafka or files, the schema of the records, and their transformation."""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind

_SOURCE, _TRANSFORMATIONS = "Source", "Transformations"

_NO_SOURCE = "this version reads Kafka (JsonKafkaSource, AvroKafkaSource, Debezium's) and files of JSON (JsonDFSSource)"

SOURCE_KEYS = (
    ConfigKey(
        "--source-class",
        Kind.CHOICE,
        "Where records come from; full HoodieStreamer class names are accepted.",
        default="JsonKafkaSource",
        flag="--source-class",
        section=_SOURCE,
        values={
            "JSONKAFKASOURCE": "JsonKafkaSource",
            "ORG.APACHE.HUDI.UTILITIES.SOURCES.JSONKAFKASOURCE": "JsonKafkaSource",
            "JSONDFSSOURCE": "JsonDFSSource",
            "ORG.APACHE.HUDI.UTILITIES.SOURCES.JSONDFSSOURCE": "JsonDFSSource",
            **{
                prefix + name.upper(): name
                for prefix in ("", "ORG.APACHE.HUDI.UTILITIES.SOURCES.", "ORG.APACHE.HUDI.UTILITIES.SOURCES.DEBEZIUM.")
                for name in ("AvroKafkaSource", "PostgresDebeziumSource", "MysqlDebeziumSource")
            },
        },
        refused_values={
            prefix + name.upper(): _NO_SOURCE
            for prefix in ("", "ORG.APACHE.HUDI.UTILITIES.SOURCES.", "ORG.APACHE.HUDI.UTILITIES.SOURCES.DEBEZIUM.")
            for name in (
                "AvroDFSSource",
                "ParquetDFSSource",
                "ORCDFSSource",
                "CsvDFSSource",
                "JdbcSource",
                "SqlSource",
                "SqlFileBasedSource",
                "HoodieIncrSource",
                "HiveIncrPullSource",
                "ProtoKafkaSource",
                "PulsarSource",
                "JsonKinesisSource",
                "S3EventsSource",
                "S3EventsHoodieIncrSource",
                "GcsEventsSource",
                "GcsEventsHoodieIncrSource",
            )
        },
    ),
    ConfigKey(
        "hoodie.streamer.source.kafka.topic",
        Kind.STRING,
        "Kafka topic to read.",
        default_note="required with JsonKafkaSource",
        section=_SOURCE,
    ),
    ConfigKey(
        "bootstrap.servers",
        Kind.STRING,
        "Kafka brokers, `host:port` comma-separated. This and every other Kafka "
        "consumer key (SASL, TLS, timeouts) goes to Spark's connector with the prefix `kafka.`.",
        default_note="required with JsonKafkaSource",
        section=_SOURCE,
    ),
    ConfigKey(
        "auto.offset.reset",
        Kind.CHOICE,
        "Where a new checkpoint begins to read Kafka. HoodieStreamer's default is "
        "`latest`; a job that takes what there is and ends would then find nothing, so here it is `earliest`.",
        default="earliest",
        section=_SOURCE,
        values={"EARLIEST": "earliest", "LATEST": "latest"},
        refused_values={
            "GROUP": "Spark keeps its offsets in the checkpoint and does not look at consumer groups; "
            "use earliest or latest",
            "NONE": "a new checkpoint must begin somewhere; use earliest or latest",
        },
    ),
    ConfigKey(
        "hoodie.streamer.source.kafka.enable.failOnDataLoss",
        Kind.BOOL,
        "Fail when offsets that were not read yet have expired or the topic was deleted and created again. HoodieStreamer's "
        "default is false; here nothing is lost silently.",
        default=True,
        section=_SOURCE,
    ),
    ConfigKey(
        "hoodie.streamer.kafka.source.maxEvents",
        Kind.INT,
        "Most events a batch takes from Kafka; `--source-limit` wins over it.",
        default_note="see `--source-limit`",
        minimum=1,
        section=_SOURCE,
    ),
    ConfigKey(
        "tagstream.kafka.max.batch.bytes",
        Kind.BYTES,
        "Bytes of records that a batch takes from Kafka at most, about: Spark's Kafka source counts events only, so at each "
        "start some records are read where the stream goes on and at the topic's end, and the number of events follows "
        "from their mean size. 0: `--source-limit` alone counts.",
        default=1 << 30,
        section=_SOURCE,
    ),
    ConfigKey(
        "hoodie.streamer.source.kafka.minPartitions",
        Kind.INT,
        "Least number of Spark tasks that read Kafka; 0 means one per topic partition.",
        default=0,
        minimum=0,
        section=_SOURCE,
    ),
    ConfigKey(
        "hoodie.streamer.source.dfs.root",
        Kind.PATH,
        "Folder to read JSON lines files from, with the folders in it. Producers write a file elsewhere and rename it in, "
        "or append whole lines to one that is there; names that begin with `_` or `.` or end in `._COPYING_` are passed "
        "over (docs/guide/records.md, Files).",
        default_note="required with JsonDFSSource",
        section=_SOURCE,
    ),
    ConfigKey(
        "tagstream.source.dfs.changed.files",
        Kind.CHOICE,
        "What happens when a file that was read has become shorter or was written over: the job ends and names it (`fail`), "
        "it is read from its beginning (`again`), or what it holds now counts as read (`ignore`). A file that has only "
        "grown is no such file: its new lines are read.",
        default="fail",
        values={"FAIL": "fail", "AGAIN": "again", "IGNORE": "ignore"},
        section=_SOURCE,
    ),
    ConfigKey(
        "tagstream.source.dfs.clean",
        Kind.CHOICE,
        "What becomes of a file of the source whose rows are all in the table: it stays (`off`), is removed (`delete`), or "
        "moved to `tagstream.source.dfs.archive.dir` (`archive`). The job lists the whole folder with each look: one that "
        "only grows becomes slow. A file that is gone can't be read again: not after a restore, and not by a new stream.",
        default="off",
        values={"OFF": "off", "DELETE": "delete", "ARCHIVE": "archive"},
        section=_SOURCE,
    ),
    ConfigKey(
        "tagstream.source.dfs.clean.after.hours",
        Kind.FLOAT,
        "Hours since its last change until such a file is removed or moved. Longer than a producer appends to a file.",
        default=24.0,
        minimum=0,
        section=_SOURCE,
    ),
    ConfigKey(
        "tagstream.source.dfs.archive.dir",
        Kind.PATH,
        "Folder that files of the source are moved to, under the names that they have in it. They are copied, then removed: "
        "it may be on another disk or store.",
        default_note="required with `tagstream.source.dfs.clean=archive`",
        section=_SOURCE,
    ),
    ConfigKey(
        "tagstream.delete.field",
        Kind.STRING,
        "Boolean column of typed rows (`tagstream.upsert`) whose true rows are deletes. It is not written to "
        "the table.",
        default="_hoodie_is_deleted",
        section=_SOURCE,
    ),
    ConfigKey(
        "hoodie.streamer.schemaprovider.source.schema.file",
        Kind.PATH,
        "Avro schema (JSON) of the records.",
        default_note="the table's own schema; for a new table that of the registry, or of the first records where they have "
        "theirs with them (Debezium's JSON); for other records of a new table it is required",
        section=_SOURCE,
    ),
    ConfigKey(
        "--schemaprovider-class",
        Kind.CHOICE,
        "Where the table's schema comes from: a schema file where one is named, else the registry where one is named.",
        default="FilebasedSchemaProvider",
        flag="--schemaprovider-class",
        section=_SOURCE,
        values={
            "FILEBASEDSCHEMAPROVIDER": "FilebasedSchemaProvider",
            "ORG.APACHE.HUDI.UTILITIES.SCHEMA.FILEBASEDSCHEMAPROVIDER": "FilebasedSchemaProvider",
            "SCHEMAREGISTRYPROVIDER": "SchemaRegistryProvider",
            "ORG.APACHE.HUDI.UTILITIES.SCHEMA.SCHEMAREGISTRYPROVIDER": "SchemaRegistryProvider",
        },
        refused_values={
            prefix + name.upper(): "this version reads the schema from a file; save it there, name it with "
            "hoodie.streamer.schemaprovider.source.schema.file, and remove the flag"
            for prefix in ("", "ORG.APACHE.HUDI.UTILITIES.SCHEMA.")
            for name in (
                "HiveSchemaProvider",
                "JdbcbasedSchemaProvider",
                "ProtoClassBasedSchemaProvider",
                "RowBasedSchemaProvider",
            )
        },
    ),
)

TRANSFORM_KEYS = (
    ConfigKey(
        "hoodie.streamer.transformer.class",
        Kind.LIST,
        "Transformers that records go through, one after the other: SqlQueryBasedTransformer, SqlFileBasedTransformer, "
        "FlatteningTransformer, IdentityTransformer; each may have an id, `ID:CLASS`, and then keys of its own "
        "(`hoodie.streamer.transformer.sql.ID`). They work on each record for itself "
        "(docs/guide/dataframes.md#transformations).",
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
        "File with the statements of SqlFileBasedTransformer, with a semicolon between two; the last one gives the rows.",
        default_note="none",
        section=_TRANSFORMATIONS,
    ),
    ConfigKey(
        "tagstream.transformer",
        Kind.STRING,
        "A Python function that takes a DataFrame and gives one, as `module:function`; it comes after the transformer "
        "classes. The module must be found by the job's Python.",
        default_note="none",
        section=_TRANSFORMATIONS,
    ),
)
