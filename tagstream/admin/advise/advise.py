"""``tagstream index advise``: measure a sample of a stream against a table, and say which index fits."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from tagstream.admin.advise.choice import Choice, properties, rank
from tagstream.admin.advise.measures import Measures, measure
from tagstream.admin.advise.sample import Sample, read_sample
from tagstream.admin.output import Column, Fact, Kind, Output
from tagstream.streaming.source.record_settings import RecordSettings
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.listing import listed_by_metadata

_BAD = (Column("file", "bad record in"), Column("line", "line", "count"), Column("reason", "why"))
_OUTCOMES = (Column("outcome", "newest record of a key", "name"), Column("keys", "keys", "count"), Column("share", "%"))
_COSTS = (
    Column("index", "a batch like this with", "name"),
    Column("files", "base files", "count"),
    Column("comparisons", "comparisons", "count"),
    Column("filter_bytes", "filters", "bytes"),
    Column("key_files", "read keys of", "count"),
    Column("key_column_bytes", "keys and logs", "bytes"),
)
_RANKING = (
    Column("rank", "", "count"),
    Column("index", "index", "name"),
    Column("fits", "fits", "name"),
    Column("reason", "why"),
)
# What people see of the measures, in this order; JSON has them all under their own names.
_TITLES: tuple[tuple[str, str, Kind], ...] = (
    ("records", "good records", "count"),
    ("bad", "bad records", "count"),
    ("deletes", "deletes", "count"),
    ("keys", "distinct keys", "count"),
    ("duplicates", "records of a key beyond its first", "count"),
    ("late_records", "records older than the row", "count"),
    ("doubled", "keys that an index by partition doubles", "count"),
    ("keys_twice", "keys the table has in several", "count"),
    ("keys_only_in_logs", "keys whose row is in a log only", "count"),
    ("rising_share", "steps to a greater key (random: 0.5)", "text"),
    ("partitions_touched", "partitions touched", "count"),
    ("partitions_new", "of them new", "count"),
    ("partitions", "partitions of the table", "count"),
    ("file_groups_touched", "file groups with rows of the sample", "count"),
    ("file_groups", "file groups of the table", "count"),
    ("base_files", "base files", "count"),
    ("log_files", "log files", "count"),
    ("files_of_key_mean", "base files whose range holds a key, mean", "text"),
    ("files_of_key_p90", "and of nine keys in ten at most", "text"),
    ("rows", "rows", "count"),
    ("bytes", "bytes", "bytes"),
    ("state_bytes", "expected size of the state index", "bytes"),
    ("table_type", "table type", "text"),
    ("bucketed_by", "bucketed, seen by", "text"),
)


def run_advise(arguments: argparse.Namespace, out: Output) -> int:
    """Run the command; returns the exit code."""
    settings = RecordSettings.of([arguments.props] if arguments.props is not None else [], arguments.hoodie_conf)
    table = listed_by_metadata(HoodieTable.open(arguments.target_base_path))
    spec = settings.decode_spec(table)
    out.progress("reading the sample")
    sample = read_sample(arguments.sample, spec, arguments.limit)
    m = measure(table, sample, spec, settings.file_bytes, out.progress)
    _show(table, sample, m, arguments.sample, out)
    ranking = rank(m)
    out.listing("ranking", _RANKING, [(n + 1, c.index, c.fits, c.reason) for n, c in enumerate(ranking)])
    _show_properties(ranking[0], m, out)
    return 0


def _show(table: HoodieTable, sample: Sample, m: Measures, path: str, out: Output) -> None:
    titles = {name: (title, kind) for name, title, kind in _TITLES}
    shown = [Fact(name, *_titled(titles[name], getattr(m, name))) for name, _, _ in _TITLES]
    rest = [f.name for f in fields(m) if f.name not in titles]
    out.facts(
        [
            Fact("table", "table", table.config.name),
            Fact("base_path", "path", table.base_path),
            Fact("sample", "sample", path),
            Fact("sample_files", "files of the sample", sample.files, "count"),
            Fact("sample_cut", "cut by --limit", sample.more),
            *shown,
            *(Fact(name, "", getattr(m, name), json_only=True) for name in rest),
        ]
    )
    if m.empty_table:
        out.note("the table has no completed write: moves are those within the sample, nothing is known of updates")
    if sample.first_bad:
        out.listing("first_bad", _BAD, [(b.file, b.line, b.reason) for b in sample.first_bad])
        if m.bad > m.records:
            out.note(
                "most records are bad, and what follows is of few: give the stream's --props, whose schema may have defaults"
            )
    out.listing("outcomes", _OUTCOMES, _outcomes(m))
    if not m.empty_table:
        out.listing("costs", _COSTS, _costs(m))


def _titled(title: tuple[str, Kind], value: Any) -> tuple[str, Any, Kind]:
    return title[0], value, title[1]


def _outcomes(m: Measures) -> Iterator[tuple[str, int, float]]:
    names = ("updates", "inserts", "moves", "deletions", "late", "unknown_deletes")
    for name in names:
        count = getattr(m, name)
        yield name.replace("_", " "), count, round(100 * count / m.keys, 1)


def _costs(m: Measures) -> Iterator[tuple[Any, ...]]:
    """What each index would look at: nothing where it does not look into the table."""
    yield "STATE", 0, 0, 0, 0, 0
    yield "BLOOM", m.own_files_left, m.own_comparisons, m.own_filter_bytes, m.own_files_read, None
    yield "GLOBAL_BLOOM", m.files_left, m.comparisons, m.filter_bytes, m.files_read, None
    yield "SIMPLE", m.own_base_files, None, 0, m.own_base_files, m.simple_bytes
    yield "GLOBAL_SIMPLE", m.base_files, None, 0, m.base_files, m.global_simple_bytes


def _show_properties(first: Choice, m: Measures, out: Output) -> None:
    found = properties(first, m) if first.fits else {}
    out.facts([Fact("advice", "", first.index if first.fits else None, json_only=True)])
    out.facts([Fact("properties", "", found, json_only=True)])
    if not found:
        out.note("no index of this version fits the table")
        return
    out.note("properties to set:")
    for name, value in found.items():
        out.note(f"{name}={value}")
