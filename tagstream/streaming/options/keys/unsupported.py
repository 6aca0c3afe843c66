"""Keys of Hudi and Flink that this version knows and does not use.

Refused keys contradict what this version does: rows or files would differ. A refused key is accepted with a value that
has no effect (``harmless``) or that this version always uses. So a properties file with such a value can be used
unchanged. ``streaming/options/unsupported_report.py`` decides about keys whose meaning depends on other keys.

Keys of ``Concern.BESIDE`` are for work that this job does not do and that another program can do; the rows are the same
without it. Ignored keys have no effect here: the result is the same without them, or nothing reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tagstream.table.config import Concern, ConfigKey, Family, Kind, Status

OTHER = "Known, not supported"
PAYLOAD_KEY = "hoodie.datasource.write.payload.class"
TARGET_SCHEMA_KEY = "hoodie.streamer.schemaprovider.target.schema.file"
DESERIALIZER_KEY = "hoodie.streamer.source.kafka.value.deserializer.class"
REGISTRY_FAMILY = "hoodie.streamer.schemaprovider.registry."
BUCKET_FAMILIES = ("hoodie.bucket.index.", "hoodie.index.bucket.")
_BUCKETS = "no option of the bucket index has this name (docs/guide/indexes.md); remove it"
_OPERATION = (
    "no record is dropped because its key exists: UPSERT updates the row, and INSERT, which looks up no key, adds one; "
    "remove it"
)
_MODEL = "org.apache.hudi.common.model."


def unsupported(
    name: str,
    reason: str,
    *harmless: str,
    aliases: tuple[str, ...] = (),
    flag: str | None = None,
    anyway: Mapping[str, str] | None = None,
    concern: Concern = Concern.CONTRADICTS,
) -> ConfigKey:
    """A text key that is known and not supported; ``harmless``: values without effect."""
    return ConfigKey(
        name,
        Kind.STRING,
        reason,
        section=OTHER,
        status=Status.UNSUPPORTED,
        reason=reason,
        harmless=harmless,
        aliases=aliases,
        flag=flag,
        anyway=anyway or {},
        concern=concern,
    )


REFUSED_KEYS = (
    unsupported(
        PAYLOAD_KEY,
        "with an ordering field the record with the greater value wins (as with "
        "DefaultHoodieRecordPayload), without one the later record wins (as with "
        "OverwriteWithLatestAvroPayload); remove this key, or the ordering field",
        f"{_MODEL}DefaultHoodieRecordPayload",
        f"{_MODEL}EventTimeAvroPayload",
        aliases=("hoodie.compaction.payload.class", "hoodie.table.payload.class"),
        flag="--payload-class",
    ),
    unsupported(
        "hoodie.datasource.write.record.merger.impls",
        "records are merged by the ordering field; remove it",
        f"{_MODEL}HoodieAvroRecordMerger",
        "org.apache.hudi.HoodieSparkRecordMerger",
        "org.apache.hudi.DefaultSparkRecordMerger",
        aliases=("hoodie.write.record.merge.custom.implementation.classes",),
    ),
    unsupported("hoodie.write.record.merge.strategy.id", "records are merged by the ordering field; remove it"),
    unsupported(
        "hoodie.populate.meta.fields",
        "the index and every reader of the table need the meta columns; remove it",
        "true",
    ),
    unsupported(
        "hoodie.allow.operation.metadata.field", "the column _hoodie_operation is not written; remove it", "false"
    ),
    unsupported("hoodie.datasource.write.insert.drop.duplicates", _OPERATION, "false"),
    unsupported("hoodie.datasource.insert.dup.policy", _OPERATION, "none"),
    unsupported(
        "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled",
        "a timestamp in a key is its number; remove it",
        "false",
    ),
    unsupported("hoodie.table.base.file.format", "base files are Parquet; remove it", "parquet"),
    unsupported(
        TARGET_SCHEMA_KEY,
        "records are written with the source schema, because nothing transforms them, but this file "
        "has another schema; name the same file, or remove it",
    ),
    unsupported(
        DESERIALIZER_KEY,
        "values are decoded as JSON, and a topic of another format cannot be read; remove it for JSON",
    ),
    unsupported(
        "hoodie.streamer.source.kafka.checkpoint.type",
        "the start position is stored in the checkpoint as offsets; remove it",
        "string",
    ),
    unsupported(
        "hoodie.streamer.source.dfs.path.regex",
        "all files of the source folder are read; move the wanted files to another folder, and remove this key",
        ".*",
    ),
    unsupported("changelog.enabled", "the index needs deletes as deletes; remove it", "false"),
    unsupported(
        "--checkpoint",
        "the position in the source is stored in --checkpoint-dir; a job whose checkpoint is lost "
        "takes it from the table's newest commit; remove it",
        flag="--checkpoint",
    ),
    unsupported("--filter-dupes", _OPERATION, "false", flag="--filter-dupes"),
    unsupported(
        "--initial-checkpoint-provider",
        "the position in the source is stored in --checkpoint-dir; remove it",
        flag="--initial-checkpoint-provider",
    ),
    unsupported(
        "--run-bootstrap",
        "use Hudi to make a table from Parquet files; the index's own bootstrap is index.bootstrap.enabled; remove it",
        "false",
        flag="--run-bootstrap",
    ),
    unsupported("--base-file-format", "base files are Parquet; remove it", "parquet", flag="--base-file-format"),
)

REFUSED_FAMILIES = (
    *(Family(prefix, _BUCKETS) for prefix in BUCKET_FAMILIES),
    Family(
        "hoodie.streamer.transformer.",
        "none of the given transformers reads this key (docs/guide/dataframes.md#transformations); remove it",
    ),
    Family(
        REGISTRY_FAMILY,
        "only the registry's URL and a login are read (`schema.registry.url`, "
        "`hoodie.streamer.schemaprovider.registry.url`, `schema.registry.basic.auth.user.info`); remove it, or save "
        "the "
        "subject's schema to a file and name it with "
        "hoodie.streamer.schemaprovider.source.schema.file",
    ),
)

_LAYOUT = "a table has the folders of Hudi's defaults; remove it"
_PARQUET = "base files are Parquet, and log files have Hudi's own format; remove it"
_MERGE = "with an ordering field the record with the greater value wins, without one the later record wins; remove it"
_SERVER = "it needs a HiveServer2, but the metastore is called by its own protocol (mode hms)"
_FLINK = "a key of Hudi's Flink writer"
_EVENT_TIME, _COMMIT_TIME = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5", "ce9acb64-bde0-424c-9b91-f6ebba25356d"
_BESIDE = Concern.BESIDE

# Further keys of the list of Hudi's own keys (``options.hudi_keys``).
HUDI_REFUSED = (
    unsupported(
        "hoodie.datasource.write.slash.separated.date.partitioning",
        "a date is one folder; use the key generator TIMESTAMP with yyyy/MM/dd",
        "false",
    ),
    unsupported("hoodie.table.timeline.timezone", "a new table's instants are in local time; remove it", "local"),
    unsupported("hoodie.timeline.path", _LAYOUT, "timeline"),
    unsupported("hoodie.timeline.history.path", _LAYOUT, "history"),
    unsupported("hoodie.archivelog.folder", _LAYOUT, "archived"),
    unsupported("hoodie.table.ro.file.format", _PARQUET, "parquet", aliases=("hoodie.base.file.format",)),
    unsupported("hoodie.table.log.file.format", _PARQUET, "hoodie_log", aliases=("hoodie.table.rt.file.format",)),
    unsupported("hoodie.table.multiple.base.file.formats.enable", _PARQUET, "false"),
    unsupported("hoodie.storage.layout.type", "use hoodie.index.type=BUCKET for buckets", "default"),
    unsupported("hoodie.metaserver.enabled", "the timeline is read from the table", "false"),
    unsupported(
        "hoodie.table.services.enabled",
        "each service has its own key: hoodie.compact.inline, hoodie.clustering.inline, "
        "hoodie.clean.automatic, hoodie.archive.automatic",
        "true",
    ),
    unsupported(
        "hoodie.static.overwrite.partition.paths",
        "a batch that overwrites replaces the partitions of its rows; `tagstream table "
        "insert-overwrite --partition` replaces others",
    ),
    unsupported(
        "hoodie.record.merge.strategy.id",
        _MERGE,
        _EVENT_TIME,
        _COMMIT_TIME,
        aliases=("hoodie.datasource.write.record.merger.strategy", "hoodie.compaction.record.merger.strategy"),
    ),
    unsupported(
        "hoodie.table.partial.update.mode",
        "with hoodie.write.partial.update=true a row keeps the values that a record lacks",
        "none",
    ),
    unsupported("hoodie.payload.ordering.field", "set hoodie.table.ordering.fields"),
    unsupported("hoodie.precommit.validators", "no validator runs before a commit; remove it", concern=_BESIDE),
    unsupported("hoodie.write.commit.callback.on", "no callback runs after a commit", "false", concern=_BESIDE),
    unsupported("hoodie.datasource.hive_sync.use_jdbc", f"{_SERVER}; remove it", "false"),
    unsupported("hoodie.datasource.hive_sync.create_managed_table", "entries are external tables", "false"),
    unsupported("hoodie.datasource.hive_sync.bucket_sync", "no bucket specification is written", "false"),
    unsupported("hoodie.datasource.hive_sync.use_spark_catalog", "Spark's catalogue is not used", "false"),
    unsupported("hoodie.datasource.hive_sync.base_file_format", "base files are Parquet", "PARQUET"),
    unsupported("hoodie.table.service.manager.enabled", "services run in the job", "false", concern=_BESIDE),
    # Of Hudi's Flink writer: without the prefix they would be passed to Kafka's consumer.
    unsupported("precombine.field", f"{_FLINK}: set hoodie.table.ordering.fields", aliases=("write.precombine.field",)),
    unsupported("write.operation", f"{_FLINK}: use --op", "upsert"),
    unsupported("table.type", f"{_FLINK}: use --table-type"),
    unsupported("payload.class", f"{_FLINK}: set hoodie.datasource.write.payload.class"),
    unsupported("cdc.enabled", f"{_FLINK}: set hoodie.table.cdc.enabled", "false"),
    unsupported("write.partition.format", f"{_FLINK}: use the key generator TIMESTAMP"),
    unsupported("metadata.enabled", f"{_FLINK}: set hoodie.metadata.enable"),
    unsupported("hive_sync.enabled", f"{_FLINK}: use --enable-sync", "false", concern=_BESIDE),
)


_CLUSTERING = "a setting of clustering that this job does not use"
_LOG_COMPACTION = "log compaction (log blocks merged into one): logs are compacted into base files"
_SYNC = "a setting of Hudi's sync tools that this job does not use"
_METADATA = "a setting of Hudi's metadata table that this job does not use"
_METRICS = "Hudi's metrics reporters: this job's metrics are served by --status-port"
_ERROR_TABLE = "a setting of Hudi's error table that this job does not use"


def _beside(name: str, reason: str, *harmless: str, aliases: tuple[str, ...] = (), flag: bool = False) -> ConfigKey:
    flag_name = name if flag else None
    return unsupported(name, reason, *harmless, aliases=aliases, flag=flag_name, concern=Concern.BESIDE)


def _beside_family(prefix: str, reason: str) -> Family:
    return Family(prefix, reason, concern=Concern.BESIDE)


BESIDE_KEYS = (
    _beside(
        "hoodie.datasource.write.streaming.ignore.failed.batch",
        "continuing after a failed batch: a batch that fails ends the job, and the next start runs it again",
        "false",
    ),
    _beside("--max-pending-clustering", "several pending clusterings: this job has one at a time", flag=True),
    _beside(
        "hoodie.layout.optimize.strategy",
        "ordering by space-filling curves: rows are sorted by columns, in their order (linear)",
        "linear",
        "LINEAR",
    ),
    _beside(
        "hoodie.clustering.preserve.commit.metadata",
        "new commit times for rows that a clustering moves: rows keep their commit times",
        "true",
    ),
    _beside(
        "hoodie.archive.beyond.savepoint",
        "archiving of instants newer than a savepoint: it would leave a gap in the timeline, and Hudi "
        "1.2.0 and hudi-rs do not see the rows of the writes in the gap",
        "false",
    ),
)

BESIDE_FAMILIES = (
    _beside_family("hoodie.clustering.", _CLUSTERING),
    _beside_family("hoodie.datasource.clustering.", _CLUSTERING),
    _beside_family("hoodie.log.compaction.", _LOG_COMPACTION),
    *(
        _beside_family(f"hoodie.{name}.", _SYNC)
        for name in ("datasource.hive_sync", "datasource.meta.sync", "datasource.meta_sync", "meta.sync", "gcp")
    ),
    _beside_family("hoodie.metadata.", _METADATA),
    _beside_family("hoodie.metrics.", _METRICS),
    _beside_family("hoodie.errortable.", _ERROR_TABLE),
)


_DETAIL = "a detail of Hudi's own table service"
_TASKS = "the number of shuffle partitions is spark.sql.shuffle.partitions, fixed in the checkpoint"
_ONCE = "a batch is always reduced to one record per key"
_RETRY = "a batch that fails ends the job; start it again"
_ROLLBACK = (
    "failed writes of dead writers are rolled back before a batch; pending writes of live writers are not touched"
)
_READER = "this job does not query the table"
_MEMORY = "Arrow writes the rows, and this key does not set its memory"


def ignored(name: str, reason: str, flag: str | None = None, kind: Kind = Kind.STRING, **more: object) -> ConfigKey:
    """A key that is known and has no effect, for the reason ``reason``."""
    return ConfigKey(
        name,
        kind,
        reason,
        section=OTHER,
        status=Status.IGNORED,
        reason=reason,
        flag=flag,
        **more,  # type: ignore[arg-type]
    )


def _ignored_family(prefix: str, reason: str) -> Family:
    return Family(prefix, reason, concern=Concern.ANYWAY)


IGNORED_KEYS = (
    ignored("--max-pending-compactions", "one compaction is planned at a time", flag="--max-pending-compactions"),
    ignored("hoodie.archive.async", "archiving runs between two batches"),
    ignored("hoodie.commits.archival.batch", "a detail of Hudi's own archiving"),
    ignored("hoodie.clean.failed.writes.policy", _ROLLBACK, aliases=("hoodie.cleaner.policy.failed.writes",)),
    ignored("hoodie.upsert.shuffle.parallelism", _TASKS),
    ignored("hoodie.insert.shuffle.parallelism", _TASKS),
    ignored("hoodie.delete.shuffle.parallelism", _TASKS),
    ignored("hoodie.combine.before.upsert", _ONCE, harmless=("true",)),
    ignored("hoodie.datasource.write.row.writer.enable", "Arrow writes the rows"),
    ignored("hoodie.parquet.page.size", "pages are 1 MiB"),
    ignored("hoodie.parquet.dictionary.enabled", "dictionary encoding is always on"),
    ignored("hoodie.embed.timeline.server", "the writer reads the timeline itself"),
    ignored(
        "hoodie.write.markers.type",
        "the driver writes all markers, in the form of the timeline server; every Hudi writer can roll them back",
    ),
    ignored(
        "hoodie.partition.metafile.use.base.format",
        "a new partition is marked by a text file, which every reader accepts",
    ),
    ignored("hoodie.auto.commit", "every batch is committed"),
    ignored("hoodie.datasource.write.streaming.retry.count", _RETRY),
    ignored("hoodie.datasource.write.streaming.retry.interval.ms", _RETRY),
    ignored(
        "hoodie.write.num.retries.on.conflict.failures", "a batch that conflicts is repeated until it is committed"
    ),
    ignored("hoodie.finalize.write.parallelism", _TASKS),
    ignored("hoodie.write.status.storage.level", _MEMORY),
    ignored("index.bootstrap.rocksdb.path", "the local store's folder is index.local.dir"),
)

_OTHER_SOURCE = "a setting of another source"
_OTHER_INDEX = "a setting of another index, or one that this version of the index does not have"
IGNORED_FAMILIES = (
    *(
        _ignored_family(f"hoodie.{name}.", _DETAIL)
        for name in ("clean", "cleaner", "keep", "archive", "compact", "compaction")
    ),
    _ignored_family("hoodie.write.lock.", "no lock provider of this version reads it"),
    _ignored_family("hoodie.filesystem.view.", "the writer reads the timeline itself"),
    _ignored_family("hoodie.memory.", _MEMORY),
    _ignored_family("hoodie.write.buffer.", _MEMORY),
    _ignored_family("hoodie.rollback.", _ROLLBACK),
    _ignored_family("hoodie.client.heartbeat.", "a pending write renews its heartbeat every 20 s"),
    _ignored_family("hoodie.datasource.read.", _READER),
    _ignored_family("hoodie.datasource.query.", _READER),
    *(
        _ignored_family(f"hoodie.streamer.{name}.", _OTHER_SOURCE)
        for name in ("jdbc", "source.s3incr", "source.gcs", "source.sql", "source.pulsar")
    ),
    *(
        _ignored_family(f"hoodie.{name}.", _OTHER_INDEX)
        for name in (
            "index.hbase",
            "hbase",
            "bloom.index",
            "simple.index",
            "global.simple.index",
            "record.index",
        )
    ),
)
