"""Keys of compaction, cleaning and archiving, with Hudi's names and defaults; Flink's names where units agree."""

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


_CLEANING, _ARCHIVING = "Cleaning", "Archiving"
_POLICIES = ("KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS", "KEEP_LATEST_BY_HOURS")

CLEANING_KEYS = (
    ConfigKey(
        "hoodie.clean.automatic",
        Kind.BOOL,
        "After a batch, delete the files that only old queries would read.",
        default=True,
        section=_CLEANING,
    ),
    ConfigKey(
        "hoodie.clean.async.enabled",
        Kind.BOOL,
        "Plan cleans between two batches, and delete their files beside the next ones.",
        default=False,
        aliases=("hoodie.clean.async", "clean.async.enabled"),
        section=_CLEANING,
    ),
    ConfigKey(
        "hoodie.clean.policy",
        Kind.CHOICE,
        "What is kept: slices that the newest commits, the newest hours, or a number of versions need.",
        default="KEEP_LATEST_COMMITS",
        values={name: name for name in _POLICIES},
        aliases=("hoodie.cleaner.policy", "clean.policy"),
        section=_CLEANING,
    ),
    ConfigKey(
        "hoodie.clean.commits.retained",
        Kind.INT,
        "Commits whose files are kept, so a query may run as long as so many commits take.",
        default=10,
        minimum=1,
        aliases=("hoodie.cleaner.commits.retained", "clean.retain_commits"),
        section=_CLEANING,
    ),
    ConfigKey(
        "hoodie.clean.hours.retained",
        Kind.INT,
        "Hours whose files are kept (KEEP_LATEST_BY_HOURS).",
        default=24,
        minimum=1,
        aliases=("hoodie.cleaner.hours.retained", "clean.retain_hours"),
        section=_CLEANING,
    ),
    ConfigKey(
        "hoodie.clean.fileversions.retained",
        Kind.INT,
        "Slices of each file group that are kept (KEEP_LATEST_FILE_VERSIONS).",
        default=3,
        minimum=1,
        aliases=("hoodie.cleaner.fileversions.retained", "clean.retain_file_versions"),
        section=_CLEANING,
    ),
    ConfigKey(
        "hoodie.clean.trigger.max.commits",
        Kind.INT,
        "Commits after which it is looked whether something is to be deleted.",
        default=1,
        minimum=1,
        aliases=("hoodie.clean.max.commits",),
        section=_CLEANING,
    ),
    ConfigKey(
        "hoodie.clean.incremental.enabled",
        Kind.BOOL,
        "Look only at partitions that commits have touched since the last cleaning.",
        default=True,
        aliases=("hoodie.cleaner.incremental.mode",),
        section=_CLEANING,
    ),
)

ARCHIVING_KEYS = (
    ConfigKey(
        "hoodie.archive.automatic",
        Kind.BOOL,
        "After a batch, move old instants from the active timeline to the archive.",
        default=True,
        section=_ARCHIVING,
    ),
    ConfigKey(
        "hoodie.keep.min.commits",
        Kind.INT,
        "Commits that stay on the active timeline; more than hoodie.clean.commits.retained.",
        default=20,
        minimum=2,
        aliases=("archive.min_commits",),
        section=_ARCHIVING,
    ),
    ConfigKey(
        "hoodie.keep.max.commits",
        Kind.INT,
        "Commits above which old ones are archived; more than hoodie.keep.min.commits.",
        default=30,
        minimum=3,
        aliases=("archive.max_commits",),
        section=_ARCHIVING,
    ),
    ConfigKey(
        "hoodie.archive.merge.enable",
        Kind.BOOL,
        "Table version 6: merge small files of the archive, of which each archiving makes one. Hudi's default is false.",
        default=True,
        section=_ARCHIVING,
    ),
    ConfigKey(
        "hoodie.archive.merge.files.batch.size",
        Kind.INT,
        "How many small files of the archive are merged at least.",
        default=10,
        minimum=2,
        section=_ARCHIVING,
    ),
    ConfigKey(
        "hoodie.archive.merge.small.file.limit.bytes",
        Kind.BYTES,
        "Greater files of the archive are not merged, and no merged one is greater.",
        default=20 << 20,
        minimum=1,
        section=_ARCHIVING,
    ),
)
