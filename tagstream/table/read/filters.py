"""Filters of a read: comparisons of a column with values, all of which must be true.

A comparison with null is never true, as in SQL. NaN is unequal to every number, and neither less nor greater.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import ConfigError


class Op(StrEnum):
    """The operators of comparisons."""

    EQ = "="
    NE = "!="
    LE = "<="
    GE = ">="
    LT = "<"
    GT = ">"
    IN = "in"
    IS_NULL = "is null"
    IS_NOT_NULL = "is not null"


NULL_TESTS = (Op.IS_NULL, Op.IS_NOT_NULL)
_FUNCTIONS = {Op.EQ: pc.equal, Op.NE: pc.not_equal, Op.LT: pc.less, Op.LE: pc.less_equal, Op.GT: pc.greater,
              Op.GE: pc.greater_equal}  # fmt: skip
_TEXT = re.compile(r"\s*([^\s=!<>]+)\s*(!=|<>|<=|>=|==|=|<|>|is\s+not\s+null$|is\s+null$|in\b)\s*(.*?)\s*", re.I | re.S)
_SPELLINGS = {"<>": Op.NE, "==": Op.EQ}
_NOT_READ = ("or", "between", "like")
_JOINS = re.compile(rf"'|\(|\)|(?<=[\s)'])(?:and|{'|'.join(_NOT_READ)})(?=[\s(']|$)", re.I)
_ITEM = re.compile(r"\s*(?:'((?:[^']|'')*)'|([^,']*?))\s*(?:,|$)")


@dataclass(frozen=True)
class Comparison:
    """``column op value``; ``value`` is a Python value of the column's type or its text, for ``in`` a sequence of them."""

    column: str
    op: Op
    value: Any = None

    @staticmethod
    def parse(text: str) -> Comparison:
        """Parse ``name = x``, ``name in (x, 'y, z')``, ``name is null`` ...; a value may be quoted.

        ConfigError otherwise.
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"{text!r} is not a comparison: write COLUMN OP VALUE with one of {', '.join(Op)}; in needs a list in "
                "parentheses, a text may be in single quotes"
            )
        column, word, rest = match.groups()
        op = _SPELLINGS.get(word) or Op(" ".join(word.lower().split()))
        if op in NULL_TESTS:
            return Comparison(column, op)
        if op is Op.IN:
            if not (rest.startswith("(") and rest.endswith(")")):
                raise ConfigError(f"{text!r}: in needs a list in parentheses, for example {column} in (a, b)")
            return Comparison(column, op, _items(rest[1:-1], text))
        items = _items(rest, text) if rest.startswith("'") else [rest]
        if len(items) != 1 or not rest:
            raise ConfigError(f"{text!r} must have one value after {word}")
        return Comparison(column, op, items[0])

    @staticmethod
    def parse_all(text: str) -> list[Comparison]:
        """Parse comparisons joined by ``and``: ``day >= '2026-01-01' and state in ('open', 'late')``.

        An ``and`` in quotes or in a list is a part of the value. ConfigError for ``or``, ``between`` and ``like``,
        which are not supported.
        """
        parts, start, depth, quoted = [], 0, 0, False
        for match in _JOINS.finditer(text):
            sign = match.group().lower()
            if sign == "'":
                quoted = not quoted
            elif quoted:
                continue
            elif sign in "()":
                depth += 1 if sign == "(" else -1
            elif sign == "and" and depth == 0:
                parts.append(text[start : match.start()])
                start = match.end()
            elif sign in _NOT_READ:
                raise ConfigError(
                    f"the filter {text!r} has {sign}: only comparisons with one of {', '.join(Op)} can be joined by and; "
                    "read more rows, and filter the result for the rest"
                )
        if quoted:
            raise ConfigError(f"the filter {text!r} has a quote that is not closed; a quote in a text is written twice")
        return [Comparison.parse(part.strip()) for part in (*parts, text[start:])]


@dataclass(frozen=True)
class Filter:
    """A comparison bound to a table's column: ``values`` have the column's type, without nulls and NaN."""

    field: pa.Field
    op: Op
    values: pa.Array

    @property
    def column(self) -> str:
        """The column's name."""
        name: str = self.field.name
        return name

    def mask(self, rows: pa.Table) -> pa.ChunkedArray:
        """True for the rows that match; never null."""
        column = rows.column(self.column)
        if self.op is Op.IS_NULL:
            return column.is_null()
        if self.op is Op.IS_NOT_NULL:
            return column.is_valid()
        if self.op is Op.IN:
            # is_in would distinguish 0.0 from -0.0, so floats are compared one by one.
            if not pa.types.is_floating(self.field.type):
                return pc.is_in(column, value_set=self.values)
            masks = [pc.equal(column, value).fill_null(False) for value in self.values]
            nothing = pa.chunked_array([pa.repeat(False, len(column))])
            return functools.reduce(pc.or_, masks, nothing)
        return _FUNCTIONS[self.op](column, self.values[0]).fill_null(False)


