"""The bucket of a record key, as Hudi's and Flink's bucket index compute it from Java's hash codes.

The values of the hash fields are parsed from the text of the record key and hashed as a Java ``List<String>``. The
bucket is that hash without its sign, modulo the number of buckets (``BucketIdentifier.java``). Hudi's releases parse
the text differently (``KeyGenUtils.extractRecordKeysByFields`` of 0.15.0 and 1.2.0), with different results for keys
whose values have a comma or a colon; :class:`BucketHash` implements both.

The hash of a string is ``31 * h + unit`` folded over its UTF-16 code units (a character beyond U+FFFF is two). The hash
of a list is the same over its elements, from 1 on. Both wrap at 32 bits. The shards of the record index use them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import InvalidKeyError

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


NULL, EMPTY = "__null__", "__empty__"
RELEASES = ("0.x", "1.x")
_Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class BucketHash:
    """The bucket of a record key in a table with ``num_buckets`` buckets.

    ``fields``: the hash fields (``hoodie.bucket.index.hash.field``), a subset of the record key fields.
    ``release``: the Hudi releases whose parsing of keys applies, one of :data:`RELEASES`.
    """

    num_buckets: int
    record_key_fields: tuple[str, ...]
    fields: tuple[str, ...]
    release: str = "1.x"

    def __post_init__(self) -> None:
        if self.num_buckets < 1:
            raise ValueError(f"a table has at least one bucket, not {self.num_buckets}")
        unknown = [name for name in self.fields if name not in self.record_key_fields]
        if unknown or not self.fields:
            raise ValueError(
                f"hash fields {', '.join(self.fields) or '(none)'} must be among the record key fields "
                f"{', '.join(self.record_key_fields)}"
            )
        if self.release not in RELEASES:
            raise ValueError(f"release {self.release!r} is not one of {', '.join(RELEASES)}")

    def buckets(self, keys: pa.Array) -> _Ints:
        """Bucket number (int32, from 0) of every record key (strings without nulls)."""
        keys = keys.cast(pa.string())
        codes = np.zeros(len(keys), np.int32)
        plain = self._is_plain(keys)
        if plain.any():
            mine = keys.filter(pa.array(plain))
            codes[plain] = list_hash_codes([mine] if not self._has_names else self._values(mine))
        odd = np.flatnonzero(~plain)
        if len(odd):
            # Few keys have values with separators, so these are parsed one by one.
            lists = [self._take_apart(key) for key in keys.take(pa.array(odd)).to_pylist()]
            for size in {len(values) for values in lists}:
                rows = [i for i, values in enumerate(lists) if len(values) == size]
                columns = [pa.array([lists[i][n] for i in rows], pa.string()) for n in range(size)]
                codes[odd[rows]] = list_hash_codes(columns) if columns else 1  # Java's hash of an empty list
        return (codes & np.int32(0x7FFFFFFF)) % np.int32(self.num_buckets)

    @property
    def _has_names(self) -> bool:
        """Whether keys are ``field:value,field:value``. The key of one field is the value alone."""
        return len(self.record_key_fields) > 1

    def _is_plain(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        """Whether both releases parse a key in the same way."""
        colons, commas = pc.count_substring(keys, ":"), pc.count_substring(keys, ",")
        n = len(self.record_key_fields) if self._has_names else 0
        plain = pc.equal(colons, n) if n else pc.equal(colons, 0)
        if n:
            plain = pc.and_(plain, pc.equal(commas, n - 1))
            plain = pc.and_(plain, pc.match_substring_regex(keys, ",".join("[^,:]+:[^,:]*" for _ in range(n)) + "$"))
        mask: npt.NDArray[np.bool_] = plain.to_numpy(zero_copy_only=False)
        return mask

    def _values(self, keys: pa.Array) -> list[pa.Array]:
        """Values of the hash fields of plain keys, in their order in the key."""
        parts = pc.split_pattern(keys, ",")
        out = []
        for i, name in enumerate(self.record_key_fields):
            if name not in self.fields:
                continue
            value = pc.list_element(pc.split_pattern(pc.list_element(parts, i), ":", max_splits=1), 1)
            value = pc.if_else(pc.equal(value, NULL), pa.scalar(None, pa.string()), value)
            out.append(pc.if_else(pc.equal(value, EMPTY), "", value))
        return out

    def _take_apart(self, key: str) -> list[str | None]:
        apart: Callable[[str, Sequence[str]], list[str | None]] = _old if self.release == "0.x" else _new
        return apart(key, self.fields)


def _old(key: str, fields: Sequence[str]) -> list[str | None]:
    """0.15.0: without a colon the key is the value. Else split at every comma, and each part at its first colon."""
    if ":" not in key:
        return [key]
    # Java's split drops empty parts at the end.
    pairs = [part.split(":", 1) for part in key.rstrip(",").split(",")]
    return [_value(pair[-1]) if len(pair) > 1 else pair[0] for pair in pairs if len(pair) == 1 or pair[0] in fields]


def _new(key: str, fields: Sequence[str]) -> list[str | None]:
    """1.2.0: a value ends at the last comma before the next name. Without a comma or a colon the key is the value."""
    if "," not in key or ":" not in key:
        return [key]
    values: list[str | None] = []
    rest: str | None = key
    while rest:
        name, colon, text = rest.partition(":")
        if not colon:
            break
        end = _end_of_value(text)
        if name in fields:
            values.append(_value(text if end is None else text[:end]))
        rest = None if end is None else text[end + 1 :]
    return values or [key]


def _end_of_value(text: str) -> int | None:
    """Position of the comma that ends a value: the last one before the first colon that follows a comma."""
    first = text.find(",")
    if first < 0:
        return None
    colon = text.find(":", first)
    return None if colon < 0 else text.rindex(",", 0, colon)


def _value(text: str) -> str | None:
    return {NULL: None, EMPTY: ""}.get(text, text)
