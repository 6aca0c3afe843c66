"""Small steps over Arrow columns that the decoders share, and which columns of a row were not sent.

These are told as bits: bit i of the bytes (most significant first) is column i of the schema.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.chunks import flat
from tagstream.table.fields import path_of

Mask = npt.NDArray[np.bool_]


def mask_of(values: pa.Array | pa.ChunkedArray) -> Mask:
    """A boolean column as a mask; null is false."""
    mask: Mask = flat(pc.fill_null(values, False)).to_numpy(zero_copy_only=False)
    return mask


def nulls_of(values: pa.Array | pa.ChunkedArray) -> Mask:
    """The mask of the nulls."""
    mask: Mask = flat(values.is_null()).to_numpy(zero_copy_only=False)
    return mask


def text_where(mask: Mask, text: str) -> pa.Array:
    """``text`` where the mask is, else null."""
    if not mask.any():
        return pa.nulls(len(mask), pa.string())
    return pc.if_else(pa.array(mask), pa.scalar(text, pa.string()), pa.scalar(None, pa.string()))


def only_where(mask: Mask, values: pa.Array) -> pa.Array:
    """``values`` where the mask is, else null."""
    if mask.all():
        return values
    return pc.if_else(pa.array(mask), values, pa.scalar(None, values.type))


def with_values(rows: pa.Table, name: str, where: pa.Array, values: pa.Array) -> pa.Table:
    """The rows with ``values`` in a column, or in a field of a struct column (dotted path), where the boolean ``where`` is;
    a null value leaves what is there."""
    head, *path = path_of(name, rows.schema.names)
    i = rows.schema.get_field_index(head)
    return rows.set_column(i, rows.schema.field(i), _put(flat(rows.column(i)), path, where, values))


def _put(own: pa.Array, path: Sequence[str], where: pa.Array, values: pa.Array) -> pa.Array:
    if not path:
        return pc.if_else(where, pc.coalesce(values, own), own)
    fields = list(own.type)
    members = [
        _put(member, path[1:], where, values) if field.name == path[0] else member
        for field, member in zip(fields, own.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(members, fields=fields, mask=pc.and_(own.is_null(), pc.invert(where)))


def pack_absent(masks: Mapping[int, Mask], rows: int, columns: int) -> pa.Array | None:
    """Binary of the bits of each row, null for rows that have all columns; None when all rows have. ``masks``: by column."""
    found = {i: mask for i, mask in masks.items() if mask.any()}
    if not found:
        return None
    some = np.logical_or.reduce(list(found.values()))
    at = np.flatnonzero(some)
    bits = np.zeros((len(at), columns), np.bool_)
    for i, mask in found.items():
        bits[:, i] = mask[at]
    return absent_bits(bits, at, rows)


def absent_bits(bits: npt.NDArray[np.bool_], at: npt.NDArray[np.int64], rows: int) -> pa.Array:
    """Binary of ``bits`` (a row for each of the rows ``at``), null for the others and where no bit is set."""
    width = (bits.shape[1] + 7) // 8
    data = np.packbits(bits, axis=1)
    made = pa.Array.from_buffers(pa.binary(width), len(at), [None, pa.py_buffer(data.tobytes())]).cast(pa.binary())
    place = np.full(rows, -1, np.int64)
    place[at] = np.where(bits.any(axis=1), np.arange(len(at)), -1)
    return made.take(pa.array(place, mask=place < 0))


def unpack_absent(absent: pa.Array, columns: int) -> npt.NDArray[np.bool_]:
    """A matrix rows x columns of what is missing; null: nothing is."""
    width = (columns + 7) // 8
    filled = pc.fill_null(absent, bytes(width)).cast(pa.binary(width))
    data = np.frombuffer(filled.buffers()[1], np.uint8, len(filled) * width, filled.offset * width)
    return np.unpackbits(data.reshape(-1, width), axis=1, count=columns).astype(np.bool_)


def header_texts(headers: pa.Array, wanted: Mask) -> pa.Array:
    """Headers of Kafka messages as JSON where the mask is, ``[[name, base64 of the value or null], ...]``; null for none.

    A loop: only bad records' are wanted.
    """
    texts: list[str | None] = [None] * len(headers)
    for i in np.flatnonzero(wanted & ~nulls_of(headers)).tolist():
        told = [[h["key"], None if h["value"] is None else b64encode(h["value"]).decode()] for h in headers[i].as_py()]
        texts[i] = json.dumps(told)
    return pa.array(texts, pa.string())
