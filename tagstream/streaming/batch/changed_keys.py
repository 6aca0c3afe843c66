"""What a change of key stores in the checkpoint for later batches: deleted rows, and notes of values that were taken
from them.

The old key's delete and the new key's record may come in different batches, and the new record may lack values that had
not changed. A row that a batch made or changed and then deleted is in no file of the table, so its values are stored.
Of another row the location is stored: the file group, and the write as of which the group had the row. The columns of
such a file are:

- ``@key``: record key
- ``@order``: encoded ordering value of the row, null where it is unknown. Files of earlier versions lack this column.
- ``@lost``: whether some of the row's values exist nowhere
- ``@part``, ``@file``, ``@as_of``: the row's location, null where the values are in this file
- the row's columns

Where not all events of the old key have been read, the new record takes the existing values, or null. A note in
``borrowed/`` says which columns it took: ``@key`` and ``@from`` (state keys of the row and of the one that it took
from), ``@columns`` (names), and the values. Once the old key's delete has been read, the right values are written, but
only where the row still has the values that it took: later values stay.

All are small Arrow files, ``<instant>-<task>.arrow``, that only the job's user can read. A file appears whole or not at
all. A second attempt of a task writes the same file again. If a batch is rolled back, its next attempt stores the same
rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import absent_bits, unpack_absent
from tagstream.table.chunks import flat
from tagstream.table.schema.conform import as_type
from tagstream.table.storage.storage import Storage

Bits = npt.NDArray[np.bool_]


def from_images(values: pa.StructArray, bits: Bits, short: pa.Table, images: pa.Table) -> tuple[pa.StructArray, Bits]:
    """Fill rows from images of the keys that they name. Returns the values, and which of them are still lacking."""
    if not images.num_rows or not bits.any():
        return values, bits
    found = pc.index_in(wanted_images(short), value_set=named_images(images))
    there = found.is_valid().to_numpy(zero_copy_only=False)
    has = unpack_absent(flat(images.column("absent")), values.type.num_fields)
    rows = pc.fill_null(found, 0).to_numpy()
    usable = bits & there[:, None] & ~has[rows]
    columns = []
    for i, column in enumerate(values.flatten()):
        theirs = struct_of(images.column("row")).flatten()[i].take(found)
        columns.append(pc.if_else(pa.array(usable[:, i]), theirs, column))
    return pa.StructArray.from_arrays(columns, fields=list(values.type)), bits & ~usable


def wanted_images(short: pa.Table) -> pa.Array:
    """Key and name of the image that each row names, as :func:`named_images` has them; null where a row names none."""
    return _named(short, "from_key", "from_image")


def named_images(images: pa.Table) -> pa.Array:
    """Key and name of each image, joined."""
    return _named(images, "skey", "image")


def _named(rows: pa.Table, key: str, name: str) -> pa.Array:
    names = pc.fill_null(flat(rows.column(name)), b"")
    return pc.binary_join_element_wise(names, flat(rows.column(key)), pa.scalar(b"\0", pa.binary()))


def merged(
    values: pa.StructArray, bits: Bits, existing: pa.Table, found: pa.Array, there: Bits
) -> tuple[pa.StructArray, Bits]:
    """Fill lacking values from rows of the table. Returns the values, and which of them are still lacking.

    ``existing``: rows of the table; ``found``: the number of the row in ``existing`` for each value row; ``there``: mask of
    rows that have one.
    """
    columns = []
    for i, (field, column) in enumerate(zip(values.type, values.flatten(), strict=True)):
        use = bits[:, i] & there
        if use.any():
            column = pc.if_else(
                pa.array(use), as_type(flat(existing.column(field.name)).take(found), field.type), column
            )
        columns.append(column)
    return pa.StructArray.from_arrays(columns, fields=list(values.type)), bits & ~there[:, None]


def with_values(images: pa.Table, values: pa.StructArray, bits: Bits) -> pa.Table:
    """Images with these values and with these lacking columns."""
    n = images.num_rows
    images = images.set_column(images.schema.get_field_index("row"), images.schema.field("row"), values)
    left = absent_bits(bits, np.arange(n), n)
    return images.set_column(images.schema.get_field_index("absent"), images.schema.field("absent"), left)


def place_keys(short: pa.Table, keys: pa.Array) -> pa.Array:
    """Partition path, file id and record key of each row, joined."""
    return pc.binary_join_element_wise(flat(short.column("from_part")), flat(short.column("from_file")), keys, "\0")


def struct_of(column: pa.ChunkedArray) -> pa.StructArray:
    """The column as one struct array."""
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


_SUFFIX = ".arrow"


def write_file(folder: Storage, instant: str, task: int, table: pa.Table) -> None:
    """Write the rows of one write task of a batch to ``<instant>-<task>.arrow``."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)
    folder.replace(f"{instant}-{task:05d}{_SUFFIX}", sink.getvalue().to_pybytes())


