"""Rows that were deleted a while ago, out of the slices from before: what a changed key's new row may still need.

Its old key's delete and its new key's row come in different topic partitions, and so perhaps in different batches. The
commits that the timeline still has are gone through from the newest on. Only file groups that they deleted from are read;
what the cleaner has removed is not to be had. A row that its batch made or changed before it deleted it is in no slice so:
it was left beside the table (``left_images``).
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.write.left_images import KEY, LOST
from tagstream.table.errors import TagstreamError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import snapshot_schema
from tagstream.table.schema.conform import conform
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.timeline.timeline import Timeline


def left_rows(
    table: HoodieTable,
    timeline: Timeline,
    keys: set[str],
    wanted: pa.Schema,
    kept: Sequence[tuple[str, pa.Table]] = (),
    only_kept: Set[str] = frozenset(),
) -> pa.Table:
    """The columns ``wanted`` and ``@key`` of the rows that ``keys`` had before they were deleted last, where found.

    ``kept``: instants and rows of what was left beside the table (``left_images.read_left``). ``only_kept``: keys that no
    slice is read for.
    """
    schema = pa.schema([*wanted, pa.field(KEY, pa.string())])
    out = [schema.empty_table()]
    left = set(keys)
    beside = list(kept)  # newest first
    writes = timeline.completed_writes
    for before, instant in zip(reversed(writes[:-1]), reversed(writes[1:]), strict=True):
        while beside and beside[0][0] >= instant.time:
            left -= _take(beside.pop(0)[1], left, schema, out)
        if left <= only_kept:
            break
        groups: dict[str, list[str]] = {}
        for stat in timeline.metadata(table.storage, instant).all_stats():
            if stat.num_deletes:
                groups.setdefault(stat.partition_path, []).append(stat.file_id)
        if groups:
            found = _rows_of(table, timeline, before.time, groups, left - only_kept, schema)
            out.append(found)
            left -= set(found.column(KEY).to_pylist())
    for _, rows in beside:  # their commits are archived
        left -= _take(rows, left, schema, out)
    return pa.concat_tables(out)


def _take(rows: pa.Table, keys: set[str], schema: pa.Schema, out: list[pa.Table]) -> set[str]:
    """Add the rows of ``keys`` to ``out``, but for those whose values are lost; the keys that are settled."""
    mine = rows.filter(pc.is_in(rows.column(KEY), value_set=pa.array(sorted(keys), pa.string())))
    whole = mine.filter(pc.invert(mine.column(LOST)))
    there = [name for name in schema.names if name in whole.column_names]
    out.append(conform(whole.select(there), schema, "rows of changed keys"))
    return set(mine.column(KEY).to_pylist())


def _rows_of(
    table: HoodieTable, timeline: Timeline, as_of: str, groups: dict[str, list[str]], keys: set[str], schema: pa.Schema
) -> pa.Table:
    view = table.view(timeline, as_of)
    known = snapshot_schema(table, timeline, view)
    there = [name for name in schema.names if name in known.names]
    reader = SliceReader(table, timeline, as_of, known, (RECORD_KEY, *there))
    value_set = pa.array(sorted(keys), pa.string())
    out: list[pa.Table] = []
    for part, file_ids in groups.items():
        for file_slice in view.latest_slices(part, file_ids).values():
            try:
                out += _with_keys(list(reader.read(file_slice)), value_set, there)
            except (OSError, TagstreamError):  # removed by the cleaner, now or before
                continue
    return pa.concat_tables([schema.empty_table(), *(conform(rows, schema, "rows that were deleted") for rows in out)])


def _with_keys(batches: Sequence[pa.Table], keys: pa.Array, names: Sequence[str]) -> list[pa.Table]:
    found = [batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=keys)) for batch in batches]
    return [rows.select(names).append_column(KEY, rows.column(RECORD_KEY)) for rows in found if rows.num_rows]
