"""Texts of record keys: of column values by Java's ``toString``, as Hudi has them, and of a tombstone's message key.

A Kafka tombstone has no value, so its record key comes from the message key. Partition paths use the same texts of
column values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import ConfigError, InvalidKeyError

# The complex generator writes these for a null and for an empty part.
NULL_PART = "__null__"
EMPTY_PART = "__empty__"


def collision(names: Sequence[str], place: int, values: pa.Array) -> pa.Array:
    """Why a part of a composite key lets it equal the key of another row; null where it does not.

    ``names`` are the key fields, ``values`` the texts of the field at index ``place``. A key is ``a:1,b:2``. A value
    that contains a comma, the name of a later field and a colon gives a key that other values give, too. A value that
    equals the text for a null or empty value gives the key of such a row. Hudi's keys are the same.
    """
    name, good = names[place], pa.scalar(None, pa.string())
    placeholder = pc.is_in(values, value_set=pa.array([NULL_PART, EMPTY_PART]))
    reason = pc.if_else(
        placeholder, f"record key field {name!r} is the text that Hudi writes for a null or empty value", good
    )
    for later in names[place + 1 :]:
        text = f"record key field {name!r} contains ',{later}:', so other values have the same key"
        reason = pc.if_else(pc.fill_null(pc.match_substring(values, f",{later}:"), False), text, reason)
    return reason


def check_type(name: str, arrow: pa.DataType) -> None:
    """Raise ConfigError when Hudi's engines do not agree on a text for values of this type."""
    if _text_kind(arrow) is None:
        raise ConfigError(f"field {name!r} is {arrow} and cannot be part of a record key or partition path")


def to_strings(name: str, values: pa.Array, consistent_timestamps: bool = False) -> pa.Array:
    """String array of the values; null where they are null. ConfigError for a type without a text.

    Numbers and booleans follow Java's rules. Dates are ``2024-01-02``, decimals plain, timestamps and times the number
    that Avro has for them. ``consistent_timestamps``
    (``hoodie.datasource.write.keygenerator.consistent.logical.timestamp``) makes timestamps ``2024-01-02 03:04:05.0``
    in UTC, with milliseconds, as Hudi does.
    """
    kind = _text_kind(values.type)
    if kind is None:
        check_type(name, values.type)
    if kind == "dictionary":
        return to_strings(name, values.dictionary_decode(), consistent_timestamps)
    if kind == "float":
        return _floats(values)
    if kind == "timestamp" and consistent_timestamps:
        return _timestamps(values)
    if kind in ("timestamp", "time"):
        values = values.cast(pa.int64() if values.type.bit_width == 64 else pa.int32())
    return values.cast(pa.string())


def sql_timestamps(values: pa.Array) -> pa.Array:
    """Timestamps as Spark SQL has them in partition paths: ``2024-01-05 18:00:00`` in UTC, without fractions of a second."""
    seconds = pc.floor_temporal(values.cast(pa.timestamp(values.type.unit)), unit="second").cast(pa.timestamp("s"))
    return pc.strftime(seconds, format="%Y-%m-%d %H:%M:%S")


def _text_kind(arrow: pa.DataType) -> str | None:
    t = pa.types
    if t.is_dictionary(arrow):
        return "dictionary" if _text_kind(arrow.value_type) else None
    if t.is_float32(arrow) or t.is_float64(arrow):
        return "float"
    if t.is_timestamp(arrow):
        return "timestamp"
    if t.is_time(arrow):
        return "time"
    is_text = t.is_string(arrow) or t.is_large_string(arrow) or t.is_string_view(arrow)
    is_number = t.is_integer(arrow) or t.is_decimal(arrow) or t.is_boolean(arrow)
    return "plain" if is_text or is_number or t.is_date32(arrow) or t.is_null(arrow) else None


def _floats(values: pa.Array) -> pa.Array:
    encoded = values.dictionary_encode()
    # A loop over distinct values: Arrow and Java print floats differently (measured: 4 us a value).
    texts = [java_double(value) for value in encoded.dictionary.to_numpy(zero_copy_only=False)]
    return pa.array(texts, pa.string()).take(encoded.indices)


