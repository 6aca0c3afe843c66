"""The columns of a simulated table: their Avro types, values at the edges, plain values, and both as readers give them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
_WIDE = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}
_DATE = {"type": "int", "logicalType": "date"}
_MICROS = {"type": "long", "logicalType": "timestamp-micros"}
_NESTED = {
    "type": "record",
    "name": "nested",
    "fields": [
        {"name": "n", "type": ["null", "int"], "default": None},
        {"name": "texts", "type": {"type": "array", "items": "string"}},
    ],
}
_NAN = "NaN"


@dataclass(frozen=True)
class Column:
    """``edges``: values as JSON has them; ``plain``: one of a number; ``read``: such a value as a reader gives it."""

    name: str
    avro: Any
    edges: tuple[Any, ...]
    plain: Callable[[int], Any]
    read: Callable[[Any], Any] = lambda value: value

    @property
    def field(self) -> dict[str, Any]:
        """Of the record schema; every value may be null."""
        return {"name": self.name, "type": ["null", self.avro], "default": None}

    def draw(self, random: Random, number: int) -> Any:
        """A value as JSON has it."""
        chance = random.random()
        if chance < 0.2:
            return None
        return random.choice(self.edges) if chance < 0.5 else self.plain(number)

    def value(self, found: Any) -> Any:
        """A value of JSON, or of a reader, in the one form in which they are compared."""
        return None if found is None else self.read(found)


def _float(found: Any) -> Any:
    value = float(found)
    return _NAN if math.isnan(value) else value


def _single(found: Any) -> Any:
    value = _float(found)
    return value if value == _NAN or math.isinf(value) else float(f"{value:.6g}")


def _date(found: Any) -> date:
    return date.fromisoformat(found) if isinstance(found, str) else found


def _time(found: Any) -> datetime:
    return datetime.fromisoformat(found.replace("Z", "+00:00")) if isinstance(found, str) else found.astimezone(UTC)


def _nested(found: Any) -> Any:
    return {"n": found["n"], "texts": list(found["texts"])}


_DOUBLES = (0.0, -0.0, 1.5, -1.5, 1e300, -1e300, _NAN, "Infinity", "-Infinity", 1e-310, 0.1)
COLUMNS = (
    Column("txt", "string", ("", "a", "é", "\U0001f600", "\uffff", "x" * 1500, "0", "~", "tab\t\x01"), lambda n: f"t{n}"),
    Column("dbl", "double", _DOUBLES, lambda n: n / 8, _float),
    Column("flt", "float", (0.0, -0.0, 1.5, _NAN, -2.25, 0.5), lambda n: n % 1000 / 4, _single),
    Column(
        "dec", _DECIMAL, ("0.00", "-0.01", "1.00", "99999999.99", "-99999999.99"), lambda n: f"{n % 10000}.5", Decimal
    ),
    Column(
        "wide", _WIDE,
        ("0", *(sign + "9" * 29 + end for sign in ("", "-") for end in (".999999999", ".999999998", ".000000001"))),
        lambda n: f"{n}.000000001", Decimal,
    ),
    Column("lng", "long", (0, -1, 2**63 - 1, -(2**63), 5), lambda n: n),
    Column(
        "dat", _DATE, ("1970-01-01", "0001-01-01", "9999-12-31", "1582-10-10", "1969-12-31"),
        lambda n: (date(2000, 1, 1) + timedelta(days=n % 9000)).isoformat(), _date,
    ),
    Column(
        "tsu", _MICROS,
        ("1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999Z"),
        lambda n: (datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=n, microseconds=n)).isoformat(), _time,
    ),
    Column("flg", "boolean", (True, False), lambda n: n % 2 == 0),
    Column(
        "nest", _NESTED, ({"n": None, "texts": []}, {"n": -1, "texts": ["", "é"]}),
        lambda n: {"n": n, "texts": [f"a{n}"]}, _nested,
    ),
)  # fmt: skip
ADDED = (
    Column("new1", "int", (0, 1, -5, 2**31 - 1), lambda n: n),
    Column("new2", "string", ("n", "m", ""), lambda n: f"w{n}"),
    Column("new3", "double", _DOUBLES, lambda n: n / 2, _float),
)
BY_NAME = {column.name: column for column in (*COLUMNS, *ADDED)}
# Values of the ordering field as a program has them, by its type; those of the others are as JSON has them.
ORDERING_VALUES: dict[str, Callable[[Any], Any]] = {
    "timestamp": lambda micros: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros),
    "decimal": Decimal,
}
# Types of the ordering field, and the value of a number in JSON.
ORDERINGS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "long": ("long", lambda n: n),
    "int": ("int", lambda n: n),
    "double": ("double", lambda n: n / 4),
    "string": ("string", lambda n: f"{n:012d}"),
    "timestamp": (_MICROS, lambda n: n * 1_000_003),
    "decimal": ({**_DECIMAL, "precision": 12}, lambda n: f"{n}.25"),
}


def as_values(row: Mapping[str, Any], ordering: str) -> dict[str, Any]:
    """The fields of an event as a program has them. ``ordering``: the type of the ordering field."""
    found = dict(row)
    for name, column in BY_NAME.items():
        value = column.value(row.get(name))
        found[name] = float("nan") if value == _NAN and name != "txt" else value
    if ordering in ORDERING_VALUES:
        found["ts"] = ORDERING_VALUES[ordering](row["ts"])
    return found


def sub_of(key: str) -> int:
    """The second field of a key."""
    return len(key) + int(key[1:]) % 3
