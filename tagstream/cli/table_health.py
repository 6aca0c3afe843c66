"""``tagstream table health``: what is wrong with a table that a stream writes, and which key or command corrects it.

``readable``: a table for a command that changes nothing, also where its metadata table is lost.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tagstream.cli.output import Column, Fact, Output
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import listed_by_metadata
from tagstream.table.services.cleaning_plan import plan_table
from tagstream.table.services.health import HOUR_MS, Limits, figures_of, findings
from tagstream.table.services.options import CleanOptions


def readable(table: HoodieTable, out: Output) -> HoodieTable:
    """The table, without a metadata table that its properties name and whose folder is not there.

    A stream and the commands that change the table take it out of the properties.
    """
    if not table.has_lost_metadata_table:
        return table
    names = ", ".join(table.config.metadata_partitions)
    out.note(
        f"table {table.config.name}: its properties name a metadata table ({names}) that is not there; it is passed over, "
        "and the next writer drops it"
    )
    return table.without_metadata_table()


_FINDINGS = (Column("what", "what is wrong"), Column("remedy", "what corrects it"))


def run_health(arguments: argparse.Namespace, out: Output, clock_ms: Callable[[], int]) -> int:
    """Show figures and findings; exit code 1 when there is a finding."""
    table = listed_by_metadata(readable(HoodieTable.open(arguments.target_base_path), out))
    timeline, now_ms = table.timeline(), clock_ms()
    plan = plan_table(table, CleanOptions(commits=arguments.commits), now_ms, due=False)
    found = figures_of(table, timeline, now_ms, plan.size if plan is not None else 0)
    sizes, age = found.sizes, found.oldest_uncompacted_ms
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
        ]
    )
    wrong = list(findings(table, timeline, found, now_ms, Limits(log_files=arguments.max_log_files)))
    out.listing("findings", _FINDINGS, ((f.what, f.remedy) for f in wrong))
    if not wrong:
        out.note("nothing is wrong")
    return 1 if wrong else 0
