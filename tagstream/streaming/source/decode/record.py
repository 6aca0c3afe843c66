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
import pyarrow.compute as pc

from tagstream.streaming.source.decode.coerce import JsonObject, Number, struct_coercer
from tagstream.streaming.source.decode.facts import Facts
from tagstream.streaming.source.decode.number import Misfit, shown
from tagstream.streaming.source.decode.rules import DecodeRules

_MISSING = object()

Path = tuple[str, ...]  # where in a record a value is: the names of the objects around it, then its own


class TooDeep(Exception):
    """Nested deeper than Python's parser goes."""


class RecordDecoder:
    """Decodes single records; ``facts``: what their Avro schema says of the fields beyond their types.

    ``paths``: where in the record each column is; None: each at the top, under its name.
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
        """The object that ``text`` is, and nothing after it."""
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
    """The values of the columns, wherever in the object they are."""
    out, twice = JsonObject(), set()
    for name, path in paths.items():
        at: Any = value
        for depth, step in enumerate(path):
            if at is None:
                break
            if not isinstance(at, JsonObject):
                raise Misfit(f"field {'.'.join(path[:depth])} is no object")
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
    """The values at a path, null where an object around them is."""
    column = rows.column(path[0])
    flat = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return pc.struct_field(flat, list(path[1:])) if len(path) > 1 else flat
