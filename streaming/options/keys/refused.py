"""Keys of Hudi and Flink that this version knows and does not act on: refused with a reason, or without effect.

A refused key passes with a value that asks for nothing (``harmless``), so that a properties file which merely spells
out such a default can be brought along.
"""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Family, Kind, Status

_OTHER = "Known, not supported"
_SERVICES = "this version runs no table services; run them with Hudi beside the job and remove the key here"
_SYNC = "this version registers the table in no catalogue; run Hudi's sync tool and remove the key here"
_NONE = "this version does not do it"


def _refused(
    name: str, reason: str, *harmless: str, aliases: tuple[str, ...] = (), flag: str | None = None
) -> ConfigKey:
    return ConfigKey(
        name,
        Kind.STRING,
        reason,
        section=_OTHER,
        status=Status.UNSUPPORTED,
        reason=reason,
        harmless=harmless,
        aliases=aliases,
        flag=flag,
    )


def _ignored(name: str, reason: str, flag: str | None = None, kind: Kind = Kind.STRING) -> ConfigKey:
    return ConfigKey(name, kind, reason, section=_OTHER, status=Status.IGNORED, reason=reason, flag=flag)


REFUSED_KEYS = (
    _refused(
        "hoodie.datasource.write.payload.class",
        "records are merged by the ordering field (DefaultHoodieRecordPayload) and not by a class of your own",
        "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
        "org.apache.hudi.common.model.EventTimeAvroPayload",
        aliases=("hoodie.compaction.payload.class", "hoodie.table.payload.class"),
        flag="--payload-class",
    ),
    _refused(
        "hoodie.datasource.write.record.merger.impls",
        "records are merged by the ordering field",
        "org.apache.hudi.common.model.HoodieAvroRecordMerger",
        "org.apache.hudi.HoodieSparkRecordMerger",
        "org.apache.hudi.DefaultSparkRecordMerger",
        aliases=("hoodie.write.record.merge.custom.implementation.classes",),
    ),
    _refused("hoodie.write.record.merge.strategy.id", "records are merged by the ordering field"),
    _refused("hoodie.populate.meta.fields", "the index and every reader of the table need the meta columns", "true"),
    _refused(
        "hoodie.write.concurrency.mode", "a table has one writer (a lease in .hoodie keeps it so)", "single_writer"
    ),
    _refused("hoodie.allow.operation.metadata.field", _NONE, "false"),
    _refused("hoodie.table.cdc.enabled", "this version writes no change log", "false"),
    _refused("hoodie.datasource.write.drop.partition.columns", "partition columns stay in the rows", "false"),
    _refused("hoodie.datasource.write.reconcile.schema", _NONE, "false"),
    _refused("hoodie.datasource.write.insert.drop.duplicates", "this version upserts only", "false"),
    _refused(
        "hoodie.datasource.write.streaming.ignore.failed.batch",
        "a batch that fails ends the job; nothing is skipped",
        "false",
    ),
    _refused(
        "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled",
        "timestamps in keys are the raw number",
        "false",
    ),
    _refused("hoodie.write.complex.keygen.new.encoding", "use the simple key generator for one key field"),
    _refused("hoodie.table.base.file.format", "base files are Parquet", "parquet"),
    _refused(
        "hoodie.streamer.schemaprovider.target.schema.file",
        "records are written with the source schema; this version transforms nothing",
    ),
    _refused("hoodie.streamer.source.kafka.checkpoint.type", "offsets are kept in the checkpoint directory", "string"),
    _refused("hoodie.streamer.source.dfs.path.regex", _NONE, ".*"),
    _refused(
        "hoodie.metadata.record.index.enable",
        "this version maintains no metadata table",
        "false",
        aliases=("hoodie.metadata.global.record.level.index.enable",),
    ),
    _refused("index.bootstrap.rocksdb.path", "the local store's folder is index.local.dir"),
    _refused("changelog.enabled", "the index needs deletes to be deletes", "false"),
    _refused(
        "--checkpoint",
        "the position in the source is kept in --checkpoint-dir; a job whose checkpoint is lost "
        "takes it from the table's newest commit",
        flag="--checkpoint",
    ),
    _refused("--filter-dupes", "this version upserts only", "false", flag="--filter-dupes"),
    _refused("--transformer-class", "this version transforms nothing", flag="--transformer-class"),
    _refused("--enable-sync", _SYNC, "false", flag="--enable-sync"),
    _refused("--enable-hive-sync", _SYNC, "false", flag="--enable-hive-sync"),
    _refused("--sync-tool-classes", _SYNC, flag="--sync-tool-classes"),
    _refused("--max-pending-compactions", _SERVICES, flag="--max-pending-compactions"),
    _refused("--max-pending-clustering", _SERVICES, flag="--max-pending-clustering"),
    _refused(
        "--initial-checkpoint-provider",
        "the position in the source is kept in --checkpoint-dir",
        flag="--initial-checkpoint-provider",
    ),
    _refused("--run-bootstrap", "the index's bootstrap is index.bootstrap.enabled", "false", flag="--run-bootstrap"),
    _refused("--base-file-format", "base files are Parquet", "parquet", flag="--base-file-format"),
)

