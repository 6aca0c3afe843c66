"""``tagstream index advise``: measure a sample of a stream against a table, and recommend an index.

The choice is a decision table over the measures alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from tagstream.cli.advise_measures import Measures, measure
from tagstream.cli.command import Command, add_limit, add_record_settings, add_table
from tagstream.cli.output import Column, Fact, Kind, Output
from tagstream.cli.record_files import Sample, read_sample
from tagstream.streaming.monitor.values import size
from tagstream.streaming.source.record_settings import RecordSettings
from tagstream.table.buckets.hashing_metadata import CONSISTENT_HASHING, HASHING_FOLDER
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import listed_by_metadata

# Bloom indexes open the footers (with filters of about 430 KB by default) of the files in key ranges, and read the keys of
# most of them. Up to a fifth of the files this is clearly less than what SIMPLE reads. Above it, SIMPLE is as fast.
PRUNED_SHARE = 0.2
# One core reads about 100 MB of key columns per second. A batch of the simple indexes then takes a few seconds longer.
SIMPLE_BYTES = 256 * 1024 * 1024
# An INMEMORY index takes about 200 bytes per key on the driver, and reads the whole table at every start.
INMEMORY_KEYS = 1_000_000
# Buckets need no lookup, but updates rewrite (or, merge-on-read, later compact) whole buckets.
INSERT_SHARE = 0.8
# Fullest bucket divided by the mean: above this, one file of a partition is twice the planned size.
BUCKET_SKEW = 2.0

INDEXES = (
    "STATE", "GLOBAL_BLOOM", "GLOBAL_SIMPLE", "BLOOM", "SIMPLE", "BUCKET", "INMEMORY", "HBASE", "RECORD_INDEX",
    "RECORD_LEVEL_INDEX",
)  # fmt: skip
_GLOBAL_ONLY = ("GLOBAL_BLOOM", "GLOBAL_SIMPLE", "INMEMORY", "HBASE")
_BY_PARTITION = ("BLOOM", "SIMPLE", "BUCKET", "RECORD_LEVEL_INDEX")
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
# The measures in the text output, in this order. JSON has all of them under their own names.
_TITLES: tuple[tuple[str, str, Kind], ...] = (
    ("records", "good records", "count"),
    ("bad", "bad records", "count"),
    ("deletes", "deletes", "count"),
    ("keys", "distinct keys", "count"),
    ("duplicates", "records of a key beyond its first", "count"),
    ("late_records", "records older than the row", "count"),
    ("doubled", "keys that an index by partition duplicates", "count"),
    ("keys_twice", "keys that are in several partitions", "count"),
    ("keys_only_in_logs", "keys whose row is only in a log file", "count"),
    ("rising_share", "steps to a greater key (random: 0.5)", "text"),
    ("partitions_touched", "partitions touched", "count"),
    ("partitions_new", "new ones among them", "count"),
    ("partitions", "partitions of the table", "count"),
    ("file_groups_touched", "file groups with rows of the sample", "count"),
    ("file_groups", "file groups of the table", "count"),
    ("base_files", "base files", "count"),
    ("log_files", "log files", "count"),
    ("files_of_key_mean", "base files whose range includes a key, mean", "text"),
    ("files_of_key_p90", "the same for nine of ten keys, at most", "text"),
    ("rows", "rows", "count"),
    ("bytes", "bytes", "bytes"),
    ("state_bytes", "expected size of the state index", "bytes"),
    ("table_type", "table type", "text"),
    ("bucketed_by", "bucketed, seen by", "text"),
)


@dataclass(frozen=True)
class Choice:
    """One index, whether it fits, and the reason, with numbers."""

    index: str
    fits: bool
    reason: str


def rank(m: Measures) -> list[Choice]:
    """All of :data:`INDEXES`, the best first. Those that do not fit are at the end."""
    choices = [_judge(name, m) for name in _order(m)]
    return sorted(choices, key=lambda choice: not choice.fits)


def properties(choice: Choice, m: Measures) -> dict[str, str]:
    """The properties to set for an index that fits."""
    out = {"hoodie.index.type": choice.index}
    match choice.index:
        case "STATE":
            out["index.global.enabled"] = str(not m.tied_to_partition).lower()
        case "GLOBAL_BLOOM":
            out["hoodie.bloom.index.update.partition.path"] = "true"
        case "GLOBAL_SIMPLE":
            out["hoodie.simple.index.update.partition.path"] = "true"
        case "BUCKET" if m.bucketed_by == HASHING_FOLDER:
            out["hoodie.index.bucket.engine"] = CONSISTENT_HASHING
        case "BUCKET":
            count = m.bucket_count if m.bucketed_by else m.buckets
            out["hoodie.bucket.index.num.buckets"] = "(as the table was made with)" if count is None else str(count)
    return out


def _order(m: Measures) -> list[str]:
    """The indexes in order of preference. Whether they fit is not considered."""
    if m.bucketed_by:
        first: tuple[str, ...] = ("BUCKET",)
    elif m.doubled and not m.tied_to_partition:
        first = ("STATE", "GLOBAL_BLOOM", "GLOBAL_SIMPLE")
    elif m.empty_table or (m.insert_share >= INSERT_SHARE and not _prunes(m.own_files_left, m.base_files)):
        first = ("BUCKET", "STATE") if m.insert_share >= INSERT_SHARE else ("STATE", "BUCKET")
    elif _prunes(m.own_files_left, m.base_files):
        first = ("BLOOM", "STATE")
    else:
        first = ("STATE", "SIMPLE", "BLOOM")
    return [*first, *(name for name in INDEXES if name not in first)]


def _judge(name: str, m: Measures) -> Choice:
    against = _against(name, m)
    if against:
        return Choice(name, False, against)
    match name:
        case "STATE":
            return _state(m)
        case "BLOOM" | "GLOBAL_BLOOM":
            return _bloom(name, m)
        case "SIMPLE" | "GLOBAL_SIMPLE":
            return _simple(name, m)
        case "BUCKET":
            return _bucket(m)
        case "INMEMORY":
            return _inmemory(m)
        case "HBASE":
            return Choice(
                name,
                False,
                "one more system to run, and a get over the network for every key; only if other writers of this "
                "table share an HBase index",
            )
        case _:
            kept = "record_index" in m.metadata_partitions
            return Choice(
                name,
                False,
                f"the table {'has' if kept else 'has no'} record index; STATE does not need one, and updates an existing "
                "one for other readers; only if a checkpoint must not contain an index",
            )


def _against(name: str, m: Measures) -> str | None:
    """The reason that excludes an index whatever its cost; None without one."""
    if m.bucketed_by and name != "BUCKET":
        return f"the table is bucketed (seen by {m.bucketed_by}); its readers and writers expect a key in its bucket"
    if m.tied_to_partition and name in _GLOBAL_ONLY:
        return (
            f"global: but the table has {m.keys_twice:,} of the sample's {m.keys:,} keys in several partitions"
            if m.keys_twice
            else "global: but with index.global.enabled=false a row is identified by partition and key together"
        )
    if name in _BY_PARTITION and m.doubled and not m.tied_to_partition and not m.bucketed_by:
        return (
            f"looks only in the record's own partition: {m.doubled:,} of {m.keys:,} keys ({_percent(m.doubled, m.keys)}) "
            "come with another partition and would get a second row"
        )
    return None


def _state(m: Measures) -> Choice:
    size_of = (
        f"about {size(m.state_bytes)} for {m.rows:,} keys" if m.rows else f"about {m.key_bytes + 8:.0f} bytes per key"
    )
    why = f"the same cost per record whatever the size of the table; no file of the table is read; stores {size_of}"
    if m.tied_to_partition:
        return Choice("STATE", True, f"{why}, by partition and key")
    return Choice("STATE", True, f"{why}; moves {m.moves:,} keys of this sample" if m.moves else why)


def _bloom(name: str, m: Measures) -> Choice:
    if m.empty_table:
        return Choice(name, True, "the table has no file to measure yet; " + _caveat(name, m))
    if not m.base_files:
        return Choice(name, False, "all rows are in log files, which have no key ranges and no filters")
    everywhere = name == "GLOBAL_BLOOM"
    left, read = (m.files_left, m.files_read) if everywhere else (m.own_files_left, m.own_files_read)
    compared, filters = (m.comparisons, m.filter_bytes) if everywhere else (m.own_comparisons, m.own_filter_bytes)
    numbers = (
        f"{left:,} of {m.base_files:,} files ({_percent(left, m.base_files)}) match by partition and key range for a batch "
        f"like this: {compared:,} comparisons with {size(filters)} of filters, and {read:,} files whose keys are read"
    )
    if _prunes(left, m.base_files):
        return Choice(name, True, f"{numbers}; {_caveat(name, m)}")
    return Choice(
        name, False, f"keys are spread over all files: {numbers}; the other indexes do this work at less cost"
    )


def _simple(name: str, m: Measures) -> Choice:
    amount, files = (
        (m.global_simple_bytes, m.base_files) if name == "GLOBAL_SIMPLE" else (m.simple_bytes, m.own_base_files)
    )
    numbers = f"every batch reads {size(amount)} of keys and logs from {files:,} of {m.base_files:,} base files"
    if amount <= SIMPLE_BYTES:
        return Choice(name, True, f"{numbers}; {_caveat(name, m)}")
    return Choice(name, False, f"{numbers}, more than {size(SIMPLE_BYTES)}")


def _bucket(m: Measures) -> Choice:
    if m.bucketed_by:
        found = (
            f"the rows found match {m.bucket_count} buckets"
            if m.bucket_count
            else "the rows found do not show how many buckets it has"
        )
        lost = f"; {m.doubled:,} keys of the sample would be in two partitions" if m.doubled else ""
        return Choice("BUCKET", True, f"the table is bucketed (seen by {m.bucketed_by}); {found}{lost}")
    share = (
        f"{m.insert_share:.0%} of the keys are inserts" if not m.empty_table else f"{m.insert_share:.0%} first records"
    )
    even = f"fullest of {m.buckets} bucket{'s' * (m.buckets > 1)} {m.bucket_skew:g} x the mean"
    suits = m.insert_share >= INSERT_SHARE and m.bucket_skew <= BUCKET_SKEW
    if m.empty_table:
        return Choice(
            "BUCKET",
            m.bucket_skew <= BUCKET_SKEW,
            f"no lookup at all; {share}, {even}; the number of buckets is fixed: plan one base file of the size you want "
            f"for each, with space to grow; {_caveat('BUCKET', m)}",
        )
    wish = f"it would suit a new table ({share}, {even})" if suits else f"{share}, {even}"
    return Choice("BUCKET", False, f"the table's file groups are not buckets, so a start is refused; {wish}")


def _inmemory(m: Measures) -> Choice:
    if m.rows <= INMEMORY_KEYS:
        return Choice("INMEMORY", True, f"possible with {m.rows:,} rows; every start reads the whole table")
    return Choice(
        "INMEMORY", False, f"{m.rows:,} rows in the driver's memory are more than the limit of {INMEMORY_KEYS:,}"
    )


def _caveat(name: str, m: Measures) -> str:
    if name.startswith("GLOBAL"):
        return "looks in all partitions"
    if not m.partitioned or m.tied_to_partition:
        return "stores nothing outside the table"
    return f"a key that comes with another partition would get a second row; none of the {m.keys:,} keys did"


def _prunes(left: int, files: int) -> bool:
    return files > 0 and left <= PRUNED_SHARE * files


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def run_advise(arguments: argparse.Namespace, out: Output) -> int:
    """Run the command and return the exit code."""
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
        out.note("the table has no completed write: moves are only those within the sample, updates are unknown")
    if sample.first_bad:
        out.listing("first_bad", _BAD, [(b.file, b.line, b.reason) for b in sample.first_bad])
        if m.bad > m.records:
            out.note(
                "most records are bad, so the numbers below are of few records; give the stream's --props, whose schema may "
                "have defaults"
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
    """What each index would read. Zero for an index that does not read the table."""
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


def _add_flags(out: argparse.ArgumentParser) -> None:
    add_table(out)
    out.add_argument(
        "--sample", metavar="PATH", required=True, help="file of JSON lines as the stream reads it, or a folder of them"
    )
    add_record_settings(out)
    add_limit(out, 100_000, "records to read (0: all)")


COMMANDS = (
    Command(
        "index",
        "advise",
        "measure a sample of a stream against a table, and recommend an index with reasons",
        _add_flags,
        lambda arguments, out, _: run_advise(arguments, out),
    ),
)
