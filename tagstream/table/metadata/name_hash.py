"""Hashes of names in the keys of the metadata table's records: xxHash64 of columns and partitions, MD5 of files.

Hudi (HashID) seeds xxHash64 with the int 0xdabadaba sign-extended and writes hashes big-endian, in base 64.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from typing import Final

_MASK: Final = (1 << 64) - 1
_SEED: Final = 0xFFFFFFFFDABADABA
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_EMPTY_PARTITION: Final = "."  # how the metadata table names the partition of a non-partitioned table


def partition_name(partition_path: str) -> str:
    """A partition path as the metadata table names it."""
    return partition_path or _EMPTY_PARTITION


def column_id(name: str) -> str:
    """12 characters that stand for a column."""
    return _base64(xxhash64(name.encode(), _SEED).to_bytes(8, "big"))


def partition_id(partition_path: str) -> str:
    """12 characters that stand for a partition."""
    return _base64(xxhash64(partition_name(partition_path).encode(), _SEED).to_bytes(8, "big"))


def file_id(name: str) -> str:
    """24 characters that stand for a file name."""
    return _base64(hashlib.md5(name.encode(), usedforsecurity=False).digest())


def column_stats_key(column: str, partition_path: str, file_name: str) -> str:
    """Key of the record with a column's statistics in a file."""
    return column_id(column) + partition_id(partition_path) + file_id(file_name)


def xxhash64(data: bytes, seed: int) -> int:
    """xxHash64 of a name (a plain loop: 10 us for a short one)."""
    at = 0
    if len(data) >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        for at in range(0, len(data) - 31, 32):
            lanes = [_round(lane, word) for lane, word in zip(lanes, struct.unpack_from("<4Q", data, at), strict=True)]
        at += 32
        h = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            h = ((h ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        h = (seed + _P5) & _MASK
    h = (h + len(data)) & _MASK
    while at + 8 <= len(data):
        h = (_rotated(h ^ _round(0, int.from_bytes(data[at : at + 8], "little")), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        h = (_rotated(h ^ int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        h = _rotated(h ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    h = (h ^ h >> 33) * _P2 & _MASK
    h = (h ^ h >> 29) * _P3 & _MASK
    return h ^ h >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
