"""The command line of the admin commands."""

from __future__ import annotations

import argparse
from functools import cache
from typing import NoReturn

from tagstream.cli.services_parser import add_process, add_services
from tagstream.table.errors import ConfigError
from tagstream.table.table_version import VERSIONS

GROUPS = ("index", "table", "services", "quarantine", "status", "rescale", "fetch-jars")
OVERVIEW = """\
Upserts a change stream (a Kafka topic, or files of JSON lines) into an Apache Hudi table, and looks after such tables.

usage: tagstream stream --props FILE --target-base-path PATH --target-table NAME --checkpoint-dir PATH [--dry-run] ...
       tagstream COMMAND ...

commands:
  tagstream stream ...    the streaming job, the same as run_stream.py (flags alone mean it, too)
  tagstream index  ...    get, stats, export, import, verify: the index in a checkpoint; advise: which one
  tagstream table  ...    timeline, commits, files, rows, validate, health, page: a Hudi table;
                          upgrade, downgrade: to another table version;
                          compact, cluster, clean, archive, savepoint, savepoints, restore, rollback,
                          delete-partition, insert-overwrite, dedup
  tagstream services run    compaction, cleaning and archiving in a process of their own
  tagstream quarantine ...  list, show, count, replay: bad records that a job put aside
  tagstream status ...    what a stream is at, and how its runs have ended
  tagstream rescale ...   a new checkpoint with another number of key groups
  tagstream fetch-jars      the jars that Spark needs for Kafka and for checkpoints on S3, fetched beforehand
  `tagstream COMMAND --help` has the flags, `tagstream --version` what runs; docs/operations/commands.md has examples"""


