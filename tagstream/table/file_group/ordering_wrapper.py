"""Ordering values of delete records: an Avro union of wrapper records, one for each type.

Branches by number: 0 null, 1 Boolean, 2 Int, 3 Long, 4 Float, 5 Double, 6 Bytes, 7 String, 8 Date (int days), 9
Decimal (bytes, decimal(30,15)), 10 TimeMicros, 11 TimestampMicros. Hudi 1.x adds 12 Array: the values of several
ordering fields, each in its wrapper (branches 0 to 11, and 12 LocalDate). Hudi writes timestamp and time columns as
the plain number of Avro, so as Int or Long. ``Int 0``, for any type of the column, means natural order: the delete wins
over everything older.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.fields import tuples
from tagstream.table.file_group.log_format import binary_array, prefixed, unscaled_bytes, zigzag, zigzags


def unscaled(value: Decimal, scale: int) -> int:
    """The unscaled number of a decimal at a scale that holds all of its digits; ValueError when the scale is too small.

    Python's arithmetic rounds to the 28 digits of its context, and a table's decimals have up to 38.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not a number")
    whole, shift, cut = int("".join(map(str, digits))), exponent + scale, 0
    number: int = whole * 10 ** max(0, shift)
    if shift < 0:
        number, cut = divmod(whole, 10**-shift)
    if cut:
        raise ValueError(f"{value} has more than {scale} digits after the point")
    return -number if sign else number


INT, LONG, ARRAY = 2, 3, 12
_NAMESPACE = "org.apache.hudi.avro.model"
DECIMAL_DIGITS = 15  # before the point and after it
_DECIMAL = pa.decimal128(2 * DECIMAL_DIGITS, DECIMAL_DIGITS)
_WRAPPERS: list[tuple[str, Any, pa.DataType]] = [
    ("Boolean", "boolean", pa.bool_()),
    ("Int", "int", pa.int32()),
    ("Long", "long", pa.int64()),
    ("Float", "float", pa.float32()),
    ("Double", "double", pa.float64()),
    ("Bytes", "bytes", pa.binary()),
    ("String", "string", pa.string()),
    ("Date", "int", pa.date32()),
    ("Decimal", {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}, _DECIMAL),
    ("TimeMicros", "long", pa.time64("us")),
    ("TimestampMicros", "long", pa.timestamp("us", tz="UTC")),
]
TYPES: dict[str, pa.DataType] = {f"{_NAMESPACE}.{name}Wrapper": arrow for name, _, arrow in _WRAPPERS}
INT_NAME = f"{_NAMESPACE}.IntWrapper"
ARRAY_NAME = f"{_NAMESPACE}.ArrayWrapper"
_IN_ARRAYS = TYPES | {f"{_NAMESPACE}.LocalDateWrapper": pa.date32()}


def type_of(branch: int) -> pa.DataType:
    """Arrow type of the values in the wrapper of a branch (1 to 11)."""
    return _WRAPPERS[branch - 1][2]


def union_schema() -> list[Any]:
    """Avro schema of the union, with plain numbers for dates and times."""
    defined = [_wrapper(f"{name}Wrapper", avro) for name, avro, _ in _WRAPPERS]
    again = ["null", *(f"{_NAMESPACE}.{name}Wrapper" for name, _, _ in _WRAPPERS)]
    items = [*again, _wrapper("LocalDateWrapper", "int")]
    values = {"name": "wrappedValues", "type": ["null", {"type": "array", "items": items}]}
    array = {"type": "record", "name": "ArrayWrapper", "namespace": _NAMESPACE, "fields": [values]}
    return ["null", *defined, array]


