"""``tagstream table health``: what is wrong with a table that a stream writes, and which key or command corrects it.

``readable``: a table for a command that changes nothing, even if its metadata table is lost.
"""

from __future__ import annotations

import argparse

from tagstream.cli.command import Clock, Command, add_record_settings, add_table
from tagstream.cli.output import Column, Fact, Output
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import listed_by_metadata
from tagstream.table.services.cleaning_plan import plan_table
from tagstream.table.services.health import HOUR_MS, Limits, figures_of, findings
from tagstream.table.services.options import CleanOptions

_FINDINGS = (Column("what", "what is wrong"), Column("remedy", "what corrects it"))


def readable(table: HoodieTable, out: Output) -> HoodieTable:
    """The table, without a metadata table that its properties name and whose folder is missing.

    A stream and the commands that change the table remove it from the properties.
    """
    if not table.has_lost_metadata_table:
        return table
    names = ", ".join(table.config.metadata_partitions)
    out.note(
        f"table {table.config.name}: its properties name a metadata table ({names}) that does not exist; it is ignored, "
        "and the next writer removes it from the properties"
    )
    return table.without_metadata_table()


def run_health(arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> int:
    """Show figures and findings. Exit code 1 when there is a finding."""
    table = listed_by_metadata(readable(HoodieTable.open(arguments.target_base_path), out))
    timeline, now_ms = table.timeline(), clock_ms()
    plan = plan_table(table, CleanOptions(commits=arguments.commits), now_ms, due=False)
    found = figures_of(table, timeline, now_ms, plan.size if plan is not None else 0)
    sizes, age = found.sizes, found.oldest_uncompacted_ms
    behind = []
    if arguments.props or arguments.hoodie_conf:
        from tagstream.cli.sync import commits_behind_of  # which imports the options of a stream

        behind = commits_behind_of(table, arguments.props, arguments.hoodie_conf)
    out.facts(
        [
            Fact("table", "table", table.config.name),
            Fact("base_path", "path", table.base_path),
            Fact("file_groups", "file groups", sizes.file_groups, "count"),
            Fact("small_files", "small ones", sizes.small_files, "count"),
            Fact("bytes", "bytes in the newest slices", sizes.bytes, "bytes"),
            Fact("old_bytes", "bytes that a clean would free", found.old_bytes, "bytes"),
            Fact("log_files", "log files", sizes.log_files, "count"),
            Fact("deepest_log", "log files of a slice, at most", sizes.deepest_log, "count"),
            Fact("oldest_log_hours", "age of the oldest log (hours)", None if age is None else round(age / HOUR_MS, 2)),
            Fact("active", "completed writes on the timeline", found.active, "count"),
            Fact("pending", "unfinished actions", [f"{i.action} {i.time}" for i in found.pending]),
            Fact("savepoints", "savepoints", found.savepoints, "count"),
            Fact("metadata_deltas", "metadata table: delta commits since its compaction", found.metadata_deltas),
            *([Fact("sync_behind", "commits that catalogues lack", behind)] if behind else []),
        ]
    )
    wrong = list(findings(table, timeline, found, now_ms, Limits(log_files=arguments.max_log_files)))
    out.listing("findings", _FINDINGS, ((f.what, f.remedy) for f in wrong))
    if not wrong:
        out.note("nothing is wrong")
    return 1 if wrong else 0


def _add_flags(out: argparse.ArgumentParser) -> None:
    add_table(out)
    out.add_argument(
        "--max-log-files", type=int, metavar="N", default=20, help="log files that a slice may have (default: 20)"
    )
    out.add_argument("--commits", type=int, metavar="N", default=10, help="hoodie.clean.commits.retained (default: 10)")
    add_record_settings(out)


COMMANDS = (
    Command(
        "table",
        "health",
        "what is wrong with the table, and which key or command corrects it; exit code 1 in this case",
        _add_flags,
        run_health,
    ),
)
