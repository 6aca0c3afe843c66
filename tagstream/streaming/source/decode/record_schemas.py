"""Schemas of records: the table's columns that they describe, and whether one would change the table's schema.

Tasks see these schemas when they decode records. The driver applies them to the table. A task checks each schema once,
with the driver's function (``table.schema.evolve``). A schema that would change the table's, or is rejected, is
reported.
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

# Prefix of a flattened record's fields that are not of the row, if the connector adds them.
_BESIDE = "__"
_DELETED = "_hoodie_is_deleted"
_PLAIN = {"int8": "int", "int16": "int", "int32": "int", "int64": "long", "float": "float", "double": "double",
          "boolean": "boolean", "string": "string", "bytes": "bytes"}  # fmt: skip


def row_schema(avro_json: str, columns: Collection[str], aliases: Mapping[str, str] | None = None) -> pa.Schema:
    """The columns of a row in a writer's schema, by their names in the table (``columns``).

    ``aliases``: further names of columns, and the column of each. Fields that are not of the row are left out unless
    the table has a column for them. UnsupportedTableError for a type that a table cannot have.
    """
    text = renamed(table_schema(avro_json), columns, aliases)
    fields = avro_to_arrow(text)
    return pa.schema([f for f in fields if f.name in columns or not is_beside(f.name)])


def is_beside(name: str) -> bool:
    """Whether a field of a record is not a value of the row."""
    return name.startswith(_BESIDE) or name == _DELETED


def connect_row(fields: Mapping[str, Mapping[str, Any]]) -> str:
    """An Avro schema for the row of these Kafka Connect fields (by name, as Connect's JSON converter writes schemas)."""
    return json.dumps({"type": "record", "name": "row", "fields": [_field(n, f) for n, f in fields.items()]})


def _field(name: str, field: Mapping[str, Any]) -> dict[str, Any]:
    kind = _kind(field, name)
    optional = bool(field.get("optional"))
    out: dict[str, Any] = {"name": name, "type": ["null", kind] if optional else kind}
    default = field.get("default")
    if default is not None and isinstance(kind, str) and kind != "bytes":  # other defaults have a special encoding
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
    """Checks the schemas of records against the table's ``schema``."""

    def __init__(self, schema: pa.Schema, rules: EvolutionRules) -> None:
        self._schema = schema
        self._rules = rules
        self._judged: dict[Hashable, Noticed | None] = {}
        self._found: dict[Hashable, Noticed] = {}

    def saw_avro(self, number: int, schema: Mapping[str, Any]) -> None:
        """Records with the registry's schema of this id were decoded."""
        self._saw(number, number, f"schema {number} of the registry", lambda: json.dumps(schema))

    def saw_connect(self, key: bytes, fields: Mapping[str, Mapping[str, Any]]) -> None:
        """Records that contain their schema were decoded. ``fields``: the Kafka Connect fields of its row."""
        self._saw(key, 0, "the schema that records contain", lambda: connect_row(fields))

    def saw_file(self, key: bytes, rank: int, source: str, avro_json: Callable[[], str]) -> None:
        """Records of a file with this schema were decoded. ``rank``: time of the file."""
        self._saw(key, rank, source, avro_json)

    def _saw(self, key: Hashable, rank: int, source: str, avro_json: Callable[[], str]) -> None:
        """Check a schema. It is read and checked only the first time."""
        if key not in self._judged:
            noticed = Noticed(rank, source, avro_json())
            self._judged[key] = noticed if self._is_news(noticed.avro_json, source) else None
        found = self._judged[key]
        if found is not None:
            self._found[key] = found

    def take(self) -> list[Noticed]:
        """The reported schemas since the last call."""
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
    """The file that a task writes for the driver."""
    return json.dumps([[item.rank, item.source, item.avro_json] for item in noticed]).encode()


def notes_from_json(data: bytes) -> list[Noticed]:
    """The inverse of :func:`notes_to_json`."""
    return [Noticed(*item) for item in json.loads(data)]


def in_order(noticed: Sequence[Noticed]) -> list[Noticed]:
    """Without duplicates, older schemas first. The order does not depend on the order of the tasks."""
    return sorted(set(noticed), key=lambda item: (item.rank, item.source, item.avro_json))
