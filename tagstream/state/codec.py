"""The location record: the fixed-width value of every key, its age, and the order of the keys.

Bytes, little endian (format 1):

    0   u32  location code (state/store_entries.py); NO_LOCATION for a tombstone
    4   i64  instant that last set the location, its digits as a number
    12  u32  minutes since 1970 of the last change, for the time to live
    16  u8   flags: 1 tombstone, 2 ordering value unknown
    17  i64  ordering value (kind "int64"); or its bytes, to the end (kinds "bytes", "tuple"); nothing (kind "none")

The store's meta entry has the format number. A store with another number is refused. A key has outlived its time to
live when its last change is too old at the batch's pinned time. Keys are sorted bytewise, with NumPy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntFlag
from itertools import chain, pairwise, repeat
from operator import is_not
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.state.layout import OrderingKind, has_bytes
from tagstream.state.tag_batch import INT64, OBJECTS

FORMAT_VERSION = 1
NO_LOCATION = 0xFFFFFFFF
LOCATION_BYTES = 4  # at the beginning of each record


class StoredFlag(IntFlag):
    """Bits of the byte of flags of a stored record."""

    TOMBSTONE = 1
    ORDERING_UNKNOWN = 2


# Plain numbers of these: an array that meets a member of an enum becomes one of 64-bit numbers.
TOMBSTONE = StoredFlag.TOMBSTONE.value
ORDERING_UNKNOWN = StoredFlag.ORDERING_UNKNOWN.value

_HEAD_FIELDS = [("loc", "<u4"), ("instant", "<i8"), ("minutes", "<u4"), ("flags", "u1")]
HEAD = np.dtype(_HEAD_FIELDS)
WITH_ORDERING = np.dtype([*_HEAD_FIELDS, ("ordering", "<i8")])


@dataclass(frozen=True)
class Records:
    """Location records as columns. `ordering`: int64, or objects of bytes; zero or empty where unknown."""

    loc: npt.NDArray[np.uint32]
    instant: npt.NDArray[np.int64]
    minutes: npt.NDArray[np.uint32]
    flags: npt.NDArray[np.uint8]
    ordering: npt.NDArray[Any]


def instant_number(instant: str) -> int:
    """An instant time as a number (17 digits fit 63 bits); ValueError when it is not a string of digits."""
    if not instant.isdigit() or len(instant) > 18:
        raise ValueError(f"instant {instant!r} is not a string of at most 18 digits")
    return int(instant)


def encode(records: Records, kind: OrderingKind) -> tuple[Iterable[bytes], bytes]:
    """The records' values in order, and all of them as one byte string (for the content hash)."""
    n = len(records.loc)
    table = np.zeros(n, WITH_ORDERING if kind == "int64" else HEAD)
    for name in ("loc", "instant", "minutes", "flags"):
        table[name] = getattr(records, name)
    if kind == "int64":
        table["ordering"] = records.ordering
    raw = table.tobytes()
    heads = chain.from_iterable(struct.iter_unpack(f"{table.dtype.itemsize}s", raw))
    if not has_bytes(kind):
        return heads, raw
    # A string has no fixed width, so each value is joined separately: 0.1 us per record.
    values = [head + tail for head, tail in zip(heads, records.ordering.tolist(), strict=True)]
    lengths = np.fromiter(map(len, values), "<u4", n).tobytes()
    return values, lengths + b"".join(values)


def decode(values: Sequence[bytes], kind: OrderingKind) -> Records:
    """Columns of many stored values; ValueError when a value does not have the format's width."""
    n = len(values)
    if has_bytes(kind):
        width = HEAD.itemsize
        if n and min(map(len, values)) < width:
            raise ValueError(f"a location record is shorter than {width} bytes")
        # As in `encode`: two slices per record, 0.15 us.
        raw = b"".join([v[:width] for v in values])
        ordering: npt.NDArray[Any] = np.empty(n, object)
        ordering[:] = [v[width:] for v in values]
        table = np.frombuffer(raw, HEAD)
        return Records(table["loc"], table["instant"], table["minutes"], table["flags"], ordering)
    dtype = WITH_ORDERING if kind == "int64" else HEAD
    raw = b"".join(values)
    if len(raw) != n * dtype.itemsize:
        raise ValueError(f"{n} location records are {len(raw)} bytes long instead of {n * dtype.itemsize}")
    table = np.frombuffer(raw, dtype)
    ordering = table["ordering"] if kind == "int64" else np.zeros(n, np.int64)
    return Records(table["loc"], table["instant"], table["minutes"], table["flags"], ordering)


