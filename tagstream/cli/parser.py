"""The list of the commands, and the parser that is made from it.

A new command has its parser, code and help in one file, and a line here. `OVERVIEW` names it, too; a test compares.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Final, NoReturn

from tagstream.cli.command import Command, count
from tagstream.table.errors import ConfigError

# Group, its commands ("": the group itself is one), and the file in cli/ that declares them. The help has this order.
_LIST: Final = (
    ("index", "get stats", "index"),
    ("index", "export", "index_export"),
    ("index", "import", "rescale"),
    ("index", "verify", "index_verify"),
    ("index", "advise", "advise"),
    ("table", "timeline commits files rows validate", "table"),
    ("table", "upgrade downgrade", "upgrade"),
    ("table", "changes", "table_changes"),
    ("table", "health", "table_health"),
    ("table", "compact cluster", "compact_cluster"),
    ("table", "clean archive savepoints savepoint restore rollback delete-partition ttl", "table_services"),
    ("table", "insert-overwrite dedup", "insert_overwrite"),
    ("table", "page", "table_page"),
    ("services", "run", "services_run"),
    ("quarantine", "list count show replay", "quarantine"),
    ("status", "", "status"),
    ("rescale", "", "rescale"),
    ("sync", "", "sync"),
    ("fetch-jars", "", "fetch_jars"),
)
# The modules are named here and imported when they are needed: reading a table needs neither RocksDB nor the stream's.
MODULES: Final = {(group, name): module for group, names, module in _LIST for name in names.split() or [""]}
_GROUP_HELP: Final = {
    "index": "the index in a checkpoint",
    "table": "a Hudi table",
    "services": "the table services in a separate process",
    "quarantine": "bad records that a job left out",
}
GROUPS: Final = tuple(dict.fromkeys(group for group, _ in MODULES))
OVERVIEW = """\
Upserts a change stream (a Kafka topic, or files of JSON lines) into an Apache Hudi table, and maintains such tables.

usage: tagstream stream --props FILE --target-base-path PATH --target-table NAME --checkpoint-dir PATH [--dry-run] ...
       tagstream COMMAND ...

commands:
  tagstream stream ...    the streaming job, the same as run_stream.py (also if only flags are given)
  tagstream index  ...    get, stats, export, import, verify: the index in a checkpoint; advise: choose an index
  tagstream table  ...    timeline, commits, files, rows, changes, validate, health, page: a Hudi table;
                          upgrade, downgrade: to another table version;
                          compact, cluster, clean, archive, savepoint, savepoints, restore, rollback,
                          delete-partition, ttl, insert-overwrite, dedup
  tagstream services run    compaction, cleaning and archiving in a separate process
  tagstream quarantine ...  list, show, count, replay: bad records that a job left out
  tagstream status ...    the state of a stream, and how its runs have ended
  tagstream rescale ...   a new checkpoint with another number of key groups
  tagstream sync ...      register a table in a Hive Metastore or Glue, or bring its entry up to date
  tagstream fetch-jars      the jars that Spark needs for Kafka and for checkpoints on S3, fetched in advance
  `tagstream COMMAND --help` lists the flags, `tagstream --version` the version; docs/operations/commands.md has examples"""


class _Parser(argparse.ArgumentParser):
    """Raises ConfigError and does not print the usage and exit, so that errors are reported in one way."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help")


def parser(argv: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of all commands of ``tagstream`` except the stream.

    ``argv``: the command line to parse. Only the command that it names then has flags and a help line, so that only its
    module is imported. Without ``argv``, or where it names no command of its group, all have them.
    """
    out = _Parser(prog="tagstream", allow_abbrev=False, description="Reads an index and a table, without Spark.")
    groups = out.add_subparsers(dest="group", required=True, metavar="COMMAND", parser_class=_Parser)
    named = None if argv is None else _named(argv)
    for group in GROUPS:
        names = [name for of, name in MODULES if of == group]
        if names == [""]:
            _add(groups, group, "", named)
            continue
        inner = groups.add_parser(group, help=_GROUP_HELP[group], allow_abbrev=False)
        commands = inner.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
        for name in names:
            _add(commands, group, name, named)
    return out


def command_of(arguments: argparse.Namespace) -> Command:
    """The command that parsed arguments name."""
    return load(arguments.group, getattr(arguments, "command", ""))


def load(group: str, name: str) -> Command:
    """Import the module of a command. ``name``: empty where the group itself is the command."""
    found: tuple[Command, ...] = import_module(f"tagstream.cli.{MODULES[group, name]}").COMMANDS
    return next(command for command in found if (command.group, command.name) == (group, name))


def _named(argv: Sequence[str]) -> tuple[str, str] | tuple[str, None]:
    """The group and the command that a command line begins with; None: the group's commands are all needed."""
    group = argv[0]
    for name in ("", *argv[1:2]):
        if (group, name) in MODULES:
            return group, name
    return group, None


def _add(
    commands: argparse._SubParsersAction[_Parser],
    group: str,
    name: str,
    named: tuple[str, str | None] | None,
) -> None:
    if named is not None and named not in ((group, name), (group, None)):
        commands.add_parser(name or group)  # only its name is needed
        return
    command = load(group, name)
    text = command.text
    out = commands.add_parser(
        name or group, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False
    )
    out.add_argument("--json", action="store_true", help="one JSON document and not text")
    out.add_argument(
        "--vertical", action="store_true", help="each row as lines, one column per line (wide tables: automatic)"
    )
    out.add_argument(
        "--width",
        metavar="N",
        type=count,
        default=100,
        help="shorten longer values to N characters; 0: never (default: 100)",
    )
    command.add_flags(out)
