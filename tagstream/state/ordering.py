"""Ordering values as order-preserving int64, or as bytes: of one string, or of several fields one after the other.

The bytes of several fields (kind "tuple", version 1 of this form): a number is its int64 with the sign bit inverted, in
8 bytes, big endian. A string ends with 00 01, and each 00 in it is written as 00 FF. So two tuples compare by their
first members that differ, and the end of each member is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.errors import StateError
from tagstream.state.layout import OrderingKind
from tagstream.table.fields import double_codes, tuples

MAX_DECIMAL_DIGITS = 18
_SIGN = np.uint64(1 << 63)
_NUMBER = 8
_END, _ZERO, _INNER_ZERO = b"\x00\x01", b"\x00", b"\x00\xff"
_TO_THE_END = 2**31 - 1  # Arrow fails without a stop


def ordering_kind(data_type: pa.DataType | None) -> OrderingKind:
    """How values of an Arrow type are stored. StateError for a type that has no order-preserving form here."""
    if data_type is None:
        return "none"
    t = pa.types
    if t.is_struct(data_type):
        for member in data_type:
            ordering_kind(member.type)
        return "tuple"
    if t.is_string(data_type) or t.is_large_string(data_type):
        return "bytes"
    if t.is_decimal(data_type) and data_type.precision <= MAX_DECIMAL_DIGITS:
        return "int64"
    if (
        (t.is_integer(data_type) and not t.is_uint64(data_type))
        or t.is_float32(data_type)
        or t.is_float64(data_type)
        or t.is_date32(data_type)
        or t.is_timestamp(data_type)
    ):
        return "int64"
    raise StateError(
        f"ordering field of type {data_type} is not supported; use an int, long, float, double, date, timestamp, "
        f"string or a decimal of at most {MAX_DECIMAL_DIGITS} digits"
    )


def ordering_codes(column: pa.Array) -> pa.Array:
    """int64 or binary values that sort like the column's values; nulls give 0 or empty bytes."""
    kind = ordering_kind(column.type)
    if kind == "tuple":
        return _tuple_codes(column)
    if kind == "bytes":
        return pc.fill_null(column.cast(pa.binary()), b"")
    return pa.array(_number_codes(column), pa.int64())


def encode_known(column: pa.Array) -> pa.Array:
    """Like `ordering_codes`, but null where a row has no value."""
    codes = ordering_codes(column)
    return pc.if_else(column.is_valid(), codes, pa.scalar(None, codes.type))


def encode_ordering(column: pa.Array) -> npt.NDArray[Any]:
    """The codes as int64, or objects of bytes; nulls give 0 or empty bytes."""
    codes = ordering_codes(column)
    if not pa.types.is_binary(codes.type):
        numbers: npt.NDArray[np.int64] = codes.to_numpy(zero_copy_only=False)
        return numbers
    out = np.empty(len(codes), object)
    out[:] = codes.to_pylist()
    return out


def decode_ordering(codes: npt.NDArray[Any], known: npt.NDArray[np.bool_], data_type: pa.DataType) -> pa.Array:
    """The inverse of `encode_ordering`: values in the type `data_type`; null where not `known`."""
    mask = ~known
    kind = ordering_kind(data_type)
    if kind == "tuple":
        return _tuples_of(pa.array(codes[known], pa.binary()), data_type).take(_places(known))
    if kind == "bytes":
        return pa.array(codes, pa.binary(), mask=mask).cast(data_type)
    return _numbers_of(codes, mask, data_type)


def _tuple_codes(column: pa.StructArray) -> pa.Array:
    parts = [_member_codes(member) for member in column.flatten()]
    codes = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
    return pc.if_else(column.is_valid(), codes, pa.scalar(b"", pa.binary())) if column.null_count else codes


def _member_codes(member: pa.Array) -> pa.Array:
    if ordering_kind(member.type) == "bytes":
        escaped = pc.replace_substring(
            pc.fill_null(member.cast(pa.binary()), b""), pattern=_ZERO, replacement=_INNER_ZERO
        )
        return pc.binary_join_element_wise(escaped, pa.scalar(_END, pa.binary()), pa.scalar(b"", pa.binary()))
    words = (_number_codes(member).view(np.uint64) ^ _SIGN).astype(">u8")
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_NUMBER), len(words), [None, pa.py_buffer(words)])
    return fixed.cast(pa.binary())


def _tuples_of(codes: pa.Array, data_type: pa.StructType) -> pa.StructArray:
    members, rest = [], codes
    for field in data_type:
        if ordering_kind(field.type) == "bytes":
            split = pc.split_pattern(rest, pattern=_END, max_splits=1)
            text, rest = pc.list_element(split, 0), pc.list_element(split, 1)
            members.append(pc.replace_substring(text, pattern=_INNER_ZERO, replacement=_ZERO).cast(field.type))
            continue
        words = np.frombuffer(pc.binary_slice(rest, 0, _NUMBER).cast(pa.binary(_NUMBER)).buffers()[1], ">u8")
        numbers = (words[: len(rest)].astype(np.uint64) ^ _SIGN).view(np.int64)
        members.append(_numbers_of(numbers, np.zeros(len(numbers), np.bool_), field.type))
        rest = pc.binary_slice(rest, _NUMBER, _TO_THE_END)
    return tuples(members, [field.name for field in data_type])


def _places(known: npt.NDArray[np.bool_]) -> pa.Array:
    """The index of each value among the known ones, null for the others."""
    return pa.array(np.cumsum(known) - 1, pa.int64(), mask=~known)


def _int_to_double(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.where(codes < 0, codes ^ np.int64(0x7FFFFFFFFFFFFFFF), codes).view(np.float64)


def _number_codes(column: pa.Array) -> npt.NDArray[np.int64]:
    t = pa.types
    if t.is_floating(column.type):
        return double_codes(pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False))
    if t.is_decimal(column.type):
        # The unscaled number: every value of a column has the same scale. It fits the low word of 128 bits.
        wide = column.cast(pa.decimal128(MAX_DECIMAL_DIGITS, column.type.scale))
        words = np.frombuffer(wide.buffers()[1], np.int64)[2 * wide.offset : 2 * (wide.offset + len(wide)) : 2]
        return np.where(pc.is_valid(wide).to_numpy(zero_copy_only=False), words, 0)
    whole = column.view(pa.int64()) if t.is_timestamp(column.type) else column
    whole = whole.view(pa.int32()) if t.is_date32(whole.type) else whole
    codes: npt.NDArray[np.int64] = pc.fill_null(whole.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return codes


def _numbers_of(codes: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_], data_type: pa.DataType) -> pa.Array:
    t = pa.types
    if t.is_floating(data_type):
        return pa.array(_int_to_double(codes), pa.float64(), mask=mask).cast(data_type)
    whole = pa.array(codes, pa.int64(), mask=mask)
    if t.is_decimal(data_type):
        high = np.where(codes < 0, -1, 0).astype(np.int64)
        words = np.ascontiguousarray(np.stack([codes, high], axis=1))
        wide_type = pa.decimal128(MAX_DECIMAL_DIGITS, data_type.scale)
        wide = pa.Array.from_buffers(wide_type, len(codes), [whole.buffers()[0], pa.py_buffer(words)])
        return wide.cast(data_type)
    if t.is_timestamp(data_type):
        return whole.view(data_type)
    if t.is_date32(data_type):
        return whole.cast(pa.int32()).view(data_type)
    return whole.cast(data_type)
