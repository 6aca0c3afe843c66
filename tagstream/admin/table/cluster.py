"""``tagstream table cluster``: plan a clustering, carry a plan out, both, or take a plan back."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tagstream.admin.output import Column, Fact, Output
from tagstream.table.errors import ConfigError
from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.services.clustering.execute import cluster
from tagstream.table.services.clustering.groups import read_clustering
from tagstream.table.services.clustering.options import ClusteringOptions
from tagstream.table.services.clustering.plan import plan_clustering, schedule_clustering
from tagstream.table.services.clustering.withdraw import rollback_clustering

_GROUPS = (
    Column("partition_path", "partition"),
    Column("file_groups", "file groups", "count"),
    Column("outputs", "become", "count"),
    Column("file_ids", "", json_only=True),
)


def show_cluster(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Callable[[], int]) -> None:
    """What would be planned, or what is in a plan."""
    pending = _pending(table)
    out.facts([Fact("pending", "plans to be carried out", pending)])
    named = arguments.execute or arguments.take_back
    if named is not None:
        found = read_clustering(table, _known(table, named, pending)).groups
        rows = [(g.partition_path, len(g.slices), g.outputs, list(g.file_ids)) for g in found]
    else:
        timeline, now_ms = table.timeline(), clock_ms()
        instant = next_instant(now_ms, timeline.newest, table.config.timezone_utc)
        plan = plan_clustering(table, timeline, table.view(timeline), _options(arguments), now_ms, instant) or {}
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


def run_cluster(
    table: HoodieTable,
    arguments: argparse.Namespace,
    out: Output,
    clock_ms: Callable[[], int],
    check: Callable[[], None],
) -> bool:
    """Carry out what is pending and what is planned now. ``--schedule``: only plan, ``--execute``: only that plan,
    ``--take-back``: remove that plan and what was written of it."""
    table.check_writable(keeps_metadata=True)
    options, pending = _options(arguments), _pending(table)
    if arguments.take_back is not None:
        instant = _known(table, arguments.take_back, pending)
        time = fresh_times(table, MetadataWriter.open(table), clock_ms)()
        taken = rollback_clustering(table, instant, time, check)
        out.facts(
            [Fact("taken_back", "taken back", instant, "name"), Fact("rollback", "rollback", taken.instant, "name")]
        )
        return True
    if arguments.schedule:
        planned = schedule_clustering(table, options, clock_ms, check, force=True, look_at_all=True)
        out.facts([Fact("planned", "planned", planned, "name")])
        return planned is not None
    todo = pending if arguments.execute is None else [_known(table, arguments.execute, pending)]
    done = [cluster(table, instant, clock_ms, check, max_memory=options.max_memory) for instant in todo]
    if arguments.execute is None:
        planned = schedule_clustering(table, options, clock_ms, check, force=True, look_at_all=True)
        done += [] if planned is None else [cluster(table, planned, clock_ms, check, max_memory=options.max_memory)]
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


def _options(arguments: argparse.Namespace) -> ClusteringOptions:
    return ClusteringOptions(
        small_file_limit=arguments.small_file_limit,
        target_file_bytes=arguments.target_file_bytes,
        max_groups=arguments.max_groups,
        sort_columns=tuple(name.strip() for name in (arguments.sort_columns or "").split(",") if name.strip()),
        partition_regex=arguments.partition_regex,
    )


def _pending(table: HoodieTable) -> list[str]:
    return sorted(set(table.timeline().pending_clusterings.values()))


def _known(table: HoodieTable, instant: str, pending: list[str]) -> str:
    if instant not in pending:
        raise ConfigError(
            f"table {table.config.name} at {table.base_path} has no pending clustering {instant}; "
            f"pending: {', '.join(pending) or 'none'}"
        )
    return instant
