"""Delete blocks: i32 version 3, i32 length, Avro binary of HoodieDeleteRecordList.

Each record is (record key, partition path, ordering value). Versions 1 and 2 are Java's Kryo bytes. Only tables of
Hudi before 0.14 have them; they are an error.

Most blocks have one partition path and one type of ordering value, because each delete of a block is in the
block's file group, and most ordering fields are numbers or times. These are read as arrays. Other blocks are read
record by record.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any, Final

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group import ordering_wrapper
from tagstream.table.file_group.log_format import (
    I32,
    BlockType,
    HeaderKey,
    encode_block,
    joined,
    prefixed,
    read_zigzag,
    read_zigzags,
    slices,
    zigzag,
    zigzags,
)

_SOME: Final = 0x02  # the second branch of ["null", "string"], as Avro writes it
# Branches of the union whose values have a fixed width; those that are an Avro number (Int, Long, Date, TimeMicros,
# TimestampMicros).
_FIXED: Final[dict[int, np.dtype[Any]]] = {4: np.dtype("<f4"), 5: np.dtype("<f8")}
_NUMBERS: Final = (2, 3, 8, 10, 11)

_Bytes = npt.NDArray[np.uint8]
_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class UniformDeletes:
    """Deletes with one partition path and one type of ordering value.

    ``branch``: the branch of the union of ordering wrappers. ``values``: the values in the wrappers.
    """

    keys: pa.Array
    partition_path: str
    branch: int
    values: npt.NDArray[np.int64] | npt.NDArray[np.float64]


def read_uniform(payload: bytes) -> UniformDeletes | None:
    """The records of an Avro array of delete records; None when they differ in path or type, or are incomplete."""
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
        return None  # a key contains the same bytes, or there is another path
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
    """Positions of some bytes; the search ends when there are fewer than ``least``."""
    # From the last byte on: lengths and branch are rarer than the letters of paths and keys.
    last = len(wanted) - 1
    found: _Ints = np.flatnonzero(data[last:] == wanted[last])
    for i in range(last):
        if len(found) < least:
            break
        found = found[data[found + i] == wanted[i]]
    return found


def _values(data: _Bytes, at: _Ints, branch: int) -> tuple[_Ints | npt.NDArray[np.float64], _Ints]:
    """(the ordering values that begin at some positions, their ends)."""
    kind = _FIXED.get(branch)
    if kind is None:
        return read_zigzags(data, at)
    values = data[at[:, None] + np.arange(kind.itemsize)].reshape(-1).view(kind).astype(np.float64)
    return values, at + kind.itemsize


_VERSION = 3
_NULLABLE_TEXT = ["null", "string"]
_SCHEMA = fastavro.parse_schema(
    {
        "type": "array",
        "items": {
            "type": "record",
            "name": "org.apache.hudi.avro.model.HoodieDeleteRecord",
            "fields": [
                {"name": "recordKey", "type": _NULLABLE_TEXT},
                {"name": "partitionPath", "type": _NULLABLE_TEXT},
                {"name": "orderingVal", "type": ordering_wrapper.union_schema()},
            ],
        },
    }
)


@dataclass(frozen=True)
class DeleteRecords:
    """Deletes of one block, in block order.

    ``orderings`` is null where ``natural`` (bool array) is true: those deletes win over everything older. It is None
    when no record has an ordering value and the caller did not give the type.
    """

    keys: pa.Array
    partition_paths: pa.Array
    orderings: pa.Array | None
    natural: pa.Array

    def __len__(self) -> int:
        return len(self.keys)


def decode(content: bytes, where: str, ordering_type: pa.DataType | None = None) -> DeleteRecords:
    """Deletes of a block's content; ``where`` names the block in errors.

    ``ordering_type`` is the type of the ordering column. A value of another kind has natural order, as in Hudi 0.15.
    Without it all values must have one type. CorruptFileError for other content, UnsupportedTableError for old versions
    and for values of several ordering fields in a table with one.
    """
    try:
        version, length = struct.unpack_from(">ii", content, 0)
        if version != _VERSION:
            raise UnsupportedTableError(
                f"{where} is a delete block of version {version} (Java's Kryo bytes, Hudi before 0.14); "
                "compact the table with Hudi first"
            )
        payload = content[2 * I32.size : 2 * I32.size + length]
        if len(payload) != length:
            raise ValueError(f"{len(payload)} bytes instead of {length}")
        uniform = read_uniform(payload)
        if uniform is not None:
            return _of_uniform(uniform, ordering_type)
        records: Any = fastavro.schemaless_reader(io.BytesIO(payload), _SCHEMA, None, return_record_name=True)
    except (struct.error, EOFError, ValueError, IndexError, StopIteration) as error:
        raise CorruptFileError(f"{where} has no readable delete records ({error}); restore the file") from error
    orderings, natural = _orderings([record["orderingVal"] for record in records], where, ordering_type)
    return DeleteRecords(
        keys=pa.array([record["recordKey"] for record in records], pa.string()),
        partition_paths=pa.array([record["partitionPath"] for record in records], pa.string()),
        orderings=orderings,
        natural=pa.array(natural),
    )


def _of_uniform(found: UniformDeletes, wanted: pa.DataType | None) -> DeleteRecords:
    count = len(found.keys)
    natural = np.zeros(count, np.bool_)
    if found.branch == ordering_wrapper.INT:
        natural = found.values == 0
    orderings = None
    if wanted is not None or not natural.all():
        have = ordering_wrapper.type_of(found.branch)
        values = pa.array(found.values, mask=natural)
        if pa.types.is_date32(have):
            values = values.cast(pa.int32())
        values = values.cast(have)
        orderings = ordering_wrapper.convert(values, have if wanted is None else wanted)
        if orderings is None:
            orderings = pa.nulls(count, wanted)
        natural = orderings.is_null().to_numpy(zero_copy_only=False)
    paths = pa.repeat(pa.scalar(found.partition_path, pa.string()), count)
    return DeleteRecords(found.keys, paths, orderings, pa.array(natural))


def _orderings(values: list[Any], where: str, wanted: pa.DataType | None) -> tuple[pa.Array | None, Any]:
    # Row loops: only for blocks whose records differ (measured with the Avro decoding: 3 to 5 us a record).
    told = [None if value is None or _is_natural(value) else value for value in values]
    names = {value[0] for value in told if value is not None}
    if ordering_wrapper.ARRAY_NAME in names and (wanted is None or not pa.types.is_struct(wanted)):
        raise UnsupportedTableError(
            f"{where} has deletes with the values of several ordering fields, and the table has one ordering field or none; "
            "give the table the ordering fields that it was written with, or compact it with Hudi first"
        )
    if wanted is None and len(names) > 1:
        raise UnsupportedTableError(f"{where} mixes ordering types {sorted(names)}; give the ordering column's type")
    if wanted is None and not names:
        return None, np.ones(len(values), np.bool_)
    orderings = ordering_wrapper.decode(told, ordering_wrapper.TYPES[names.pop()] if wanted is None else wanted)
    return orderings, orderings.is_null().to_numpy(zero_copy_only=False)


def _is_natural(value: Any) -> bool:
    return bool(value[0] == ordering_wrapper.INT_NAME and value[1]["value"] == 0)


def delete_blocks(
    keys: pa.Array, partition_path: str, orderings: pa.Array | None, instant: str, avro_json: str
) -> list[bytes]:
    """Whole delete blocks: one for deletes in natural order (null ordering), one for deletes with an ordering value.

    They are separate because readers refuse a block that mixes ordering types. ``avro_json`` is the table's schema with
    meta columns, for the header.
    """
    header = {HeaderKey.SCHEMA: avro_json, HeaderKey.INSTANT_TIME: instant}
    natural = np.ones(len(keys), np.bool_)
    if orderings is not None:
        natural = pc.is_null(orderings).to_numpy(zero_copy_only=False)
    blocks = []
    for is_natural in (True, False):
        rows = pa.array(natural == is_natural)
        chosen = keys.filter(rows)
        if len(chosen) == 0:
            continue
        if is_natural or orderings is None:
            branch, values = ordering_wrapper.INT, zigzags(np.zeros(len(chosen), np.int64))
        else:
            branch, values = ordering_wrapper.encode(orderings.filter(rows))
        blocks.append(encode_block(BlockType.DELETE, header, encode_content(chosen, partition_path, branch, values)))
    return blocks


def encode_content(keys: pa.Array, partition_path: str, branch: int, values: pa.Array) -> bytes:
    """Content of a delete block whose records all have one partition path and one type of ordering value."""
    path = partition_path.encode("utf-8")
    some = zigzag(1)  # the second branch of ["null", "string"]
    middle = some + zigzag(len(path)) + path + zigzag(branch)
    constants = (pa.scalar(some, pa.binary()), pa.scalar(middle, pa.binary()), pa.scalar(b"", pa.binary()))
    records = pc.binary_join_element_wise(constants[0], prefixed(keys), constants[1], values, constants[2])
    payload = zigzag(len(keys)) + joined(records) + zigzag(0)
    return I32.pack(_VERSION) + I32.pack(len(payload)) + payload
