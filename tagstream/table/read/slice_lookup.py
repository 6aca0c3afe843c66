"""Where some keys are in a file slice: the rows of its base file and logs that are live, with their ordering values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import CorruptFileError
from tagstream.table.fields import columns_of, with_type
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.merge import merge_base
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import snapshot_schema
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.timeline.timeline import Timeline


def key_reader(table: HoodieTable, timeline: Timeline, as_of: str, ordering_type: pa.DataType | None) -> SliceReader:
    """Reader of the key column and, where ``ordering_type`` is given, of the ordering columns in that type (a struct's)."""
    schema = snapshot_schema(table, timeline, table.view(timeline, as_of))
    fields = table.config.deciding_fields if ordering_type is not None else ()
    kinds = [ordering_type] if len(fields) == 1 else [member.type for member in ordering_type or ()]
    for name, kind in zip(fields, kinds, strict=True):
        schema = with_type(schema, name, kind)
    columns = (RECORD_KEY, *columns_of(fields, schema.names))
    return SliceReader(table, timeline, as_of, schema, columns, keep_orderings=bool(fields))


def lookup_slice(
    reader: SliceReader, file_slice: FileSlice, keys: pa.Array, in_base: pa.Array
) -> tuple[pa.Array, pa.Array | None]:
    """The keys that have a live row in the slice, and the rows' ordering values (None: the reader has no such column).

    ``keys``: distinct strings to look for. ``in_base``: those among them that the base file may hold; where none may,
    it is not opened. CorruptFileError names a file that is missing or cannot be read.
    """
    try:
        return _lookup(reader, file_slice, keys, in_base)
    except FileNotFoundError as e:
        raise CorruptFileError(
            f"{e.filename} is part of the table as of {reader.as_of} and is missing; restore it, or start again if a "
            "cleaner removed it just now"
        ) from e


def _lookup(
    reader: SliceReader, file_slice: FileSlice, keys: pa.Array, in_base: pa.Array
) -> tuple[pa.Array, pa.Array | None]:
    log = reader.merged_log(file_slice) if file_slice.log_files else None
    lost = np.zeros(len(log.keys) if log is not None else 0, dtype=np.bool_)
    found: list[tuple[pa.Array, pa.Array | None]] = []
    for batch in reader.base_batches(file_slice, reader.columns) if len(in_base) else ():
        rows = batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=in_base))
        if not rows.num_rows:
            continue
        here = rows.column(RECORD_KEY).combine_chunks()
        ordering = reader.ordering(rows) if len(reader.columns) > 1 else None
        if log is not None:
            keep, lost = merge_base(here, ordering if reader.event_time else None, log, lost)
            chosen = pa.array(keep)
            here, ordering = here.filter(chosen), ordering.filter(chosen) if ordering is not None else None
        found.append((here, ordering))
    if log is not None:
        wanted = pc.is_in(log.keys, value_set=keys).to_numpy(zero_copy_only=False)
        chosen = pa.array(wanted & (log.row >= 0) & ~lost)
        ordering = log.winner_orderings
        found.append((log.keys.filter(chosen), ordering.filter(chosen) if ordering is not None else None))
    return _concat(reader, found)


def _concat(reader: SliceReader, found: list[tuple[pa.Array, pa.Array | None]]) -> tuple[pa.Array, pa.Array | None]:
    keys = pa.concat_arrays([k.cast(pa.string()) for k, _ in found]) if found else pa.array([], pa.string())
    kind = reader.ordering_type if len(reader.columns) > 1 else None
    if kind is None:
        return keys, None
    # A log without a single record of a known ordering value has no such column: its rows count as unknown.
    orderings = [o.cast(kind) if o is not None else pa.nulls(len(k), kind) for k, o in found]
    return keys, pa.concat_arrays(orderings) if orderings else pa.array([], kind)