def decode_some(values: Sequence[bytes | None], kind: OrderingKind) -> tuple[npt.NDArray[np.bool_], Records]:
    """Which of the looked-up values exist, and the records of all, with zeros for missing ones."""
    n = len(values)
    hits = list(filter(None, values))  # a record is never empty
    records = decode(hits, kind)
    if len(hits) == n:
        return np.ones(n, np.bool_), records
    found = np.fromiter(map(is_not, values, repeat(None)), np.bool_, n)

    def column(of_hits: npt.NDArray[Any]) -> npt.NDArray[Any]:
        wide = np.zeros(n, of_hits.dtype)
        if of_hits.dtype == object:
            wide[:] = b""
        wide[found] = of_hits
        return wide

    return found, Records(*(column(getattr(records, f)) for f in ("loc", "instant", "minutes", "flags", "ordering")))


_MINUTE_MS = 60_000


def minutes_of(time_ms: int) -> int:
    """Whole minutes since 1970, as in the location record, from milliseconds (32 bits reach the year 10136)."""
    return time_ms // _MINUTE_MS


def expired(minutes: npt.NDArray[np.uint32], now_ms: int, ttl_ms: int) -> npt.NDArray[np.bool_]:
    """Which records are older than `ttl_ms` at `now_ms`; none when `ttl_ms` is 0."""
    if ttl_ms <= 0:
        return np.zeros(len(minutes), np.bool_)
    limit = minutes_of(now_ms - ttl_ms)
    return minutes.astype(np.int64) < limit


_MAX_WORDS = 16


def sort_keys(skeys: OBJECTS) -> tuple[INT64, npt.NDArray[np.bool_]]:
    """(order, first): positions in bytewise key order, and for each whether it begins a new key.

    Keys are compared as big-endian words. A padded key equals a longer one only where the longer one has NULs, and then
    the shorter is smaller. So the length as last criterion gives exactly the bytewise order. Words that are the same in
    all keys are left out. Equal keys keep the batch's order.
    """
    n = len(skeys)
    if n == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.bool_)
    keys: list[bytes] = skeys.tolist()
    lengths = np.fromiter(map(len, keys), np.int32, n)
    widest = int(lengths.max())
    words = max(1, -(-widest // 8))
    if words > _MAX_WORDS:
        return _sort_long(keys)
    padded = np.array(keys, dtype=f"S{words * 8}").view(">u8").reshape(n, words).astype(np.uint64)
    columns = [c for c in padded.T if (c != c[0]).any()]
    if int(lengths.min()) != widest:
        columns.append(lengths.astype(np.uint64))
    if not columns:
        first = np.zeros(n, np.bool_)
        first[0] = True
        return np.arange(n), first
    order = np.argsort(columns[0], kind="stable") if len(columns) == 1 else np.lexsort(columns[::-1])
    first = np.zeros(n, np.bool_)
    first[0] = True
    for column in columns:
        by_key = column[order]
        first[1:] |= by_key[1:] != by_key[:-1]
    return order.astype(np.int64), first


def _sort_long(keys: list[bytes]) -> tuple[INT64, npt.NDArray[np.bool_]]:
    """Very long keys: Python's sort, 0.5 us per key, is cheaper than many words per key."""
    order = sorted(range(len(keys)), key=keys.__getitem__)
    first = [True, *(keys[a] != keys[b] for a, b in pairwise(order))]
    return np.array(order, np.int64), np.array(first, np.bool_)
