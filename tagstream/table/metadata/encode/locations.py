"""Entries of the record index, encoded side by side: millions of keys a second.

An entry's value tells where a key is and not the key itself, so keys of one file group and instant share one value. Each
different value is encoded once, and the entries are taken from them.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.log.varint import prefixed, zigzag, zigzags

# Where keys are, as the metadata table is told: ``instant_ms`` is the epoch time of the instant that put the key there.
PLACES: Final = pa.schema([
    ("record_key", pa.string()), ("partition_path", pa.string()), ("file_id", pa.string()), ("instant_ms", pa.int64())
])  # fmt: skip

_RECORD_INDEX: Final = 5  # the record's type
_UUID, _LITERAL = 0, 1  # how a file id is stored
_NO_INDEX: Final = -1
_UUID_LENGTH: Final = 36
_NEW: Final = 8  # the first form whose record has two members more
_SOME: Final = zigzag(1)  # the second branch of a union with null
_MOST_DIGITS: Final = 9  # of the counter behind a UUID, which is an int


def encode_places(places: pa.Table, form: int) -> pa.Array:
    """The value of each row (large binary) of a table with the columns of ``PLACES`` behind the first, in their order.

    All columns are without nulls. ``form``: of the record (``record_schema``).
    """
    columns = [places.column(name).combine_chunks() for name in PLACES.names[1:]]
    distinct, codes = _distinct(columns)
    partitions, file_ids, times = (column.take(distinct) for column in columns)
    return _encoded(partitions, file_ids, times, form).cast(pa.large_binary()).take(pa.array(codes))


def instant_ms(instant: str, utc: bool) -> int:
    """Epoch milliseconds of an instant, of which the first 17 digits count; in UTC or in this host's zone."""
    try:
        moment = datetime.strptime(instant[:14], "%Y%m%d%H%M%S")
        millis = int(instant[14:17] or "999")
    except ValueError:
        raise CorruptFileError(
            f"{instant!r} is no instant time (14 or 17 digits); check the names in .hoodie"
        ) from None
    return int((moment.replace(tzinfo=UTC) if utc else moment.astimezone()).timestamp()) * 1000 + millis


def _distinct(columns: list[pa.Array]) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """(a row of each different combination of values, the number of each row's combination)."""
    codes, kinds = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        own = column.dictionary_encode()
        count = len(own.dictionary) + 1
        if kinds * count >= 2**63:  # rows are fewer than that: numbered anew, the combinations so far fit
            codes = np.unique(codes, return_inverse=True)[1]
            kinds = len(codes)
        codes, kinds = codes * count + own.indices.to_numpy(), kinds * count
    _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
    return pa.array(first), numbers


def _encoded(partitions: pa.Array, file_ids: pa.Array, times: pa.Array, form: int) -> pa.Array:
    ids = file_ids.dictionary_encode()
    # A loop over file groups, of which there are few beside records.
    parts = [_file_id(file_id) for file_id in ids.dictionary.to_pylist()]
    names = pa.array([name for name, _ in parts], pa.binary()).take(ids.indices)
    kinds = pa.array([kind for _, kind in parts], pa.binary()).take(ids.indices)
    head = bytes(5) + zigzag(0) + zigzag(_RECORD_INDEX) + bytes(3) + _SOME + _SOME  # meta columns, key, type, others
    tail = zigzag(0) * 2 if form >= _NEW else b""  # no position, no secondary index
    return pc.binary_join_element_wise(
        _const(head), prefixed(partitions), names, _const(_SOME), zigzags(times.to_numpy()), kinds, _const(tail),
        _const(b""),
    )  # fmt: skip


def _file_id(file_id: str) -> tuple[bytes, bytes]:
    """(the members that hold a file id, the one that tells how)."""
    try:
        name, index = _uuid_and_index(file_id)
    except ValueError:
        literal = file_id.encode()
        return _members(-1, -1, _NO_INDEX, literal), zigzag(_LITERAL)
    return _members(_signed(name.int >> 64), _signed(name.int & (1 << 64) - 1), index, b""), zigzag(_UUID)


def _uuid_and_index(file_id: str) -> tuple[uuid.UUID, int]:
    """Its two parts; ValueError where they would not give this very text again."""
    text, digits = (
        (file_id, "") if len(file_id) <= _UUID_LENGTH else (file_id[:_UUID_LENGTH], file_id[_UUID_LENGTH + 1 :])
    )
    name = uuid.UUID(text)
    index = int(digits) if digits else _NO_INDEX
    if file_id != (f"{name}-{index}" if digits else str(name)) or len(digits) > _MOST_DIGITS:
        raise ValueError(file_id)
    return name, index


def _members(high: int, low: int, index: int, literal: bytes) -> bytes:
    numbers = (_SOME + zigzag(number) for number in (high, low, index))
    return b"".join([*numbers, _SOME, zigzag(len(literal)), literal])


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _const(data: bytes) -> pa.Scalar:
    return pa.scalar(data, pa.binary())
