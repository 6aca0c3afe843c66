"""Keys of compaction, with Hudi's names and defaults; Flink's names where units agree."""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind

_COMPACTION = "Compaction"
_PACKAGE = "org.apache.hudi.table.action.compact.strategy."
_TRIGGERS = ("NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST", "TIME_ELAPSED", "NUM_AND_TIME", "NUM_OR_TIME")
_STRATEGIES = (
    "LogFileSizeBasedCompactionStrategy", "LogFileNumBasedCompactionStrategy", "BoundedIOCompactionStrategy",
    "UnBoundedCompactionStrategy", "DayBasedCompactionStrategy", "BoundedPartitionAwareCompactionStrategy",
    "PartitionRegexBasedCompactionStrategy",
)  # fmt: skip


def _choices(names: tuple[str, ...], package: str = "") -> dict[str, str]:
    """Accepted spellings, in upper case, to the name: with and without the package."""
    short = {name.upper(): name for name in names}
    return short | ({f"{package}{name}".upper(): name for name in names} if package else {})


COMPACTION_KEYS = (
    ConfigKey(
        "hoodie.compact.inline",
        Kind.BOOL,
        "Merge-on-read: after a batch that makes a compaction due, plan it and carry it out before the next batch.",
        default_note="true, unless a compaction runs beside the batches",
        section=_COMPACTION,
    ),
    ConfigKey(
        "hoodie.datasource.compaction.async.enable",
        Kind.BOOL,
        "Merge-on-read: plan compactions between two batches, and carry them out beside the next ones, as Spark tasks of "
        "a pool of their own. On table version 6 hudi-rs and a careless Hudi 1.2 read too little meanwhile.",
        default_note="true from table version 8 on in a continuous job",
        aliases=("compaction.async.enabled",),
        section=_COMPACTION,
    ),
    ConfigKey(
        "hoodie.compact.schedule.inline",
        Kind.BOOL,
        "Merge-on-read: only plan compactions; something else carries them out (`tagstream services run`, Hudi, Flink).",
        default=False,
        section=_COMPACTION,
    ),
    ConfigKey(
        "hoodie.datasource.write.streaming.disable.compaction",
        Kind.BOOL,
        "No compaction is planned and none is carried out.",
        default=False,
        flag="--disable-compaction",
        section=_COMPACTION,
    ),
    ConfigKey(
        "hoodie.compact.inline.trigger.strategy",
        Kind.CHOICE,
        "What makes a compaction due: delta commits since the last one, seconds since the last one, both, or one of them.",
        default="NUM_COMMITS",
        values=_choices(_TRIGGERS),
        aliases=("compaction.trigger.strategy",),
        section=_COMPACTION,
    ),
    ConfigKey(
        "hoodie.compact.inline.max.delta.commits",
        Kind.INT,
        "Delta commits after which a compaction is due.",
        default=5,
        minimum=1,
        aliases=("compaction.delta_commits",),
        section=_COMPACTION,
    ),
    ConfigKey(
        "hoodie.compact.inline.max.delta.seconds",
        Kind.INT,
        "Seconds after which a compaction is due, with a trigger strategy of time.",
        default=3600,
        minimum=1,
        aliases=("compaction.delta_seconds",),
        section=_COMPACTION,
    ),
    ConfigKey(
        "hoodie.compaction.strategy",
        Kind.CHOICE,
        "Which file slices with logs a plan takes, and in which order.",
        default="LogFileSizeBasedCompactionStrategy",
        values=_choices(_STRATEGIES, _PACKAGE),
        section=_COMPACTION,
    ),
    ConfigKey(
        "hoodie.compaction.target.io",
        Kind.INT,
        "MB that one compaction may read and write, for the strategies that have a bound.",
        default=512_000,
        minimum=1,
        section=_COMPACTION,
    ),
    ConfigKey(
        "hoodie.compaction.logfile.size.threshold",
        Kind.BYTES,
        "A slice whose logs are smaller in sum is left out (LogFileSizeBasedCompactionStrategy).",
        default=0,
        minimum=0,
        section=_COMPACTION,
    ),
    ConfigKey(
        "hoodie.compaction.logfile.num.threshold",
        Kind.INT,
        "A slice with fewer log files is left out (LogFileNumBasedCompactionStrategy).",
        default=0,
        minimum=0,
        section=_COMPACTION,
    ),
    ConfigKey(
        "hoodie.compaction.daybased.target.partitions",
        Kind.INT,
        "How many of the newest partitions a plan takes (the strategies by day and by partition).",
        default=10,
        minimum=1,
        section=_COMPACTION,
    ),
    ConfigKey(
        "hoodie.compaction.partition.path.regex",
        Kind.REGEX,
        "Which partitions a plan takes (PartitionRegexBasedCompactionStrategy).",
        section=_COMPACTION,
    ),
    ConfigKey(
        "hoodie.memory.compaction.max.size",
        Kind.BYTES,
        "Memory for the log records of one file slice; what is more is spilled to disk.",
        default=1 << 30,
        minimum=1 << 20,
        section=_COMPACTION,
    ),
)
