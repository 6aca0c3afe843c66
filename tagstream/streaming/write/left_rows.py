"""Rows that were deleted a while ago, out of the slices from before: what a changed key's new row may still need.

Its old key's delete and its new key's row come in different topic partitions, and so perhaps in different batches. A delete
leaves the place of its row, or the row itself (``left_images``). Where nothing was left, the commits that the timeline
still has are gone through from the newest on; only file groups that they deleted from are read. What the cleaner has
removed is not to be had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.write.left_images import KEY, Left
from tagstream.table.errors import TagstreamError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import snapshot_schema
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.schema.stored import from_file
from tagstream.table.timeline.timeline import Timeline

NUMBER = "@number"


def values_of(
    left: Mapping[int, Left], table: HoodieTable, timeline: Timeline, keys: Sequence[str], wanted: pa.Schema
) -> pa.Table:
    """The columns ``wanted`` and ``@number`` of what was left (``left_images.find_left``), where it is to be had.

    ``keys``: the record key of each number.
    """
    schema = pa.schema([*wanted, pa.field(NUMBER, pa.int64())])
    out = [schema.empty_table()]
    places: dict[str, dict[tuple[str, str], list[int]]] = {}
    for n, one in left.items():
        if one.values is not None:
            there = [name for name in wanted.names if name in one.values.column_names]
            rows = one.values.select(there).append_column(NUMBER, pa.array([n]))
            out.append(from_file(rows, schema, "rows of changed keys"))
        elif one.place is not None and not timeline.is_archived(one.place[2]):
            places.setdefault(one.place[2], {}).setdefault(one.place[:2], []).append(n)
    for as_of, groups in places.items():
        for (part, file_id), numbers in groups.items():
            names = [keys[n] for n in numbers]  # a key may be asked for more than once
            named = pa.schema([*wanted, pa.field(KEY, pa.string())])
            rows = _rows_of(table, timeline, as_of, {part: [file_id]}, set(names), named)
            at = pc.index_in(pa.array(names), value_set=rows.column(KEY))
            found = rows.select(wanted.names).take(at.drop_null())
            out.append(found.append_column(NUMBER, pa.array(numbers).filter(at.is_valid())).cast(schema))
    return pa.concat_tables(out)


def deleted_rows(table: HoodieTable, timeline: Timeline, keys: set[str], wanted: pa.Schema) -> pa.Table:
    """The columns ``wanted`` and ``@key`` of the rows that ``keys`` had before they were deleted last, where found."""
    schema = pa.schema([*wanted, pa.field(KEY, pa.string())])
    out = [schema.empty_table()]
    left = set(keys)
    writes = timeline.completed_writes
    for before, instant in zip(reversed(writes[:-1]), reversed(writes[1:]), strict=True):
        if not left:
            break
        groups: dict[str, list[str]] = {}
        for stat in timeline.metadata(table.storage, instant).all_stats():
            if stat.num_deletes:
                groups.setdefault(stat.partition_path, []).append(stat.file_id)
        if groups:
            found = _rows_of(table, timeline, before.time, groups, left, schema)
            out.append(found)
            left -= set(found.column(KEY).to_pylist())
    return pa.concat_tables(out)


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
    return pa.concat_tables(
        [schema.empty_table(), *(from_file(rows, schema, "rows that were deleted") for rows in out)]
    )


def _with_keys(batches: Sequence[pa.Table], keys: pa.Array, names: Sequence[str]) -> list[pa.Table]:
    found = [batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=keys)) for batch in batches]
    return [rows.select(names).append_column(KEY, rows.column(RECORD_KEY)) for rows in found if rows.num_rows]
