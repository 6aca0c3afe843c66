"""The bucket of a record key, as Hudi's and Flink's bucket index compute it from Java's hash codes.

The values of the hash fields (``hash_fields``) are hashed as a Java ``List<String>``. The bucket is that hash without
its sign, modulo the number of buckets (``BucketIdentifier.java``).

The hash of a string is ``31 * h + unit`` folded over its UTF-16 code units (a character beyond U+FFFF is two). The hash
of a list is the same over its elements, from 1 on. Both wrap at 32 bits. The shards of the record index use them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.table.errors import InvalidKeyError
from tagstream.table.keys.hash_fields import HashFields

HashCodes = npt.NDArray[np.int32]
_UInt32s = npt.NDArray[np.uint32]
_Int64s = npt.NDArray[np.int64]

_BASE: Final = 31
_INVERSE: Final = pow(_BASE, -1, 1 << 32)
_CHUNK_ROWS: Final = 65_536


def string_hash_codes(keys: pa.Array) -> HashCodes:
    """``String.hashCode`` of every value of a string column; 0 for a null.

    Raises InvalidKeyError for bytes that are not UTF-8.
    """
    if not (pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)):
        raise ValueError(
            f"Java hashes texts, and the values are {keys.type}: turn them into the texts of Hudi's keys first"
        )
    # The hash of "" is that of a null. Filling also removes bytes under a null.
    keys = keys.cast(pa.string()).fill_null("")
    parts = [_chunk(keys.slice(start, _CHUNK_ROWS)) for start in range(0, len(keys), _CHUNK_ROWS)]
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def list_hash_codes(columns: Sequence[pa.Array]) -> HashCodes:
    """``List.hashCode`` of every row: the list has the row's strings in the order of the columns; a null counts as 0."""
    if not columns:
        raise ValueError("a list hash needs at least one column")
    codes = np.ones(len(columns[0]), np.uint32)
    for column in columns:
        codes *= np.uint32(_BASE)
        codes += string_hash_codes(column).view(np.uint32)
    return codes.view(np.int32)


def _chunk(keys: pa.Array) -> HashCodes:
    """Hashes by prefix sums with weights 31^-p: each string is the difference of two sums, scaled by its end."""
    units, ends = _utf16(keys)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    weighted = np.zeros(len(units) + 1, np.uint32)
    np.cumsum(units * _powers(_INVERSE, len(units)), dtype=np.uint32, out=weighted[1:])
    # The scale 31^(e-1) gives unit p the weight 31^(e-1-p), where e is the end of the string. Empty strings have sum 0.
    scale = _powers(_BASE, len(units) + 1)[np.maximum(ends - 1, 0)]
    codes: _UInt32s = (weighted[ends] - weighted[starts]) * scale
    return codes.view(np.int32)


def _powers(base: int, count: int) -> _UInt32s:
    powers = np.full(count, base, np.uint32)
    powers[:1] = 1
    out: _UInt32s = np.multiply.accumulate(powers, dtype=np.uint32)
    return out


def _utf16(keys: pa.Array) -> tuple[_UInt32s, _Int64s]:
    """(UTF-16 code units of all strings, concatenated; the end of each string in it)."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    buffer = keys.buffers()[2]
    body = memoryview(buffer)[offsets[0] : offsets[-1]] if buffer is not None else memoryview(b"")
    data, ends = np.frombuffer(body, np.uint8), offsets[1:] - offsets[0]
    if len(data) == 0 or data.max() < 0x80:
        return data.astype(np.uint32), ends
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidKeyError(
            f"a key is not UTF-8 text ({error}): check the file or source that it came from"
        ) from None
    # Code units are counted at a character's first byte: 1, or 2 for a character of four bytes. Other bytes count 0.
    units_before = np.cumsum(((data & 0xC0) != 0x80).astype(np.int64) + (data >= 0xF0))
    ends = np.where(ends > 0, units_before[ends - 1], 0)
    return np.frombuffer(text.encode("utf-16-le"), "<u2").astype(np.uint32), ends


@dataclass(frozen=True)
class BucketHash:
    """The bucket of a record key in a table with ``num_buckets`` buckets.

    ``record_key_fields``, ``fields`` and ``release``: as in ``HashFields``.
    """

    num_buckets: int
    record_key_fields: tuple[str, ...]
    fields: tuple[str, ...]
    release: str = "1.x"

    def __post_init__(self) -> None:
        if self.num_buckets < 1:
            raise ValueError(f"a table has at least one bucket, not {self.num_buckets}")
        self.hashed  # noqa: B018 - raises for fields that cannot be

    @property
    def hashed(self) -> HashFields:
        """The hash fields."""
        return HashFields(self.record_key_fields, self.fields, self.release)

    def codes(self, keys: pa.Array) -> HashCodes:
        """The hash without its sign of every record key (strings without nulls); a bucket is its remainder."""
        codes = np.zeros(len(keys), np.int32)
        for rows, columns in self.hashed.values(keys):
            codes[rows] = list_hash_codes(columns) if columns else 1  # Java's hash of an empty list
        return codes & np.int32(0x7FFFFFFF)

    def buckets(self, keys: pa.Array) -> HashCodes:
        """Bucket number (int32, from 0) of every record key (strings without nulls)."""
        return self.codes(keys) % np.int32(self.num_buckets)