def java_double(value: float | np.floating[Any]) -> str:
    """``Double.toString`` (or ``Float.toString`` of a NumPy float32), by the rules of JDK 19 and later.

    Older JDKs print some values with one more digit than necessary.
    """
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return "-0.0" if math.copysign(1, number) < 0 else "0.0"
    sign, digits, exponent = _shortest(value)
    point = len(digits) + exponent  # digits before the decimal point
    if -3 < point <= 7:
        whole = digits[: max(point, 0)].ljust(point, "0") or "0"
        fraction = "0" * max(-point, 0) + digits[max(point, 0) :]
        return f"{sign}{whole}.{fraction or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _shortest(value: float | np.floating[Any]) -> tuple[str, str, int]:
    """(sign, digits without trailing zeros, exponent of the last digit) of the shortest text that parses to the value."""
    text = str(value)
    two_digits = f"{float(value):.1e}"
    # Java has two digits at least: it takes the nearest two-digit text (4.9E-324, not 5E-324)
    if type(value)(two_digits) == value:
        text = two_digits
    parts = Decimal(text).normalize().as_tuple()
    return "-" if parts.sign else "", "".join(map(str, parts.digits)), int(parts.exponent)


def _timestamps(values: pa.Array) -> pa.Array:
    millis = values.cast(pa.timestamp(values.type.unit)).cast(pa.timestamp("ms"), safe=False)
    text = pc.strftime(millis, format="%Y-%m-%d %H:%M:%S")
    # java.sql.Timestamp drops trailing zeros of the fraction, except the first digit
    return pc.replace_substring_regex(text, pattern=r"(\.\d+?)0+$", replacement=r"\1")


class _Literal(str):
    """Text of a JSON number as it is in the message."""

    __slots__ = ()


def record_key_from_message(
    fields: Sequence[str], text: str, types: Sequence[pa.DataType] | None = None, *, refuse_collisions: bool = False
) -> str:
    """Record key of a message key: its text for one key field, else from a JSON object with the key fields.

    ``types`` are the fields' Arrow types. With them a value gets the text that it has in a row (``1`` of a double is
    ``1.0``). ``refuse_collisions``: a value that lets the key equal another row's key is an error. Raises
    InvalidKeyError. Works on one message at a time, because tombstones are rare.
    """
    if len(fields) == 1:
        if text == "":
            raise InvalidKeyError("the message key is empty; a tombstone needs the record key in it")
        return _typed(fields[0], text, None if types is None else types[0])
    values = _json_object(fields, text)
    parts = []
    for index, name in enumerate(fields):
        value = _text(name, values.get(name))
        parts.append(value if value is None or value == "" else _typed(name, value, types[index] if types else None))
    if not any(parts):
        raise InvalidKeyError(f"all key fields ({', '.join(fields)}) of the message key are missing, null or empty")
    for place, part in enumerate(parts if refuse_collisions else ()):
        reason = None if part is None else collision(fields, place, pa.array([part], pa.string()))[0].as_py()
        if reason is not None:
            raise InvalidKeyError(reason)
    names = zip(fields, parts, strict=True)
    return ",".join(f"{name}:{NULL_PART if part is None else part or EMPTY_PART}" for name, part in names)


def _json_object(fields: Sequence[str], text: str) -> dict[str, Any]:
    try:
        values = json.loads(
            text,
            object_pairs_hook=_without_duplicates,
            parse_int=_Literal,
            parse_float=_Literal,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError) as error:
        raise InvalidKeyError(f"the message key is not a JSON object of {', '.join(fields)}: {error}") from error
    if not isinstance(values, dict):
        raise InvalidKeyError(f"the message key is not a JSON object of {', '.join(fields)}")
    return values


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a field occurs twice")
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _text(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    raise InvalidKeyError(f"key field {name!r} of the message key is an object or array")


def _typed(name: str, text: str, arrow: pa.DataType | None) -> str:
    if arrow is None:
        is_float = isinstance(text, _Literal) and not text.lstrip("-").isdigit()
        return java_double(float(text)) if is_float else str(text)
    try:
        values = pa.array([str(text)])
        if pa.types.is_temporal(arrow) and text.lstrip("-").isdigit():
            values = values.cast(pa.int64() if arrow.bit_width == 64 else pa.int32())
        key: str = to_strings(name, values.cast(arrow))[0].as_py()
    except pa.ArrowException as error:
        raise InvalidKeyError(f"key field {name!r} of the message key is {text!r}, which is not {arrow}") from error
    return key
