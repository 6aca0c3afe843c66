"""The strict path: one record at a time with Python's JSON parser.

It decides what is good. The Arrow path may only accept records that this path accepts, with the same values. A loop
over records is right here: only records that the Arrow path cannot decide use it (10 to 20 us each).

A parsed JSON value becomes a column's Python value. The rules are lenient where nothing is lost: a number in quotes for
a number, a number or a boolean for a text (its literal text), 1.0 for a whole number. Every other value that does not
have the column's type is a Misfit.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.literals import (
    Misfit,
    shown,
    to_days,
    to_decimal,
    to_double,
    to_float,
    to_int,
    to_ticks,
    to_time,
    without_utc,
)
from tagstream.streaming.source.decode.record_format import ITEM, NO_FACTS, DecodeRules, Facts

Coerce = Callable[[Any], Any]
UUID_PATTERN = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_UUID = re.compile(UUID_PATTERN)
_KINDS = {dict: "an object", list: "an array", bool: "true or false", str: "a text"}


class Number(str):
    """A number's literal text. The class separates it from a JSON string."""

    __slots__ = ()


class JsonObject(dict[str, Any]):
    """An object, with the names that occur in it more than once."""

    __slots__ = ("twice",)
    twice: frozenset[str]


def literal(value: Any) -> Any:
    """A JSON value (an Avro default) in the parser's form: numbers as text, objects as :class:`JsonObject`."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return Number(repr(value))
    if isinstance(value, list):
        return [literal(item) for item in value]
    out = JsonObject((k, literal(v)) for k, v in value.items())
    out.twice = frozenset()
    return out


def coercer(kind: pa.DataType, rules: DecodeRules, facts: Facts = NO_FACTS) -> Coerce:
    """The function that makes a column's value from a JSON value that is not null. It raises Misfit."""
    t = pa.types
    rounding, truncate = rules.round_numbers, rules.truncate_times
    if t.is_string(kind):
        return _checked_text(facts) if rules.check_texts and facts.restricts else _text
    if t.is_integer(kind):
        return _from_text(lambda text: to_int(text, kind.bit_width), "a whole number")
    if t.is_float64(kind):
        return _from_text(lambda text: to_double(text, rounding=rounding), "a number")
    if t.is_float32(kind):
        return _from_text(lambda text: to_float(text, rounding=rounding), "a number")
    if t.is_decimal(kind):
        return _from_text(lambda text: to_decimal(text, kind.precision, kind.scale, rounding=rounding), "a number")
    if t.is_timestamp(kind):
        local = without_utc if rules.drop_utc and kind.tz is None else str
        return _from_text(lambda text: to_ticks(local(text), kind, truncate=truncate), "a timestamp")
    if t.is_date32(kind) or t.is_time(kind):
        cut = without_utc if rules.drop_utc else str
        if t.is_date32(kind):
            return _from_text(lambda text: to_days(cut(text), truncate=truncate), "a date")
        return _from_text(lambda text: to_time(cut(text), kind.unit, truncate=truncate), "a time")
    return _other(kind, rules, facts)


def _other(kind: pa.DataType, rules: DecodeRules, facts: Facts) -> Coerce:
    t = pa.types
    if t.is_boolean(kind):
        return _boolean
    if t.is_fixed_size_binary(kind):
        return lambda value: _bytes(value, kind.byte_width, rules)
    if t.is_binary(kind):
        return lambda value: _bytes(value, None, rules)
    if t.is_struct(kind):
        return struct_coercer(list(kind), rules, facts.children)
    if t.is_list(kind):
        return _list(kind.value_field, rules, facts.children.get(ITEM, NO_FACTS))
    if t.is_map(kind):
        return _map(kind.item_field, rules, facts.children.get(ITEM, NO_FACTS))
    if t.is_null(kind):
        return _nothing
    raise ValueError(f"JSON cannot be read into the Arrow type {kind}")


def struct_coercer(fields: list[pa.Field], rules: DecodeRules, facts: Mapping[str, Facts]) -> Coerce:
    """The function for an object with ``fields``. ``facts``: the defaults of those that may be missing."""
    of = [(f, facts.get(f.name, NO_FACTS)) for f in fields]
    members = [(f.name, f.nullable, literal(known.default), coercer(f.type, rules, known)) for f, known in of]

    def struct(value: Any) -> dict[str, Any]:
        if not isinstance(value, JsonObject):
            raise Misfit(f"{_name(value)} where an object is expected")
        out: dict[str, Any] = {}
        for name, nullable, default, coerce in members:
            if name in value.twice:
                raise Misfit(f"field {name} is given twice")
            item = value.get(name, default)
            if item is None:
                if not nullable:
                    why = (
                        "is null, which the schema forbids"
                        if name in value
                        else "is missing, and the schema has no default"
                    )
                    raise Misfit(f"field {name} {why}")
                out[name] = None
                continue
            try:
                out[name] = coerce(item)
            except Misfit as e:
                raise Misfit(f"field {name}: {e}") from None
        return out

    return struct


def _name(value: Any) -> str:
    if isinstance(value, Number):
        return f"the number {shown(value)}"
    return next((words for kind, words in _KINDS.items() if isinstance(value, kind)), "null")


