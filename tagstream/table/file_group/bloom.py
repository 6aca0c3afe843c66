"""Bloom filters of base file footers: build, write, read and query them for arrays of keys.

Bytes (big-endian; base64 in the footer), as Hadoop's filter classes write them::

    SIMPLE      i32 -1 | i32 hashes | i8 1 (murmur) | i32 bits | bitmap
    DYNAMIC_V0  i32 -1 | i32 hashes | i8 1 | i32 bits | i32 nr | i32 keys in current row | i32 rows | rows x SIMPLE

Bit i of a bitmap is bit (i & 7) of byte (i >> 3). A dynamic filter gets a new row after every ``nr`` keys up to
its maximum; then keys go round robin over the rows and the false positive rate rises.

The hash is MurmurHash2 (32 bit), with two peculiarities of the Java code: the 1 to 3 bytes after the last whole word
are sign-extended, and they are taken from the end of the key (its last byte is the lowest).
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.table.config import Kind
from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.option_fields import option

_M = np.uint32(0x5BD1E995)
_UInt32s = npt.NDArray[np.uint32]
_Int64s = npt.NDArray[np.int64]


class KeyHasher:
    """Keys prepared for hashes with many seeds: the work that does not depend on the seed is done once."""

    def __init__(self, keys: pa.Array) -> None:
        """``keys``: string or binary array without nulls; hashed as UTF-8."""
        data, starts, lengths = _utf8(keys)
        # Longest keys first: the keys that have a word w are then a prefix of the order.
        self.order: _Int64s = np.argsort(-lengths, kind="stable")
        starts, lengths = starts[self.order], lengths[self.order]
        self._lengths: _UInt32s = lengths.astype(np.uint32)
        self._words = list(_mixed_words(data, starts, lengths))
        self._tail, self._tail_factor = _tails(data, starts, lengths)

    def hash(self, seeds: _UInt32s) -> _UInt32s:
        """Hash of every key in ``order``; ``seeds`` has one seed for each key."""
        h = seeds ^ self._lengths
        for words in self._words:
            head = h[: len(words)]
            head *= _M
            head ^= words
        h ^= self._tail
        h *= self._tail_factor
        h ^= h >> np.uint32(13)
        h *= _M
        h ^= h >> np.uint32(15)
        return h


def murmur2(keys: pa.Array, seed: int) -> npt.NDArray[np.int32]:
    """Signed hashes of the keys with one seed, in the order of the keys."""
    hasher = KeyHasher(keys)
    hashes = np.empty(len(keys), np.int32)
    seeds = np.full(len(keys), seed & 0xFFFFFFFF, np.uint32)
    hashes[hasher.order] = hasher.hash(seeds).view(np.int32)
    return hashes


def _utf8(keys: pa.Array) -> tuple[npt.NDArray[np.uint8], _Int64s, _Int64s]:
    """(bytes with padding at the end, start of every key, length of every key)."""
    if keys.null_count:
        raise ValueError("a null key cannot be hashed")
    keys = keys.cast(pa.large_binary())
    offsets = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + len(keys) + 1]
    if len(offsets) == 0:
        offsets = np.zeros(1, np.int64)
    buffer = keys.buffers()[2]
    body = np.frombuffer(buffer, np.uint8)[offsets[0] : offsets[-1]] if buffer else np.empty(0, np.uint8)
    data = np.concatenate([body, np.zeros(4, np.uint8)])
    return data, offsets[:-1] - offsets[0], np.diff(offsets)


def _mixed_words(data: npt.NDArray[np.uint8], starts: _Int64s, lengths: _Int64s) -> Iterator[_UInt32s]:
    """Word w of every key that has one, mixed, for w = 0, 1, ... (lengths must descend)."""
    at_any_byte = np.ndarray((len(data) - 3,), np.dtype("<u4"), buffer=data, strides=(1,))
    counts = lengths >> 2
    for word in range(int(counts[0]) if len(counts) else 0):
        active = int(np.searchsorted(-counts, -word, side="left"))
        k: _UInt32s = at_any_byte[starts[:active] + 4 * word].astype(np.uint32)
        k *= _M
        k ^= k >> np.uint32(24)
        k *= _M
        yield k


def _tails(data: npt.NDArray[np.uint8], starts: _Int64s, lengths: _Int64s) -> tuple[_UInt32s, _UInt32s]:
    """(value for xor, multiplier) of the bytes after the last whole word; 0 and 1 where there are none."""
    left = lengths & 3
    signed = data.view(np.int8)
    ends = starts + lengths
    tail = np.zeros(len(lengths), np.int32)
    for back in (1, 2, 3):
        rows = left >= back
        tail[rows] ^= signed[ends[rows] - back].astype(np.int32) << np.int32(8 * (back - 1))
    return tail.view(np.uint32), np.where(left > 0, _M, np.uint32(1)).astype(np.uint32)


SIMPLE = "SIMPLE"
DYNAMIC_V0 = "DYNAMIC_V0"

_ROW = struct.Struct(">iibi")
_DYNAMIC = struct.Struct(">iii")
_CHUNK = 1 << 15  # keys that are hashed at once: their words fit into the processor's cache
_Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class BloomParams:
    """Size and kind of the bloom filter in a base file's footer."""

    kind: str = option(
        "hoodie.bloom.index.filter.type",
        Kind.CHOICE,
        "Kind of bloom filter in a base file's footer.",
        default=DYNAMIC_V0,
        values={kind: kind for kind in (DYNAMIC_V0, SIMPLE)},
        aliases=("hoodie.bloom.filter.type",),
    )
    num_entries: int = option(
        "hoodie.index.bloom.num_entries",
        Kind.INT,
        "Number of keys for which a bloom filter is sized.",
        default=60_000,
        minimum=1,
        aliases=("hoodie.bloom.filter.num_entries",),
    )
    fpp: float = option(
        "hoodie.index.bloom.fpp",
        Kind.FLOAT,
        "False positive rate of a bloom filter.",
        default=1e-9,
        minimum=1e-18,
        maximum=0.5,
        aliases=("hoodie.bloom.filter.fpp",),
    )
    dynamic_max_entries: int = option(
        "hoodie.bloom.index.filter.dynamic.max.entries",
        Kind.INT,
        "Number of keys up to which a dynamic filter grows.",
        default=100_000,
        minimum=1,
        aliases=("hoodie.bloom.filter.dynamic.max.entries",),
    )

    def __post_init__(self) -> None:
        if self.kind not in (SIMPLE, DYNAMIC_V0):
            raise ValueError(f"bloom filter type {self.kind!r}: must be {SIMPLE} or {DYNAMIC_V0}")
        if self.num_entries < 1 or not 0 < self.fpp < 1:
            raise ValueError(f"a bloom filter needs entries > 0 and 0 < fpp < 1, not {self.num_entries}, {self.fpp}")

    @property
    def bit_size(self) -> int:
        """Number of bits in a row."""
        return math.ceil(self.num_entries * (-math.log(self.fpp) / (math.log(2) * math.log(2))))

    @property
    def num_hashes(self) -> int:
        """Number of bits that a key sets."""
        return math.ceil(math.log(2) * self.bit_size / self.num_entries)

    @property
    def max_rows(self) -> int:
        """The most rows of a dynamic filter."""
        return 1 if self.kind == SIMPLE else max(1, math.ceil(self.dynamic_max_entries / self.num_entries))


