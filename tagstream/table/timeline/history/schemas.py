"""Values brought to the schemas of the timeline's files and archives, those of Hudi 1.2.0.

Hudi's readers resolve by name: a member that is missing gets its default, one they do not know is dropped. The same is
done here, so that what any version wrote can be written as one schema wants it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from tagstream.table.timeline.avro_schemas import avro_schema

_INT_BITS = {"int": 32, "long": 64}


def conformed(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """The record with exactly the members of schema ``name``; ValueError names the member whose value does not fit."""
    found: dict[str, Any] = _conform(avro_schema(name), value, _named_types(name), name)
    return found


@cache
def _named_types(name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def walk(schema: Any) -> None:
        if isinstance(schema, list):
            for branch in schema:
                walk(branch)
        elif isinstance(schema, dict):
            if schema.get("type") == "record":
                found[schema["name"]] = schema
                for field in schema["fields"]:
                    walk(field["type"])
            walk(schema.get("items"))
            walk(schema.get("values"))
            if isinstance(schema.get("type"), dict | list):
                walk(schema["type"])

    walk(avro_schema(name))
    return found


def _conform(schema: Any, value: Any, named: Mapping[str, Any], where: str) -> Any:
    if isinstance(schema, list):  # Hudi's unions are of null and one other type
        if value is None and "null" in schema:
            return None
        return _conform(next(branch for branch in schema if branch != "null"), value, named, where)
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return _record(schema, value, named, where)
    if kind == "map":
        pairs = _of(dict, value, where).items()
        return {_of(str, k, where): _conform(schema["values"], v, named, f"{where}.{k}") for k, v in pairs}
    if kind == "array":
        return [_conform(schema["items"], each, named, f"{where}[]") for each in _of(list, value, where)]
    return _plain(kind, value, where)


def _record(schema: dict[str, Any], value: Any, named: Mapping[str, Any], where: str) -> dict[str, Any]:
    members, found = _of(dict, value, where), {}
    for field in schema["fields"]:
        name = field["name"]
        given = members.get(name)
        if given is None and "default" in field and not (name in members and _nullable(field["type"])):
            found[name] = field["default"]
        else:
            found[name] = _conform(field["type"], given, named, f"{where}.{name}")
    return found


def _nullable(schema: Any) -> bool:
    return isinstance(schema, list) and "null" in schema


def _plain(kind: str, value: Any, where: str) -> Any:
    if kind in _INT_BITS:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        limit = 1 << _INT_BITS[kind] - 1
        if not isinstance(number, int) or isinstance(number, bool) or not -limit <= number < limit:
            raise ValueError(f"{where} is {_short(value)}, not of Avro's type {kind}")
        return number
    if kind == "double":
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        raise ValueError(f"{where} is {_short(value)}, not a number")
    return _of({"string": str, "boolean": bool, "bytes": bytes}[kind], value, where)


def _of(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{where} is {_short(value)}, not of Avro's type for {kind.__name__}")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
