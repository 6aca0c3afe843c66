"""Values that records lack, read from the rows that have them: from the file slices as they were before the batch.

A column that the source did not send keeps its value. The value is in the record's own row, wherever that row is before
the batch, also when the batch moves it. After a change of key it is in the old key's row, which an image of the old
key's group names.

The delete of the old key and the record of the new key come in different topic partitions, and so perhaps in different
batches. A delete stores the location of its row, or the row itself, for later batches (``changed_keys``). Where nothing
was stored, the commits on the timeline are read from the newest back, and only the file groups that they deleted from.
Rows that the cleaner has removed cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.tag_batch import OP_INSERT, OP_UPDATE
from tagstream.streaming.batch.changed_keys import (
    BORROWED,
    KEY,
    Bits,
    StoredRow,
    changed_key_table,
    find_changed_key_rows,
    from_images,
    mended,
    merged,
    named_images,
    notes_table,
    place_keys,
    read_notes,
    right_values,
    struct_of,
    wanted_images,
    with_values,
    write_file,
)
from tagstream.streaming.batch.located import OP_CHANGED_KEY, OP_IMAGE, OP_MEND, OPEN
from tagstream.streaming.errors import HeldRowError
from tagstream.streaming.source.decode.columns import absent_bits, unpack_absent
from tagstream.streaming.source.decode.key_decoder import record_keys
from tagstream.table.chunks import flat
from tagstream.table.errors import TagstreamError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import snapshot_schema
from tagstream.table.schema.conform import from_file
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.timeline import Timeline

NUMBER = "@number"


def values_of(
    changed_key_rows: Mapping[int, StoredRow],
    table: HoodieTable,
    timeline: Timeline,
    keys: Sequence[str],
    wanted: pa.Schema,
) -> pa.Table:
    """The columns ``wanted`` and ``@number`` of stored rows (``changed_keys.find_changed_key_rows``), as far as they
    can be read.

    ``changed_key_rows``: the stored rows by number. ``keys``: the record key of each number.
    """
    schema = pa.schema([*wanted, pa.field(NUMBER, pa.int64())])
    out = [schema.empty_table()]
    places: dict[str, dict[tuple[str, str], list[int]]] = {}
    for n, one in changed_key_rows.items():
        if one.values is not None:
            there = [name for name in wanted.names if name in one.values.column_names]
            rows = one.values.select(there).append_column(NUMBER, pa.array([n]))
            out.append(from_file(rows, schema, "rows of changed keys"))
        elif one.place is not None and not timeline.is_archived(one.place[2]):
            places.setdefault(one.place[2], {}).setdefault(one.place[:2], []).append(n)
    for as_of, groups in places.items():
        for (part, file_id), numbers in groups.items():
            names = [keys[n] for n in numbers]  # a key may occur more than once
            named = pa.schema([*wanted, pa.field(KEY, pa.string())])
            rows = _rows_of(table, timeline, as_of, {part: [file_id]}, set(names), named)
            at = pc.index_in(pa.array(names), value_set=rows.column(KEY))
            found = rows.select(wanted.names).take(at.drop_null())
            out.append(found.append_column(NUMBER, pa.array(numbers).filter(at.is_valid())).cast(schema))
    return pa.concat_tables(out)


def deleted_rows(table: HoodieTable, timeline: Timeline, keys: set[str], wanted: pa.Schema) -> pa.Table:
    """The columns ``wanted`` and ``@key`` of the last rows of deleted ``keys``, where they are found in the table's
    history.
    """
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
            except (OSError, TagstreamError):  # the cleaner has removed it
                continue
    return pa.concat_tables(
        [schema.empty_table(), *(from_file(rows, schema, "rows that were deleted") for rows in out)]
    )


def _with_keys(batches: Sequence[pa.Table], keys: pa.Array, names: Sequence[str]) -> list[pa.Table]:
    found = [batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=keys)) for batch in batches]
    return [rows.select(names).append_column(KEY, rows.column(RECORD_KEY)) for rows in found if rows.num_rows]


@dataclass(frozen=True)
class ExistingRows:
    """Reads existing rows from the table, as of the timeline that the batch was decided on. ``schema``: of the batch's
    records.

    ``changed_keys``: folder for rows that were deleted in the batch that made them. ``instant`` and ``task``: of the batch.
    ``null_if_lost``: a value that no row has becomes null; else it is an error.
    """

    table: HoodieTable
    timeline: Timeline
    schema: pa.Schema
    changed_keys: Storage
    instant: str
    task: int
    null_if_lost: bool = False

    def fill(self, rows: pa.Table) -> pa.Table:
        """Located records with all of their values, without the images. HeldRowError where a value is lost."""
        if "absent" not in rows.column_names:
            return rows
        op = rows.column("op").to_numpy()
        is_image, is_mend = (op == OP_IMAGE) | (op == OP_CHANGED_KEY), op == OP_MEND
        if not (is_image | is_mend).any():
            return self._filled(rows, rows.slice(0, 0))
        images, to_mend = rows.filter(pa.array(is_image)), rows.filter(pa.array(is_mend))
        images = self._keep(images)
        rows = self._filled(rows.filter(pa.array(~is_image & ~is_mend)), images)
        return self._mended(rows, to_mend, images) if to_mend.num_rows else rows

    def _filled(self, rows: pa.Table, images: pa.Table) -> pa.Table:
        at = np.flatnonzero(rows.column("absent").is_valid().to_numpy())
        if not len(at):
            return rows
        short = rows.take(pa.array(at))
        wanted = set(short.column("from_key").to_pylist())
        images = self._complete_images(images, wanted)
        values, own = self._own(short)
        values, bits = from_images(values, own, short, images)
        self._check(short, self._borrow(short, values, own, images, bits))
        order = np.arange(rows.num_rows)
        order[at] = rows.num_rows + np.arange(len(at))
        i = rows.schema.get_field_index("row")
        both = pa.chunked_array([*rows.column(i).chunks, values])
        return rows.set_column(i, rows.schema.field(i), both.take(pa.array(order)))

    def _borrow(self, short: pa.Table, values: pa.StructArray, lacked: Bits, images: pa.Table, bits: Bits) -> Bits:
        """Store a note of the values that rows take from images that are still open.

        Returns the values that are lost, without those that may still come.
        """
        is_open = named_images(images.filter(images.column("note").is_valid()))
        mine = pc.is_in(wanted_images(short), value_set=is_open).to_numpy(zero_copy_only=False)
        nullable = np.array([field.nullable for field in self.schema], np.bool_)
        taken = lacked & mine[:, None] & nullable
        some = taken.any(axis=1)
        if some.any():
            take = pa.array(some)
            keys, sources = (flat(short.column(name)).filter(take) for name in ("skey", "from_key"))
            made = notes_table(keys, sources, taken[some], values.filter(take))
            write_file(self.changed_keys.below(BORROWED), self.instant, self.task, made)
        # If the key was deleted before and its row was not found, the row will not come.
        never = named_images(images.filter(pc.equal(images.column("note"), OPEN).fill_null(False)))
        may_come = pc.is_in(wanted_images(short), value_set=never).to_numpy(zero_copy_only=False)
        left: Bits = bits & ~(taken & may_come[:, None])
        return left

    def _mended(self, rows: pa.Table, to_mend: pa.Table, images: pa.Table) -> pa.Table:
        """Correct the rows that took values too early, both rows of the batch and rows that only the table has."""
        pairs = list(zip(to_mend.column("skey").to_pylist(), to_mend.column("from_key").to_pylist(), strict=True))
        notes = read_notes(self.changed_keys, set(pairs), self.instant)
        to_mend = to_mend.filter(pa.array([pair in notes for pair in pairs], pa.bool_()))
        if not to_mend.num_rows:
            return rows
        pairs = [pair for pair in pairs if pair in notes]
        keys = flat(to_mend.column("skey"))
        sources = self._complete_images(images, set(to_mend.column("from_key").to_pylist()))
        # A key that changed twice in the batch has two images.
        sources = sources.filter(pc.is_in(named_images(sources), value_set=wanted_images(to_mend)))
        lost = unpack_absent(flat(sources.column("absent")), len(self.schema))
        wanted = dict(zip(pairs, wanted_images(to_mend).to_pylist(), strict=True))
        unknown = dict(zip(named_images(sources).to_pylist(), lost, strict=True))
        for (key, source), note in notes.items():
            nothing = np.array([name in note.columns and note.values[name] is None for name in self.schema.names])
            if not self.null_if_lost and (nothing & unknown.get(wanted[key, source], True)).any():
                raise self._lost(key, nothing, 1)
        upsert = pc.is_in(rows.column("op"), value_set=pa.array([OP_INSERT, OP_UPDATE], pa.int8()))
        mine = pc.and_(upsert, pc.is_in(rows.column("skey"), value_set=keys))
        own = self._whole(to_mend.filter(to_mend.column("from_file").is_valid()))
        batch = rows.filter(mine)
        right = right_values(sources, lost, wanted)
        changed, _ = mended(batch, unpack_absent(flat(batch.column("absent")), len(self.schema)), right, notes)
        more, is_new = mended(own, np.ones((own.num_rows, len(self.schema)), np.bool_), right, notes)
        return pa.concat_tables([rows.filter(pc.invert(mine)), changed, more.filter(pa.array(is_new))])

    def _whole(self, places: pa.Table) -> pa.Table:
        """Updates that write rows unchanged, as the table has them. Rows that the table does not have any more are left
        out.
        """
        n, width = places.num_rows, len(self.schema)
        everything = absent_bits(np.ones((n, width), np.bool_), np.arange(n), n)
        ops = pa.array(np.full(n, OP_UPDATE, np.int8))
        for name, column in (("from_key", places.column("skey")), ("absent", everything), ("op", ops)):
            i = places.schema.get_field_index(name)
            places = places.set_column(i, places.schema.field(i), column)
        values, bits = self._own(places)
        i = places.schema.get_field_index("row")
        return places.set_column(i, places.schema.field(i), values).filter(pa.array(~bits.any(axis=1)))

    def _keep(self, images: pa.Table) -> pa.Table:
        """Store the rows that deletes keep for later batches. Returns the other images."""
        leaves = images.column("op").to_numpy() == OP_CHANGED_KEY
        if not leaves.any():
            return images
        asked = images.filter(pa.array(leaves))
        whole = unpack_absent(flat(asked.column("absent")), len(self.schema)).all(axis=1)
        away = pa.array(whole & asked.column("from_file").is_valid().to_numpy())  # only the table has it
        here = asked.filter(pc.invert(away))
        found = self._complete_images(images, set(here.column("skey").to_pylist())) if here.num_rows else here
        named = pc.is_in(named_images(found), value_set=named_images(here))
        found = found.filter(pc.and_(named, pc.equal(found.column("op"), OP_CHANGED_KEY)))
        none = pa.nulls(found.num_rows, pa.string())
        for i in (found.schema.get_field_index(name) for name in ("from_part", "from_file")):
            found = found.set_column(i, found.schema.field(i), none)
        left = pa.concat_tables([asked.filter(away), found])
        values = struct_of(left.column("row"))
        lost = unpack_absent(flat(left.column("absent")), values.type.num_fields).any(axis=1)
        keys = record_keys(flat(left.column("skey")))
        as_of = self.timeline.newest_completed
        made = changed_key_table(
            keys, flat(left.column("ord")), lost, left.select(["from_part", "from_file"]), as_of, values
        )
        write_file(self.changed_keys, self.instant, self.task, made)
        return images.filter(pa.array(~leaves))

    def _complete_images(self, images: pa.Table, wanted: set[bytes | None]) -> pa.Table:
        """The wanted images, filled. An image may need another one, of the key that its row had before."""
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
        found, values, bits = self._gone(found, values, bits)
        for _ in range(found.num_rows):
            left = int(bits.sum())
            values, bits = from_images(values, bits, found, with_values(found, values, bits))
            if int(bits.sum()) in (0, left):
                break
        return with_values(found, values, bits)

    def _gone(self, images: pa.Table, values: pa.StructArray, bits: Bits) -> tuple[pa.Table, pa.StructArray, Bits]:
        """Fill images of keys without a row: with the row as it was before its delete.

        A row that was stored without its values has none that may still come.
        """
        lost = bits.any(axis=1) & ~images.column("from_key").is_valid().to_numpy()
        if not lost.any():
            return images, values, bits
        keys = record_keys(flat(images.column("skey")))
        names = [f.name for i, f in enumerate(values.type) if bits[lost, i].any()]
        wanted = pa.schema([self.schema.field(name).with_nullable(True) for name in names])
        numbers = np.flatnonzero(lost).tolist()
        names_of, orders = keys.to_pylist(), images.column("ord").to_pylist()
        asked = [(names_of[n], orders[n]) for n in numbers]
        changed_key_rows = {
            numbers[n]: one for n, one in find_changed_key_rows(self.changed_keys, asked, self.instant).items()
        }
        existing = values_of(changed_key_rows, self.table, self.timeline, names_of, wanted)
        found = pc.index_in(pa.array(range(images.num_rows), pa.int64()), value_set=flat(existing.column(NUMBER)))
        values, bits = merged(values, bits, existing, found, found.is_valid().to_numpy(zero_copy_only=False) & lost)
        # If events of a key may still come and none so far was a delete, the table most likely never had the key.
        # The search would read all deletes on the timeline without finding it.
        is_open = pc.equal(images.column("note"), OPEN).fill_null(False).to_numpy()
        settled = np.isin(np.arange(images.num_rows), list(changed_key_rows))
        ask = lost & ~settled & ~is_open
        existing = deleted_rows(self.table, self.timeline, set(keys.filter(pa.array(ask)).to_pylist()), wanted)
        found = pc.index_in(keys, value_set=flat(existing.column(KEY)))
        there = found.is_valid().to_numpy(zero_copy_only=False) & ask
        note = pc.if_else(
            pa.array(settled & bits.any(axis=1)), pa.scalar(None, pa.string()), flat(images.column("note"))
        )
        i = images.schema.get_field_index("note")
        return images.set_column(i, images.schema.field(i), note), *merged(values, bits, existing, found, there)

    def _own(self, short: pa.Table) -> tuple[pa.StructArray, Bits]:
        """Rows filled with the values that the table has of them, and which values they still lack."""
        values = struct_of(short.column("row"))
        bits = unpack_absent(flat(short.column("absent")), values.type.num_fields)
        known = short.column("from_file").is_valid().to_numpy()
        if not known.any():
            return values, bits
        names = [f.name for i, f in enumerate(values.type) if bits[known, i].any()]
        keys = record_keys(flat(short.column("from_key")))
        existing = self._read(
            short.column("from_part").to_pylist(), short.column("from_file").to_pylist(), keys, known, names
        )
        found = pc.index_in(place_keys(short, keys), value_set=existing.column("@at"))
        there = found.is_valid().to_numpy(zero_copy_only=False) & known
        return merged(values, bits, existing, found, there)

    def _read(
        self, parts: list[str | None], files: list[str | None], keys: pa.Array, known: Bits, names: list[str]
    ) -> pa.Table:
        """The columns of the rows of ``keys``, and ``@at``: their location and key."""
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
        return pa.concat_tables([wanted.empty_table(), *(from_file(t, wanted, "rows that are held") for t in out)])

    def _check(self, short: pa.Table, bits: Bits) -> None:
        lost = np.flatnonzero(bits.any(axis=1))
        if len(lost) and not self.null_if_lost:
            raise self._lost(flat(short.column("skey"))[int(lost[0])].as_py(), bits[lost[0]], len(lost))

    def _lost(self, skey: bytes, columns: Bits, count: int) -> HeldRowError:
        key = record_keys(pa.array([skey], pa.binary()))[0].as_py()
        names = [self.schema.names[i] for i in np.flatnonzero(columns).tolist()]
        return HeldRowError(
            f"record {key!r} has no value for {', '.join(names)}, because they did not change at the source, and the row "
            f"with these values is gone from {self.table.base_path} ({count} such records in a task): either the row's key "
            "was changed and its delete was read in an earlier batch, or the row was never read. Take a snapshot of this "
            "row at the source, or set tagstream.debezium.unavailable.lost=null to write nulls instead"
        )
