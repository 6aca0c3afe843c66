"""``tagstream table upgrade`` and ``downgrade``: change the table version, with the writer lease held."""

from __future__ import annotations

import argparse
from functools import partial

from tagstream.cli.command import Clock, Command, add_lock_settings, add_table
from tagstream.cli.exclusive import exclusive
from tagstream.cli.output import Column, Fact, Output
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.upgrade import VersionChange, downgrade, plan_change, upgrade
from tagstream.table.table_version import VERSIONS

_SETTINGS = (
    Column("key", "property"),
    Column("before", "before"),
    Column("after", "after"),
)
_DIRECTIONS = {"upgrade": upgrade, "downgrade": downgrade}


def run_version(arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> int:
    """Show what a change of version does, and with ``--yes`` do it. Return the exit code."""
    table = HoodieTable.open(arguments.target_base_path)
    to, command = arguments.to, arguments.command
    up = command == "upgrade"
    if (to < table.config.version) if up else (to > table.config.version):
        other = "downgrade" if up else "upgrade"
        raise ConfigError(
            f"table {table.config.name} has version {table.config.version}: `tagstream table {other}` brings it to {to}"
        )
    if arguments.dry_run:
        _report(out, table, plan_change(table, to), changed=False)
        out.note("nothing was changed; replace --dry-run by --yes to do it")
        return 0
    if not arguments.yes:
        raise ConfigError(
            f"{command} rewrites the timeline of table {table.config.name} at {table.base_path}: check what it would do "
            "with --dry-run, stop every writer, then give --yes"
        )
    label = f"table {command}"
    with exclusive(table, arguments, clock_ms, label) as alone, alone.hold(label):
        out.progress(f"{command} from version {table.config.version} to {to}")
        done = _DIRECTIONS[command](table, to, clock_ms, alone.check)
    _report(out, table, done, changed=done.before != done.after)
    if done.before == done.after:
        left = "; files of an earlier, unfinished change were removed" if done.removed else ""
        out.note(f"the table already had version {to}{left}")
    else:
        out.note(f"from now on start writers of the table with hoodie.write.table.version={to}")
    return 0


def _report(out: Output, table: HoodieTable, change: VersionChange, changed: bool) -> None:
    out.facts(
        [
            Fact("table", "table", table.config.name),
            Fact("base_path", "path", table.base_path),
            Fact("before", "version before", change.before, "count"),
            Fact("after", "version after", change.after, "count"),
            Fact("changed", "changed", changed),
            Fact("actions", "active actions rewritten", change.active, "count"),
            Fact("archived", "archived actions rewritten", change.archived, "count"),
            Fact("rolled_back", "failed writes rolled back", list(change.failed)),
            Fact("compacted", "file slices compacted", change.compacted, "count"),
            Fact("metadata_partitions", "metadata table dropped", list(change.metadata)),
            Fact("dropped_indexes", "index definitions dropped", list(change.dropped_indexes), json_only=True),
            Fact("removed", "files of the other layout", list(change.removed), json_only=True),
        ]
    )
    rows = ((key, before, after) for key, (before, after) in sorted(change.settings.items()))
    out.listing("settings", _SETTINGS, rows)


def _add_flags(out: argparse.ArgumentParser, versions: tuple[int, ...]) -> None:
    add_table(out)
    out.add_argument("--to", type=int, choices=versions, required=True, help="the table version")
    out.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
    out.add_argument("--yes", action="store_true", help="do it; no other writer may run on the table")
    add_lock_settings(out)


_KNOWN = tuple(sorted(VERSIONS))
COMMANDS = (
    Command(
        "table",
        "upgrade",
        "bring the table to a higher table version, with its timeline and archive",
        partial(_add_flags, versions=_KNOWN[1:]),
        run_version,
    ),
    Command(
        "table",
        "downgrade",
        "bring the table to a lower table version, with its timeline and archive",
        partial(_add_flags, versions=_KNOWN[:-1]),
        run_version,
    ),
)
