"""Values that records lack, read from the rows that hold them: out of the slices as they were before the batch.

A record keeps what was not sent: of its own row, wherever that lies before the batch (a move takes it along), or after a
change of key of the old key's row, which an image of that key's group tells of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.errors import HeldRowError
from tagstream.streaming.source.decode.columns import absent_bits, unpack_absent
from tagstream.streaming.source.decode.state_keys import record_keys
from tagstream.streaming.tag.located import OP_IMAGE, OP_LEFT
from tagstream.streaming.write.left_images import KEY, left_table, read_left, write_left
from tagstream.streaming.write.left_rows import left_rows
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import snapshot_schema
from tagstream.table.schema.conform import conform
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.timeline import Timeline

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class HeldRows:
    """Where rows are read from: the table and the timeline that the batch was decided on; ``schema``: of its records.

    ``left``: the folder of rows that were deleted in the batch that made them; ``instant`` and ``task`` of the batch.
    ``null_if_lost``: a value that no row holds any more becomes null; else it is an error.
    """

    table: HoodieTable
    timeline: Timeline
    schema: pa.Schema
    left: Storage
    instant: str
    task: int
    null_if_lost: bool = False

    def fill(self, rows: pa.Table) -> pa.Table:
        """Located records with all of their values, without the images. HeldRowError where a value is lost."""
        if "absent" not in rows.column_names:
            return rows
        op = rows.column("op").to_numpy()
        is_image = (op == OP_IMAGE) | (op == OP_LEFT)
        images, rows = rows.filter(pa.array(is_image)), rows.filter(pa.array(~is_image))
        images = self._keep(images)
        at = np.flatnonzero(rows.column("absent").is_valid().to_numpy())
        if not len(at):
            return rows
        short = rows.take(pa.array(at))
        wanted = set(short.column("from_key").to_pylist())
        images = self._complete_images(images, wanted)
        values, bits = self._own(short)
        values, bits = _from(values, bits, short, images)
        self._check(short, bits)
        order = np.arange(rows.num_rows)
        order[at] = rows.num_rows + np.arange(len(at))
        i = rows.schema.get_field_index("row")
        both = pa.chunked_array([*rows.column(i).chunks, values])
        return rows.set_column(i, rows.schema.field(i), both.take(pa.array(order)))

    def _keep(self, images: pa.Table) -> pa.Table:
        """Leave what deletes have asked for to later batches; the other images."""
        leaves = images.column("op").to_numpy() == OP_LEFT
        if not leaves.any():
            return images
        found = self._complete_images(images, set(images.filter(pa.array(leaves)).column("skey").to_pylist()))
        found = found.filter(pa.array(found.column("op").to_numpy() == OP_LEFT))
        values = _struct(found.column("row"))
        lost = unpack_absent(_flat(found.column("absent")), values.type.num_fields).any(axis=1)
        write_left(
            self.left, self.instant, self.task, left_table(record_keys(_flat(found.column("skey"))), lost, values)
        )
        return images.filter(pa.array(~leaves))

    def _complete_images(self, images: pa.Table, wanted: set[bytes | None]) -> pa.Table:
        """The images that are wanted, filled; an image may need another one, of the key that it had before."""
        while True:
            mine = [key in wanted for key in images.column("skey").to_pylist()]  # a row loop: changed keys are rare
            found = images.filter(pa.array(mine, pa.bool_()))
            more = set(found.column("from_key").to_pylist()) | wanted
            if more == wanted:
                break
            wanted = more
        if not found.num_rows:
            return found
        values, bits = self._own(found)
        values, bits = self._gone(found, values, bits)
        for _ in range(found.num_rows):
            left = int(bits.sum())
            values, bits = _from(values, bits, found, _with(found, values, bits))
            if int(bits.sum()) in (0, left):
                break
        return _with(found, values, bits)

    def _gone(self, images: pa.Table, values: pa.StructArray, bits: Bits) -> tuple[pa.StructArray, Bits]:
        """Images of keys that have no row any more, as it was before it was deleted."""
        lost = bits.any(axis=1) & ~images.column("from_key").is_valid().to_numpy()
        if not lost.any():
            return values, bits
        keys = record_keys(_flat(images.column("skey")))
        names = [f.name for i, f in enumerate(values.type) if bits[lost, i].any()]
        wanted = pa.schema([self.schema.field(name).with_nullable(True) for name in names])
        asked = set(keys.filter(pa.array(lost)).to_pylist())
        kept = list(read_left(self.left, asked, self.instant))
        held = left_rows(self.table, self.timeline, asked, wanted, kept)
        found = pc.index_in(keys, value_set=_flat(held.column(KEY)))
        there = found.is_valid().to_numpy(zero_copy_only=False) & lost
        return _merged(values, bits, held, found, there)

    def _own(self, short: pa.Table) -> tuple[pa.StructArray, Bits]:
        """Rows with what the table has of them, and what they still lack."""
        values = _struct(short.column("row"))
        bits = unpack_absent(_flat(short.column("absent")), values.type.num_fields)
        known = short.column("from_file").is_valid().to_numpy()
        if not known.any():
            return values, bits
        names = [f.name for i, f in enumerate(values.type) if bits[known, i].any()]
        keys = record_keys(_flat(short.column("from_key")))
        held = self._read(
            short.column("from_part").to_pylist(), short.column("from_file").to_pylist(), keys, known, names
        )
        found = pc.index_in(_place_keys(short, keys), value_set=held.column("@at"))
        there = found.is_valid().to_numpy(zero_copy_only=False) & known
        return _merged(values, bits, held, found, there)

    def _read(
        self, parts: list[str | None], files: list[str | None], keys: pa.Array, known: Bits, names: list[str]
    ) -> pa.Table:
        """The columns of the rows of ``keys``, with ``@at``: their place and key."""
        as_of = self.timeline.newest_completed
        view = self.table.view(self.timeline)
        groups: dict[tuple[str, str], list[int]] = {}
        for i in np.flatnonzero(known).tolist():
            groups.setdefault((str(parts[i]), str(files[i])), []).append(i)
        by_part: dict[str, list[str]] = {}
        for part, file_id in groups:
            by_part.setdefault(part, []).append(file_id)
        view.look_up(by_part)
        schema = snapshot_schema(self.table, self.timeline, view)
        there = [name for name in names if name in schema.names]
        out: list[pa.Table] = []
        reader = None if as_of is None else SliceReader(self.table, self.timeline, as_of, schema, (RECORD_KEY, *there))
        for part, file_ids in by_part.items():
            for file_id, file_slice in view.latest_slices(part, file_ids).items():
                mine = keys.take(pa.array(groups[part, file_id]))
                for batch in reader.read(file_slice) if reader is not None else ():
                    rows = batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=mine))
                    if rows.num_rows:
                        at = pc.binary_join_element_wise(part, file_id, rows.column(RECORD_KEY).cast(pa.string()), "\0")
                        out.append(rows.select(there).append_column("@at", at))
        wanted = pa.schema([*(self.schema.field(n).with_nullable(True) for n in names), pa.field("@at", pa.string())])
        return pa.concat_tables([wanted.empty_table(), *(conform(t, wanted, "rows that are held") for t in out)])

    def _check(self, short: pa.Table, bits: Bits) -> None:
        lost = np.flatnonzero(bits.any(axis=1))
        if not len(lost) or self.null_if_lost:
            return
        key = record_keys(_flat(short.column("skey")).slice(int(lost[0]), 1))[0].as_py()
        columns = [self.schema.names[i] for i in np.flatnonzero(bits[lost[0]]).tolist()]
        raise HeldRowError(
            f"record {key!r} came without {', '.join(columns)}, which had not changed at the source, and the row that had "
            f"them is gone from {self.table.base_path} ({len(lost)} such records in a task): its key was changed and its "
            "delete was read in an earlier batch. Take a snapshot of this row at the source, or give "
            "tagstream.debezium.unavailable.lost=null to have nulls in their place"
        )


def _from(values: pa.StructArray, bits: Bits, short: pa.Table, images: pa.Table) -> tuple[pa.StructArray, Bits]:
    """Rows filled from images of the keys that they name."""
    if not images.num_rows or not bits.any():
        return values, bits
    found = pc.index_in(_flat(short.column("from_key")), value_set=_flat(images.column("skey")))
    there = found.is_valid().to_numpy(zero_copy_only=False)
    has = unpack_absent(_flat(images.column("absent")), values.type.num_fields)
    rows = pc.fill_null(found, 0).to_numpy()
    usable = bits & there[:, None] & ~has[rows]
    columns = []
    for i, column in enumerate(values.flatten()):
        theirs = _struct(images.column("row")).flatten()[i].take(found)
        columns.append(pc.if_else(pa.array(usable[:, i]), theirs, column))
    return pa.StructArray.from_arrays(columns, fields=list(values.type)), bits & ~usable


def _merged(
    values: pa.StructArray, bits: Bits, held: pa.Table, found: pa.Array, there: Bits
) -> tuple[pa.StructArray, Bits]:
    columns = []
    for i, (field, column) in enumerate(zip(values.type, values.flatten(), strict=True)):
        use = bits[:, i] & there
        if use.any():
            column = pc.if_else(pa.array(use), _flat(held.column(field.name)).take(found).cast(field.type), column)
        columns.append(column)
    return pa.StructArray.from_arrays(columns, fields=list(values.type)), bits & ~there[:, None]


def _with(images: pa.Table, values: pa.StructArray, bits: Bits) -> pa.Table:
    n = images.num_rows
    images = images.set_column(images.schema.get_field_index("row"), images.schema.field("row"), values)
    left = absent_bits(bits, np.arange(n), n)
    return images.set_column(images.schema.get_field_index("absent"), images.schema.field("absent"), left)


def _place_keys(short: pa.Table, keys: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(_flat(short.column("from_part")), _flat(short.column("from_file")), keys, "\0")


def _struct(column: pa.ChunkedArray) -> pa.StructArray:
    flat = column.combine_chunks()
    return flat.chunk(0) if isinstance(flat, pa.ChunkedArray) else flat


def _flat(values: Iterable[object]) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
