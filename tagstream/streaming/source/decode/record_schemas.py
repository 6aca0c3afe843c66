"""Schemas that records bring: the table's columns that they describe, and whether one has what the table lacks.

Tasks see such schemas where records are decoded; the driver applies them to the table. A task judges each schema
once by the same function as the driver (``table.schema.evolve``): one that would change the table's schema, or is
refused, is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tagstream.streaming.source.decode.encodings import DECIMAL
from tagstream.streaming.source.decode.record_format import Noticed
from tagstream.streaming.source.decode.schema_names import renamed, table_schema
from tagstream.table.errors import SchemaRefusedError, UnsupportedTableError
from tagstream.table.schema.evolve import EvolutionRules, evolve
from tagstream.table.schema.schema import avro_to_arrow

# What a flattened record has beside the row, if the connector was told to add it.
_BESIDE = "__"
_DELETED = "_hoodie_is_deleted"
_PLAIN = {"int8": "int", "int16": "int", "int32": "int", "int64": "long", "float": "float", "double": "double",
          "boolean": "boolean", "string": "string", "bytes": "bytes"}  # fmt: skip


def row_schema(avro_json: str, columns: Collection[str], aliases: Mapping[str, str] | None = None) -> pa.Schema:
    """The columns of a row of a writer's schema, by the names that they have among the table's ``columns``.

    ``aliases``: further names that columns come under, with the columns.

    What a record has beside its row is left out where the table has no column for it. UnsupportedTableError for a type
    that no table has.
    """
    text = renamed(table_schema(avro_json), columns, aliases)
    fields = avro_to_arrow(text)
    return pa.schema([f for f in fields if f.name in columns or not is_beside(f.name)])


def is_beside(name: str) -> bool:
    """Whether a field of a record is no value of the row."""
    return name.startswith(_BESIDE) or name == _DELETED


def connect_row(fields: Mapping[str, Mapping[str, Any]]) -> str:
    """A Kafka Connect row's fields (by name, as its JSON converter writes schemas) as an Avro schema of the same row."""
    return json.dumps({"type": "record", "name": "row", "fields": [_field(n, f) for n, f in fields.items()]})


def _field(name: str, field: Mapping[str, Any]) -> dict[str, Any]:
    kind = _kind(field, name)
    optional = bool(field.get("optional"))
    out: dict[str, Any] = {"name": name, "type": ["null", kind] if optional else kind}
    default = field.get("default")
    if default is not None and isinstance(kind, str) and kind != "bytes":  # others are in a form of their own
        out |= {"type": [kind, "null"] if optional else kind, "default": default}
    elif optional:
        out["default"] = None
    return out


def _kind(field: Mapping[str, Any], path: str) -> Any:
    kind, name = str(field.get("type")), field.get("name")
    if kind == "array":
        return {"type": "array", "items": _inner(field.get("items") or {}, f"{path}_item")}
    if kind == "map":
        return {"type": "map", "values": _inner(field.get("values") or {}, f"{path}_value")}
    if kind == "struct":
        inner = {str(f.get("field")): f for f in field.get("fields") or () if isinstance(f, dict)}
        made: dict[str, Any] = {"type": "record", "name": f"r_{path}"}
        made["fields"] = [_field(n, {**f, "name": f.get("name")}) for n, f in inner.items()]
        return made | ({"connect.name": name} if name else {})
    plain = _PLAIN.get(kind, kind)
    if name is None:
        return plain
    out: dict[str, Any] = {"type": plain, "connect.name": name}
    if name == DECIMAL:
        parameters = field.get("parameters") or {}
        scale = int(parameters.get("scale") or 0)
        digits = int(parameters.get("connect.decimal.precision") or 38)
        out |= {
            "logicalType": "decimal",
            "scale": scale,
            "precision": max(digits, scale),
            "connect.parameters": parameters,
        }
    return out


def _inner(field: Mapping[str, Any], path: str) -> Any:
    kind = _kind(field, path)
    return ["null", kind] if field.get("optional") else kind


class SchemaWatch:
    """Judges the schemas of records against the table's ``schema``."""

    def __init__(self, schema: pa.Schema, rules: EvolutionRules) -> None:
        self._schema = schema
        self._rules = rules
        self._judged: dict[Hashable, Noticed | None] = {}
        self._found: dict[Hashable, Noticed] = {}

    def saw_avro(self, number: int, schema: Mapping[str, Any]) -> None:
        """Records of the registry's schema of this id were decoded."""
        self._saw(number, number, f"schema {number} of the registry", lambda: json.dumps(schema))

    def saw_connect(self, key: bytes, fields: Mapping[str, Mapping[str, Any]]) -> None:
        """Records were decoded that have their schema with them: of a row with these Kafka Connect fields."""
        self._saw(key, 0, "the schema that records have with them", lambda: connect_row(fields))

    def _saw(self, key: Hashable, rank: int, source: str, avro_json: Callable[[], str]) -> None:
        """The schema is asked for and judged the first time alone."""
        if key not in self._judged:
            noticed = Noticed(rank, source, avro_json())
            self._judged[key] = noticed if self._is_news(noticed.avro_json, source) else None
        found = self._judged[key]
        if found is not None:
            self._found[key] = found

    def take(self) -> list[Noticed]:
        """What was noticed since the last call."""
        found = list(self._found.values())
        self._found.clear()
        return found

    def _is_news(self, text: str, source: str) -> bool:
        try:
            incoming = row_schema(text, self._schema.names, self._rules.aliases)
            return bool(evolve(self._schema, incoming, self._rules, source).changes)
        except (SchemaRefusedError, UnsupportedTableError):
            return True


def notes_to_json(noticed: Sequence[Noticed]) -> bytes:
    """What a task leaves for the driver."""
    return json.dumps([[item.rank, item.source, item.avro_json] for item in noticed]).encode()


def notes_from_json(data: bytes) -> list[Noticed]:
    """The inverse of :func:`notes_to_json`."""
    return [Noticed(*item) for item in json.loads(data)]


def in_order(noticed: Sequence[Noticed]) -> list[Noticed]:
    """Without doubles, older schemas first; the same for every order in which tasks came upon them."""
    return sorted(set(noticed), key=lambda item: (item.rank, item.source, item.avro_json))
