"""``tagstream table upgrade`` and ``downgrade``: change the table version, with the writer lease held."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tagstream.cli.output import Column, Fact, Output
from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.upgrade import VersionChange, downgrade, plan_change, upgrade

_SETTINGS = (
    Column("key", "property"),
    Column("before", "before"),
    Column("after", "after"),
)
_DIRECTIONS = {"upgrade": upgrade, "downgrade": downgrade}
COMMANDS = frozenset(_DIRECTIONS)


def run_version(arguments: argparse.Namespace, out: Output, clock_ms: Callable[[], int]) -> int:
    """Show what a change of version does, and with ``--yes`` do it; returns the exit code."""
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
        out.note("nothing was changed; --yes in place of --dry-run does it")
        return 0
    if not arguments.yes:
        raise ConfigError(
            f"{command} rewrites the timeline of table {table.config.name} at {table.base_path}: look at what it would do "
            "with --dry-run, stop every writer, then say --yes"
        )
    with alone(table, clock_ms, command) as lease:
        out.progress(f"{command} from version {table.config.version} to {to}")
        done = _DIRECTIONS[command](table, to, clock_ms, lease.check)
    _report(out, table, done, changed=done.before != done.after)
    if done.before == done.after:
        left = "; what an earlier change had left is gone" if done.removed else ""
        out.note(f"the table had version {to} already{left}")
    else:
        out.note(f"start writers of the table with hoodie.write.table.version={to} from now on")
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


@contextmanager
def alone(table: HoodieTable, clock_ms: Callable[[], int], label: str) -> Iterator[LeaseKeeper]:
    """The table's writer lease; LeaseLostError names the job that holds it."""
    lease = LeaseKeeper(table.storage, clock_ms)
    try:
        lease.acquire(f"tagstream table {label}")
        yield lease
    finally:
        lease.release()
