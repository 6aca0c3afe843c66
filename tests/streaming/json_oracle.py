"""What a JSON record is worth by a second, plain implementation: the whole decoder in one loop with Python's json."""

from __future__ import annotations

import json
import re
from datetime import date, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import pyarrow as pa

BAD = "bad"


class Literal(str):
    """A number as it stood in the text."""


def decode(raw: bytes | None, schema: pa.Schema) -> dict[str, Any] | str:
    """The row (numbers of dates and times in their unit), or BAD."""
    if raw is None:
        return BAD
    try:
        value = json.loads(
            raw.decode("utf-8"),
            parse_int=Literal,
            parse_float=Literal,
            parse_constant=_refuse,
            object_pairs_hook=lambda pairs: ("object", pairs),
        )
        return _record(value, list(schema))
    except ValueError:
        return BAD


def _refuse(_name: str) -> Any:
    raise ValueError


def _record(value: Any, fields: list[pa.Field]) -> dict[str, Any]:
    if not (isinstance(value, tuple) and value[0] == "object"):
        raise ValueError
    row: dict[str, Any] = {}
    for field in fields:
        found = [v for k, v in value[1] if k == field.name]
        if len(found) > 1:
            raise ValueError
        row[field.name] = _value(found[0] if found else None, field)
    return row


def _value(value: Any, field: pa.Field) -> Any:
    if value is None:
        if not field.nullable:
            raise ValueError
        return None
    kind, t = field.type, pa.types
    if t.is_struct(kind):
        return _record(value, list(kind))
    if t.is_list(kind):
        if not isinstance(value, list):
            raise ValueError
        return [_value(item, kind.value_field) for item in value]
    if isinstance(value, bool):
        if t.is_boolean(kind):
            return value
        if t.is_string(kind):
            return str(value).lower()
        raise ValueError
    if not isinstance(value, str):
        raise ValueError
    if t.is_string(kind):
        value.encode("utf-8")
        return str(value)
    if t.is_boolean(kind):
        if isinstance(value, Literal) or value not in ("true", "false"):
            raise ValueError
        return value == "true"
    if t.is_date32(kind) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        return (date.fromisoformat(value) - date(1970, 1, 1)).days
    if t.is_timestamp(kind) and re.match(r"[0-9]{4}-", value):
        return _stamp(value, kind)
    return _number(value, kind)


def _stamp(text: str, kind: pa.TimestampType) -> int:
    parts = re.fullmatch(
        r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})?)?",
        text,
    )
    if parts is None:
        raise ValueError
    day, clock, fraction, zone = parts.groups()
    if fraction and len(clock) != 8:
        raise ValueError
    if zone and kind.tz is None:
        raise ValueError
    moment = datetime.fromisoformat(f"{day}T{clock or '00:00'}")
    offset = timedelta(0)
    if zone and zone != "Z":
        sign = -1 if zone[0] == "-" else 1
        offset = timezone(timedelta(hours=int(zone[1:3]), minutes=int(zone[4:]))).utcoffset(None) * sign
        if int(zone[4:]) > 59:
            raise ValueError
    since = moment - datetime(1970, 1, 1) - offset
    ticks = (Fraction(since.days * 86400 + since.seconds) + Fraction("0" + (fraction or ".0"))) * (
        10**6 if kind.unit == "us" else 10**3
    )
    if ticks.denominator != 1:
        raise ValueError
    return int(ticks)


def _number(text: str, kind: pa.DataType) -> Any:
    t = pa.types
    if t.is_floating(kind) and not isinstance(text, Literal) and text in ("NaN", "Infinity", "-Infinity"):
        return float(text)  # as texts, in quotes
    parts = re.fullmatch(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?", text)
    if parts is None or not (parts.group(2) or parts.group(3)):
        raise ValueError
    digits = (parts.group(2) + (parts.group(3) or "")).strip("0")
    if abs(int(parts.group(4) or 0)) > 2000:  # nothing but a zero survives that
        if digits:
            raise ValueError
        text = "0"
    exact = Fraction(text)
    if t.is_integer(kind) or t.is_timestamp(kind) or t.is_date32(kind):
        bits = kind.bit_width
        if exact.denominator != 1 or not -(2 ** (bits - 1)) <= exact < 2 ** (bits - 1):
            raise ValueError
        return int(exact)
    if t.is_decimal(kind):
        unscaled = exact * 10**kind.scale
        if unscaled.denominator != 1 or abs(unscaled) >= 10**kind.precision:
            raise ValueError
        return int(unscaled)
    return _double(text, exact, len(digits))


def _double(text: str, exact: Fraction, digits: int) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError
    if exact == 0 or exact in (Fraction(number), Fraction(repr(number)), Fraction(f"{number:.17g}")):
        return number
    if 2.2250738585072014e-308 <= abs(number) < 2**53 and digits <= 17:
        return number
    raise ValueError