class BloomFilter:
    """A filter from a footer: ``rows`` bitmaps of ``bit_size`` bits."""

    def __init__(self, kind: str, num_hashes: int, bit_size: int, rows: list[_Bits]) -> None:
        self.kind = kind
        self.num_hashes = num_hashes
        self.bit_size = bit_size
        self.rows = rows

    @classmethod
    def from_base64(cls, text: str | bytes, kind: str, where: str) -> BloomFilter:
        """The filter of a footer.

        CorruptFileError names ``where`` (the file) for other bytes, UnsupportedTableError for other kinds.
        """
        try:
            data = base64.b64decode(text, validate=True)
            return cls._parse(data, kind, where)
        except (binascii.Error, struct.error, ValueError) as error:
            raise CorruptFileError(
                f"the bloom filter in the footer of {where} cannot be read ({error}); treat every key as a candidate"
            ) from error

    @classmethod
    def _parse(cls, data: bytes, kind: str, where: str) -> BloomFilter:
        version, num_hashes, _, bit_size = _ROW.unpack_from(data, 0)
        if version != -1:
            raise UnsupportedTableError(
                f"the bloom filter in the footer of {where} has the hash of a very old Hudi; "
                "treat every key as a candidate"
            )
        if kind == SIMPLE:
            return cls(kind, num_hashes, bit_size, [_unpack_row(data, 0, bit_size)])
        if kind != DYNAMIC_V0:
            raise UnsupportedTableError(f"bloom filter type {kind!r} in the footer of {where} is not known")
        if len(data) == _row_bytes(bit_size):  # read as DYNAMIC_V0 it would have no rows, and so no keys
            raise ValueError(f"it has the form of {SIMPLE}, but its type is {kind}")
        count = _DYNAMIC.unpack_from(data, _ROW.size)[2]
        step = _row_bytes(bit_size)
        start = _ROW.size + _DYNAMIC.size
        if count < 1 or len(data) != start + count * step:
            raise ValueError(f"{count} rows of {step} bytes in {len(data)} bytes")
        return cls(kind, num_hashes, bit_size, [_unpack_row(data, start + i * step, bit_size) for i in range(count)])

    def fits(self, params: BloomParams, added: int) -> bool:
        """Whether a builder with ``params`` has made this filter of ``added`` keys, and so may add more."""
        rows = 1 if params.kind == SIMPLE else min(params.max_rows, max(1, math.ceil(added / params.num_entries)))
        form = (self.kind, self.num_hashes, self.bit_size, len(self.rows))
        return form == (params.kind, params.num_hashes, params.bit_size, rows)

    def might_contain(self, keys: pa.Array) -> _Bits:
        """For every key (string array without nulls): False means that it is certainly not in the file."""
        found = np.zeros(len(keys), np.bool_)
        for start in range(0, len(keys), _CHUNK):
            hasher = KeyHasher(keys.slice(start, _CHUNK))
            hits = [np.ones(len(hasher.order), np.bool_) for _ in self.rows]
            seeds = np.zeros(len(hasher.order), np.uint32)
            for _ in range(self.num_hashes):
                seeds = hasher.hash(seeds)
                positions = _positions(seeds, self.bit_size)
                for hit, bits in zip(hits, self.rows, strict=True):
                    hit &= bits[positions]
                if not any(hit.any() for hit in hits):
                    break
            if hits:
                found[start + hasher.order] = np.logical_or.reduce(hits)
        return found


