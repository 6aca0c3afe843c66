"""Ordering values: of one field its own values, of several a struct of theirs, compared member by member. A field is a
column, or inside a struct column: then it is null where the struct is.

A struct is null where a member is: it has no place in the order then, as a null of one field has none.
Hudi compares ordering values as Java does: -0.0 is smaller than 0.0, NaN is greater than every number and equal to itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.fields import column_of, type_of

_Ints = npt.NDArray[np.int64]


def ordering_type(schema: pa.Schema, fields: Sequence[str]) -> pa.DataType | None:
    """Type of the ordering values; None without a field. KeyError for a field that the schema has not."""
    if len(fields) < 2:
        return type_of(schema, fields[0]) if fields else None
    return pa.struct([pa.field(name, type_of(schema, name)) for name in fields])


def ordering_column(rows: pa.Table, fields: Sequence[str]) -> pa.Array | None:
    """Ordering values of rows; None without a field."""
    if len(fields) < 2:
        return column_of(rows, fields[0]) if fields else None
    return tuples([column_of(rows, name) for name in fields], fields)


def tuples(members: Sequence[pa.Array], names: Sequence[str]) -> pa.StructArray:
    """One struct of the members' values, null where any of them is."""
    unknown = np.zeros(len(members[0]), np.bool_)
    for member in members:
        if member.null_count:
            unknown |= member.is_null().to_numpy(zero_copy_only=False)
    fields = [pa.field(name, member.type) for name, member in zip(names, members, strict=True)]
    mask = pa.array(unknown) if unknown.any() else None
    return pa.StructArray.from_arrays(list(members), fields=fields, mask=mask)


def greater(left: pa.Array, right: pa.Array) -> pa.Array:
    """Where the left value is greater than the right one; null where one of them is."""
    if not pa.types.is_struct(left.type):
        return pc.greater(_in_order(left), _in_order(right))
    sides = [(_in_order(a), _in_order(b)) for a, b in zip(left.flatten(), right.flatten(), strict=True)]
    found = pc.greater(*sides[-1])
    for one, other in sides[-2::-1]:
        found = pc.or_(pc.greater(one, other), pc.and_(pc.equal(one, other), found))
    return found


def ranks(values: pa.Array) -> _Ints:
    """Numbers in the order of the values, equal ones for equal values; 0 for nulls, which are the smallest."""
    if not pa.types.is_struct(values.type):
        numbers: _Ints = (
            pc.rank(_in_order(values), sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
        )
    else:
        numbers = np.zeros(len(values), np.int64)
        for member in values.flatten():
            own = ranks(member)
            _, together = np.unique(numbers * (int(own.max(initial=0)) + 1) + own, return_inverse=True)
            numbers = together.astype(np.int64) + 1
    numbers[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return numbers


def double_codes(values: npt.NDArray[np.float64]) -> _Ints:
    """int64 in the order of ``java.lang.Double.compare``: IEEE bits with the magnitude of negative numbers turned round."""
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)


def _in_order(values: pa.Array) -> pa.Array:
    """Values that Arrow compares as Java compares these."""
    if not pa.types.is_floating(values.type):
        return values
    numbers = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    return pa.array(double_codes(numbers), pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False))
