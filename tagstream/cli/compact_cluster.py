"""``tagstream table compact`` and ``cluster``: show a plan, schedule it, or execute it.

A compaction is for a merge-on-read table. A pending clustering can also be rolled back (``--take-back``).
"""

from __future__ import annotations

import argparse

from tagstream.cli.command import Clock
from tagstream.cli.exclusive import Exclusive, changing
from tagstream.cli.output import Column, Fact, Output
from tagstream.table.errors import ConfigError
from tagstream.table.file_group.names import next_instant
from tagstream.table.keys.hash_fields import RELEASES
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.services.clustering import ClusteringResult, cluster, rollback_clustering
from tagstream.table.services.clustering_options import ClusteringOptions, ResizeOptions
from tagstream.table.services.clustering_plan import plan_clustering, schedule_clustering
from tagstream.table.services.compaction import CompactionResult, compact
from tagstream.table.services.compaction_plan import plan_compaction, schedule_compaction
from tagstream.table.services.options import CompactionOptions, strategy_of
from tagstream.table.services.plans import read_clustering, read_operations
from tagstream.table.timeline.instant import COMPACTION
from tagstream.table.timeline.timeline import Timeline

_OPERATIONS = (
    Column("partition_path", "partition"),
    Column("file_id", "file group", "name"),
    Column("log_files", "log files", "count"),
    Column("base_file", "", json_only=True),
)
_PLAN = "hoodie.clustering.plan.strategy"
_GROUPS = (
    Column("partition_path", "partition"),
    Column("file_groups", "file groups", "count"),
    Column("outputs", "become", "count"),
    Column("file_ids", "", json_only=True),
)


def _add_compact(out: argparse.ArgumentParser) -> None:
    which = out.add_mutually_exclusive_group()
    which.add_argument("--schedule", action="store_true", help="only plan; another process executes the plan")
    which.add_argument("--execute", metavar="T", help="only execute the plan of instant T")
    out.add_argument(
        "--strategy",
        metavar="CLASS",
        default="LogFileSizeBasedCompactionStrategy",
        help="hoodie.compaction.strategy: which slices (default: LogFileSizeBasedCompactionStrategy)",
    )
    out.add_argument(
        "--target-io", type=int, metavar="MB", default=512_000, help="hoodie.compaction.target.io (default: 512000)"
    )
    out.add_argument("--partition-regex", metavar="REGEX", help="hoodie.compaction.partition.path.regex")


