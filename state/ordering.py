"""Ordering values as order-preserving int64, or as bytes for strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.errors import StateError
from tagstream.state.layout import OrderingKind

MAX_DECIMAL_DIGITS = 18


def ordering_kind(data_type: pa.DataType | None) -> OrderingKind:
    """How values of an Arrow type are kept; StateError for a type that has no order-preserving form here."""
    if data_type is None:
        return "none"
    t = pa.types
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


def _double_to_int(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """IEEE bits with the magnitude of negative numbers turned round: integer order equals number order.

    -0.0 becomes 0.0 and NaN the greatest value, so that equal numbers have equal codes.
    """
    clean = np.where(np.isnan(values), np.nan, values + 0.0)
    bits = clean.view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)


def _int_to_double(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.where(codes < 0, codes ^ np.int64(0x7FFFFFFFFFFFFFFF), codes).view(np.float64)


def encode_ordering(column: pa.Array) -> npt.NDArray[Any]:
    """int64 (or objects of bytes for strings) in the order of the values; nulls give 0 or empty bytes."""
    kind = ordering_kind(column.type)
    if kind == "bytes":
        out = np.empty(len(column), object)
        out[:] = pc.fill_null(column.cast(pa.binary()), b"").to_pylist()
        return out
    t = pa.types
    if t.is_floating(column.type):
        return _double_to_int(pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False))
    if t.is_decimal(column.type):
        # The unscaled number: every value of a column has the same scale. It fits the low word of 128 bits.
        wide = column.cast(pa.decimal128(MAX_DECIMAL_DIGITS, column.type.scale))
        words = np.frombuffer(wide.buffers()[1], np.int64)[2 * wide.offset : 2 * (wide.offset + len(wide)) : 2]
        return np.where(pc.is_valid(wide).to_numpy(zero_copy_only=False), words, 0)
    whole = column.view(pa.int64()) if t.is_timestamp(column.type) else column
    whole = whole.view(pa.int32()) if t.is_date32(whole.type) else whole
    codes: npt.NDArray[np.int64] = pc.fill_null(whole.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return codes


def decode_ordering(codes: npt.NDArray[Any], known: npt.NDArray[np.bool_], data_type: pa.DataType) -> pa.Array:
    """The values again, in the column's own type; null where not `known`."""
    mask = ~known
    t = pa.types
    if ordering_kind(data_type) == "bytes":
        return pa.array(codes, pa.binary(), mask=mask).cast(data_type)
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
