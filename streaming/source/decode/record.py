"""The strict path: one record at a time with Python's own JSON parser.

It is the authority on what is good; the Arrow path may accept only what this one accepts, with the same value. A loop
over records is right here: only the records that the Arrow path is not sure of come this way (10 to 20 us each).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tagstream.streaming.source.decode.coerce import JsonObject, Number, struct_coercer
from tagstream.streaming.source.decode.number import Misfit, shown


class TooDeep(Exception):
    """Nested deeper than Python's parser goes."""


class RecordDecoder:
    """Decodes single records; ``defaults`` are the Avro defaults (JSON values) of top-level fields."""

    def __init__(self, schema: pa.Schema, defaults: Mapping[str, Any]) -> None:
        self._coerce = struct_coercer(list(schema), {k: literal(v) for k, v in defaults.items()})
        self._json = json.JSONDecoder(
            parse_float=Number, parse_int=Number, parse_constant=_no_constant, object_pairs_hook=_pairs
        )

    def decode(self, text: str) -> dict[str, Any]:
        """The row of one record. Raises Misfit with the reason, or TooDeep."""
        return self._coerce(self.parse(text))  # type: ignore[no-any-return]

    def parse(self, text: str) -> JsonObject:
        """The object that ``text`` is, and nothing after it."""
        try:
            value = self._json.decode(text)
        except json.JSONDecodeError as e:
            raise Misfit(_explain(e, text)) from None
        except RecursionError:
            raise TooDeep from None
        if not isinstance(value, JsonObject):
            raise Misfit("not a JSON object")
        return value


def literal(value: Any) -> Any:
    """A plain JSON value (an Avro default) in the form the parser gives: numbers as text, objects with their names."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return Number(repr(value))
    if isinstance(value, list):
        return [literal(item) for item in value]
    out = JsonObject((k, literal(v)) for k, v in value.items())
    out.twice = frozenset()
    return out


def _pairs(pairs: list[tuple[str, Any]]) -> JsonObject:
    out = JsonObject(pairs)
    if len(out) == len(pairs):
        out.twice = frozenset()
    else:
        out.twice = frozenset(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
    return out


def _no_constant(name: str) -> Any:
    raise json.JSONDecodeError(f"{name} is not JSON", name, 0)


def _explain(e: json.JSONDecodeError, text: str) -> str:
    if not text.strip(" \t\r\n"):
        return "the value is empty"
    if e.msg == "Extra data":
        return f"trailing content after the JSON value, at character {e.pos}: {shown(text[e.pos :])!r}"
    if text.startswith("\ufeff"):
        return "not JSON: begins with a byte order mark"
    return f"not JSON: {e.msg} at character {e.pos}"
