"""Keys of Hudi and Flink that this version knows and does not act on.

Refused keys contradict what this version does: rows or files would be others. A refused key passes with a value
that asks for nothing (``harmless``) or for what is done anyway, so that a properties file which merely spells out
such a value can be used as it is. ``streaming/options/unsupported_report.py`` judges those whose meaning depends
on other keys.

Keys of ``Concern.BESIDE`` ask for work that this job does not do and that something else can do; the rows are the
same without it. Ignored keys have no effect here: the result is what they ask for anyway, or nothing reads them.
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
_BUCKETS = "buckets are laid out the simple way only (docs/guide/indexes.md); remove it, or take another index"
_OPERATION = "a record whose key is there is an update (upsert), not dropped; remove it"
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
    """A key of text that is known and not supported; ``harmless``: values that ask for nothing."""
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
        "with an ordering field the record with the greater value wins (as with DefaultHoodieRecordPayload), without one "
        "the later record (as with OverwriteWithLatestAvroPayload); remove it, or the ordering field",
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
        "hoodie.write.concurrency.mode",
        "this job takes none of Hudi's locks (a lease in .hoodie keeps a second one out); remove it here and leave it with "
        "the table's other writers: docs/operations/concurrency.md",
        "single_writer",
    ),
    unsupported(
        "hoodie.allow.operation.metadata.field", "the column _hoodie_operation is not written; remove it", "false"
    ),
    unsupported("hoodie.table.cdc.enabled", "this version writes no change log; remove it", "false"),
    unsupported("hoodie.datasource.write.insert.drop.duplicates", _OPERATION, "false"),
    unsupported(
        "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled",
        "timestamps in keys are the raw number; remove it",
        "false",
    ),
    unsupported("hoodie.table.base.file.format", "base files are Parquet; remove it", "parquet"),
    unsupported(
        TARGET_SCHEMA_KEY,
        "records are written with the source schema, as nothing transforms them, and this file has another one; name the "
        "same file, or remove it",
    ),
    unsupported(
        DESERIALIZER_KEY,
        "values are JSON and are decoded as such; a topic of another format can't be read, for JSON remove it",
    ),
    unsupported(
        "hoodie.streamer.source.kafka.checkpoint.type",
        "where to begin is kept in the checkpoint as offsets; remove it",
        "string",
    ),
    unsupported(
        "hoodie.streamer.source.dfs.path.regex",
        "all files of the source folder are read; move those that are meant to a folder of their own, and remove it",
        ".*",
    ),
    unsupported("changelog.enabled", "the index needs deletes to be deletes; remove it", "false"),
    unsupported(
        "--checkpoint",
        "the position in the source is kept in --checkpoint-dir; a job whose checkpoint is lost "
        "takes it from the table's newest commit; remove it",
        flag="--checkpoint",
    ),
    unsupported("--filter-dupes", _OPERATION, "false", flag="--filter-dupes"),
    unsupported(
        "--initial-checkpoint-provider",
        "the position in the source is kept in --checkpoint-dir; remove it",
        flag="--initial-checkpoint-provider",
    ),
    unsupported(
        "--run-bootstrap",
        "a table is made of Parquet files with Hudi; the index's own bootstrap is index.bootstrap.enabled; remove it",
        "false",
        flag="--run-bootstrap",
    ),
    unsupported("--base-file-format", "base files are Parquet; remove it", "parquet", flag="--base-file-format"),
)

REFUSED_FAMILIES = (
    *(Family(prefix, _BUCKETS) for prefix in BUCKET_FAMILIES),
    Family(
        "hoodie.partition.ttl.",
        "no partition is taken out for its age; let Hudi's own TTL service do it beside the job, and remove it here",
    ),
    Family(
        "hoodie.streamer.transformer.",
        "no transformer that is named reads this key (docs/guide/dataframes.md#transformations); remove it",
    ),
    Family(
        REGISTRY_FAMILY,
        "of the registry its URL and a login are read (`schema.registry.url`, "
        "`hoodie.streamer.schemaprovider.registry.url`, `schema.registry.basic.auth.user.info`); remove it, or save the "
        "subject's schema to a file and name it with "
        "hoodie.streamer.schemaprovider.source.schema.file",
    ),
)

_LAYOUT = "a table's folders are laid out as by Hudi's defaults; remove it"
_PARQUET = "base files are Parquet, log files Hudi's own; remove it"
_MERGE = "with an ordering field the record with the greater value wins, without one the later record; remove it"
_FLINK = "a key of Hudi's Flink writer"
_EVENT_TIME, _COMMIT_TIME = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5", "ce9acb64-bde0-424c-9b91-f6ebba25356d"
_BESIDE = Concern.BESIDE

# What the list of Hudi's own keys has beyond those above (``options.hudi_keys``).
HUDI_REFUSED = (
    unsupported(
        "hoodie.datasource.write.slash.separated.date.partitioning",
        "a date is one folder; take the key generator TIMESTAMP with yyyy/MM/dd",
        "false",
    ),
    unsupported("hoodie.table.timeline.timezone", "a new table's instants are in local time; remove it", "local"),
    unsupported("hoodie.timeline.path", _LAYOUT, "timeline"),
    unsupported("hoodie.timeline.history.path", _LAYOUT, "history"),
    unsupported("hoodie.archivelog.folder", _LAYOUT, "archived"),
    unsupported("hoodie.table.ro.file.format", _PARQUET, "parquet", aliases=("hoodie.base.file.format",)),
    unsupported("hoodie.table.log.file.format", _PARQUET, "hoodie_log", aliases=("hoodie.table.rt.file.format",)),
    unsupported("hoodie.table.multiple.base.file.formats.enable", _PARQUET, "false"),
    unsupported("hoodie.storage.layout.type", "buckets are hoodie.index.type=BUCKET", "default"),
    unsupported("hoodie.metaserver.enabled", "the timeline is read from the table", "false"),
    unsupported(
        "hoodie.table.services.enabled",
        "each service has a key of its own: hoodie.compact.inline, hoodie.clustering.inline, hoodie.clean.automatic, "
        "hoodie.archive.automatic",
        "true",
    ),
    unsupported(
        "hoodie.static.overwrite.partition.paths",
        "a batch that overwrites takes the place of the partitions that it has rows for; `tagstream table "
        "insert-overwrite --partition` names others",
    ),
    unsupported(
        "hoodie.record.merge.strategy.id",
        _MERGE,
        _EVENT_TIME,
        _COMMIT_TIME,
        aliases=("hoodie.datasource.write.record.merger.strategy", "hoodie.compaction.record.merger.strategy"),
    ),
    unsupported(
        "hoodie.table.partial.update.mode", "hoodie.write.partial.update=true keeps what a record lacks", "none"
    ),
    unsupported("hoodie.payload.ordering.field", "give hoodie.table.ordering.fields"),
    unsupported("hoodie.precommit.validators", "no validator runs before a commit; remove it", concern=_BESIDE),
    unsupported("hoodie.write.commit.callback.on", "nobody is called after a commit", "false", concern=_BESIDE),
    unsupported("hoodie.table.service.manager.enabled", "services run in the job", "false", concern=_BESIDE),
    # Of Hudi's Flink writer: without the prefix they would be passed on to Kafka's consumer.
    unsupported(
        "precombine.field", f"{_FLINK}: give hoodie.table.ordering.fields", aliases=("write.precombine.field",)
    ),
    unsupported("write.operation", f"{_FLINK}: give --op", "upsert"),
    unsupported("table.type", f"{_FLINK}: give --table-type"),
    unsupported("payload.class", f"{_FLINK}: give hoodie.datasource.write.payload.class"),
    unsupported("cdc.enabled", f"{_FLINK}: give hoodie.table.cdc.enabled", "false"),
    unsupported("write.partition.format", f"{_FLINK}: give the key generator TIMESTAMP"),
    unsupported("metadata.enabled", f"{_FLINK}: give hoodie.metadata.enable"),
    unsupported("hive_sync.enabled", f"{_FLINK}: run Hudi's sync tool", "false", concern=_BESIDE),
)


_CLUSTERING = "a setting of clustering that this job has no use for"
_LOG_COMPACTION = "log compaction (log blocks joined into one): logs are compacted into base files"
_SYNC = "registering the table in a catalogue: run Hudi's sync tool beside the job"
_METADATA = "a setting of Hudi's metadata table that this job has no use for"
_METRICS = "Hudi's metrics reporters: this job's metrics are served by --status-port"
_ERROR_TABLE = "a setting of Hudi's error table that this job has no use for"


def _beside(name: str, reason: str, *harmless: str, aliases: tuple[str, ...] = (), flag: bool = False) -> ConfigKey:
    flag_name = name if flag else None
    return unsupported(name, reason, *harmless, aliases=aliases, flag=flag_name, concern=Concern.BESIDE)


def _beside_family(prefix: str, reason: str) -> Family:
    return Family(prefix, reason, concern=Concern.BESIDE)


BESIDE_KEYS = (
    _beside(
        "hoodie.datasource.write.streaming.ignore.failed.batch",
        "going on after a failed batch: a batch that fails ends the job, the next start does it again",
        "false",
    ),
    _beside("--enable-sync", _SYNC, "false", flag=True),
    _beside("--enable-hive-sync", _SYNC, "false", flag=True),
    _beside("--sync-tool-classes", _SYNC, flag=True),
    _beside("--max-pending-clustering", "several clusterings: there is one at a time", flag=True),
    _beside(
        "hoodie.layout.optimize.strategy",
        "ordering by space-filling curves: rows are sorted by columns, one after the other (linear)",
        "linear",
        "LINEAR",
    ),
    _beside(
        "hoodie.clustering.preserve.commit.metadata",
        "new commit times for rows that a clustering moves: rows keep theirs",
        "true",
    ),
    _beside(
        "hoodie.archive.beyond.savepoint",
        "archiving of what is newer than a savepoint: it would leave a hole in the timeline, and Hudi 1.2.0 and hudi-rs see "
        "no rows of the writes in it",
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


_DETAIL = "a detail of how Hudi carries a service out"
_BETWEEN = "it is done between two batches"
_TASKS = "Spark's shuffle partitions are spark.sql.shuffle.partitions, fixed in the checkpoint"
_ONCE = "a batch is always reduced to one record per key first"
_RETRY = "a batch that fails ends the job; start it again"
_ROLLBACK = "failed writes of dead writers are rolled back before a batch, pending ones of live writers are left alone"
_READER = "nothing is read from the table by a query"
_MEMORY = "rows are written by Arrow, whose memory it does not set"


def _ignored(name: str, reason: str, flag: str | None = None, kind: Kind = Kind.STRING, **more: object) -> ConfigKey:
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
    _ignored("--max-pending-compactions", "one compaction is planned at a time", flag="--max-pending-compactions"),
    _ignored("hoodie.archive.async", _BETWEEN),
    _ignored("hoodie.commits.archival.batch", _DETAIL),
    _ignored("hoodie.clean.failed.writes.policy", _ROLLBACK, aliases=("hoodie.cleaner.policy.failed.writes",)),
    _ignored("hoodie.upsert.shuffle.parallelism", _TASKS),
    _ignored("hoodie.insert.shuffle.parallelism", _TASKS),
    _ignored("hoodie.bulkinsert.shuffle.parallelism", _TASKS),
    _ignored("hoodie.delete.shuffle.parallelism", _TASKS),
    _ignored("hoodie.combine.before.upsert", _ONCE, harmless=("true",)),
    _ignored("hoodie.combine.before.insert", _ONCE, harmless=("true",)),
    _ignored("hoodie.datasource.write.row.writer.enable", "rows are written by Arrow"),
    _ignored("hoodie.parquet.page.size", "pages are 1 MiB"),
    _ignored("hoodie.parquet.dictionary.enabled", "dictionary encoding is on"),
    _ignored("hoodie.embed.timeline.server", "the writer reads the timeline itself"),
    _ignored(
        "hoodie.write.markers.type",
        "the driver writes all markers, in the timeline server's form; every Hudi writer can roll them back",
    ),
    _ignored(
        "hoodie.partition.metafile.use.base.format",
        "a new partition is marked by a text file, which every reader takes",
    ),
    _ignored("hoodie.auto.commit", "the commit belongs to the batch"),
    _ignored("hoodie.datasource.write.streaming.retry.count", _RETRY),
    _ignored("hoodie.datasource.write.streaming.retry.interval.ms", _RETRY),
    _ignored("hoodie.finalize.write.parallelism", _TASKS),
    _ignored("hoodie.write.status.storage.level", _MEMORY),
    _ignored("index.bootstrap.rocksdb.path", "the local store's folder is index.local.dir"),
)

_OTHER_SOURCE = "a setting of another source than the one that is read"
_OTHER_INDEX = (
    "a setting of another index than the one that is used, or one that this version's form of it does not have"
)
IGNORED_FAMILIES = (
    *(
        _ignored_family(f"hoodie.{name}.", _DETAIL)
        for name in ("clean", "cleaner", "keep", "archive", "compact", "compaction")
    ),
    _ignored_family("hoodie.write.lock.", "locks are only taken where hoodie.write.concurrency.mode asks for them"),
    _ignored_family("hoodie.filesystem.view.", "the writer reads the timeline itself"),
    _ignored_family("hoodie.memory.", _MEMORY),
    _ignored_family("hoodie.write.buffer.", _MEMORY),
    _ignored_family("hoodie.rollback.", _ROLLBACK),
    _ignored_family("hoodie.client.heartbeat.", "a pending write gives a heartbeat every 20 s"),
    _ignored_family("hoodie.datasource.read.", _READER),
    _ignored_family("hoodie.datasource.query.", _READER),
    *(
        _ignored_family(f"hoodie.streamer.{name}.", _OTHER_SOURCE)
        for name in ("jdbc", "source.hoodieincr", "source.s3incr", "source.gcs", "source.sql", "source.pulsar")
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