def newest_first(folder: Storage, before: str) -> Iterator[tuple[str, pa.Table]]:
    """(instant, table) of the batches before an instant, newest first. A file is read when its table is needed."""
    for name in sorted(_names(folder), reverse=True):
        instant = name.partition("-")[0]
        if instant < before:
            yield instant, pa.ipc.open_file(pa.py_buffer(folder.read(name))).read_all()


def forget_files(folder: Storage, before_ms: int) -> int:
    """Remove the files that were written before a time (epoch milliseconds). Returns their number."""
    old = [entry.name for entry in folder.list("") if entry.name.endswith(_SUFFIX) and entry.mtime_ms < before_ms]
    folder.delete_many(old)
    return len(old)


def _names(folder: Storage) -> list[str]:
    return [name for name in folder.names("") if name.endswith(_SUFFIX)]


BORROWED = "borrowed"
_KEY, _FROM, _COLUMNS = "@key", "@from", "@columns"
Pair = tuple[bytes, bytes]  # state keys of the row and of the row that it took values from


@dataclass(frozen=True)
class Note:
    """``columns`` whose values a row took from another row, and these values."""

    columns: list[str]
    values: Mapping[str, Any]


def notes_table(keys: pa.Array, sources: pa.Array, taken: Bits, rows: pa.StructArray) -> pa.Table:
    """A table of notes: what the rows of ``keys`` took from those of ``sources``. ``taken``: rows x columns."""
    names = [field.name for field in rows.type]
    columns = pa.array([[n for n, took in zip(names, mine, strict=True) if took] for mine in taken.tolist()])
    return pa.Table.from_arrays([keys, sources, columns, *rows.flatten()], names=[_KEY, _FROM, _COLUMNS, *names])


def read_notes(folder: Storage, wanted: set[Pair], before: str) -> dict[Pair, Note]:
    """The newest note of each wanted pair in batches before an instant."""
    found: dict[Pair, Note] = {}
    keys = pa.array(sorted({key for key, _ in wanted}), pa.binary())
    for _, table in newest_first(folder.below(BORROWED), before):
        mine = table.filter(pc.is_in(table.column(_KEY), value_set=keys))
        for row in mine.to_pylist():  # a loop: such rows are rare
            pair = (row.pop(_KEY), row.pop(_FROM))
            if pair in wanted and pair not in found:
                found[pair] = Note(row.pop(_COLUMNS), row)
        if len(found) == len(wanted):
            break
    return found


Right = Mapping[Pair, tuple[Mapping[str, Any], Mapping[str, bool]]]  # values, and which of them are not known


def right_values(sources: pa.Table, lost: Bits, wanted: Mapping[Pair, bytes | None]) -> Right:
    """The values that the rows of the other keys had.

    ``sources``: located images. ``lost``: which of their values are unknown, rows x columns. ``wanted``: the image of
    each pair (:func:`named_images`).
    """
    rows = sources.column("row").to_pylist()
    found = {
        name: (row, dict(zip(row, gone, strict=True)))
        for name, row, gone in zip(named_images(sources).to_pylist(), rows, lost.tolist(), strict=True)
        if row is not None
    }
    return {pair: found[name] for pair, name in wanted.items() if name in found}


