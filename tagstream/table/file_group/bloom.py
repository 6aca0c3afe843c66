"""Bloom filters of base file footers: built, written, read and asked in whole arrays of keys.

Bytes (big-endian; the footer holds them in base64), as Hadoop's filter classes write them::

    SIMPLE      i32 -1 | i32 hashes | i8 1 (murmur) | i32 bits | bitmap
    DYNAMIC_V0  i32 -1 | i32 hashes | i8 1 | i32 bits | i32 nr | i32 keys in the current row | i32 rows | rows x SIMPLE

Bit i of a bitmap is bit (i & 7) of byte (i >> 3). A dynamic filter gets a new row after every ``nr`` keys until it has
room for its maximum; then keys go round robin over the rows and the false positive rate rises.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.keys.murmur import KeyHasher

SIMPLE = "SIMPLE"
DYNAMIC_V0 = "DYNAMIC_V0"

_ROW = struct.Struct(">iibi")
_DYNAMIC = struct.Struct(">iii")
_CHUNK = 1 << 15  # keys hashed at once: their words stay in the processor's cache
_Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class BloomParams:
    """Size and kind of a filter; defaults of ``hoodie.index.bloom.*`` and ``hoodie.bloom.index.filter.*``."""

    kind: str = DYNAMIC_V0
    num_entries: int = 60_000
    fpp: float = 1e-9
    dynamic_max_entries: int = 100_000

    def __post_init__(self) -> None:
        if self.kind not in (SIMPLE, DYNAMIC_V0):
            raise ValueError(f"bloom filter type {self.kind!r}: must be {SIMPLE} or {DYNAMIC_V0}")
        if self.num_entries < 1 or not 0 < self.fpp < 1:
            raise ValueError(f"a bloom filter needs entries > 0 and 0 < fpp < 1, not {self.num_entries}, {self.fpp}")

    @property
    def bit_size(self) -> int:
        """Bits of one row."""
        return math.ceil(self.num_entries * (-math.log(self.fpp) / (math.log(2) * math.log(2))))

    @property
    def num_hashes(self) -> int:
        """Bits a key sets."""
        return math.ceil(math.log(2) * self.bit_size / self.num_entries)

    @property
    def max_rows(self) -> int:
        """Rows a dynamic filter grows to."""
        return 1 if self.kind == SIMPLE else max(1, math.ceil(self.dynamic_max_entries / self.num_entries))


class BloomFilter:
    """A filter read from a footer: ``rows`` bitmaps of ``bit_size`` bits."""

    def __init__(self, kind: str, num_hashes: int, bit_size: int, rows: list[_Bits]) -> None:
        self.kind = kind
        self.num_hashes = num_hashes
        self.bit_size = bit_size
        self.rows = rows

    @classmethod
    def from_base64(cls, text: str | bytes, kind: str, where: str) -> BloomFilter:
        """Filter of a footer; ``where`` (the file) is named by the CorruptFileError of bytes that are no filter."""
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
                f"the bloom filter in the footer of {where} has the hash of an ancient Hudi; "
                "treat every key as a candidate"
            )
        if kind == SIMPLE:
            return cls(kind, num_hashes, bit_size, [_unpack_row(data, 0, bit_size)])
        if kind != DYNAMIC_V0:
            raise UnsupportedTableError(f"bloom filter type {kind!r} in the footer of {where} is not known")
        if len(data) == _row_bytes(bit_size):  # it would have no rows, and so no keys
            raise ValueError(f"it has the form of {SIMPLE}, and is called {kind}")
        count = _DYNAMIC.unpack_from(data, _ROW.size)[2]
        step = _row_bytes(bit_size)
        start = _ROW.size + _DYNAMIC.size
        if count < 1 or len(data) != start + count * step:
            raise ValueError(f"{count} rows of {step} bytes in {len(data)} bytes")
        return cls(kind, num_hashes, bit_size, [_unpack_row(data, start + i * step, bit_size) for i in range(count)])

    def might_contain(self, keys: pa.Array) -> _Bits:
        """For every key (string array without nulls): False = certainly not in the file."""
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
    """A filter that grows while a file is written."""

    def __init__(self, params: BloomParams) -> None:
        self._params = params
        self._rows = [np.zeros(params.bit_size, np.bool_)]
        self._added = 0

    def add(self, keys: pa.Array) -> None:
        """Add keys (string array without nulls or empty strings) in file order."""
        for start in range(0, len(keys), _CHUNK):
            if self._says_nothing():
                self._added += len(keys) - start
                return
            self._add(keys.slice(start, _CHUNK))

    def _says_nothing(self) -> bool:
        """True once all bits of all rows are set, as after some millions of keys: no key changes anything then."""
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
        """Row of the n-th key. Once full, Hadoop's class uses row 0 twice before it goes round."""
        if self._params.kind == SIMPLE:
            return np.zeros_like(number)
        full = self._params.num_entries * self._params.max_rows
        around = np.maximum(number - full - 1, 0) % self._params.max_rows
        return np.where(number < full, number // self._params.num_entries, around)

    def to_base64(self) -> str:
        """Text for the footer."""
        head = _ROW.pack(-1, self._params.num_hashes, 1, self._params.bit_size)
        rows = [head + np.packbits(bits, bitorder="little").tobytes() for bits in self._rows]
        if self._params.kind == SIMPLE:
            return base64.b64encode(rows[0]).decode("ascii")
        in_current = self._added - self._params.num_entries * (len(rows) - 1)
        dynamic = _DYNAMIC.pack(self._params.num_entries, in_current, len(rows))
        return base64.b64encode(head + dynamic + b"".join(rows)).decode("ascii")


def kind_of(text: str | bytes) -> str:
    """The kind of a filter that a footer has, by its form: a simple one is a single row. Text that is none: the default."""
    try:
        data = base64.b64decode(text)
        return SIMPLE if len(data) == _row_bytes(_ROW.unpack_from(data, 0)[3]) else DYNAMIC_V0
    except (binascii.Error, struct.error):
        return DYNAMIC_V0


def _row_bytes(bit_size: int) -> int:
    return _ROW.size + (bit_size + 7) // 8


def _positions(hashes: npt.NDArray[np.uint32], bit_size: int) -> npt.NDArray[np.int64]:
    """|hash rem bits| with Java's remainder, which has the sign of the hash: so that of the hash's absolute value.

    NumPy divides by one number several times as fast as it takes remainders, and finds places by 64-bit numbers.
    """
    left = np.abs(hashes.view(np.int32)).view(np.uint32)  # the least number stays as it is, and is 2^31 without a sign
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
