"""Which table services run during the stream, and how: compaction, clustering, cleaning, archiving."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from tagstream.index.registry import IndexOptions
from tagstream.streaming.options.keys.fixed import EXECUTION_KEY, PLAN_KEY, RESIZE_EXECUTION, RESIZE_PLAN
from tagstream.streaming.options.resolve import Problem, Resolved
from tagstream.table.config import ConfigKey, Kind
from tagstream.table.history.archive_merge import MergeOptions
from tagstream.table.option_fields import derived, key_name, names_of, option, read
from tagstream.table.services.clustering_options import ClusteringOptions, ResizeOptions
from tagstream.table.services.options import (
    TTL_KEY,
    ArchiveOptions,
    CleanOptions,
    CompactionOptions,
    Trigger,
    TtlOptions,
)
from tagstream.table.table_version import TableVersion

_CLUSTER_INLINE, _CLUSTER_ASYNC = "hoodie.clustering.inline", "hoodie.clustering.async.enabled"
_COMMITS = {_CLUSTER_INLINE: f"{_CLUSTER_INLINE}.max.commits", _CLUSTER_ASYNC: "hoodie.clustering.async.max.commits"}
_NEEDS_PLACES = ("HBASE", "BUCKET")
# The keys that the two classes compare with each other.
_COMPACTION_CHECKS = [key_name(CompactionOptions, name) for name in ("strategy", "partition_regex")]
_CLUSTERING_CHECKS = [
    key_name(ClusteringOptions, name) for name in ("filter", "first_partition", "last_partition", "partition_regex")
]


def clustering_options(r: Resolved, index: IndexOptions) -> ClusteringOptions | None:
    """The given options, None if the stream does not cluster; a problem for an index that cannot follow a clustering, and
    for strategies that are not the index's.
    """
    for key, resizes in ((PLAN_KEY, RESIZE_PLAN), (EXECUTION_KEY, RESIZE_EXECUTION)):
        if key in r.entries and (r.text(key) == resizes) != index.is_consistent:
            wanted = f"needs {key}={resizes}" if index.is_consistent else f"is for consistent hashing, not {resizes}"
            text = f"{r.said(key)}: hoodie.index.bucket.engine=CONSISTENT_HASHING {wanted}; remove it"
            r.problems.append(Problem(text, r.entries[key]))
    wanted = _CLUSTER_ASYNC if r.flag(_CLUSTER_ASYNC) else _CLUSTER_INLINE
    if not r.flag(wanted):
        return None
    if wanted == _CLUSTER_ASYNC and r.flag(_CLUSTER_INLINE):
        text = (
            f"{r.said(_CLUSTER_INLINE)} and {r.said(_CLUSTER_ASYNC)}: a clustering is executed either "
            f"between the batches or in parallel with them"
        )
        r.problems.append(Problem(f"{text}; remove one", r.entries[_CLUSTER_ASYNC]))
        return None
    if index.type in _NEEDS_PLACES and not index.is_consistent:
        reason = {
            "HBASE": "its entries would still name the replaced file groups",
            "BUCKET": "its file groups are the buckets of keys, and merged ones would not be",
        }[index.type]
        text = f"{r.said(wanted)} and hoodie.index.type={index.type}: {reason}; set the first to false"
        r.problems.append(Problem(text, r.entries[wanted]))
        return None
    return r.attempt(
        lambda: read(ClusteringOptions, r, max_commits=r.number(_COMMITS[wanted]), resize=_resize(r, index)),
        None,
        *_CLUSTERING_CHECKS,
    )


def _resize(r: Resolved, index: IndexOptions) -> ResizeOptions:
    return read(
        ResizeOptions,
        r,
        num_buckets=index.num_buckets,
        hash_fields=index.bucket_fields,
        key_release=index.bucket_key_release,
    )


# Sections of the documentation
_COMPACTION, _CLUSTERING, _CLEANING, _TTL = "Compaction", "Clustering", "Cleaning", "Partition TTL"
_COMPACT_INLINE, _COMPACT_ASYNC = "hoodie.compact.inline", "hoodie.datasource.compaction.async.enable"
_SCHEDULE = "hoodie.compact.schedule.inline"
_DISABLED = "hoodie.datasource.write.streaming.disable.compaction"
_COUNTED = (Trigger.NUM_COMMITS, Trigger.NUM_AND_TIME)
_KEPT = ("hoodie.clean.commits.retained", "hoodie.keep.min.commits", "hoodie.keep.max.commits")


class CompactionMode(Enum):
    """Who executes compactions: nobody, the job between two batches or in parallel with them, or another process."""

    OFF = "off"
    INLINE = "inline"
    ASYNC = "async"
    SCHEDULE = "schedule"


@dataclass(frozen=True)
class ServiceOptions:
    """``mode`` None: the table's version and the kind of run decide. A service whose options are None is not run.

    ``clusters_beside``, ``cleans_beside``: the work runs in parallel with the batches, not between two of them.
    ``rolls_back_clusterings``: another writer's plan is also rolled back if a batch has rows for its file groups.
    """

    mode: CompactionMode | None = derived(
        ConfigKey(
            "hoodie.compact.inline",
            Kind.BOOL,
            "Merge-on-read: after a batch, if a compaction is due, plan it and execute it before the next batch.",
            default_note="true, unless compactions run in parallel with the batches",
            section=_COMPACTION,
        ),
        ConfigKey(
            "hoodie.datasource.compaction.async.enable",
            Kind.BOOL,
            "Merge-on-read: plan compactions between two batches, and execute them in parallel with the "
            "next batches, as Spark tasks in a separate pool. On a table of version 6, hudi-rs misses the "
            "newest rows of the plan's file groups until the compaction completes, and so does a metadata "
            "table that Hudi 1.2 builds without the table's version.",
            default_note="true from table version 8 on in a continuous job",
            aliases=("compaction.async.enabled",),
            section=_COMPACTION,
        ),
        ConfigKey(
            "hoodie.compact.schedule.inline",
            Kind.BOOL,
            "Merge-on-read: only plan compactions; another process executes them (`tagstream services "
            "run`, Hudi, Flink).",
            default=False,
            section=_COMPACTION,
        ),
        ConfigKey(
            "hoodie.datasource.write.streaming.disable.compaction",
            Kind.BOOL,
            "No compaction is planned or executed.",
            default=False,
            flag="--disable-compaction",
            section=_COMPACTION,
        ),
        default=None,
    )
    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    clean: CleanOptions | None = derived(
        ConfigKey(
            "hoodie.clean.automatic",
            Kind.BOOL,
            "After a batch, delete files that only old queries would read.",
            default=True,
            section=_CLEANING,
        ),
        default=CleanOptions(),
    )
    archive: ArchiveOptions | None = derived(
        ConfigKey(
            "hoodie.archive.automatic",
            Kind.BOOL,
            "After a batch, move old instants from the active timeline to the archive.",
            default=True,
            section="Archiving",
        ),
        default=ArchiveOptions(),
    )
    clustering: ClusteringOptions | None = derived(
        ConfigKey(
            "hoodie.clustering.inline",
            Kind.BOOL,
            "After a batch, if a clustering is due, merge small file groups into new ones before the next "
            "batch. The index is updated and need not be loaded again.",
            default=False,
            aliases=("hoodie.datasource.clustering.inline.enable",),
            section=_CLUSTERING,
        ),
        default=None,
    )
    clusters_beside: bool = option(
        "hoodie.clustering.async.enabled",
        Kind.BOOL,
        "Plan clusterings between two batches, and execute them in parallel with the next batches, as "
        "Spark tasks in a separate pool. If a batch has rows for a file group of the plan, the plan is "
        "rolled back. So use this for tables whose older partitions do not change.",
        default=False,
        aliases=("hoodie.datasource.clustering.async.enable", "clustering.async.enabled"),
        section=_CLUSTERING,
    )
    cleans_beside: bool = option(
        "hoodie.clean.async.enabled",
        Kind.BOOL,
        "Plan cleans between two batches, and delete their files in parallel with the next batches.",
        default=False,
        aliases=("hoodie.clean.async", "clean.async.enabled"),
        section=_CLEANING,
    )
    ttl: TtlOptions | None = derived(
        ConfigKey(
            TTL_KEY,
            Kind.BOOL,
            "After a batch, delete the rows of partitions that are older than "
            "`hoodie.partition.ttl.strategy.days.retain`; the index forgets their keys.",
            default=False,
            section=_TTL,
        ),
        default=None,
    )
    rolls_back_clusterings: bool = option(
        "hoodie.clustering.rollback.pending.replacecommit.on.conflict",
        Kind.BOOL,
        "What happens with another writer's planned clustering when a batch has rows for its file "
        "groups: true rolls it back at once, for a plan that nobody will execute; false waits up to an "
        "hour until it is executed, and then ends the job.",
        default=False,
        section=_CLUSTERING,
    )

    def compaction_mode(self, version: int, *, merge_on_read: bool, continuous: bool) -> CompactionMode:
        """How logs are compacted into base files. In parallel with the batches only from table version 8 on, where every
        reader works with a pending plan."""
        if not merge_on_read:
            return CompactionMode.OFF
        if self.mode is not None:
            return self.mode
        return (
            CompactionMode.ASYNC
            if continuous and TableVersion.of(version).reads_pending_compactions
            else CompactionMode.INLINE
        )


def service_options(r: Resolved, index: IndexOptions) -> ServiceOptions:
    """The given options; a problem for each contradiction.

    The rollbacks on the active timeline decide which entries of the HBASE index count, so they are not archived.
    """
    compaction = r.attempt(lambda: read(CompactionOptions, r), CompactionOptions(), *_COMPACTION_CHECKS)
    mode = _mode(r)
    by_number = mode is not CompactionMode.OFF and compaction.trigger in _COUNTED
    return read(
        ServiceOptions,
        r,
        mode=mode,
        compaction=compaction,
        clean=read(CleanOptions, r) if r.flag("hoodie.clean.automatic") else None,
        archive=_archive(r, index.type, compaction.max_delta_commits if by_number else None),
        clustering=clustering_options(r, index),
        ttl=_ttl(r, index) if r.flag(TTL_KEY) else None,
    )


def _ttl(r: Resolved, index: IndexOptions) -> TtlOptions | None:
    if index.is_consistent:
        text = (
            f"{r.said(TTL_KEY)}: a deleted partition's ring (hoodie.index.bucket.engine=CONSISTENT_HASHING) would still "
            "name the deleted file groups, and later rows in them would not be read; set it to false"
        )
        r.problems.append(Problem(text, r.entries[TTL_KEY]))
    return ttl_options(r)


def ttl_options(r: Resolved) -> TtlOptions | None:
    """The given options; a problem without a number of days."""
    return r.attempt(lambda: read(TtlOptions, r), None, *names_of(TtlOptions))


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


def _archive(r: Resolved, index_type: str, compaction_deltas: int | None) -> ArchiveOptions | None:
    """As Hudi: more commits must be active than the cleaner retains."""
    if not r.flag("hoodie.archive.automatic"):
        return None
    retained, least, most = (r.number(key) for key in _KEPT)
    by_commits = r.flag("hoodie.clean.automatic") and r.text("hoodie.clean.policy") == "KEEP_LATEST_COMMITS"
    order = [*([(_KEPT[0], retained)] if by_commits else []), (_KEPT[1], least), (_KEPT[2], most)]
    for (key, number), (above, greater) in pairwise(order):
        if number >= greater:
            text = f"{key}={number} and {above}={greater}: the second must be greater than the first"
            given = r.entries.get(above) or r.entries.get(key)
            assert given is not None  # the defaults are ordered
            r.problems.append(Problem(text, given))
            return None
    return read(
        ArchiveOptions,
        r,
        merge=read(MergeOptions, r) if r.flag("hoodie.archive.merge.enable") else None,
        compaction_deltas=compaction_deltas,
        keep_rollbacks=index_type == "HBASE",
        keep_uncompacted=True,
    )
