"""``tagstream table``: what is on a table's timeline, which files and rows it has, and whether it is sound."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import chain
from typing import Any

from tagstream.admin.opened import readable
from tagstream.admin.output import Column, Fact, Output
from tagstream.admin.table.rows import show_rows, wanted_partitions
from tagstream.streaming.batch.commit_record import parse
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.listing import listed_by_metadata
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


def run_table(arguments: argparse.Namespace, out: Output) -> int:
    """Run one of the table commands; returns the exit code."""
    table = readable(HoodieTable.open(arguments.target_base_path), out)
    if arguments.command != "validate":  # which holds the metadata table against the folders
        table = listed_by_metadata(table)
    out.facts([Fact("table", "table", table.config.name), Fact("base_path", "path", table.base_path)])
    match arguments.command:
        case "timeline":
            return _timeline(table, arguments, out)
        case "commits":
            return _commits(table, arguments, out)
        case "files":
            return _files(table, arguments, out)
        case "rows":
            return show_rows(table, arguments, out)
        case _:
            return _validate(table, arguments, out)


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
            Fact("bytes", "in all", total["bytes"], "bytes"),
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
