"""``tagstream table`` commands that read a table: timeline, commits, files, rows, validate.

``rows`` reads no more than it shows: live rows by partition, by key and by filters on columns. ``validate`` checks whether
the table is correct.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from tagstream.cli.command import Clock, Command, add_limit, add_table
from tagstream.cli.output import Column, Fact, Output
from tagstream.cli.table_health import readable
from tagstream.streaming.batch.commit_record import parse
from tagstream.table.errors import ConfigError
from tagstream.table.file_group.base_file import read_footer
from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.keys.bucket_hash import BucketHash
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import listed_by_metadata
from tagstream.table.read.data_skipping import DataSkipping, Pruner, SkipReport, bucket_pruner
from tagstream.table.read.filters import Comparison, Op
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import read_slices, snapshot_schema
from tagstream.table.schema.schema import META_COLUMNS, RECORD_KEY
from tagstream.table.services.validate import Validation
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.timeline import Timeline

_TIMELINE = (
    Column("instant", "instant", "name"),
    Column("action", "action", "name"),
    Column("state", "state", "name"),
    Column("completion_time", "completed at", "name"),
)
_COMMITS = (
    Column("instant", "instant", "name"),
    Column("action", "action", "name"),
    Column("operation", "operation", "name"),
    Column("partitions", "parts", "count"),
    Column("files", "files", "count"),
    Column("inserts", "inserts", "count"),
    Column("updates", "updates", "count"),
    Column("deletes", "deletes", "count"),
    Column("bytes", "written", "bytes"),
    Column("stream", "stream"),
    Column("batch_id", "batch", "count"),
    Column("query_id", "query", json_only=True),
    Column("end_offsets", "offsets", json_only=True),
    Column("replaced_file_groups", "replaced", "count", json_only=True),
)
_FILES = (
    Column("partition_path", "partition"),
    Column("file_id", "file id"),
    Column("base_instant", "base instant", "name"),
    Column("base_bytes", "base file", "bytes"),
    Column("logs", "logs", "count"),
    Column("log_bytes", "log files", "bytes"),
    Column("base_file", "", json_only=True),
    Column("log_files", "", json_only=True),
)


def wanted_partitions(view: FileSystemView, table: HoodieTable, partition: str | None) -> list[str]:
    """All partition paths, or only ``partition``; ConfigError when the table does not have it."""
    found = view.partitions()
    if partition is None:
        return found
    if partition not in found:
        few = ", ".join(repr(p) for p in islice(found, 5)) + (", ..." if len(found) > 5 else "")
        raise ConfigError(f"table {table.base_path} has no partition {partition!r}; it has {few or 'none'}")
    return [partition]


def show_rows(table: HoodieTable, arguments: argparse.Namespace, out: Output) -> int:
    """Show rows. Exit code 1 when a key was given and there is no such row."""
    timeline = table.timeline()
    view = table.view(timeline)
    schema = snapshot_schema(table, timeline, view)
    columns = _columns(table, schema, arguments)
    if arguments.key is not None and not table.config.populate_meta_fields:
        raise ConfigError(
            f"table {table.base_path} has hoodie.populate.meta.fields=false, so its rows have no record keys; use --where "
            "with the record key fields"
        )
    skipping = _skipping(table, timeline, schema, arguments)
    out.facts([Fact("as_of", "as of", view.as_of)])
    partitions = wanted_partitions(view, table, arguments.partition)
    more = False

    def rows() -> Iterator[tuple[Any, ...]]:
        nonlocal more
        if view.as_of is None:
            return
        reader = SliceReader(table, timeline, view.as_of, schema, tuple(dict.fromkeys((*columns, *skipping.columns))))
        found = _rows(read_slices(reader, view, partitions, skipping), columns)
        yield from islice(found, arguments.limit or None)
        more = next(found, None) is not None

    count = out.listing("rows", [Column(name, name) for name in columns], rows())
    if count == 0:
        out.note("no such row" if skipping.filters else "no rows")
    out.facts([Fact("more", "more rows", more, json_only=True)])
    if skipping.filters:
        out.facts([Fact("skipped", "", asdict(skipping.report), json_only=True)])
        out.note(_skipped(skipping.report, more))
    if more:
        out.note(f"the first {arguments.limit} rows; --limit 0 shows all")
    return 1 if arguments.key is not None and count == 0 else 0


def _columns(table: HoodieTable, schema: pa.Schema, arguments: argparse.Namespace) -> tuple[str, ...]:
    if arguments.columns is None:
        return tuple(name for name in schema.names if arguments.meta or name not in META_COLUMNS) or tuple(schema.names)
    wanted = [name.strip() for name in arguments.columns.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in schema.names]
    if unknown or not wanted:
        raise ConfigError(
            f"table {table.config.name} has no column {', '.join(unknown) or repr(arguments.columns)}; it has "
            f"{', '.join(schema.names)}"
        )
    return tuple(dict.fromkeys([*(META_COLUMNS if arguments.meta else ()), *wanted]))


def _skipping(table: HoodieTable, timeline: Timeline, schema: pa.Schema, arguments: argparse.Namespace) -> DataSkipping:
    """The given filters. A key is one more filter, and bloom filters can exclude files by it."""
    where = [Comparison.parse(text) for text in arguments.where]
    if arguments.key is None:
        return _by_bucket(table, DataSkipping.plan(table, timeline, schema, where), arguments.num_buckets)
    found = DataSkipping.plan(table, timeline, schema, [*where, Comparison(RECORD_KEY, Op.EQ, arguments.key)])
    return found.asking_last(Pruner("bloom filters", partial(_may_have, table, arguments.key)))


def _by_bucket(table: HoodieTable, found: DataSkipping, buckets: int | None) -> DataSkipping:
    if buckets is None:
        return found
    keys = table.config.record_key_fields
    if buckets < 1 or not keys:
        raise ConfigError(f"--num-buckets {buckets}: the table needs record key fields, and at least one bucket")
    pruner = bucket_pruner(BucketHash(buckets, keys, keys), found.filters)
    return found if pruner is None else found.asking_first(pruner)


def _rows(batches: Iterator[pa.Table], columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        # A row loop over rows that are shown to a person.
        for row in batch.select(columns).to_pylist(maps_as_pydicts="strict"):
            yield tuple(row.values())


def _may_have(table: HoodieTable, key: str, slices: Sequence[FileSlice]) -> list[bool]:
    """False where a slice has only a base file and its bloom filter excludes the key."""
    return [_may_hold(table, key, found) for found in slices]


def _may_hold(table: HoodieTable, key: str, found: FileSlice) -> bool:
    if found.log_files or found.base_path is None:
        return True
    footer = read_footer(table.storage, found.base_path)
    return footer.bloom is None or bool(footer.bloom.might_contain(pa.array([key]))[0])


def _skipped(report: SkipReport, more: bool) -> str:
    """What was skipped. When there are more rows than shown, the numbers are not final."""
    by = ", ".join(f"{count} by {name}" for name, count in report.skipped_by.items())
    return (
        f"skipped {report.partitions_skipped} of {report.partitions} partitions and {report.files_skipped} of "
        f"{report.files} files{f' ({by})' if by else ''}{' so far' if more else ''}"
    )


def _timeline(table: HoodieTable, arguments: argparse.Namespace, out: Output) -> int:
    timeline = table.timeline()
    newest_first = _newest(timeline.instants, arguments.limit)
    rows = ((i.time, i.action, i.state.lower(), i.completion_time) for i in newest_first)
    out.facts(
        [
            Fact("type", "type", f"{table.config.table_type}, version {table.config.version}"),
            Fact("actions", "actions", len(timeline.instants), "count"),
            Fact("pending", "not completed", len(timeline.pending), "count"),
        ]
    )
    out.listing("timeline", _TIMELINE, rows)
    return 0


def _newest(instants: tuple[Instant, ...], limit: int) -> list[Instant]:
    return list(instants[::-1][: limit or None])


def _commits(table: HoodieTable, arguments: argparse.Namespace, out: Output) -> int:
    timeline = table.timeline()
    out.facts([Fact("commits_total", "commits", len(timeline.completed_writes), "count")])
    out.listing(
        "commits",
        _COMMITS,
        (_commit(table, timeline, i) for i in _newest(timeline.completed_writes, arguments.limit)),
    )
    return 0


def _commit(table: HoodieTable, timeline: Timeline, instant: Instant) -> tuple[Any, ...]:
    metadata = timeline.metadata(table.storage, instant)
    stats = metadata.all_stats()
    record = parse(metadata.extra)
    return (
        instant.time,
        instant.action,
        metadata.operation.lower(),
        len(metadata.stats),
        len(stats),
        sum(s.num_inserts for s in stats),
        sum(s.num_updates for s in stats),
        sum(s.num_deletes for s in stats),
        sum(s.total_write_bytes for s in stats),
        record.stream_id if record else None,
        record.batch_id if record else None,
        record.query_id if record else None,
        record.end_offsets if record else None,
        sum(map(len, metadata.replaced.values())),
    )


def _files(table: HoodieTable, arguments: argparse.Namespace, out: Output) -> int:
    view = table.view()
    total = {"slices": 0, "base": 0, "logs": 0, "bytes": 0}

    def rows() -> Iterator[tuple[Any, ...]]:
        for partition in wanted_partitions(view, table, arguments.partition):
            for file_slice in view.latest_merged_slices(partition):
                total["slices"] += 1
                total["base"] += file_slice.base_file is not None
                total["logs"] += len(file_slice.log_files)
                total["bytes"] += file_slice.size
                yield _file(file_slice)

    out.facts([Fact("as_of", "as of", view.as_of)])
    out.listing("files", _FILES, rows())
    out.facts(
        [
            Fact("file_groups", "file groups", total["slices"], "count"),
            Fact("base_files", "base files", total["base"], "count"),
            Fact("log_files", "log files", total["logs"], "count"),
            Fact("bytes", "total", total["bytes"], "bytes"),
        ]
    )
    return 0


def _file(found: FileSlice) -> tuple[Any, ...]:
    base = found.base_file
    return (
        found.partition_path,
        found.file_id,
        found.base_instant,
        base.size if base else None,
        len(found.log_files),
        sum(log.size for log in found.log_files),
        found.base_path,
        list(found.log_paths),
    )


def _validate(table: HoodieTable, arguments: argparse.Namespace, out: Output) -> int:
    check = Validation(
        table, global_keys=arguments.global_keys, on_partition=lambda p: out.progress(f"partition {p!r}")
    )
    problems = chain(check.problems(), validate_metadata(table))
    count = out.listing("problems", (Column("problem", "problem"),), ((text,) for text in problems))
    out.facts(
        [
            Fact("sound", "sound", count == 0),
            Fact("problem_count", "problems", count, "count"),
            Fact("partitions", "partitions", check.partitions, "count"),
            Fact("files", "files", check.files, "count"),
            Fact("file_bytes", "bytes", check.file_bytes, "bytes"),
            Fact("keys", "live rows", check.keys, "count"),
        ]
    )
    return 1 if count else 0


def _add_timeline(out: argparse.ArgumentParser) -> None:
    add_limit(out, 0, "newest actions to list (0: all)")


def _add_commits(out: argparse.ArgumentParser) -> None:
    add_limit(out, 0, "newest commits to list (0: all)")


def _add_partition(out: argparse.ArgumentParser) -> None:
    out.add_argument("--partition", metavar="PATH", help="only this partition path")


def _add_rows(out: argparse.ArgumentParser) -> None:
    _add_partition(out)
    out.add_argument("--key", metavar="KEY", help="record key, as in the column _hoodie_record_key")
    out.add_argument(
        "--where",
        metavar="TEXT",
        action="append",
        default=[],
        help="only rows for which this is true: COLUMN OP VALUE with =, !=, <, <=, >, >=, in (..), is null or is not null; "
        "if given several times, all must be true",
    )
    out.add_argument(
        "--num-buckets",
        type=int,
        metavar="N",
        help="the table has this number of buckets (hoodie.bucket.index.num.buckets); if --where fixes the record key "
        "fields, only their buckets are read",
    )
    out.add_argument("--columns", metavar="NAME,...", help="columns to show (default: all of the user's)")
    out.add_argument("--meta", action="store_true", help="also Hudi's meta columns")
    add_limit(out, 20, "rows to show (0: all)")


def _add_validate(out: argparse.ArgumentParser) -> None:
    out.add_argument(
        "--global-keys", action="store_true", help="a record key may be in one partition only (index.global.enabled)"
    )


def _reading(
    name: str,
    text: str,
    add_flags: Callable[[argparse.ArgumentParser], None],
    show: Callable[[HoodieTable, argparse.Namespace, Output], int],
) -> Command:
    def add(out: argparse.ArgumentParser) -> None:
        add_table(out)
        add_flags(out)

    def run(arguments: argparse.Namespace, out: Output, _: Clock) -> int:
        table = readable(HoodieTable.open(arguments.target_base_path), out)
        if name != "validate":  # this one compares the metadata table with the folders
            table = listed_by_metadata(table)
        out.facts([Fact("table", "table", table.config.name), Fact("base_path", "path", table.base_path)])
        return show(table, arguments, out)

    return Command("table", name, text, add, run)


COMMANDS = (
    _reading("timeline", "the actions on the active timeline, newest first", _add_timeline, _timeline),
    _reading("commits", "completed writes with their counts, newest first", _add_commits, _commits),
    _reading("files", "the newest slice of every file group", _add_partition, _files),
    _reading("rows", "live rows", _add_rows, show_rows),
    _reading(
        "validate",
        "check files, commits, footers and keys; exit code 1 when something is wrong",
        _add_validate,
        _validate,
    ),
)
