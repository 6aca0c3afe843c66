"""``tagstream table rows``: live rows by partition, key and what they hold, reading no more than it shows."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa

from tagstream.admin.output import Column, Fact, Output
from tagstream.table.errors import ConfigError
from tagstream.table.file_group.base_file import read_footer
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.keys.bucket_hash import BucketHash
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import read_slices, snapshot_schema
from tagstream.table.schema.schema import META_COLUMNS, RECORD_KEY
from tagstream.table.skipping.bucket_pruning import bucket_pruner
from tagstream.table.skipping.data_skipping import DataSkipping, Pruner, SkipReport
from tagstream.table.skipping.filters import Comparison, Op
from tagstream.table.timeline.timeline import Timeline


def wanted_partitions(view: FileSystemView, table: HoodieTable, partition: str | None) -> list[str]:
    """All partition paths, or the one asked for; ConfigError when the table has no such one."""
    found = view.partitions()
    if partition is None:
        return found
    if partition not in found:
        few = ", ".join(repr(p) for p in islice(found, 5)) + (", ..." if len(found) > 5 else "")
        raise ConfigError(f"table {table.base_path} has no partition {partition!r}; it has {few or 'none'}")
    return [partition]


def show_rows(table: HoodieTable, arguments: argparse.Namespace, out: Output) -> int:
    """Show rows; exit code 1 when a key was asked for and there is no such row."""
    timeline = table.timeline()
    view = table.view(timeline)
    schema = snapshot_schema(table, timeline, view)
    columns = _columns(table, schema, arguments)
    if arguments.key is not None and not table.config.populate_meta_fields:
        raise ConfigError(
            f"table {table.base_path} has hoodie.populate.meta.fields=false: its rows carry no record keys"
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
    """The filters asked for; a key is one more of them, which bloom filters can rule out, too."""
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
        raise ConfigError(f"--num-buckets {buckets}: the table needs record key fields, and one bucket at least")
    pruner = bucket_pruner(BucketHash(buckets, keys, keys), found.filters)
    return found if pruner is None else found.asking_first(pruner)


def _rows(batches: Iterator[pa.Table], columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        # Rows that are shown to a person one by one.
        for row in batch.select(columns).to_pylist(maps_as_pydicts="strict"):
            yield tuple(row.values())


def _may_have(table: HoodieTable, key: str, slices: Sequence[FileSlice]) -> list[bool]:
    """False where a slice's base file is all of it and its footer rules the key out."""
    return [_may_hold(table, key, found) for found in slices]


def _may_hold(table: HoodieTable, key: str, found: FileSlice) -> bool:
    if found.log_files or found.base_path is None:
        return True
    footer = read_footer(table.storage, found.base_path)
    return footer.bloom is None or bool(footer.bloom.might_contain(pa.array([key]))[0])


def _skipped(report: SkipReport, more: bool) -> str:
    """What was left out of what was looked at; where there are more rows than shown, that is not all."""
    by = ", ".join(f"{count} by {name}" for name, count in report.skipped_by.items())
    return (
        f"skipped {report.partitions_skipped} of {report.partitions} partitions and {report.files_skipped} of "
        f"{report.files} files{f' ({by})' if by else ''}{' so far' if more else ''}"
    )
