"""Operations on whole Arrow columns that the decoders share.

The columns of a row that were not sent are stored as bits: bit i of the bytes (most significant first) is column i of
the schema.

Other functions decode bytes in texts (base64, hex).
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.chunks import content, flat
from tagstream.table.fields import path_of, struct_of

Mask = npt.NDArray[np.bool_]


def mask_of(values: pa.Array | pa.ChunkedArray) -> Mask:
    """A boolean column as a mask; null is false."""
    mask: Mask = flat(pc.fill_null(values, False)).to_numpy(zero_copy_only=False)
    return mask


def nulls_of(values: pa.Array | pa.ChunkedArray) -> Mask:
    """Mask of the nulls."""
    mask: Mask = flat(values.is_null()).to_numpy(zero_copy_only=False)
    return mask


def text_where(mask: Mask, text: str) -> pa.Array:
    """``text`` where the mask is true, else null."""
    if not mask.any():
        return pa.nulls(len(mask), pa.string())
    return pc.if_else(pa.array(mask), pa.scalar(text, pa.string()), pa.scalar(None, pa.string()))


def only_where(mask: Mask, values: pa.Array) -> pa.Array:
    """``values`` where the mask is true, else null."""
    if mask.all():
        return values
    return pc.if_else(pa.array(mask), values, pa.scalar(None, values.type))


def with_values(rows: pa.Table, name: str, where: pa.Array, values: pa.Array) -> pa.Table:
    """The rows with ``values`` in a column, or in a field of a struct column (dotted path), where the boolean ``where``
    is true. A null value changes nothing.
    """
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
    return struct_of(members, fields, nulls_of(own) & ~mask_of(where))


def pack_absent(masks: Mapping[int, Mask], rows: int, columns: int) -> pa.Array | None:
    """Each row's bits as binary, null for rows that have all columns; None when all rows have them. ``masks``: by
    column.
    """
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
    """Binary of ``bits`` (one row for each of the row numbers ``at``), null for other rows and where no bit is set."""
    width = (bits.shape[1] + 7) // 8
    data = np.packbits(bits, axis=1)
    made = pa.Array.from_buffers(pa.binary(width), len(at), [None, pa.py_buffer(data.tobytes())]).cast(pa.binary())
    place = np.full(rows, -1, np.int64)
    place[at] = np.where(bits.any(axis=1), np.arange(len(at)), -1)
    return made.take(pa.array(place, mask=place < 0))


def unpack_absent(absent: pa.Array, columns: int) -> npt.NDArray[np.bool_]:
    """A matrix rows x columns: true for a missing column. Null in ``absent``: none is missing."""
    width = (columns + 7) // 8
    filled = pc.fill_null(absent, bytes(width)).cast(pa.binary(width))
    data = np.frombuffer(filled.buffers()[1], np.uint8, len(filled) * width, filled.offset * width)
    return np.unpackbits(data.reshape(-1, width), axis=1, count=columns).astype(np.bool_)


def header_texts(headers: pa.Array, wanted: Mask) -> pa.Array:
    """Headers of Kafka messages as JSON where the mask is true: ``[[name, base64 of the value or null], ...]``; null
    for no headers.

    A loop over rows, since only bad records need it.
    """
    texts: list[str | None] = [None] * len(headers)
    for i in np.flatnonzero(wanted & ~nulls_of(headers)).tolist():
        told = [[h["key"], None if h["value"] is None else b64encode(h["value"]).decode()] for h in headers[i].as_py()]
        texts[i] = json.dumps(told)
    return pa.array(texts, pa.string())


Bytes = npt.NDArray[np.uint8]
_BASE64 = np.full(256, 255, np.uint8)
for _i, _c in enumerate(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"):
    _BASE64[_c] = _i
_HEX = np.full(256, 255, np.uint8)
for _i, _c in enumerate(b"0123456789abcdef"):
    _HEX[_c] = _HEX[ord(chr(_c).upper())] = _i


def from_base64(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Bytes of base64 texts with padding, and the mask of invalid texts (which become empty)."""
    length, begin, data = content(texts)
    wrong = (length % 4) != 0
    end = begin + length
    filled = length > 0
    pad = np.zeros(len(length), np.int64)
    if len(data):
        last = filled & (data[np.maximum(end - 1, 0)] == ord("="))
        pad = last.astype(np.int64) + (last & (data[np.maximum(end - 2, 0)] == ord("=")))
    codes = _BASE64[data]
    owner = np.repeat(np.arange(len(length)), length)
    place = np.arange(len(data)) - np.repeat(begin, length)
    is_pad = place >= np.repeat(length - pad, length)
    wrong |= np.bincount(owner[(codes == 255) & ~is_pad], minlength=len(length)) > 0
    if wrong.any():
        keep = ~np.repeat(wrong, length)
        codes, is_pad = codes[keep], is_pad[keep]
        length, pad = np.where(wrong, 0, length), np.where(wrong, 0, pad)
    quads = np.where(is_pad, 0, codes).astype(np.uint32).reshape(-1, 4)
    value = (quads[:, 0] << 18) | (quads[:, 1] << 12) | (quads[:, 2] << 6) | quads[:, 3]
    triples = np.empty((len(value), 3), np.uint8)
    triples[:, 0], triples[:, 1], triples[:, 2] = value >> 16, value >> 8, value
    out_length = length // 4 * 3
    if pad.any():
        at = np.arange(int(out_length.sum())) - np.repeat(np.cumsum(out_length) - out_length, out_length)
        triples = triples.reshape(-1)[at < np.repeat(out_length - pad, out_length)]
    return _binary(out_length - pad, triples.reshape(-1), texts), wrong


def from_hex(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Bytes of hexadecimal texts, and the mask of invalid texts (which become empty)."""
    length, _, data = content(texts)
    codes = _HEX[data]
    wrong = (length % 2) != 0
    wrong |= np.bincount(np.repeat(np.arange(len(length)), length)[codes == 255], minlength=len(length)) > 0
    if wrong.any():
        codes = codes[~np.repeat(wrong, length)]
        length = np.where(wrong, 0, length)
    pairs = codes.reshape(-1, 2)
    return _binary(length // 2, ((pairs[:, 0] << 4) | pairs[:, 1]).astype(np.uint8), texts), wrong


def _binary(length: npt.NDArray[np.int64], data: Bytes, like: pa.Array) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(length))).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(np.ascontiguousarray(data).tobytes())]
    made = pa.Array.from_buffers(pa.binary(), len(length), buffers)
    return pc.if_else(like.is_valid(), made, pa.scalar(None, pa.binary())) if like.null_count else made