def mended(rows: pa.Table, held: Bits, right: Right, notes: Mapping[Pair, Note]) -> tuple[pa.Table, Bits]:
    """Located upserts with the right values instead of those that they took, and a mask of the changed rows.

    ``held``: which of their values the batch has not sent, rows x columns.
    """
    made, changed = rows.column("row").to_pylist(), np.zeros(rows.num_rows, np.bool_)
    at = {key: i for i, key in enumerate(rows.column("skey").to_pylist())}
    for pair, note in notes.items():
        if pair[0] not in at or pair not in right:
            continue
        i, (values, unknown) = at[pair[0]], right[pair]
        unsent = {name for name, mine in zip(values, held[i].tolist(), strict=True) if mine and not unknown[name]}
        for name in unsent.intersection(note.columns):
            if made[i][name] == note.values[name] != values[name]:
                made[i] |= {name: values[name]}
                changed[i] = True
    place = rows.schema.get_field_index("row")
    kind = rows.schema.field("row").type
    return rows.set_column(place, rows.schema.field("row"), pa.array(made, kind)), changed


KEY, ORDER, LOST = "@key", "@order", "@lost"
_PART, _FILE, _AS_OF = "@part", "@file", "@as_of"
Order = int | bytes | None


@dataclass(frozen=True)
class StoredRow:
    """A stored row. ``values``: one row; None where the values are lost, or still in the table at ``place`` (partition
    path, file id, as of which instant).
    """

    values: pa.Table | None
    place: tuple[str, str, str] | None


def find_changed_key_rows(folder: Storage, asked: Sequence[tuple[str, Order]], before: str) -> dict[int, StoredRow]:
    """For each (record key, ordering value), by number: the newest stored row of the key that is older than the value.

    Without a value, or where the row's value is unknown, it is the newest row of the key. ``before``: an instant; later
    batches do not count. Numbers without a stored row are left out.
    """
    found: dict[int, StoredRow] = {}
    open_ = set(range(len(asked)))
    keys = pa.array(sorted({key for key, _ in asked}), pa.string())
    for _, rows in newest_first(folder, before):
        mine = rows.filter(pc.is_in(rows.column(KEY), value_set=keys))
        if mine.num_rows:
            names = mine.column(KEY).to_pylist()
            orders = mine.column(ORDER).to_pylist() if ORDER in mine.column_names else [None] * len(names)
            for n in sorted(open_):  # loops: changed keys are rare
                at = _newest(asked[n], names, orders)
                if at is not None:
                    found[n] = _stored_row(mine.slice(at, 1))
            open_ -= found.keys()
        if not open_:
            break
    return found


def _newest(asked: tuple[str, Order], names: Sequence[str], orders: Sequence[Any]) -> int | None:
    """The last row that matches. The rows are in the order of their deletes."""
    key, limit = asked
    for at in range(len(names) - 1, -1, -1):
        if names[at] == key and (limit is None or orders[at] is None or orders[at] < limit):
            return at
    return None


def _stored_row(row: pa.Table) -> StoredRow:
    values = row.to_pylist()[0]
    if values.get(_FILE) is not None:
        return StoredRow(None, (values[_PART], values[_FILE], values[_AS_OF]))
    return StoredRow(None if values[LOST] else row, None)


def remove_changed_key_rows(folder: Storage, before_ms: int) -> int:
    """Remove the files and the notes in ``borrowed`` that were written before a time (epoch milliseconds). Returns
    their number.
    """
    return sum(forget_files(place, before_ms) for place in (folder, folder.below(BORROWED)))


def changed_key_table(
    keys: pa.Array, orders: pa.Array, lost: Any, places: pa.Table, as_of: str | None, rows: pa.StructArray
) -> pa.Table:
    """The table for the file of one task (:func:`write_file`).

    ``lost``: a mask. ``places``: ``from_part`` and ``from_file``, null where the values are in ``rows``. ``as_of``:
    newest completed instant before the batch.
    """
    names = [KEY, ORDER, LOST, _PART, _FILE, _AS_OF, *(field.name for field in rows.type)]
    instants = pa.array(
        [None if file is None else as_of for file in places.column("from_file").to_pylist()], pa.string()
    )
    there = [places.column("from_part"), places.column("from_file"), instants]
    return pa.Table.from_arrays([keys, orders, pa.array(lost, pa.bool_()), *there, *rows.flatten()], names=names)
