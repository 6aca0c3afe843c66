"""``tagstream sync``: register a table at rest in a catalogue, or bring its entries up to its newest commit."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Sequence

from tagstream.catalog.catalog import Catalog
from tagstream.catalog.opened import open_catalogs, reader_warnings
from tagstream.catalog.options import TOOLS_KEY, SyncOptions
from tagstream.catalog.sync import EntryResult, commits_behind, sync_table
from tagstream.cli.command import Command, add_record_settings, add_table
from tagstream.cli.output import Column, Fact, Output
from tagstream.streaming.options.cli import entries_of
from tagstream.streaming.options.sync_options import sync_of
from tagstream.table.config import FROM_FLAG, Entry
from tagstream.table.meta_client.hoodie_table import HoodieTable

_ENTRIES = (
    Column("catalog", "catalogue"),
    Column("name", "entry"),
    Column("action", "action"),
    Column("added", "partitions added", "count"),
    Column("updated", "updated", "count"),
    Column("dropped", "dropped", "count"),
)
_BEHIND = (Column("catalog", "catalogue"), Column("behind", "commits behind"))


def _add_flags(out: argparse.ArgumentParser) -> None:
    add_table(out)
    add_record_settings(out)
    out.add_argument(TOOLS_KEY, metavar="CLASSES", help="as for the stream (default: HiveSyncTool)")
    out.add_argument("--dry-run", action="store_true", help="show how many commits the entries lack; change nothing")


def run_sync(arguments: argparse.Namespace, out: Output) -> int:
    """Sync with each catalogue; exit code 1 where one could not be reached, or refused something."""
    options = options_of(arguments.props, arguments.hoodie_conf, arguments.sync_tool_classes)
    table = HoodieTable.open(arguments.target_base_path)
    user, warnings = getpass.getuser(), reader_warnings(table.config, options)
    for warning in warnings:
        out.note(warning)
    out.facts(
        [
            Fact("table", "table", table.config.name),
            Fact("base_path", "path", table.base_path),
            Fact("warnings", "warnings", warnings, json_only=True),
        ]
    )
    catalogs = open_catalogs(options, user)
    try:
        if arguments.dry_run:
            out.listing("catalogs", _BEHIND, ((c.name, _behind(table, c, options)) for c in catalogs))
            return 0
        done: list[tuple[str, EntryResult]] = []
        for catalog in catalogs:
            result = sync_table(table, catalog, options, user)
            if result.cursor is None:
                out.note(f"table {table.config.name} has no commit: there is nothing to register")
            done += [(catalog.name, entry) for entry in result.entries]
        out.listing("entries", _ENTRIES, ((name, e.name, e.action, e.added, e.updated, e.dropped) for name, e in done))
    finally:
        for catalog in catalogs:
            catalog.close()
    return 0


def options_of(props: str | None, pairs: Sequence[str], tools: str | None) -> SyncOptions:
    """The options of the command's flags."""
    given = [] if tools is None else [Entry(TOOLS_KEY, tools, TOOLS_KEY, FROM_FLAG)]
    return sync_of([*entries_of([props] if props else [], pairs), *given])


def commits_behind_of(table: HoodieTable, props: str | None, pairs: Sequence[str]) -> list[str]:
    """Each catalogue that a job's properties switch on, and how many commits its entries lack."""
    options = sync_of(entries_of([props] if props else [], pairs), asked=False)
    found = []
    for catalog in open_catalogs(options, getpass.getuser()):
        try:
            number = commits_behind(table, table.timeline(), catalog, options)
            found.append(f"{catalog.name}: {'all' if number is None else f'{number:,}'}")
        finally:
            catalog.close()
    return found


def _behind(table: HoodieTable, catalog: Catalog, options: SyncOptions) -> str:
    found = commits_behind(table, table.timeline(), catalog, options)
    return "all of them: a sync looks at every partition" if found is None else f"{found:,}"


COMMANDS = (
    Command(
        "sync",
        "",
        "register a table in a catalogue, or bring its entry up to date",
        _add_flags,
        lambda arguments, out, _: run_sync(arguments, out),
    ),
)
