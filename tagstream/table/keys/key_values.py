"""Column values as the text Hudi puts into record keys and partition paths: Java's ``toString``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import ConfigError

# What the complex generator writes for a part that has no value.
NULL_PART = "__null__"
EMPTY_PART = "__empty__"


def collision(names: Sequence[str], place: int, values: pa.Array) -> pa.Array:
    """Why a part of a composite key (``names``, the part at ``place``) lets it equal the key of another row; else null.

    A key is ``a:1,b:2``: a value that holds a comma, the name of a later part and a colon makes a key that other values
    make, too, and one that is the text for a null or empty value stands for that. Hudi's keys are the same.
    """
    name, good = names[place], pa.scalar(None, pa.string())
    placeholder = pc.is_in(values, value_set=pa.array([NULL_PART, EMPTY_PART]))
    reason = pc.if_else(
        placeholder, f"record key field {name!r} is the text that stands for a null or empty value", good
    )
    for later in names[place + 1 :]:
        text = f"record key field {name!r} holds ',{later}:', so the key is that of other values, too"
        reason = pc.if_else(pc.fill_null(pc.match_substring(values, f",{later}:"), False), text, reason)
    return reason


def check_type(name: str, arrow: pa.DataType) -> None:
    """Raise ConfigError when values of this type have no text that Hudi's engines agree on."""
    if _text_kind(arrow) is None:
        raise ConfigError(f"field {name!r} is {arrow} and cannot be part of a record key or partition path")


def to_strings(name: str, values: pa.Array, consistent_timestamps: bool = False) -> pa.Array:
    """String array of the values, null where they are null.

    Numbers and booleans by Java's rules, dates as ``2024-01-02``, decimals plain, timestamps and times as the number
    they are in Avro. ``consistent_timestamps`` (``hoodie.datasource.write.keygenerator.consistent.logical.timestamp``)
    makes timestamps ``2024-01-02 03:04:05.0`` in UTC, with milliseconds as Hudi has them there.
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
    """Timestamps as Spark SQL has them in partition paths: ``2024-01-05 18:00:00`` in UTC, without the rest of a second."""
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
    # A loop over distinct values: Arrow prints floats by other rules than Java (measured: 4 us a value).
    texts = [java_double(value) for value in encoded.dictionary.to_numpy(zero_copy_only=False)]
    return pa.array(texts, pa.string()).take(encoded.indices)


def java_double(value: float | np.floating[Any]) -> str:
    """``Double.toString`` (or ``Float.toString`` of a NumPy float32), by the rules of JDK 19 and later.

    Older JDKs print some values with a digit more than needed.
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
    """(sign, digits without trailing zeros, exponent of the last digit) of the shortest text that reads back equal."""
    text = str(value)
    two_digits = f"{float(value):.1e}"
    # Java never looks for one digit only: of the two-digit texts it takes the nearest (4.9E-324, not 5E-324)
    if type(value)(two_digits) == value:
        text = two_digits
    parts = Decimal(text).normalize().as_tuple()
    return "-" if parts.sign else "", "".join(map(str, parts.digits)), int(parts.exponent)


def _timestamps(values: pa.Array) -> pa.Array:
    millis = values.cast(pa.timestamp(values.type.unit)).cast(pa.timestamp("ms"), safe=False)
    text = pc.strftime(millis, format="%Y-%m-%d %H:%M:%S")
    # java.sql.Timestamp drops the trailing zeros of its fraction, but for one
    return pc.replace_substring_regex(text, pattern=r"(\.\d+?)0+$", replacement=r"\1")
