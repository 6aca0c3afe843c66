"""Which tables a job of several has, and the options of each: common properties, a file of its own, one command line.

As HoodieMultiTableStreamer reads them (Hudi 1.2): ``hoodie.streamer.ingestion.tablesToBeIngested`` names tables as
``db.table``, ``hoodie.streamer.ingestion.<db>.<table>.configFile`` the file of one, else it is
``<config folder>/<db>_<table>_config.properties``. A table lies at ``<base path prefix>/<db>/<table>``, unless its file has
``hoodie.streamer.ingestion.targetBasePath``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from tagstream.streaming.options.checks import are_nested
from tagstream.streaming.options.cli import command_line_entries
from tagstream.streaming.options.options import Options, build_options
from tagstream.streaming.options.props_file import read_properties
from tagstream.streaming.source.files.clean import CLEAN_KEY
from tagstream.table.config import FROM_FILE, FROM_FLAG, Entry
from tagstream.table.errors import ConfigError

CONFIG_FOLDER, PREFIX, CHECKPOINT = "--config-folder", "--base-path-prefix", "--checkpoint-dir"
INGESTION = "hoodie.streamer.ingestion."
TABLES, TARGET = f"{INGESTION}tablesToBeIngested", f"{INGESTION}targetBasePath"
_OLD = "hoodie.deltastreamer.ingestion."
_DEFAULT_DATABASE = "default"
_OF_ONE = {"hoodie.base.path": "--target-base-path", "hoodie.table.name": "--target-table"}


@dataclass(frozen=True)
class NamedTable:
    """One of the tables: ``name`` is ``db.table``."""

    name: str
    options: Options


def names_several(argv: Sequence[str]) -> bool:
    """Whether a command line is one of several tables."""
    return any(word.partition("=")[0] in (CONFIG_FOLDER, PREFIX) for word in argv)


def table_list(argv: Sequence[str], program: str) -> list[NamedTable]:
    """The tables in their order; ConfigError names the table, the file and what is wrong."""
    entries = command_line_entries(argv, program)
    ours = {e.key: e.value for e in entries if e.key in (CONFIG_FOLDER, PREFIX, CHECKPOINT)}
    missing = [flag for flag in (CONFIG_FOLDER, PREFIX, CHECKPOINT) if not ours.get(flag)]
    if missing:
        raise ConfigError(f"several tables in one job need {', '.join(missing)}; give {missing[0]}")
    for entry in entries:
        if entry.rank == FROM_FLAG and entry.key in _OF_ONE:
            raise ConfigError(f"{entry.origin} is of one table; name it in the table's own file, or leave it out")
    told = {_new(e.key): e for e in entries if _new(e.key).startswith(INGESTION)}
    if TABLES not in told:
        raise ConfigError(f"{TABLES} is missing; name the tables with it, as db.table, with commas between them")
    names = [name.strip() for name in told[TABLES].value.split(",") if name.strip()]
    if len(set(names)) != len(names) or not names:
        raise ConfigError(f"{TABLES} = {told[TABLES].value} ({told[TABLES].origin}): name each table once")
    common = [e for e in entries if not _new(e.key).startswith(INGESTION) and e.key not in ours]
    tables = [_table(name, common, told, ours) for name in names]
    _check_ports(tables)
    _check_cleaned(tables)
    return tables


def _table(name: str, common: Sequence[Entry], told: dict[str, Entry], ours: dict[str, str]) -> NamedTable:
    database, dot, table = name.partition(".")
    database, table = (database, table) if dot else (_DEFAULT_DATABASE, name)
    named = told.get(f"{INGESTION}{database}.{table}.configFile")
    file = named.value if named is not None else f"{ours[CONFIG_FOLDER]}/{database}_{table}_config.properties"
    own = read_properties(Path(file.removeprefix("file://")), FROM_FILE)
    target = next((e.value for e in reversed(own) if _new(e.key) == TARGET), None)
    places = {
        "hoodie.base.path": target or f"{ours[PREFIX].rstrip('/')}/{database}/{table}",
        CHECKPOINT: f"{ours[CHECKPOINT].rstrip('/')}/{database}/{table}",
    }
    given = {e.key for e in own}
    defaults = {"hoodie.table.name": table, **({"hoodie.database.name": database} if dot else {})}
    entries = [
        *(e for e in common if e.key not in _OF_ONE),
        *(e for e in own if not _new(e.key).startswith(INGESTION)),
        *(Entry(key, value, TABLES, FROM_FILE) for key, value in defaults.items() if key not in given),
        *(Entry(key, value, CHECKPOINT if key == CHECKPOINT else PREFIX, FROM_FLAG) for key, value in places.items()),
    ]
    try:
        options = build_options(entries)
    except ConfigError as e:
        raise ConfigError(f"table {database}.{table} ({file}): {e}") from e
    for flag, asked in (("--bootstrap-only", options.bootstrap_only), ("--dry-run", options.dry_run)):
        if asked:
            raise ConfigError(f"{flag} is for one table; give it with --target-base-path and --checkpoint-dir")
    return NamedTable(f"{database}.{table}", options)


def _check_ports(tables: Sequence[NamedTable]) -> None:
    ports = [t.options.status_port for t in tables if t.options.status_port]
    if len(set(ports)) != len(ports):
        raise ConfigError(
            "--status-port is one page of one table: give each table a port of its own, in its file, or 0"
        )


def _check_cleaned(tables: Sequence[NamedTable]) -> None:
    """A file is removed when one table has its rows: another table of the folder may not have them yet."""
    folders = [(table, table.options.dfs_root) for table in tables if table.options.dfs_root]
    for (cleaned, folder), (other, place) in permutations(folders, 2):
        if cleaned.options.source_clean != "off" and are_nested(folder, place):
            raise ConfigError(
                f"tables {cleaned.name} and {other.name} read the same files, and {CLEAN_KEY}="
                f"{cleaned.options.source_clean} would take them from one of them; set it to off for {cleaned.name}"
            )


def _new(key: str) -> str:
    return INGESTION + key[len(_OLD) :] if key.startswith(_OLD) else key
