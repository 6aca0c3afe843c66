"""``tagstream table changes``: the inserts, updates and deletes of a table's writes, shown or written to a Parquet file."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tagstream.cli.command import Clock, Command, add_limit, add_table
from tagstream.cli.output import Column, Fact, Output, new_file
from tagstream.cli.table_health import readable
from tagstream.reading import Table
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import listed_by_metadata

_CHANGES = (
    Column("op", "op", "name"),
    Column("ts_ms", "instant", "name"),
    Column("before", "before"),
    Column("after", "after"),
)


def run_changes(arguments: argparse.Namespace, out: Output, _clock_ms: Clock) -> int:
    """Show or write the changes."""
    table = listed_by_metadata(readable(HoodieTable.open(arguments.target_base_path), out))
    changes = Table(table).changes(arguments.since, arguments.until)
    if arguments.out is not None:
        rows = _write(changes, os.path.abspath(arguments.out))
        out.facts([Fact("out", "written", os.path.abspath(arguments.out)), Fact("rows", "changes", rows, "count")])
        return 0
    more = False

    def rows_of() -> Iterator[tuple[Any, ...]]:
        nonlocal more
        found = (tuple(row.values()) for batch in changes for row in batch.to_pylist())
        yield from islice(found, arguments.limit or None)
        more = next(found, None) is not None

    if not out.listing("changes", _CHANGES, rows_of()):
        out.note("no changes")
    out.facts([Fact("more", "more changes", more, json_only=True)])
    if more:
        out.note(f"the first {arguments.limit} changes; --limit 0 shows all")
    return 0


def _write(changes: pa.RecordBatchReader, path: str) -> int:
    """Write the changes to a new Parquet file; returns their number."""
    rows = 0
    with new_file(path) as temp, pq.ParquetWriter(temp, changes.schema, compression="zstd") as writer:
        for batch in changes:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _add_flags(out: argparse.ArgumentParser) -> None:
    add_table(out)
    time = "an instant, or a date or time in ISO 8601"
    out.add_argument("--since", metavar="TIME", help=f"only writes completed after this time: {time}")
    out.add_argument("--until", metavar="TIME", help="only writes completed up to this time")
    out.add_argument("--out", metavar="FILE", help="write all changes to this new Parquet file")
    add_limit(out, 100, "show at most N changes, 0 for all")


COMMANDS = (
    Command(
        "table",
        "changes",
        "inserts, updates and deletes of the table's writes. A table with change data capture (hoodie.table.cdc.enabled) "
        "has logged them; in other tables they are inferred from the file slices before and after each write, which reads "
        "these files",
        _add_flags,
        run_changes,
    ),
)