class _Parser(argparse.ArgumentParser):
    """Raises ConfigError in place of printing the usage and leaving, so that there is one way to report an error."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help")


@cache
def parser() -> argparse.ArgumentParser:
    """The parser of everything behind ``tagstream`` that is not the stream."""
    out = _Parser(prog="tagstream", allow_abbrev=False, description="Looks into an index and a table, without Spark.")
    groups = out.add_subparsers(dest="group", required=True, metavar="COMMAND", parser_class=_Parser)
    index = groups.add_parser("index", help="the index in a checkpoint", allow_abbrev=False)
    _add_index(index.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser))
    table = groups.add_parser("table", help="a Hudi table", allow_abbrev=False)
    _add_table(table.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser))
    services = groups.add_parser("services", help="the table services in a process of their own", allow_abbrev=False)
    add_process(
        _leaf(
            services.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser),
            "run",
            "carry out the compactions that a job plans, and all services while no job runs",
        )
    )
    quarantine = groups.add_parser("quarantine", help="bad records that a job put aside", allow_abbrev=False)
    _add_quarantine(quarantine.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser))
    _checkpoint(
        _leaf(groups, "status", "what a stream is at, and how its runs have ended; exit code 1 when they fail again")
    )
    rescale = _leaf(groups, "rescale", "make a checkpoint with another number of key groups, offsets and index kept")
    _checkpoint(rescale)
    _table(rescale)
    rescale.add_argument(
        "--to-checkpoint-dir", metavar="PATH", required=True, help="the new checkpoint; must not exist"
    )
    _sizes(rescale, required=True)
    rescale.add_argument(
        "--processes", metavar="N", type=_size, help="processes that share the work (default: one for each core)"
    )
    _add_fetch_jars(
        _leaf(groups, "fetch-jars", "fetch the jars that the installed Spark needs, so that no start has to")
    )
    return out


def _add_fetch_jars(out: argparse.ArgumentParser) -> None:
    out.add_argument("--kafka", action="store_true", help="those of Kafka's connector (default: all that there are)")
    out.add_argument(
        "--s3a", action="store_true", help="those for a checkpoint on s3a:// (default: all that there are)"
    )
    out.add_argument(
        "--out",
        metavar="FOLDER",
        help="put them there, for TAGSTREAM_JARS of a job (default: TAGSTREAM_JARS, else the cache that jobs look into)",
    )


def _add_index(commands: argparse._SubParsersAction[_Parser]) -> None:
    get = _leaf(commands, "get", "where a record key is; exit code 1 when the index does not know it")
    get.add_argument("key", metavar="KEY", help="record key, as in the column _hoodie_record_key")
    _checkpoint(get)
    get.add_argument("--partition", metavar="PATH", help="partition path; for an index with index.global.enabled=false")
    _checkpoint(_leaf(commands, "stats", "keys, tombstones and bytes of every key group"))
    export = _leaf(commands, "export", "write the index to a Parquet file")
    _checkpoint(export)
    export.add_argument("--out", metavar="FILE", required=True, help="Parquet file to write; must not exist")
    export.add_argument("--all", action="store_true", help="tombstones, too, told apart by the column deleted")
    load = _leaf(commands, "import", "make a new checkpoint with the index of an exported Parquet file")
    load.add_argument("--from", dest="source", metavar="FILE", required=True, help="Parquet file by index export")
    load.add_argument("--to-checkpoint-dir", metavar="PATH", required=True, help="the new checkpoint; must not exist")
    _table(load)
    _sizes(load, required=False)
    verify = _leaf(commands, "verify", "compare the index with the table; exit code 1 when they differ")
    _checkpoint(verify)
    _table(verify)
    _limit(verify, 100, "differences to list (0: all); the counts are whole in any case")
    advise = _leaf(commands, "advise", "measure a sample of a stream against a table, and say which index fits and why")
    _table(advise)
    advise.add_argument(
        "--sample", metavar="PATH", required=True, help="file of JSON lines as the stream reads it, or a folder of them"
    )
    advise.add_argument("--props", metavar="FILE", help="the stream's properties file")
    advise.add_argument(
        "--hoodie-conf", metavar="KEY=VALUE", action="append", default=[], help="one of its properties; may be repeated"
    )
    _limit(advise, 100_000, "records to take (0: all)")


def _add_table(commands: argparse._SubParsersAction[_Parser]) -> None:
    timeline = _leaf(commands, "timeline", "the actions on the active timeline, newest first")
    _table(timeline)
    _limit(timeline, 0, "newest actions to list (0: all)")
    commits = _leaf(commands, "commits", "completed writes with their counts, newest first")
    _table(commits)
    _limit(commits, 0, "newest commits to list (0: all)")
    files = _leaf(commands, "files", "the newest slice of every file group")
    _table(files)
    _partition(files)
    rows = _leaf(commands, "rows", "live rows")
    _table(rows)
    _partition(rows)
    rows.add_argument("--key", metavar="KEY", help="record key, as in the column _hoodie_record_key")
    rows.add_argument(
        "--where",
        metavar="TEXT",
        action="append",
        default=[],
        help="only rows for which this holds: COLUMN OP VALUE with =, !=, <, <=, >, >=, in (..), is null or is not null; "
        "may be given several times, then all must hold",
    )
    rows.add_argument(
        "--num-buckets",
        type=int,
        metavar="N",
        help="the table is bucketed into so many (hoodie.bucket.index.num.buckets): where --where fixes the record key "
        "fields, only their buckets are read",
    )
    rows.add_argument("--columns", metavar="NAME,...", help="columns to show (default: all of the user's)")
    rows.add_argument("--meta", action="store_true", help="Hudi's meta columns, too")
    _limit(rows, 20, "rows to show (0: all)")
    validate = _leaf(
        commands, "validate", "check files, commits, footers and keys; exit code 1 when something is wrong"
    )
    _table(validate)
    validate.add_argument(
        "--global-keys", action="store_true", help="a record key may be in one partition only (index.global.enabled)"
    )
    _add_versions(commands)

    def leaf(name: str, text: str) -> argparse.ArgumentParser:
        out = _leaf(commands, name, text)
        _table(out)
        return out

    health = leaf("health", "what is wrong with the table, and which key or command mends it; exit code 1 then")
    health.add_argument(
        "--max-log-files", type=int, metavar="N", default=20, help="log files of a slice that are borne (default: 20)"
    )
    health.add_argument(
        "--commits", type=int, metavar="N", default=10, help="hoodie.clean.commits.retained (default: 10)"
    )
    add_services(leaf)
    page = _leaf(commands, "page", "write a page about the table: timeline, files, and its index; one HTML file")
    _table(page)
    page.add_argument("--out", metavar="FILE", required=True, help="HTML file to write; one that is there is replaced")
    page.add_argument(
        "--checkpoint-dir",
        metavar="PATH",
        help="checkpoint of a stream whose index is held against the table; exit code 1 when they differ",
    )


def _add_versions(commands: argparse._SubParsersAction[_Parser]) -> None:
    known = tuple(sorted(VERSIONS))
    for name, versions, text in (
        (
            "upgrade",
            known[1:],
            "bring the table up to another table version, timeline and archive along",
        ),
        (
            "downgrade",
            known[:-1],
            "bring the table down to another table version, timeline and archive along",
        ),
    ):
        out = _leaf(commands, name, text)
        _table(out)
        out.add_argument("--to", type=int, choices=versions, required=True, help="the table version")
        out.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
        out.add_argument("--yes", action="store_true", help="do it; no other writer may be at work on the table")


def _add_quarantine(commands: argparse._SubParsersAction[_Parser]) -> None:
    found = _leaf(commands, "list", "the bad records: where each stood in the source, and why it is bad")
    _chosen(found)
    _limit(found, 100, "records to list (0: all)")
    count = _leaf(commands, "count", "how many there are, by reason")
    _chosen(count)
    show = _leaf(commands, "show", "one bad record as text, or its bytes to a file")
    _checkpoint(show)
    show.add_argument("id", metavar="ID", help="the record's id, as quarantine list has it")
    show.add_argument("--out", metavar="FILE", help="write the value's bytes, as they were, to this new file")
    show.add_argument("--key", action="store_true", help="with --out: the message key in place of the value")
    replay = _leaf(commands, "replay", "write the records, each once, to a folder that a job reads")
    _chosen(replay)
    replay.add_argument(
        "--to", metavar="FOLDER", required=True, help="folder of JSON lines; each replay adds files to it"
    )
    replay.add_argument("--again", action="store_true", help="also those that were replayed before")


def _chosen(out: argparse.ArgumentParser) -> None:
    _checkpoint(out)
    out.add_argument("--batch", metavar="N", type=_count, help="only the records of this batch")
    out.add_argument("--reason", metavar="TEXT", help="only those whose reason holds this text")


def _leaf(commands: argparse._SubParsersAction[_Parser], name: str, text: str) -> argparse.ArgumentParser:
    out = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    out.add_argument("--json", action="store_true", help="one JSON document in place of text")
    out.add_argument(
        "--vertical", action="store_true", help="each row as lines, a column a line (wide tables: by itself)"
    )
    out.add_argument(
        "--width",
        metavar="N",
        type=_count,
        default=100,
        help="shorten longer values to N characters; 0: never (default: 100)",
    )
    return out


def _checkpoint(out: argparse.ArgumentParser) -> None:
    out.add_argument("--checkpoint-dir", metavar="PATH", required=True, help="checkpoint of the stream")


def _table(out: argparse.ArgumentParser) -> None:
    out.add_argument("--target-base-path", metavar="PATH", required=True, help="folder of the table")


def _partition(out: argparse.ArgumentParser) -> None:
    out.add_argument("--partition", metavar="PATH", help="only this partition path")


def _limit(out: argparse.ArgumentParser, default: int, text: str) -> None:
    out.add_argument("--limit", metavar="N", type=_count, default=default, help=f"{text} (default: {default})")


def _sizes(out: argparse.ArgumentParser, *, required: bool) -> None:
    before = "" if required else " (default: as exported)"
    out.add_argument("--key-groups", metavar="N", type=_size, required=required, help=f"key groups{before}")
    before = " (default: as before)" if required else before
    out.add_argument("--shuffle-partitions", metavar="M", type=_size, help=f"shuffle partitions{before}")


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def _size(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number
