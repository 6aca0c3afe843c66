"""Keys of Hudi and Flink without effect here: what comes out is what they ask for, or nothing looks at them."""

from __future__ import annotations

from tagstream.streaming.options.keys.refused import OTHER
from tagstream.table.config import Concern, ConfigKey, Family, Kind, Status

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


def _family(prefix: str, reason: str) -> Family:
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
    *(_family(f"hoodie.{name}.", _DETAIL) for name in ("clean", "cleaner", "keep", "archive", "compact", "compaction")),
    _family("hoodie.write.lock.", "locks are only taken where hoodie.write.concurrency.mode asks for them"),
    _family("hoodie.filesystem.view.", "the writer reads the timeline itself"),
    _family("hoodie.memory.", _MEMORY),
    _family("hoodie.write.buffer.", _MEMORY),
    _family("hoodie.rollback.", _ROLLBACK),
    _family("hoodie.client.heartbeat.", "a pending write gives a heartbeat every 20 s"),
    _family("hoodie.datasource.read.", _READER),
    _family("hoodie.datasource.query.", _READER),
    *(
        _family(f"hoodie.streamer.{name}.", _OTHER_SOURCE)
        for name in ("jdbc", "source.hoodieincr", "source.s3incr", "source.gcs", "source.sql", "source.pulsar")
    ),
    *(
        _family(f"hoodie.{name}.", _OTHER_INDEX)
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
