"""What is known of a column's values in a file, and whether a filter can match any of them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.skipping.filters import Filter, Op


@dataclass(frozen=True)
class ColumnRange:
    """No value is smaller than ``lower`` or greater than ``upper`` (None: not known); they need not occur.

    ``has_nulls`` False: there is none. ``all_null``: there are no values at all.
    """

    lower: pa.Scalar | None = None
    upper: pa.Scalar | None = None
    has_nulls: bool = True
    all_null: bool = False

    @property
    def is_unknown(self) -> bool:
        """True when nothing could be concluded from it."""
        return self.lower is None and self.upper is None and self.has_nulls and not self.all_null


UNKNOWN = ColumnRange()
NO_VALUES = ColumnRange(all_null=True)
NO_ROWS = ColumnRange(has_nulls=False, all_null=True)


def may_match(wanted: Filter, known: ColumnRange) -> bool:
    """False only when no row with such values can match the filter."""
    if wanted.op is Op.IS_NULL:
        return known.has_nulls
    if known.all_null:
        return False
    if wanted.op is Op.IS_NOT_NULL:
        return True
    inside = wanted.values
    if wanted.op is Op.NE:
        # NaN is unequal to everything and in no range.
        return pa.types.is_floating(wanted.field.type) or not _is_only(known, inside[0])
    if known.lower is not None:
        inside = inside.filter(_LOWER[wanted.op](inside, known.lower))
    if known.upper is not None:
        inside = inside.filter(_UPPER[wanted.op](inside, known.upper))
    return len(inside) > 0


def _any(values: pa.Array, _: pa.Scalar) -> pa.Array:
    return values.is_valid()


# What the filter's value must be to the least and to the greatest value of the column.
_LOWER = {Op.EQ: pc.greater_equal, Op.IN: pc.greater_equal, Op.LT: pc.greater, Op.LE: pc.greater_equal, Op.GT: _any,
          Op.GE: _any}  # fmt: skip
_UPPER = {Op.EQ: pc.less_equal, Op.IN: pc.less_equal, Op.LT: _any, Op.LE: _any, Op.GT: pc.less,
          Op.GE: pc.less_equal}  # fmt: skip


def _is_only(known: ColumnRange, value: pa.Scalar) -> bool:
    """Whether the value is all there is between the bounds."""
    ends = (known.lower, known.upper)
    return all(end is not None and pc.equal(end, value).as_py() for end in ends)
