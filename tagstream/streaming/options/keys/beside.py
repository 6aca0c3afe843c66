"""Keys of Hudi that ask for what this job does not do, and whose rows are the same without it: something else can do it."""

from __future__ import annotations

from tagstream.streaming.options.keys.refused import unsupported
from tagstream.table.config import Concern, ConfigKey, Family

_CLUSTERING = "a setting of clustering that this job has no use for"
_LOG_COMPACTION = "log compaction (log blocks joined into one): logs are compacted into base files"
_SYNC = "registering the table in a catalogue: run Hudi's sync tool beside the job"
_METADATA = "a setting of Hudi's metadata table that this job has no use for"
_METRICS = "Hudi's metrics reporters: this job's metrics are served by --status-port"
_ERROR_TABLE = "a setting of Hudi's error table that this job has no use for"


def _beside(name: str, reason: str, *harmless: str, aliases: tuple[str, ...] = (), flag: bool = False) -> ConfigKey:
    flag_name = name if flag else None
    return unsupported(name, reason, *harmless, aliases=aliases, flag=flag_name, concern=Concern.BESIDE)


def _family(prefix: str, reason: str) -> Family:
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
    _family("hoodie.clustering.", _CLUSTERING),
    _family("hoodie.datasource.clustering.", _CLUSTERING),
    _family("hoodie.log.compaction.", _LOG_COMPACTION),
    *(
        _family(f"hoodie.{name}.", _SYNC)
        for name in ("datasource.hive_sync", "datasource.meta.sync", "datasource.meta_sync", "meta.sync", "gcp")
    ),
    _family("hoodie.metadata.", _METADATA),
    _family("hoodie.metrics.", _METRICS),
    _family("hoodie.errortable.", _ERROR_TABLE),
)
