"""What rows took from another key's row too early, and how it is made good when that key's delete has been read.

A record that lacks values after a change of key takes them from the old key's row. Where not all of that key's events have
been read (``tag/mends.py``) it takes what is there, or null, and a note says which columns it took. The mending puts the
right values in where the row still has those that it took: what was sent since stays.

Notes are files (``left_files``) in ``borrowed/`` beside the rows of ``left_images``: ``@key`` and ``@from`` (state
keys of the row and of the one it took from), ``@columns`` (names), and the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.write.left_files import newest_first
from tagstream.streaming.write.row_values import Bits, named_images
from tagstream.table.storage.storage import Storage

BORROWED = "borrowed"
_KEY, _FROM, _COLUMNS = "@key", "@from", "@columns"
Pair = tuple[bytes, bytes]  # the row's key, the other key


@dataclass(frozen=True)
class Note:
    """``columns`` of a row, and the values that it took for them."""

    columns: list[str]
    values: Mapping[str, Any]


def notes_table(keys: pa.Array, sources: pa.Array, taken: Bits, rows: pa.StructArray) -> pa.Table:
    """What the rows of ``keys`` took from those of ``sources``; ``taken``: rows x columns."""
    names = [field.name for field in rows.type]
    columns = pa.array([[n for n, took in zip(names, mine, strict=True) if took] for mine in taken.tolist()])
    return pa.Table.from_arrays([keys, sources, columns, *rows.flatten()], names=[_KEY, _FROM, _COLUMNS, *names])


def read_notes(folder: Storage, wanted: set[Pair], before: str) -> dict[Pair, Note]:
    """The newest notes of earlier batches, of these rows; ``before``: an instant."""
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
    """What the other keys' rows had. ``sources``: located images; ``lost``: which of their values are not known, rows x
    columns; ``wanted``: the image of each pair (``row_values.named_images``).
    """
    rows = sources.column("row").to_pylist()
    found = {
        name: (row, dict(zip(row, gone, strict=True)))
        for name, row, gone in zip(named_images(sources).to_pylist(), rows, lost.tolist(), strict=True)
        if row is not None
    }
    return {pair: found[name] for pair, name in wanted.items() if name in found}


def mended(rows: pa.Table, held: Bits, right: Right, notes: Mapping[Pair, Note]) -> tuple[pa.Table, Bits]:
    """Located upserts with the right values in place of those that they took, and which of them have changed.

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
