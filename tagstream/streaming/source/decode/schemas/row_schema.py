"""The row that a record's own schema describes, as columns of the table."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from tagstream.streaming.source.decode.formats.encodings import DECIMAL
from tagstream.streaming.source.decode.formats.schema_names import renamed, table_schema
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
