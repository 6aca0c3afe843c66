"""Comparisons: their text, and what is no value of a column."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest

from tagstream.table.errors import ConfigError
from tagstream.table.read.filters import Comparison, Op, bind

SCHEMA = pa.schema([
    ("name", pa.string()), ("n", pa.int32()), ("amount", pa.float64()), ("price", pa.decimal128(8, 2)),
    ("day", pa.date32()), ("at", pa.timestamp("us", tz="UTC")), ("local", pa.timestamp("ms")), ("ok", pa.bool_()),
    ("tags", pa.list_(pa.string())), ("raw", pa.binary()),
])  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n = 5", Comparison("n", Op.EQ, "5")),
        ("n=5", Comparison("n", Op.EQ, "5")),
        ("n==5", Comparison("n", Op.EQ, "5")),
        ("n <> 5", Comparison("n", Op.NE, "5")),
        (" n>= -5 ", Comparison("n", Op.GE, "-5")),
        ("name != it is", Comparison("name", Op.NE, "it is")),
        ("name = 'it''s, in = (x)'", Comparison("name", Op.EQ, "it's, in = (x)")),
        ("name = ''", Comparison("name", Op.EQ, "")),
        ("n in (1, 2,3)", Comparison("n", Op.IN, ["1", "2", "3"])),
        ("name IN ('a, b', c)", Comparison("name", Op.IN, ["a, b", "c"])),
        ("n in ()", Comparison("n", Op.IN, [])),
        ("n is null", Comparison("n", Op.IS_NULL)),
        ("n IS  NOT NULL", Comparison("n", Op.IS_NOT_NULL)),
    ],
)
def test_texts(text: str, expected: Comparison) -> None:
    assert Comparison.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", "n", "n 5", "n ~ 5", "n =", "n in 5", "= 5", "name = 'a' b", "n in ('a' b)", "name = 'a"]
)
def test_what_is_no_comparison(text: str) -> None:
    with pytest.raises(ConfigError):
        Comparison.parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n = 5", ["n = 5"]),
        ("n >= 5 and n < 9 AND name is not null", ["n >= 5", "n < 9", "name is not null"]),
        ("name = 'a and b' and n in (1, 2)", ["name = 'a and b'", "n in (1, 2)"]),
        ("name in ('x and y', 'or (')and(n) = 3", ["name in ('x and y', 'or (')", "(n) = 3"]),
        ("name = 'it''s and'\nand n = 3", ["name = 'it''s and'", "n = 3"]),
        ("android = 3 and order = 4", ["android = 3", "order = 4"]),
    ],
)
def test_comparisons_joined_by_and(text: str, expected: list[str]) -> None:
    assert Comparison.parse_all(text) == [Comparison.parse(part) for part in expected]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("n = 5 or n = 6", "has or: only comparisons"),
        ("n between 5 and 6", "has between: only comparisons"),
        ("name like 'a%'", "has like: only comparisons"),
        ("name = 'a and n = 5", "has a quote that is not closed"),
        ("n = 5 and", "is not a comparison"),
        ("n = 5 and and n = 6", "is not a comparison"),
        ("", "is not a comparison"),
    ],
)
def test_what_is_no_filter(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Comparison.parse_all(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n = 7", 7),
        ("amount < 1e3", 1000.0),
        ("price >= -1.5", decimal.Decimal("-1.50")),
        ("day = 2024-02-29", dt.date(2024, 2, 29)),
        ("at > 2024-02-29 12:00:00", dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)),
        ("at > 2024-02-29T12:00:00+02:00", dt.datetime(2024, 2, 29, 10, tzinfo=dt.UTC)),
        ("local = 2024-02-29 12:00:00", dt.datetime(2024, 2, 29, 12)),
        ("ok = true", True),
        ("name = 7", "7"),
        ("raw = abc", b"abc"),
    ],
)
def test_values_take_the_type_of_their_column(text: str, value: Any) -> None:
    (found,) = bind([Comparison.parse(text)], SCHEMA)
    assert found.values.to_pylist() == [value]
    assert found.values.type == SCHEMA.field(found.column).type


@pytest.mark.parametrize(
    ("comparison", "message"),
    [
        (Comparison("nothing", Op.EQ, 1), "nothing"),
        (Comparison("n", Op.EQ, "x"), "not a value of column n, which is int32"),
        (Comparison("n", Op.EQ, 1.5), "not a value of column n"),
        (Comparison("n", Op.EQ, 2**40), "not a value of column n"),
        (Comparison("n", Op.EQ, None), "is null"),
        (Comparison("n", Op.IN, [1, None]), "is null"),
        (Comparison("n", Op.IN, 1), "needs a list"),
        (Comparison("name", Op.IN, "abc"), "needs a list"),
        (Comparison("amount", Op.EQ, float("nan")), "nan"),
        (Comparison("amount", Op.EQ, "NaN"), "NaN"),
        (Comparison("price", Op.EQ, "1.005"), "not a value of column price"),
        (Comparison("day", Op.EQ, "yesterday"), "not a value of column day"),
        (Comparison("tags", Op.EQ, "x"), "only be tested for null"),
    ],
)
def test_what_does_not_fit_is_refused(comparison: Comparison, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bind([comparison], SCHEMA)
