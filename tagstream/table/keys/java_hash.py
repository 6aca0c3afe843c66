"""Java's ``String.hashCode`` and ``List<String>.hashCode`` of whole columns.

The hash of a string is ``31 * h + unit`` folded over its UTF-16 code units (a character beyond U+FFFF is two), of a list
the same over its elements from 1 on; both wrap in 32 bits. Bucket numbers and record-index shards come from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.table.errors import InvalidKeyError

HashCodes = npt.NDArray[np.int32]
_UInt32s = npt.NDArray[np.uint32]
_Int64s = npt.NDArray[np.int64]

_BASE: Final = 31
_INVERSE: Final = pow(_BASE, -1, 1 << 32)
_CHUNK_ROWS: Final = 65_536


def string_hash_codes(keys: pa.Array) -> HashCodes:
    """``String.hashCode`` of every value of a string column; a null has 0.

    Raises InvalidKeyError for bytes that are no UTF-8.
    """
    if not (pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)):
        raise ValueError(
            f"Java hashes texts; the values are {keys.type}: turn them into the texts of Hudi's keys first"
        )
    # The hash of "" is that of a null; filling also leaves no bytes under a null.
    keys = keys.cast(pa.string()).fill_null("")
    parts = [_chunk(keys.slice(start, _CHUNK_ROWS)) for start in range(0, len(keys), _CHUNK_ROWS)]
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def list_hash_codes(columns: Sequence[pa.Array]) -> HashCodes:
    """``List.hashCode`` of every row, the list being the row's strings in the order of the columns; a null counts 0."""
    if not columns:
        raise ValueError("a list hash needs one column at least")
    codes = np.ones(len(columns[0]), np.uint32)
    for column in columns:
        codes *= np.uint32(_BASE)
        codes += string_hash_codes(column).view(np.uint32)
    return codes.view(np.int32)


def _chunk(keys: pa.Array) -> HashCodes:
    """Hashes by prefix sums: with weights 31^-p every string is the difference of two of them, scaled by its end."""
    units, ends = _utf16(keys)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    weighted = np.zeros(len(units) + 1, np.uint32)
    np.cumsum(units * _powers(_INVERSE, len(units)), dtype=np.uint32, out=weighted[1:])
    # A string that ends at e has weight 31^(e-1-p) on unit p; an empty one is a difference of nothing.
    scale = _powers(_BASE, len(units) + 1)[np.maximum(ends - 1, 0)]
    codes: _UInt32s = (weighted[ends] - weighted[starts]) * scale
    return codes.view(np.int32)


def _powers(base: int, count: int) -> _UInt32s:
    powers = np.full(count, base, np.uint32)
    powers[:1] = 1
    out: _UInt32s = np.multiply.accumulate(powers, dtype=np.uint32)
    return out


def _utf16(keys: pa.Array) -> tuple[_UInt32s, _Int64s]:
    """(UTF-16 code units of all strings in a row, the place behind each string's last one)."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    buffer = keys.buffers()[2]
    body = memoryview(buffer)[offsets[0] : offsets[-1]] if buffer is not None else memoryview(b"")
    data, ends = np.frombuffer(body, np.uint8), offsets[1:] - offsets[0]
    if len(data) == 0 or data.max() < 0x80:
        return data.astype(np.uint32), ends
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidKeyError(f"a key is no UTF-8 text ({error}): check the file or source that it came from") from None
    # Units of a character stand at its first byte: none for the bytes that follow, two for one of four bytes.
    units_before = np.cumsum(((data & 0xC0) != 0x80).astype(np.int64) + (data >= 0xF0))
    ends = np.where(ends > 0, units_before[ends - 1], 0)
    return np.frombuffer(text.encode("utf-16-le"), "<u2").astype(np.uint32), ends