class BloomBuilder:
    """Builds a filter while a file is written. ``before``: a filter that fits ``params`` and has ``added`` keys."""

    def __init__(self, params: BloomParams, before: BloomFilter | None = None, added: int = 0) -> None:
        self._params = params
        self._rows = [np.zeros(params.bit_size, np.bool_)] if before is None else [bits.copy() for bits in before.rows]
        self._added = added

    @property
    def added(self) -> int:
        """Number of keys in the filter."""
        return self._added

    def add(self, keys: pa.Array) -> None:
        """Add keys (string array without nulls or empty strings) in file order."""
        for start in range(0, len(keys), _CHUNK):
            if self._says_nothing():
                self._added += len(keys) - start
                return
            self._add(keys.slice(start, _CHUNK))

    def _says_nothing(self) -> bool:
        """True when all bits of all rows are set, as after some millions of keys: more keys change nothing."""
        return len(self._rows) == self._params.max_rows and all(bits.all() for bits in self._rows)

    def _add(self, keys: pa.Array) -> None:
        hasher = KeyHasher(keys)
        row_of = self._row_of(np.arange(self._added, self._added + len(keys), dtype=np.int64))[hasher.order]
        self._added += len(keys)
        last = int(row_of.max(initial=0))
        while len(self._rows) <= last:
            self._rows.append(np.zeros(self._params.bit_size, np.bool_))
        members = [(bits, np.flatnonzero(row_of == row)) for row, bits in enumerate(self._rows)]
        members = [(bits, rows) for bits, rows in members if len(rows)]
        seeds = np.zeros(len(keys), np.uint32)
        for _ in range(self._params.num_hashes):
            seeds = hasher.hash(seeds)
            positions = _positions(seeds, self._params.bit_size)
            for bits, rows in members:
                bits[positions if len(members) == 1 else positions[rows]] = True

    def _row_of(self, number: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Row of each key by its number. When all rows are full, Hadoop's class uses row 0 twice before the round robin."""
        if self._params.kind == SIMPLE:
            return np.zeros_like(number)
        full = self._params.num_entries * self._params.max_rows
        around = np.maximum(number - full - 1, 0) % self._params.max_rows
        return np.where(number < full, number // self._params.num_entries, around)

    def to_base64(self) -> str:
        """The filter as text for the footer."""
        head = _ROW.pack(-1, self._params.num_hashes, 1, self._params.bit_size)
        rows = [head + np.packbits(bits, bitorder="little").tobytes() for bits in self._rows]
        if self._params.kind == SIMPLE:
            return base64.b64encode(rows[0]).decode("ascii")
        in_current = self._added - self._params.num_entries * (len(rows) - 1)
        dynamic = _DYNAMIC.pack(self._params.num_entries, in_current, len(rows))
        return base64.b64encode(head + dynamic + b"".join(rows)).decode("ascii")


def kind_of(text: str | bytes) -> str:
    """The kind of a filter in a footer, by its form: a simple one has a single row.

    DYNAMIC_V0, the default, for other text.
    """
    try:
        data = base64.b64decode(text)
        return SIMPLE if len(data) == _row_bytes(_ROW.unpack_from(data, 0)[3]) else DYNAMIC_V0
    except (binascii.Error, struct.error):
        return DYNAMIC_V0


def _row_bytes(bit_size: int) -> int:
    return _ROW.size + (bit_size + 7) // 8


def _positions(hashes: npt.NDArray[np.uint32], bit_size: int) -> npt.NDArray[np.int64]:
    """|hash rem bits| with Java's remainder, which has the sign of the hash: the remainder of the hash's absolute value.

    NumPy divides by one number several times faster than it computes remainders, and indexes with 64-bit numbers.
    """
    left = np.abs(hashes.view(np.int32)).view(np.uint32)  # abs keeps the least int32, which is 2^31 as uint32
    whole = left // np.uint32(bit_size)
    whole *= np.uint32(bit_size)
    left -= whole
    return left.astype(np.int64)


def _unpack_row(data: bytes, start: int, bit_size: int) -> _Bits:
    version, _, _, bits = _ROW.unpack_from(data, start)
    size = (bit_size + 7) // 8
    bitmap = np.frombuffer(data, np.uint8, count=size, offset=start + _ROW.size)
    if version != -1 or bits != bit_size:
        raise ValueError(f"a row of version {version} with {bits} bits")
    return np.unpackbits(bitmap, count=bit_size, bitorder="little").view(np.bool_)
