"""``tagstream table compact``: plan a compaction of a merge-on-read table, carry a plan out, or both."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tagstream.admin.output import Column, Fact, Output
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.compaction.execute import compact
from tagstream.table.services.compaction.operations import read_operations
from tagstream.table.services.compaction.options import CompactionOptions, strategy_of
from tagstream.table.services.compaction.plan import plan_compaction, schedule_compaction
from tagstream.table.timeline.instant import COMPACTION

_OPERATIONS = (
    Column("partition_path", "partition"),
    Column("file_id", "file group", "name"),
    Column("log_files", "log files", "count"),
    Column("base_file", "", json_only=True),
)


def show_compact(table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Callable[[], int]) -> None:
    """What would be planned, or what is in a plan."""
    timeline = table.timeline()
    pending = [i.time for i in timeline.pending if i.action == COMPACTION]
    out.facts([Fact("pending", "plans to be carried out", pending)])
    if arguments.execute is not None:
        found = read_operations(table, _known(table, arguments.execute, pending))
        rows = [(o.partition_path, o.file_id, len(o.log_files), o.base_file) for o in found]
    else:
        plan = plan_compaction(table, timeline, table.view(timeline), _options(arguments), clock_ms(), "0") or {}
        rows = [
            (o["partitionPath"], o["fileId"], len(o["deltaFilePaths"]), o["dataFilePath"])
            for o in plan.get("operations", ())
        ]
    out.listing("operations", _OPERATIONS, rows)


def run_compact(
    table: HoodieTable,
    arguments: argparse.Namespace,
    out: Output,
    clock_ms: Callable[[], int],
    check: Callable[[], None],
) -> bool:
    """Carry out what is pending and what is planned now; ``--schedule``: only plan, ``--execute``: only that plan."""
    options = _options(arguments)
    pending = [i.time for i in table.timeline().pending if i.action == COMPACTION]
    if arguments.schedule:
        planned = schedule_compaction(table, options, clock_ms, check, force=True)
        out.facts([Fact("planned", "planned", planned, "name")])
        return planned is not None
    todo = pending if arguments.execute is None else [_known(table, arguments.execute, pending)]
    done = [compact(table, instant, clock_ms, check, options=options) for instant in todo]
    if arguments.execute is None:
        planned = schedule_compaction(table, options, clock_ms, check, force=True)
        done += [] if planned is None else [compact(table, planned, clock_ms, check, options=options)]
    out.facts(
        [
            Fact("instants", "compactions", [result.instant for result in done]),
            Fact("files", "base files written", sum(len(result.statuses) for result in done), "count"),
            Fact("bytes", "bytes written", sum(s.stat.file_size for r in done for s in r.statuses), "bytes"),
        ]
    )
    return bool(done)


def _options(arguments: argparse.Namespace) -> CompactionOptions:
    return CompactionOptions(
        strategy=strategy_of(arguments.strategy),
        target_io_mb=arguments.target_io,
        partition_regex=arguments.partition_regex,
    )


def _known(table: HoodieTable, instant: str, pending: list[str]) -> str:
    if instant not in pending:
        raise ConfigError(
            f"table {table.config.name} at {table.base_path} has no pending compaction {instant}; "
            f"pending: {', '.join(pending) or 'none'}"
        )
    return instant
