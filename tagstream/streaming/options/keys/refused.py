"""Keys of Hudi and Flink that contradict what this version does: rows or files would be others, so they are refused.

A refused key passes with a value that asks for nothing (``harmless``) or for what is done anyway, so that a properties file
which merely spells out such a value can be brought along. ``streaming/options/brought.py`` judges those whose meaning
depends on other keys.
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
_BUCKETS = "buckets are laid out the simple way only (docs/indexes.md); remove it, or take another index"
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
        "the table's other writers: docs/concurrency.md",
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
        "no transformer that is named reads this key (docs/transformations.md); remove it",
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
