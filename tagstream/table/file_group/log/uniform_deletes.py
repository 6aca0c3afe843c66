"""Delete records that all have one partition path and one kind of ordering value, read as arrays.

So are most blocks that writers make: each delete of a block is of the block's file group, and most ordering fields are
numbers or times. What is not of this form comes out as None, and the caller reads record by record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.table.file_group.log.varint import read_zigzag, read_zigzags, slices

_SOME: Final = 0x02  # the second branch of ["null", "string"], as Avro writes it
# Branches of the union with values of one width; those with an Avro number (Int, Long, Date, TimeMicros, TimestampMicros).
_FIXED: Final[dict[int, np.dtype[Any]]] = {4: np.dtype("<f4"), 5: np.dtype("<f8")}
_NUMBERS: Final = (2, 3, 8, 10, 11)

_Bytes = npt.NDArray[np.uint8]
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class UniformDeletes:
    """``branch``: of the union of ordering wrappers, the same for all; ``values``: what stands in the wrappers."""

    keys: pa.Array
    partition_path: str
    branch: int
    values: npt.NDArray[np.int64] | npt.NDArray[np.float64]


def read_uniform(payload: bytes) -> UniformDeletes | None:
    """The records of an Avro array of delete records; None when they are not all alike, or not whole."""
    try:
        return _read(payload)
    except (IndexError, ValueError, pa.ArrowInvalid):
        return None


def _read(payload: bytes) -> UniformDeletes | None:
    count, first = read_zigzag(payload, 0)
    if count < 1 or payload[first] != _SOME:
        return None
    key_length, key = read_zigzag(payload, first + 1)
    path_begins = key + key_length
    if key_length < 0 or payload[path_begins] != _SOME:
        return None
    path_length, path = read_zigzag(payload, path_begins + 1)
    branch, value = read_zigzag(payload, path + path_length)
    if path_length < 0 or (branch not in _NUMBERS and branch not in _FIXED):
        return None
    data = np.frombuffer(payload, np.uint8)
    middles = _places(data, payload[path_begins:value], count)
    if len(middles) != count:
        return None  # the same bytes within a key, or another path among them
    values, ends = _values(data, middles + (value - path_begins), branch)
    begins = np.concatenate([[first], ends[:-1]])
    if ends[-1] != len(data) - 1 or data[-1] != 0 or not (data[begins] == _SOME).all():
        return None
    lengths, keys = read_zigzags(data, begins + 1)
    if not (lengths >= 0).all() or not (keys + lengths == middles).all():
        return None
    return UniformDeletes(
        slices(data, keys, lengths).cast(pa.string()), payload[path : path + path_length].decode(), branch, values
    )


def _places(data: _Bytes, wanted: bytes, least: int) -> _Ints:
    """Where some bytes stand, if at ``least`` places or more."""
    # From its end on: lengths and the branch are rarer than the letters that paths and keys are made of.
    last = len(wanted) - 1
    found: _Ints = np.flatnonzero(data[last:] == wanted[last])
    for i in range(last):
        if len(found) < least:
            break
        found = found[data[found + i] == wanted[i]]
    return found


def _values(data: _Bytes, at: _Ints, branch: int) -> tuple[_Ints | npt.NDArray[np.float64], _Ints]:
    """The ordering values that begin at some places, and where they end."""
    kind = _FIXED.get(branch)
    if kind is None:
        return read_zigzags(data, at)
    values = data[at[:, None] + np.arange(kind.itemsize)].reshape(-1).view(kind).astype(np.float64)
    return values, at + kind.itemsize