def _from_text(convert: Callable[[str], Any], wanted: str) -> Coerce:
    def coerce(value: Any) -> Any:
        if not isinstance(value, str):
            raise Misfit(f"{_name(value)} where {wanted} is expected")
        return convert(value)

    return coerce


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise Misfit(f"{_name(value)} where a text is expected")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Misfit("the text has half of a surrogate pair") from None
    return str(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and not isinstance(value, Number) and value in ("true", "false"):
        return value == "true"
    raise Misfit(f"{_name(value)} where true or false is expected")


def _checked_text(facts: Facts) -> Coerce:
    def convert(value: Any) -> str:
        text = _text(value)
        if facts.symbols is not None and text not in facts.symbols:
            raise Misfit(f"{shown(text)!r} is not a symbol of the enum ({shown(', '.join(facts.symbols))})")
        if facts.is_uuid and not _UUID.fullmatch(text):
            raise Misfit(f"{shown(text)!r} is not a uuid")
        return text

    return convert


def _bytes(value: Any, width: int | None, rules: DecodeRules) -> bytes:
    if not isinstance(value, str) or isinstance(value, Number):
        raise Misfit(f"{_name(value)} where bytes (as a text) are expected")
    text = _text(value)
    try:
        raw = text.encode("latin-1" if rules.latin1_bytes else "utf-8")
    except UnicodeEncodeError as e:
        raise Misfit(f"character U+{ord(text[e.start]):04X} of {shown(text)!r} is not a byte") from None
    if width is not None and len(raw) != width:
        raise Misfit(f"{len(raw)} bytes where {width} are expected")
    return raw


def _nothing(value: Any) -> None:
    raise Misfit(f"{_name(value)} where only null is allowed")


def _list(field: pa.Field, rules: DecodeRules, facts: Facts) -> Coerce:
    coerce = coercer(field.type, rules, facts)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Misfit(f"{_name(value)} where an array is expected")
        return [_item(item, field, coerce) for item in value]

    return convert


def _map(field: pa.Field, rules: DecodeRules, facts: Facts) -> Coerce:
    coerce = coercer(field.type, rules, facts)

    def convert(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, JsonObject):
            raise Misfit(f"{_name(value)} where an object is expected")
        if value.twice:
            raise Misfit(f"key {shown(min(value.twice))} is given twice")
        return [(_text(key), _item(item, field, coerce)) for key, item in value.items()]

    return convert


def _item(value: Any, field: pa.Field, coerce: Coerce) -> Any:
    if value is not None:
        return coerce(value)
    if not field.nullable:
        raise Misfit("null in an array or map that forbids it")
    return None


_MISSING = object()

Path = tuple[str, ...]  # where in a record a value is: the names of the enclosing objects, then its own


class TooDeep(Exception):
    """Nested deeper than Python's parser can read."""


class RecordDecoder:
    """Decodes single records. ``facts``: what their Avro schema says about the fields beyond their types.

    ``paths``: where each column is in the record; None: each is at the top, under its name.
    """

    def __init__(
        self,
        schema: pa.Schema,
        facts: Mapping[str, Facts],
        rules: DecodeRules,
        paths: Mapping[str, Path] | None = None,
    ) -> None:
        self._paths = paths
        self._coerce = struct_coercer(list(schema), rules, facts)
        constant = Number if rules.bare_nan else _no_constant
        self._json = json.JSONDecoder(
            parse_float=Number, parse_int=Number, parse_constant=constant, object_pairs_hook=_pairs
        )

    def decode(self, text: str) -> dict[str, Any]:
        """The row of one record. Raises Misfit with the reason, or TooDeep."""
        return self._coerce(self.parse(text))  # type: ignore[no-any-return]

    def parse(self, text: str) -> JsonObject:
        """The object in ``text``, which must have nothing after it. Raises Misfit or TooDeep."""
        try:
            value = self._json.decode(text)
        except json.JSONDecodeError as e:
            raise Misfit(_explain(e, text)) from None
        except RecursionError:
            raise TooDeep from None
        if not isinstance(value, JsonObject):
            raise Misfit("not a JSON object")
        return value if self._paths is None else _by_column(value, self._paths)


def _by_column(value: JsonObject, paths: Mapping[str, Path]) -> JsonObject:
    """The values of the columns by name, from anywhere in the object."""
    out, twice = JsonObject(), set()
    for name, path in paths.items():
        at: Any = value
        for depth, step in enumerate(path):
            if at is None:
                break
            if not isinstance(at, JsonObject):
                raise Misfit(f"field {'.'.join(path[:depth])} is not an object")
            if step in at.twice:
                twice.add(name)
            at = at.get(step, _MISSING)
            if at is _MISSING:
                break
        if at is not _MISSING:
            out[name] = at
    out.twice = frozenset(twice)
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


def nested_schema(kinds: Mapping[Path, pa.DataType]) -> pa.Schema:
    """The schema of records that have values of ``kinds`` at these paths."""
    tree: dict[str, Any] = {}
    for path, kind in kinds.items():
        at = tree
        for step in path[:-1]:
            at = at.setdefault(step, {})
        at[path[-1]] = kind
    return pa.schema(_fields(tree))


def _fields(tree: Mapping[str, Any]) -> list[pa.Field]:
    return [pa.field(n, pa.struct(_fields(kind)) if isinstance(kind, dict) else kind) for n, kind in tree.items()]


def at_path(rows: pa.Table, path: Path) -> pa.Array:
    """The values at a path, null where an enclosing object is null."""
    column = rows.column(path[0])
    flat = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return pc.struct_field(flat, list(path[1:])) if len(path) > 1 else flat
