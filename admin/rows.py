"""``tagstream table rows``: live rows by partition and key, reading no more than it shows."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from admin.output import Column, Fact, Output
from table.base_file import read_footer
from table.errors import ConfigError
from table.file_group import FileSlice
from table.fs_view import FileSystemView
from table.hoodie_table import HoodieTable
from table.schema import META_COLUMNS, RECORD_KEY
from table.slice_reader import SliceReader
from table.snapshot import snapshot_schema


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
    out.facts([Fact("as_of", "as of", view.as_of)])
    partitions = wanted_partitions(view, table, arguments.partition)
    more = False

    def rows() -> Iterator[tuple[Any, ...]]:
        nonlocal more
        if view.as_of is None:
            return
        read = tuple(dict.fromkeys((*columns, RECORD_KEY))) if arguments.key is not None else columns
        reader = SliceReader(table, timeline, view.as_of, schema, read)
        found = _read(reader, view, partitions, arguments.key, columns)
        yield from islice(found, arguments.limit or None)
        more = next(found, None) is not None

    count = out.listing("rows", [Column(name, name) for name in columns], rows())
    if count == 0:
        out.note("no such row" if arguments.key is not None else "no rows")
    out.facts([Fact("more", "more rows", more, json_only=True)])
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


def _read(
    reader: SliceReader, view: FileSystemView, partitions: list[str], key: str | None, columns: tuple[str, ...]
) -> Iterator[tuple[Any, ...]]:
    for partition in partitions:
        for file_slice in view.latest_merged_slices(partition):
            if key is not None and not _may_have(reader.table, file_slice, key):
                continue
            for batch in reader.read(file_slice):
                if key is not None:
                    batch = batch.filter(pc.equal(batch.column(RECORD_KEY), key))
                # Rows that are shown to a person one by one.
                for row in batch.select(columns).to_pylist(maps_as_pydicts="strict"):
                    yield tuple(row.values())


def _may_have(table: HoodieTable, file_slice: FileSlice, key: str) -> bool:
    """False when the slice's base file is all of it and its footer rules the key out."""
    if file_slice.log_files or file_slice.base_path is None:
        return True
    footer = read_footer(table.storage.path(file_slice.base_path))
    return footer.bloom is None or bool(footer.bloom.might_contain(pa.array([key]))[0])
