"""Column types of a catalogue entry, made from the table's Avro schema.

Hive's type and Spark's type of one column may differ: a timestamp is ``bigint`` in Hive unless timestamps are switched on,
and ``timestamp`` in Spark's schema. Both are what Hudi's HiveSyncTool 1.2.0 writes for the same table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tagstream.table.errors import UnsupportedTableError

_HIVE = {
    "int": "int", "long": "bigint", "float": "float", "double": "double", "boolean": "boolean", "string": "string",
    "bytes": "binary", "fixed": "binary", "enum": "string",
}  # fmt: skip
_SPARK = {
    "int": "integer", "long": "long", "float": "float", "double": "double", "boolean": "boolean", "string": "string",
    "bytes": "binary", "fixed": "binary", "enum": "string",
}  # fmt: skip
_TIMESTAMPS = ("timestamp-millis", "timestamp-micros", "timestamp-nanos")
_LOCAL_TIMESTAMPS = ("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos")


def hive_type(avro: Any, *, timestamps: bool) -> str:
    """The Hive type of an Avro type.

    Args:
        avro: a type of an Avro schema, parsed from JSON.
        timestamps: write ``timestamp`` for timestamps; otherwise ``bigint``, as Hudi's default does.

    Raises:
        UnsupportedTableError: a type that Hive has no word for, such as a union of several types.
    """
    found = _without_null(avro)
    if not isinstance(found, dict):
        return _plain(found, _HIVE)
    kind, logical = found["type"], found.get("logicalType")
    if logical == "decimal":
        return f"decimal({found['precision']},{found.get('scale', 0)})"
    if logical == "date":
        return "date"
    if timestamps and logical in (*_TIMESTAMPS, *_LOCAL_TIMESTAMPS):
        return "timestamp"
    if kind == "array":
        return f"array<{hive_type(found['items'], timestamps=timestamps)}>"
    if kind == "map":
        return f"map<string,{hive_type(found['values'], timestamps=timestamps)}>"
    if kind == "record":
        fields = (f"{_nested_name(f['name'])}:{hive_type(f['type'], timestamps=timestamps)}" for f in found["fields"])
        return f"struct<{','.join(fields)}>"
    return hive_type(kind, timestamps=timestamps) if isinstance(kind, dict | list) else _plain(kind, _HIVE)


def spark_schema(fields: Sequence[Mapping[str, Any]]) -> str:
    """Spark's JSON of a row with these Avro fields. Every column may be null, whatever the Avro schema says.

    The blanks in ``"type":"array", `` and ``"type":"map", `` are Hudi's: entries are compared as text.
    """
    return _spark_struct(fields)


def _spark_struct(fields: Sequence[Mapping[str, Any]]) -> str:
    made = (
        f'{{"name":{json.dumps(f["name"])},"type":{_spark_type(f["type"])},"nullable":true,"metadata":{{}}}}'
        for f in fields
    )
    return f'{{"type":"struct","fields":[{",".join(made)}]}}'


def _spark_type(avro: Any) -> str:
    """The JSON of one type, with quotes."""
    found = _without_null(avro)
    if not isinstance(found, dict):
        return f'"{_plain(found, _SPARK)}"'
    kind, logical = found["type"], found.get("logicalType")
    if logical == "decimal":
        return f'"decimal({found["precision"]},{found.get("scale", 0)})"'
    if logical == "date":
        return '"date"'
    if logical in _TIMESTAMPS:
        return '"timestamp"'
    if logical in _LOCAL_TIMESTAMPS:
        return '"timestamp_ntz"'
    if kind == "array":
        return f'{{"type":"array", "elementType":{_spark_type(found["items"])},"containsNull":true}}'
    if kind == "map":
        values = _spark_type(found["values"])
        return f'{{"type":"map", "keyType":"string","valueType":{values},"valueContainsNull":true}}'
    if kind == "record":
        return _spark_struct(found["fields"])
    return _spark_type(kind) if isinstance(kind, dict | list) else f'"{_plain(kind, _SPARK)}"'


def _without_null(avro: Any) -> Any:
    if not isinstance(avro, list):
        return avro
    others = [each for each in avro if each != "null"]
    if len(others) != 1:
        raise UnsupportedTableError(f"a column is a union of {len(others)} types {avro}: a catalogue has no such type")
    return others[0]


def _plain(name: str, types: Mapping[str, str]) -> str:
    if name not in types:
        raise UnsupportedTableError(f"a column has the Avro type {name}: a catalogue has no such type")
    return types[name]


def _nested_name(name: str) -> str:
    return name.replace("-", "_")