def bind(comparisons: Iterable[Comparison], schema: pa.Schema) -> tuple[Filter, ...]:
    """Filters on columns of a schema. ConfigError for an unknown column, or a value that does not fit the column's type."""
    return tuple(_bind(comparison, schema) for comparison in comparisons)


def matching(rows: pa.Table, filters: Sequence[Filter]) -> pa.Table:
    """The rows that match all filters."""
    for found in filters:
        rows = rows.filter(found.mask(rows))
    return rows


def _bind(comparison: Comparison, schema: pa.Schema) -> Filter:
    if comparison.column not in schema.names:
        raise ConfigError(
            f"the filter names column {comparison.column}, which does not exist; the columns are {', '.join(schema.names)}"
        )
    field = schema.field(comparison.column)
    if comparison.op in NULL_TESTS:
        return Filter(field, comparison.op, pa.array([], field.type))
    if pa.types.is_nested(field.type):
        raise ConfigError(f"column {field.name} is {field.type}: it can only be tested for null")
    if comparison.op is Op.IN and (
        isinstance(comparison.value, str | bytes) or not isinstance(comparison.value, Iterable)
    ):
        raise ConfigError(f"the filter on {field.name} with in needs a list of values, not {comparison.value!r}")
    values = list(comparison.value) if comparison.op is Op.IN else [comparison.value]
    return Filter(field, comparison.op, pa.array([_typed(value, field).as_py() for value in values], field.type))


def _typed(value: Any, field: pa.Field) -> pa.Scalar:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise ConfigError(f"column {field.name} cannot be compared with {value}: nothing matches; use is null")
    try:
        if isinstance(value, float) and pa.types.is_integer(field.type) and not value.is_integer():
            raise ValueError("it has a fraction")  # Arrow would cut it off
        if not isinstance(value, str) or pa.types.is_string(field.type):
            found = pa.scalar(value, field.type)
        elif pa.types.is_timestamp(field.type) and field.type.tz is not None:
            found = _zoned(value, field.type)
        else:
            found = pa.scalar(value).cast(field.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise ConfigError(f"{value!r} is not a value of column {field.name}, which is {field.type} ({error})") from None
    if pa.types.is_floating(field.type) and math.isnan(found.as_py()):
        raise ConfigError(f"column {field.name} cannot be compared with NaN: no value is equal to it, less or greater")
    return found


def _zoned(text: str, kind: pa.DataType) -> pa.Scalar:
    """The timestamp of a text, in UTC unless it has an offset."""
    try:
        return pa.scalar(text).cast(kind)
    except pa.ArrowInvalid:
        return pa.scalar(f"{text}Z").cast(kind)


def _items(text: str, whole: str) -> list[str]:
    items, at = [], 0
    while at < len(text):
        match = _ITEM.match(text, at)
        if match is None or match.end() == at:
            raise ConfigError(
                f"{whole!r}: the list cannot be parsed from {text[at:]!r} on; put texts with commas in single quotes"
            )
        quoted, plain = match.groups()
        items.append(quoted.replace("''", "'") if quoted is not None else plain)
        at = match.end()
    return items
