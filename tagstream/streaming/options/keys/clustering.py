"""Keys of clustering, with Hudi's names and defaults (1.2.0, HoodieClusteringConfig)."""

from __future__ import annotations

from tagstream.table.config import ConfigKey, Kind

_SECTION = "Clustering"
_PLAN = "hoodie.clustering.plan.strategy."
_PACKAGE = "org.apache.hudi.client.clustering."
_EXECUTION = "SparkSortAndSizeExecutionStrategy"
_UPDATES = "SparkRejectUpdateStrategy"

CLUSTERING_KEYS = (
    ConfigKey(
        "hoodie.clustering.inline",
        Kind.BOOL,
        "After a batch that makes a clustering due, join small file groups into new ones before the next batch. The index "
        "follows without being loaded anew.",
        default=False,
        aliases=("hoodie.datasource.clustering.inline.enable",),
        section=_SECTION,
    ),
    ConfigKey(
        "hoodie.clustering.inline.max.commits",
        Kind.INT,
        "Commits since the last clustering after which one is due.",
        default=4,
        minimum=1,
        section=_SECTION,
    ),
    ConfigKey(
        "hoodie.clustering.async.enabled",
        Kind.BOOL,
        "Plan clusterings between two batches, and carry them out beside the next ones, as Spark tasks of a pool of their "
        "own. A batch that has rows for a file group of the plan wins: the plan is taken back. So this is for tables whose "
        "older partitions are at rest.",
        default=False,
        aliases=("hoodie.datasource.clustering.async.enable", "clustering.async.enabled"),
        section=_SECTION,
    ),
    ConfigKey(
        "hoodie.clustering.async.max.commits",
        Kind.INT,
        "The same as hoodie.clustering.inline.max.commits, for clusterings beside the batches.",
        default=4,
        minimum=1,
        section=_SECTION,
    ),
    ConfigKey(
        "hoodie.clustering.rollback.pending.replacecommit.on.conflict",
        Kind.BOOL,
        "What becomes of a clustering that another writer has planned, when a batch has rows for its file groups: true "
        "takes it back at once, for a plan that was left behind; false waits for an hour until it was carried out, and then "
        "ends the job.",
        default=False,
        section=_SECTION,
    ),
    ConfigKey(
        f"{_PLAN}sort.columns",
        Kind.LIST,
        "Columns by which the rows of joined file groups are sorted, so that readers skip more row groups.",
        section=_SECTION,
    ),
    ConfigKey(
        f"{_PLAN}small.file.limit",
        Kind.BYTES,
        "Only file groups whose base file is smaller are joined.",
        default=300 << 20,
        minimum=0,
        section=_SECTION,
    ),
    ConfigKey(
        f"{_PLAN}target.file.max.bytes",
        Kind.BYTES,
        "Size of a new file.",
        default=1 << 30,
        minimum=1,
        section=_SECTION,
    ),
    ConfigKey(
        f"{_PLAN}max.bytes.per.group",
        Kind.BYTES,
        "Bytes of file groups that are joined by one task.",
        default=2 << 30,
        minimum=1,
        section=_SECTION,
    ),
    ConfigKey(
        f"{_PLAN}max.num.groups",
        Kind.INT,
        "How many times file groups are joined in one clustering.",
        default=30,
        minimum=1,
        section=_SECTION,
    ),
    ConfigKey(
        f"{_PLAN}single.group.clustering.enabled",
        Kind.BOOL,
        "Also rewrite a small file group that has none to be joined with, unless a clustering has written it.",
        default=True,
        section=_SECTION,
    ),
    ConfigKey(
        "hoodie.clustering.plan.partition.filter.mode",
        Kind.CHOICE,
        "Which partitions are looked at: all, the newest by name, from one to another, or each hour of the day others.",
        default="NONE",
        values={name: name for name in ("NONE", "RECENT_DAYS", "SELECTED_PARTITIONS", "DAY_ROLLING")},
        section=_SECTION,
    ),
    ConfigKey(
        f"{_PLAN}daybased.lookback.partitions",
        Kind.INT,
        "How many of the newest partitions are looked at (RECENT_DAYS).",
        default=2,
        minimum=1,
        section=_SECTION,
    ),
    ConfigKey(
        f"{_PLAN}daybased.skipfromlatest.partitions",
        Kind.INT,
        "How many of the newest partitions are left out (RECENT_DAYS).",
        default=0,
        minimum=0,
        section=_SECTION,
    ),
    ConfigKey(
        f"{_PLAN}cluster.begin.partition",
        Kind.STRING,
        "The first partition that is looked at (SELECTED_PARTITIONS).",
        section=_SECTION,
    ),
    ConfigKey(
        f"{_PLAN}cluster.end.partition",
        Kind.STRING,
        "The last partition that is looked at (SELECTED_PARTITIONS).",
        section=_SECTION,
    ),
    ConfigKey(
        f"{_PLAN}partition.regex.pattern",
        Kind.REGEX,
        "Only partitions whose whole path matches are looked at.",
        section=_SECTION,
    ),
    ConfigKey(
        f"{_PLAN}partition.selected",
        Kind.LIST,
        "Only these partitions are looked at.",
        section=_SECTION,
    ),
    ConfigKey(
        f"{_PLAN}class",
        Kind.CHOICE,
        "How file groups are put together: by their sizes.",
        default="SparkSizeBasedClusteringPlanStrategy",
        values={
            f"{prefix}{name}".upper(): "SparkSizeBasedClusteringPlanStrategy"
            for prefix in ("", f"{_PACKAGE}plan.strategy.")
            for name in (
                "SparkSizeBasedClusteringPlanStrategy",
                "JavaSizeBasedClusteringPlanStrategy",
                "FlinkSizeBasedClusteringPlanStrategy",
            )
        },
        section=_SECTION,
    ),
    ConfigKey(
        "hoodie.clustering.execution.strategy.class",
        Kind.CHOICE,
        "How a plan is carried out: its rows sorted, and cut into files of the wanted size.",
        default=_EXECUTION,
        values={f"{prefix}{_EXECUTION}".upper(): _EXECUTION for prefix in ("", f"{_PACKAGE}run.strategy.")},
        section=_SECTION,
    ),
    ConfigKey(
        "hoodie.clustering.updates.strategy",
        Kind.CHOICE,
        "What a batch does that has rows for a file group of a pending clustering: it waits until that is done; one that "
        "this project has planned is taken back.",
        default=_UPDATES,
        values={f"{prefix}{_UPDATES}".upper(): _UPDATES for prefix in ("", f"{_PACKAGE}update.strategy.")},
        section=_SECTION,
    ),
)
