"""Which table services run during the stream, and how: compaction, clustering, cleaning, archiving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from tagstream.streaming.options.keys.registry import REGISTRY
from tagstream.streaming.options.resolve import Problem, Resolved, resolve
from tagstream.table.config import Entry
from tagstream.table.errors import ConfigError
from tagstream.table.history.archive_merge import MergeOptions
from tagstream.table.services.options import (
    ArchiveOptions,
    CleanOptions,
    CleanPolicy,
    ClusteringOptions,
    CompactionOptions,
    PartitionFilter,
    Trigger,
    strategy_of,
)
from tagstream.table.table_version import TableVersion

_CLUSTER_INLINE, _CLUSTER_ASYNC = "hoodie.clustering.inline", "hoodie.clustering.async.enabled"
_PLAN = "hoodie.clustering.plan.strategy."
_COMMITS = {_CLUSTER_INLINE: f"{_CLUSTER_INLINE}.max.commits", _CLUSTER_ASYNC: "hoodie.clustering.async.max.commits"}
_NEEDS_PLACES = ("HBASE", "BUCKET")


def clustering_options(r: Resolved, index_type: str) -> ClusteringOptions | None:
    """The options as they were given, None where the stream clusters nothing; a problem for an index that cannot follow."""
    wanted = _CLUSTER_ASYNC if r.flag(_CLUSTER_ASYNC) else _CLUSTER_INLINE
    if not r.flag(wanted):
        return None
    if wanted == _CLUSTER_ASYNC and r.flag(_CLUSTER_INLINE):
        text = (
            f"{r.said(_CLUSTER_INLINE)} and {r.said(_CLUSTER_ASYNC)}: a clustering is carried out between "
            "the batches or beside them"
        )
        r.problems.append(Problem(f"{text}; remove one", r.entries[_CLUSTER_ASYNC]))
        return None
    if index_type in _NEEDS_PLACES:
        reason = {
            "HBASE": "its entries would go on naming the file groups that are gone",
            "BUCKET": "its file groups are the buckets of keys, and joined ones would be none",
        }[index_type]
        text = f"{r.said(wanted)} and hoodie.index.type={index_type}: {reason}; set the first to false"
        r.problems.append(Problem(text, r.entries[wanted]))
        return None
    return r.attempt(
        lambda: ClusteringOptions(
            max_commits=r.number(_COMMITS[wanted]),
            small_file_limit=r.number(f"{_PLAN}small.file.limit"),
            target_file_bytes=r.number(f"{_PLAN}target.file.max.bytes"),
            max_group_bytes=r.number(f"{_PLAN}max.bytes.per.group"),
            max_groups=r.number(f"{_PLAN}max.num.groups"),
            sort_columns=r.texts(f"{_PLAN}sort.columns") or (),
            single_groups=r.flag(f"{_PLAN}single.group.clustering.enabled"),
            partition_regex=r.opt_text(f"{_PLAN}partition.regex.pattern"),
            partitions=r.texts(f"{_PLAN}partition.selected") or (),
            filter=PartitionFilter(r.text("hoodie.clustering.plan.partition.filter.mode")),
            lookback_days=r.number(f"{_PLAN}daybased.lookback.partitions"),
            skip_days=r.number(f"{_PLAN}daybased.skipfromlatest.partitions"),
            first_partition=r.opt_text(f"{_PLAN}cluster.begin.partition"),
            last_partition=r.opt_text(f"{_PLAN}cluster.end.partition"),
            max_memory=r.number("hoodie.memory.compaction.max.size"),
        ),
        None,
        "hoodie.clustering.plan.partition.filter.mode",
        f"{_PLAN}cluster.begin.partition",
        f"{_PLAN}cluster.end.partition",
        f"{_PLAN}partition.regex.pattern",
    )


_COMPACT_INLINE, _COMPACT_ASYNC = "hoodie.compact.inline", "hoodie.datasource.compaction.async.enable"
_SCHEDULE = "hoodie.compact.schedule.inline"
_DISABLED = "hoodie.datasource.write.streaming.disable.compaction"
_COUNTED = (Trigger.NUM_COMMITS, Trigger.NUM_AND_TIME)
_KEPT = ("hoodie.clean.commits.retained", "hoodie.keep.min.commits", "hoodie.keep.max.commits")


class CompactionMode(Enum):
    """Who carries compactions out: nobody, the job between two batches or beside them, or something else."""

    OFF = "off"
    INLINE = "inline"
    ASYNC = "async"
    SCHEDULE = "schedule"


@dataclass(frozen=True)
class ServiceOptions:
    """``mode`` None: the table's version and the kind of run decide. ``clean``, ``archive``, ``clustering`` None: none.

    ``clusters_beside``, ``cleans_beside``: the work is done beside the batches, not between two of them.
    ``takes_back_clusterings``: also another writer's plan, where a batch has rows for its file groups.
    """

    mode: CompactionMode | None = None
    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    clean: CleanOptions | None = field(default_factory=CleanOptions)
    archive: ArchiveOptions | None = field(default_factory=ArchiveOptions)
    clustering: ClusteringOptions | None = None
    clusters_beside: bool = False
    cleans_beside: bool = False
    takes_back_clusterings: bool = False

    def compaction_mode(self, version: int, *, merge_on_read: bool, continuous: bool) -> CompactionMode:
        """How the tables' logs get into base files. Beside the batches only where every reader stands a pending plan:
        from table version 8 on."""
        if not merge_on_read:
            return CompactionMode.OFF
        if self.mode is not None:
            return self.mode
        return (
            CompactionMode.ASYNC
            if continuous and TableVersion.of(version).reads_pending_compactions
            else CompactionMode.INLINE
        )


def services_of(entries: Sequence[Entry]) -> ServiceOptions:
    """What a job's properties say of the services, for a process that does them in its place.

    ConfigError names each entry that the job would refuse, too; keys that ask for something else are passed over.
    """
    r = resolve(REGISTRY, entries)
    options = service_options(r, r.opt_text("hoodie.index.type") or "")
    if r.problems:
        raise ConfigError("\n".join(problem.text for problem in r.problems))
    return options


def service_options(r: Resolved, index_type: str) -> ServiceOptions:
    """The options as they were given; a problem for each that contradicts another.

    The HBASE index tells by the rollbacks on the active timeline which of its entries count: they stay there.
    """
    regex = r.opt_text("hoodie.compaction.partition.path.regex")
    compaction = r.attempt(
        lambda: CompactionOptions(
            trigger=Trigger(r.text("hoodie.compact.inline.trigger.strategy")),
            max_delta_commits=r.number("hoodie.compact.inline.max.delta.commits"),
            max_delta_seconds=r.number("hoodie.compact.inline.max.delta.seconds"),
            strategy=strategy_of(r.text("hoodie.compaction.strategy")),
            target_io_mb=r.number("hoodie.compaction.target.io"),
            log_size_threshold=r.number("hoodie.compaction.logfile.size.threshold"),
            log_count_threshold=r.number("hoodie.compaction.logfile.num.threshold"),
            target_partitions=r.number("hoodie.compaction.daybased.target.partitions"),
            partition_regex=regex,
            max_memory=r.number("hoodie.memory.compaction.max.size"),
            base_file_bytes=r.number("hoodie.parquet.max.file.size"),
        ),
        CompactionOptions(),
        "hoodie.compaction.strategy",
        "hoodie.compaction.partition.path.regex",
    )
    mode = _mode(r)
    by_number = mode is not CompactionMode.OFF and compaction.trigger in _COUNTED
    return ServiceOptions(
        mode,
        compaction,
        _clean(r),
        _archive(r, index_type, compaction.max_delta_commits if by_number else None),
        clustering_options(r, index_type),
        clusters_beside=r.flag("hoodie.clustering.async.enabled"),
        cleans_beside=r.flag("hoodie.clean.async.enabled"),
        takes_back_clusterings=r.flag("hoodie.clustering.rollback.pending.replacecommit.on.conflict"),
    )


def _mode(r: Resolved) -> CompactionMode | None:
    inline, beside, planned = r.opt_flag(_COMPACT_INLINE), r.opt_flag(_COMPACT_ASYNC), r.flag(_SCHEDULE)
    if r.flag(_DISABLED):
        return CompactionMode.OFF
    if planned:
        for key, said in ((_COMPACT_INLINE, inline), (_COMPACT_ASYNC, beside)):
            if said:
                text = f"{r.said(_SCHEDULE)} and {r.said(key)}: one only plans compactions, the other runs them; remove one"
                r.problems.append(Problem(text, r.entries[key]))
        return CompactionMode.SCHEDULE
    if inline:
        return CompactionMode.INLINE
    if beside:
        return CompactionMode.ASYNC
    if inline is False and beside is False:
        return CompactionMode.OFF
    return CompactionMode.INLINE if beside is False else None


def _clean(r: Resolved) -> CleanOptions | None:
    if not r.flag("hoodie.clean.automatic"):
        return None
    return CleanOptions(
        policy=CleanPolicy(r.text("hoodie.clean.policy")),
        commits=r.number("hoodie.clean.commits.retained"),
        hours=r.number("hoodie.clean.hours.retained"),
        file_versions=r.number("hoodie.clean.fileversions.retained"),
        max_commits=r.number("hoodie.clean.trigger.max.commits"),
        incremental=r.flag("hoodie.clean.incremental.enabled"),
    )


def _archive(r: Resolved, index_type: str, compaction_deltas: int | None) -> ArchiveOptions | None:
    """As Hudi: what is kept active must be more than what the cleaner keeps."""
    if not r.flag("hoodie.archive.automatic"):
        return None
    retained, least, most = (r.number(key) for key in _KEPT)
    by_commits = r.flag("hoodie.clean.automatic") and r.text("hoodie.clean.policy") == "KEEP_LATEST_COMMITS"
    order = [*([(_KEPT[0], retained)] if by_commits else []), (_KEPT[1], least), (_KEPT[2], most)]
    for (key, number), (above, greater) in pairwise(order):
        if number >= greater:
            text = f"{key}={number} and {above}={greater}: the second must be greater than the first"
            given = r.entries.get(above) or r.entries.get(key)
            assert given is not None  # the defaults are in order
            r.problems.append(Problem(text, given))
            return None
    merge = MergeOptions(
        files=r.number("hoodie.archive.merge.files.batch.size"),
        small_bytes=r.number("hoodie.archive.merge.small.file.limit.bytes"),
    )
    return ArchiveOptions(
        min_commits=least,
        max_commits=most,
        merge=merge if r.flag("hoodie.archive.merge.enable") else None,
        compaction_deltas=compaction_deltas,
        keep_rollbacks=index_type == "HBASE",
        keep_uncompacted=True,
    )