def _show_compact(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> None:
    """Show the plan that would be scheduled, or the content of a pending one (``--execute``)."""
    timeline = table.timeline()
    pending = _pending_compactions(timeline)
    out.facts([Fact("pending", "pending plans", pending)])
    if arguments.execute is not None:
        found = read_operations(table, _checked(table, "compaction", arguments.execute, pending))
        rows = [(o.partition_path, o.file_id, len(o.log_files), o.base_file) for o in found]
    else:
        plan = (
            plan_compaction(table, timeline, table.view(timeline), _compaction_options(arguments), clock_ms(), "0")
            or {}
        )
        rows = [
            (o["partitionPath"], o["fileId"], len(o["deltaFilePaths"]), o["dataFilePath"])
            for o in plan.get("operations", ())
        ]
    out.listing("operations", _OPERATIONS, rows)


def _compact(
    table: HoodieTable,
    arguments: argparse.Namespace,
    out: Output,
    clock_ms: Clock,
    alone: Exclusive,
) -> bool:
    """Execute the pending plans and one that is planned now. ``--schedule``: only plan. ``--execute``: only that plan.

    Returns whether something was planned or executed.
    """
    options = _compaction_options(arguments)
    pending = _pending_compactions(table.timeline())
    if arguments.schedule:
        with alone.hold("planning of a compaction"):
            planned = schedule_compaction(table, options, clock_ms, alone.check, force=True)
        out.facts([Fact("planned", "planned", planned, "name")])
        return planned is not None
    todo = pending if arguments.execute is None else [_checked(table, "compaction", arguments.execute, pending)]

    def carry_out(instant: str) -> CompactionResult:
        return compact(table, instant, clock_ms, alone.check, options=options, hold=alone.hold)

    done = [carry_out(instant) for instant in todo]
    if arguments.execute is None:
        with alone.hold("planning of a compaction"):
            planned = schedule_compaction(table, options, clock_ms, alone.check, force=True)
        done += [] if planned is None else [carry_out(planned)]
    out.facts(
        [
            Fact("instants", "compactions", [result.instant for result in done]),
            Fact("files", "base files written", sum(len(result.statuses) for result in done), "count"),
            Fact("bytes", "bytes written", sum(s.stat.file_size for r in done for s in r.statuses), "bytes"),
        ]
    )
    return bool(done)


def _compaction_options(arguments: argparse.Namespace) -> CompactionOptions:
    return CompactionOptions(
        strategy=strategy_of(arguments.strategy),
        target_io_mb=arguments.target_io,
        partition_regex=arguments.partition_regex,
    )


def _add_cluster(out: argparse.ArgumentParser) -> None:
    defaults = ClusteringOptions()
    which = out.add_mutually_exclusive_group()
    which.add_argument("--schedule", action="store_true", help="only plan; another process executes the plan")
    which.add_argument("--execute", metavar="T", help="only execute the plan of instant T")
    which.add_argument("--take-back", metavar="T", help="roll back the plan of instant T and its files")
    out.add_argument("--sort-columns", metavar="A,B", help=f"{_PLAN}.sort.columns (default: rows keep their order)")
    for flag, default, key in (
        ("small-file-limit", defaults.small_file_limit, "small.file.limit"),
        ("target-file-bytes", defaults.target_file_bytes, "target.file.max.bytes"),
        ("max-groups", defaults.max_groups, "max.num.groups"),
    ):
        out.add_argument(
            f"--{flag}", type=int, metavar="N", default=default, help=f"{_PLAN}.{key} (default: {default})"
        )
    out.add_argument("--partition-regex", metavar="REGEX", help=f"{_PLAN}.partition.regex.pattern")
    resize = out.add_argument_group("consistent hashing", "the table's buckets are split and merged")
    for flag, kind, unset, key in (
        ("max-buckets", int, None, "max.num.buckets"),
        ("min-buckets", int, None, "min.num.buckets"),
        ("split-threshold", float, defaults.resize.split_threshold, "split.threshold"),
        ("merge-threshold", float, defaults.resize.merge_threshold, "merge.threshold"),
    ):
        shown = "the number a partition began with" if unset is None else unset
        resize.add_argument(
            f"--{flag}", type=kind, metavar="N", default=unset, help=f"hoodie.bucket.index.{key} (default: {shown})"
        )
    most = defaults.resize.max_file_bytes
    resize.add_argument(
        "--max-file-bytes", type=int, metavar="N", default=most, help=f"hoodie.parquet.max.file.size (default: {most})"
    )
    resize.add_argument(
        "--hash-fields", metavar="A,B", help="hoodie.bucket.index.hash.field (default: the record key fields)"
    )
    resize.add_argument(
        "--key-release", choices=RELEASES, default="1.x", help="tagstream.bucket.index.key.release (default: 1.x)"
    )


def _show_cluster(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> None:
    """Show the plan that would be scheduled, or the content of a pending one (``--execute``, ``--take-back``)."""
    pending = _pending_clusterings(table)
    out.facts([Fact("pending", "pending plans", pending)])
    named = arguments.execute or arguments.take_back
    if named is not None:
        found = read_clustering(table, _checked(table, "clustering", named, pending)).groups
        rows = [(g.partition_path, len(g.slices), g.outputs, list(g.file_ids)) for g in found]
    else:
        timeline, now_ms = table.timeline(), clock_ms()
        instant = next_instant(now_ms, timeline.newest, table.config.timezone_utc)
        plan = (
            plan_clustering(table, timeline, table.view(timeline), _clustering_options(arguments), now_ms, instant)
            or {}
        )
        groups = (plan.get("clusteringPlan") or {}).get("inputGroups") or ()
        rows = [
            (
                g["slices"][0]["partitionPath"],
                len(g["slices"]),
                g["numOutputFileGroups"],
                [s["fileId"] for s in g["slices"]],
            )
            for g in groups
        ]
    out.listing("groups", _GROUPS, rows)


def _cluster(
    table: HoodieTable,
    arguments: argparse.Namespace,
    out: Output,
    clock_ms: Clock,
    alone: Exclusive,
) -> bool:
    """Execute the pending plans and one that is planned now. ``--schedule``: only plan. ``--execute``: only that plan.
    ``--take-back``: roll back that plan and its files.

    Returns whether something was planned, executed or rolled back.
    """
    table.check_writable(keeps_metadata=True)
    options, pending = _clustering_options(arguments), _pending_clusterings(table)
    if arguments.take_back is not None:
        instant = _checked(table, "clustering", arguments.take_back, pending)
        with alone.hold(f"rollback of clustering {instant}"):
            time = fresh_times(table, MetadataWriter.open(table), clock_ms)()
            taken = rollback_clustering(table, instant, time, alone.check)
        out.facts(
            [Fact("taken_back", "rolled back", instant, "name"), Fact("rollback", "rollback", taken.instant, "name")]
        )
        return True
    if arguments.schedule:
        with alone.hold("planning of a clustering"):
            planned = schedule_clustering(table, options, clock_ms, alone.check, force=True, look_at_all=True)
        out.facts([Fact("planned", "planned", planned, "name")])
        return planned is not None
    todo = pending if arguments.execute is None else [_checked(table, "clustering", arguments.execute, pending)]

    def carry_out(instant: str) -> ClusteringResult:
        return cluster(
            table, instant, clock_ms, alone.check, max_memory=options.max_memory, hold=alone.hold, resize=options.resize
        )

    done = [carry_out(instant) for instant in todo]
    if arguments.execute is None:
        with alone.hold("planning of a clustering"):
            planned = schedule_clustering(table, options, clock_ms, alone.check, force=True, look_at_all=True)
        done += [] if planned is None else [carry_out(planned)]
    out.facts(
        [
            Fact("instants", "clusterings", [result.instant for result in done]),
            Fact(
                "replaced", "file groups replaced", sum(len(ids) for r in done for ids in r.replaced.values()), "count"
            ),
            Fact("files", "base files written", sum(len(result.statuses) for result in done), "count"),
            Fact("bytes", "bytes written", sum(s.stat.file_size for r in done for s in r.statuses), "bytes"),
        ]
    )
    return bool(done)


def _clustering_options(arguments: argparse.Namespace) -> ClusteringOptions:
    return ClusteringOptions(
        small_file_limit=arguments.small_file_limit,
        target_file_bytes=arguments.target_file_bytes,
        max_groups=arguments.max_groups,
        sort_columns=_names(arguments.sort_columns),
        partition_regex=arguments.partition_regex,
        resize=ResizeOptions(
            most=arguments.max_buckets,
            least=arguments.min_buckets,
            split_threshold=arguments.split_threshold,
            merge_threshold=arguments.merge_threshold,
            max_file_bytes=arguments.max_file_bytes,
            hash_fields=_names(arguments.hash_fields),
            key_release=arguments.key_release,
        ),
    )


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _pending_compactions(timeline: Timeline) -> list[str]:
    return [i.time for i in timeline.pending if i.action == COMPACTION]


def _pending_clusterings(table: HoodieTable) -> list[str]:
    return sorted(set(table.timeline().pending_clusterings.values()))


def _checked(table: HoodieTable, service: str, instant: str, pending: list[str]) -> str:
    if instant not in pending:
        raise ConfigError(
            f"table {table.config.name} at {table.base_path} has no pending {service} {instant}; "
            f"pending: {', '.join(pending) or 'none'}"
        )
    return instant


COMMANDS = (
    changing(
        "compact",
        "merge-on-read: merge the log files of file slices into new base files",
        _add_compact,
        _show_compact,
        _compact,
    ),
    changing(
        "cluster",
        "merge small file groups into new ones, sorted by columns if requested; split and merge buckets",
        _add_cluster,
        _show_cluster,
        _cluster,
    ),
)