def _wrapper(name: str, avro: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": _NAMESPACE, "fields": [{"name": "value", "type": avro}]}


def encode(orderings: pa.Array) -> tuple[int, pa.Array]:
    """(branch, Avro bytes of each value) of ordering values without nulls, by the type of their column.

    Values of several fields are a struct (``table.fields``). UnsupportedTableError for a type without a wrapper.
    """
    t, arrow = pa.types, orderings.type
    if t.is_struct(arrow):
        return ARRAY, _arrays(orderings)
    if t.is_boolean(arrow):
        return 1, _fixed(orderings.cast(pa.uint8()), np.dtype("u1"))
    if t.is_date32(arrow):
        return 8, zigzags(_numbers(orderings.cast(pa.int32())))
    if t.is_int8(arrow) or t.is_int16(arrow) or t.is_int32(arrow) or t.is_time32(arrow):
        return INT, zigzags(_numbers(orderings.cast(pa.int32())))
    if t.is_integer(arrow) or t.is_timestamp(arrow) or t.is_time64(arrow):
        return LONG, zigzags(_numbers(orderings.cast(pa.int64())))
    if t.is_float32(arrow):
        return 4, _fixed(orderings, np.dtype("<f4"))
    if t.is_float64(arrow):
        return 5, _fixed(orderings, np.dtype("<f8"))
    if t.is_string(arrow) or t.is_large_string(arrow):
        return 7, prefixed(orderings)
    if t.is_binary(arrow) or t.is_large_binary(arrow):
        return 6, prefixed(orderings)
    if t.is_decimal(arrow):
        return 9, _decimals(orderings)
    raise UnsupportedTableError(f"an ordering field of type {arrow} cannot be in a delete block; use another field")


def beyond(values: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Which values do not fit into a delete block; None where all values of the type do.

    These are decimals with more than ``DECIMAL_DIGITS`` digits before the point.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        found = [great for member in values.flatten() if (great := beyond(member)) is not None]
        return np.logical_or.reduce(found) if found else None
    if not pa.types.is_decimal(kind) or kind.precision - kind.scale <= DECIMAL_DIGITS:
        return None
    least = pa.scalar(Decimal(10) ** DECIMAL_DIGITS, kind)
    mask: npt.NDArray[np.bool_] = (
        pc.greater_equal(pc.abs(values), least).fill_null(False).to_numpy(zero_copy_only=False)
    )
    return mask


def _arrays(orderings: pa.StructArray) -> pa.Array:
    members = [encode(member) for member in orderings.flatten()]
    start = zigzag(1) + zigzag(len(members))  # the second branch of ["null", array], and one block of all items
    parts = [pa.scalar(start, pa.binary())]
    for branch, values in members:
        parts += [pa.scalar(zigzag(branch), pa.binary()), values]
    return pc.binary_join_element_wise(*parts, pa.scalar(zigzag(0), pa.binary()), pa.scalar(b"", pa.binary()))


def _numbers(values: pa.Array) -> Any:
    return values.to_numpy(zero_copy_only=False).astype(np.int64)


def _fixed(values: pa.Array, width: np.dtype[Any]) -> pa.Array:
    data = values.to_numpy(zero_copy_only=False).astype(width)
    return binary_array(data.view(np.uint8), np.full(len(data), width.itemsize, np.int64))


def _decimals(values: pa.Array) -> pa.Array:
    try:
        values = values.cast(_DECIMAL)
    except pa.ArrowInvalid as error:
        raise UnsupportedTableError(
            f"an ordering value does not fit the decimal(30,15) of a delete block ({error}); use another ordering field"
        ) from error
    # A row loop: decimals are rare as ordering fields, and their lengths differ (measured: 1 us a value).
    numbers = [unscaled(value, _DECIMAL.scale) for value in values.to_pylist()]
    return prefixed(pa.array([unscaled_bytes(n) for n in numbers], pa.binary()))


def decode(values: Sequence[Any], wanted: pa.DataType) -> pa.Array:
    """Wrappers (name and fields, or None) as ordering values of a type; null where the types cannot be compared."""
    # A row loop, because every value of the union has its own type (measured with the Avro decoding: 5 us a record).
    by_name: dict[str, list[int]] = {}
    for row, value in enumerate(values):
        if value is not None:
            by_name.setdefault(value[0], []).append(row)
    parts, places = [], []
    for name, rows in by_name.items():
        found = _decoded(name, [values[row][1] for row in rows], wanted)
        if found is not None:
            parts.append(found)
            places.append(np.array(rows, np.int64))
    rest = np.setdiff1d(np.arange(len(values), dtype=np.int64), np.concatenate([*places, np.zeros(0, np.int64)]))
    parts.append(pa.nulls(len(rest), wanted))
    order = np.argsort(np.concatenate([*places, rest]))
    return pa.concat_arrays(parts).take(pa.array(order))


def _decoded(name: str, fields: list[dict[str, Any]], wanted: pa.DataType) -> pa.Array | None:
    if name == ARRAY_NAME:
        return _tuples([item["wrappedValues"] for item in fields], wanted) if pa.types.is_struct(wanted) else None
    return convert(pa.array([item["value"] for item in fields], _IN_ARRAYS[name]), wanted)


def _tuples(arrays: list[list[Any] | None], wanted: pa.StructType) -> pa.StructArray:
    count = wanted.num_fields
    whole = [array if array is not None and len(array) == count else [None] * count for array in arrays]
    members = [decode([array[i] for array in whole], wanted.field(i).type) for i in range(count)]
    return tuples(members, [field.name for field in wanted])


def convert(values: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    """Values of one wrapper's type in the ordering column's type; None where the types cannot be compared.

    Hudi 0.15 treats a delete whose wrapper does not fit the column as natural order; so does the caller.
    """
    t, have = pa.types, values.type
    try:
        if t.is_integer(have) and (t.is_integer(wanted) or t.is_temporal(wanted)):
            # the plain number of a date or timestamp column, in that column's unit
            return values.cast(pa.int64() if wanted.bit_width == 64 else pa.int32()).cast(wanted)
        same_kind = any(kind(have) and kind(wanted) for kind in (t.is_floating, t.is_decimal, t.is_timestamp))
        return values.cast(wanted) if have == wanted or same_kind else None
    except pa.ArrowInvalid:
        return None
