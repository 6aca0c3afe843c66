"""What the user wants of clustering."""

from __future__ import annotations

from tagstream.streaming.options.resolve import Problem, Resolved
from tagstream.table.services.clustering.options import ClusteringOptions, PartitionFilter

_INLINE, _ASYNC = "hoodie.clustering.inline", "hoodie.clustering.async.enabled"
_PLAN = "hoodie.clustering.plan.strategy."
_COMMITS = {_INLINE: f"{_INLINE}.max.commits", _ASYNC: "hoodie.clustering.async.max.commits"}
_NEEDS_PLACES = ("HBASE", "BUCKET")


def clustering_options(r: Resolved, index_type: str) -> ClusteringOptions | None:
    """The options as they were given, None where the stream clusters nothing; a problem for an index that cannot follow."""
    wanted = _ASYNC if r.flag(_ASYNC) else _INLINE
    if not r.flag(wanted):
        return None
    if wanted == _ASYNC and r.flag(_INLINE):
        text = f"{r.said(_INLINE)} and {r.said(_ASYNC)}: a clustering is carried out between the batches or beside them"
        r.problems.append(Problem(f"{text}; remove one", r.entries[_ASYNC]))
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