IGNORED_KEYS = (
    _ignored(
        "--disable-compaction",
        "this version runs no compaction in any case",
        flag="--disable-compaction",
        kind=Kind.BOOL,
    ),
    _ignored("hoodie.datasource.write.streaming.disable.compaction", "this version runs no compaction in any case"),
    _ignored("hoodie.streamer.source.kafka.value.deserializer.class", "values are read as bytes and decoded as JSON"),
    _ignored(
        "hoodie.upsert.shuffle.parallelism",
        "the stateful step has spark.sql.shuffle.partitions partitions, fixed in the checkpoint",
    ),
    _ignored("hoodie.insert.shuffle.parallelism", "this version upserts only"),
    _ignored("hoodie.bulkinsert.shuffle.parallelism", "this version upserts only"),
    _ignored("hoodie.delete.shuffle.parallelism", "this version upserts only"),
    _ignored("hoodie.combine.before.upsert", "a batch is always reduced to one record per key first"),
    _ignored("hoodie.combine.before.insert", "a batch is always reduced to one record per key first"),
    _ignored("hoodie.datasource.write.row.writer.enable", "rows are written by Arrow"),
    _ignored("hoodie.parquet.page.size", "pages are 1 MiB"),
    _ignored("hoodie.parquet.dictionary.enabled", "dictionary encoding is on"),
    _ignored("hoodie.embed.timeline.server", "the writer reads the timeline itself"),
    _ignored(
        "hoodie.write.markers.type",
        "the driver writes all markers, in the timeline server's form; every Hudi writer can roll them back",
    ),
    _ignored("hoodie.auto.commit", "the commit belongs to the batch"),
    _ignored("hoodie.datasource.write.streaming.retry.count", "a batch that fails ends the job; start it again"),
    _ignored("hoodie.datasource.write.streaming.retry.interval.ms", "a batch that fails ends the job; start it again"),
)

FAMILIES = (
    Family("hoodie.clean.", _SERVICES),
    Family("hoodie.cleaner.", _SERVICES),
    Family("hoodie.keep.", _SERVICES),
    Family("hoodie.archive.", _SERVICES),
    Family("hoodie.compact.", _SERVICES),
    Family("hoodie.compaction.", _SERVICES),
    Family("hoodie.clustering.", _SERVICES),
    Family("hoodie.log.compaction.", _SERVICES),
    Family("hoodie.datasource.compaction.", _SERVICES),
    Family("hoodie.datasource.clustering.", _SERVICES),
    Family("hoodie.datasource.hive_sync.", _SYNC),
    Family("hoodie.datasource.meta.sync.", _SYNC),
    Family("hoodie.datasource.meta_sync.", _SYNC),
    Family("hoodie.meta.sync.", _SYNC),
    Family("hoodie.gcp.", _SYNC),
    Family("hoodie.metadata.", "this version maintains no metadata table"),
    Family("hoodie.bucket.index.", "not a setting of this index here"),
    Family("hoodie.index.bucket.", "not a setting of this index here"),
    Family("hoodie.index.hbase.", "not a setting of this index here"),
    Family("hoodie.hbase.", "not a setting of this index here"),
    Family("hoodie.bloom.index.", "not a setting of this index here"),
    Family("hoodie.simple.index.", "not a setting of this index here"),
    Family("hoodie.global.simple.index.", "not a setting of this index here"),
    Family("hoodie.record.index.", "this version has the state index only"),
    Family("hoodie.keygen.timebased.", "this version has no timestamp key generator"),
    Family("hoodie.write.lock.", "a table has one writer (a lease in .hoodie keeps it so)"),
    Family("hoodie.streamer.transformer.", "this version transforms nothing"),
    Family("hoodie.streamer.jdbc.", "this version reads JSON from Kafka and from files"),
    Family("hoodie.streamer.source.hoodieincr.", "this version reads JSON from Kafka and from files"),
    Family(
        "hoodie.streamer.schemaprovider.registry.",
        "the schema comes from hoodie.streamer.schemaprovider.source.schema.file",
    ),
    Family("hoodie.metrics.", "metrics are served by --status-port"),
    Family("hoodie.errortable.", "bad records are quarantined in the checkpoint directory"),
)
