"""``tagstream table dedup``: of rows with the same key the newest stays.

A writer that does not look a key up (SQL INSERT, bulk insert) puts it into the table a second time. The partitions with such
keys are replaced by their own rows with each key once, as an insert overwrite does it. The greatest ordering value
counts, where it is equal or there is none the row of the newest file slice.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.admin.output import Column, Fact, Output
from tagstream.admin.table.overwrite import undo_cut_off
from tagstream.state.ordering import ordering_codes
from tagstream.table.errors import UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.ordering import ordering_column
from tagstream.table.read.buckets import check_bucketed
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import stored_schema
from tagstream.table.schema.schema import RECORD_KEY, user_schema
from tagstream.table.services.clustering.execute import DEFAULT_MEMORY
from tagstream.table.services.replacing.doubled import doubled_partitions
from tagstream.table.services.replacing.groups import groups_of_partitions
from tagstream.table.services.replacing.insert_overwrite import insert_overwrite
from tagstream.table.services.replacing.rows import NewRows, Records, RowsByKey
from tagstream.table.services.spill import RowKeeper

Clock = Callable[[], int]
_PARTITIONS = (
    Column("partition_path", "partition"),
    Column("rows", "rows", "count"),
    Column("kept", "rows that stay", "count"),
)


@dataclass(frozen=True)
class _Found:
    """The rows that stay of the partitions with doubled keys, and how many there are now."""

    rows: NewRows
    groups: dict[str, tuple[str, ...]]
    before: Counter[str]

    @property
    def surplus(self) -> int:
        """Rows that go."""
        return self.rows.records - self.rows.count


def show_dedup(table: HoodieTable, arguments: argparse.Namespace, out: Output, _: Clock) -> None:
    """How many rows would go, of which partitions."""
    with _prepared(table, arguments, out) as found:
        _show(found, out)


def run_dedup(
    table: HoodieTable, arguments: argparse.Namespace, out: Output, clock_ms: Clock, check: Callable[[], None]
) -> bool:
    """Do it; a command of this kind that was killed is undone first. False where every key is there once."""
    undo_cut_off(table, out, clock_ms, check)
    with _prepared(table, arguments, out) as found:
        _show(found, out)
        if not found.surplus:
            return False
        schema = table.schema_json()
        if schema is None:
            raise UnsupportedTableError(
                f"table {table.base_path} tells its schema in no commit: write a batch to it, then do this again"
            )
        done = insert_overwrite(table, found.rows, found.groups, schema, clock_ms, check)
    out.facts([Fact("instant", "commit", done.instant, "name")])
    return True


def _show(found: _Found, out: Output) -> None:
    out.facts([Fact("surplus", "rows of a key that is there again", found.surplus, "count")])
    kept = found.rows.partitions
    out.listing("partitions", _PARTITIONS, ((p, n, len(kept.get(p, ()))) for p, n in sorted(found.before.items())))


@contextmanager
def _prepared(table: HoodieTable, arguments: argparse.Namespace, out: Output) -> Iterator[_Found]:
    """What would be written; nothing is changed. The rows are there inside the block."""
    table.check_writable(keeps_metadata=True)
    check_bucketed(table, wanted=False)
    global_keys = not arguments.by_partition
    out.progress("looking for keys that are there more than once")
    partitions = doubled_partitions(table, global_keys=global_keys)
    groups = groups_of_partitions(table, partitions)
    before = Counter[str]()
    with RowKeeper(DEFAULT_MEMORY) as keeper:
        schema = user_schema(stored_schema(table, table.timeline(), table.view()))
        chosen = RowsByKey(schema, keeper, global_keys=global_keys)
        for partition, rows in _rows(table, partitions) if partitions else ():
            out.progress(f"reading partition {partition!r}")
            before[partition] += rows.num_rows
            chosen.add(_records(table, rows, partition, schema))
        yield _Found(chosen.chosen(), groups, before)


def _rows(table: HoodieTable, partitions: tuple[str, ...]) -> Iterator[tuple[str, pa.Table]]:
    """The live rows of partitions, those of older slices first: of rows of equal order the later one counts."""
    timeline = table.timeline()
    view = table.view(timeline)
    assert view.as_of is not None, "a table without rows has no such partition"
    schema = stored_schema(table, timeline, view)
    reader = SliceReader(table, timeline, view.as_of, schema, tuple(schema.names))
    slices = [s for partition in partitions for s in view.latest_merged_slices(partition)]
    for found in sorted(slices, key=lambda s: (s.base_instant, s.partition_path, s.file_id)):
        for rows in reader.read(found):
            yield found.partition_path, rows


def _records(table: HoodieTable, rows: pa.Table, partition: str, schema: pa.Schema) -> Records:
    values = ordering_column(rows, table.config.deciding_fields)
    ordering = None if values is None else ordering_codes(values)
    if ordering is not None and not pa.types.is_binary(ordering.type) and values is not None:  # a null is the smallest
        ordering = pc.if_else(values.is_valid(), ordering, pa.scalar(-(2**63), pa.int64()))
    nothing = np.zeros(rows.num_rows, np.bool_)
    return Records(
        rows=rows.select(schema.names),
        keys=rows.column(RECORD_KEY).combine_chunks(),
        partitions=pa.repeat(pa.scalar(partition, pa.string()), rows.num_rows),
        ordering=ordering,
        deleted=nothing,
        unordered=nothing,
    )
