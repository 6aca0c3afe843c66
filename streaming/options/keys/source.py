"""Keys of the job itself (command line, checkpoint, bad records, progress) and of its source."""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind

_JOB = "Job"
_SOURCE = "Source"

_NO_SOURCE = "this version reads JSON from Kafka (JsonKafkaSource) and from files (JsonDFSSource)"

JOB_KEYS = (
    ConfigKey(
        "--checkpoint-dir",
        Kind.PATH,
        "Spark's checkpoint location and the home of the index "
        "(profiles, manifests, deltas, snapshots, quarantine under `tagstream/`). Never share it between two jobs.",
        flag="--checkpoint-dir",
        default_note="required",
        section=_JOB,
    ),
    ConfigKey(
        "--continuous",
        Kind.BOOL,
        "Keep running. Without it the job takes what there is now and ends.",
        default=False,
        flag="--continuous",
        section=_JOB,
    ),
    ConfigKey(
        "--bootstrap-only",
        Kind.BOOL,
        "Load the index from the table and end. Only the table and the checkpoint are needed: the rest is in the table's "
        "properties. The stream started afterwards on this checkpoint goes on with that index.",
        default=False,
        flag="--bootstrap-only",
        section=_JOB,
    ),
    ConfigKey(
        "--dry-run",
        Kind.BOOL,
        "Say what a start would do (which index it works on; what loading one would read, and what it would leave out) "
        "and end. Nothing is changed and Spark is not started.",
        default=False,
        flag="--dry-run",
        section=_JOB,
    ),
    ConfigKey(
        "--min-sync-interval-seconds",
        Kind.INT,
        "Least time from the start of one batch to the start of the next.",
        default=0,
        minimum=0,
        flag="--min-sync-interval-seconds",
        section=_JOB,
    ),
    ConfigKey(
        "--source-limit",
        Kind.INT,
        "Most a batch takes: events for Kafka (see also `tagstream.kafka.max.batch.bytes`); bytes for files, cut at file "
        "boundaries, one file at least.",
        default_note="1,000,000 events for Kafka, 512 MiB for files",
        minimum=1,
        flag="--source-limit",
        section=_JOB,
    ),
    ConfigKey(
        "--commit-on-errors",
        Kind.BOOL,
        "Go on when records are bad. They are quarantined and counted either way; "
        "without it the job fails once more than `--max-bad-records` were found.",
        default=False,
        flag="--commit-on-errors",
        section=_JOB,
    ),
    ConfigKey(
        "--max-bad-records",
        Kind.INT,
        "Bad records a run may quarantine before it fails. Without effect with `--commit-on-errors`.",
        default=0,
        minimum=0,
        flag="--max-bad-records",
        section=_JOB,
    ),
    ConfigKey(
        "--metrics-port",
        Kind.INT,
        "Serve Prometheus metrics on this port of every interface; 0 picks a free one.",
        default_note="no metrics server",
        minimum=0,
        maximum=65535,
        flag="--metrics-port",
        section=_JOB,
    ),
    ConfigKey(
        "--spark-master",
        Kind.STRING,
        "Spark master to run on.",
        default_note="what spark-submit gives, else `local[*,4]`",
        flag="--spark-master",
        section=_JOB,
    ),
    ConfigKey(
        "hoodie.datasource.write.streaming.checkpoint.identifier",
        Kind.STRING,
        "Name of this stream in the table's commits; fixed when the checkpoint is made.",
        default_note="the Kafka topic, or the source folder",
        section=_JOB,
    ),
    ConfigKey(
        "spark.sql.shuffle.partitions",
        Kind.INT,
        "Shuffle partitions of the stateful step; fixed when the checkpoint is made. Other `spark.*` keys go to the "
        "Spark session as they are.",
        default_note="as many as the Spark master has cores",
        minimum=1,
        maximum=100_000,
        section=_JOB,
    ),
)

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
        },
        refused_values={
            prefix + name.upper(): _NO_SOURCE
            for prefix in ("", "ORG.APACHE.HUDI.UTILITIES.SOURCES.", "ORG.APACHE.HUDI.UTILITIES.SOURCES.DEBEZIUM.")
            for name in (
                "AvroKafkaSource",
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
                "PostgresDebeziumSource",
                "MysqlDebeziumSource",
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
        "Fail when offsets that were not read yet have expired or the topic was made anew. HoodieStreamer's default "
        "is false; here nothing is lost silently.",
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
        "Folder to read JSON lines files from.",
        default_note="required with JsonDFSSource",
        section=_SOURCE,
    ),
    ConfigKey(
        "hoodie.streamer.schemaprovider.source.schema.file",
        Kind.PATH,
        "Avro schema (JSON) of the records.",
        default_note="required for a new table; else the table's own schema",
        section=_SOURCE,
    ),
    ConfigKey(
        "--schemaprovider-class",
        Kind.CHOICE,
        "Accepted for HoodieStreamer's sake.",
        default="FilebasedSchemaProvider",
        flag="--schemaprovider-class",
        section=_SOURCE,
        values={
            "FILEBASEDSCHEMAPROVIDER": "FilebasedSchemaProvider",
            "ORG.APACHE.HUDI.UTILITIES.SCHEMA.FILEBASEDSCHEMAPROVIDER": "FilebasedSchemaProvider",
        },
    ),
)
