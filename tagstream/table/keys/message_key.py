"""Record key of a Kafka tombstone, which has no value: it is taken from the message's key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa

from tagstream.table.errors import InvalidKeyError
from tagstream.table.keys.key_values import EMPTY_PART, NULL_PART, collision, java_double, to_strings


class _Literal(str):
    """Text of a JSON number as it stood in the message."""

    __slots__ = ()


def record_key_from_message(
    fields: Sequence[str], text: str, types: Sequence[pa.DataType] | None = None, *, refuse_collisions: bool = False
) -> str:
    """Record key of a message key: its text for one key field, else a JSON object of the key fields.

    ``types`` are the fields' Arrow types; with them a value gets the text it has in a row (``1`` of a double is
    ``1.0``). ``refuse_collisions``: a value that lets the key equal another row's is one of the errors. Raises
    InvalidKeyError. Works on one message at a time: tombstones are rare beside records.
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
        raise InvalidKeyError(f"the message key is no JSON object of {', '.join(fields)}: {error}") from error
    if not isinstance(values, dict):
        raise InvalidKeyError(f"the message key is no JSON object of {', '.join(fields)}")
    return values


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a field is there twice")
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


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
        raise InvalidKeyError(f"key field {name!r} of the message key is {text!r}, no {arrow}") from error
    return key
