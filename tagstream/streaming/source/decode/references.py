"""An Avro schema that names types of other schemas, made whole: each type is put in where it is used first.

Names are resolved as Avro's specification says ("Names"): one without a dot is in the namespace of the record around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})


class UnknownTypeError(Exception):
    """A schema names a type that neither it nor its references define."""


def whole(schema: Any, others: Mapping[str, Any]) -> Any:
    """The schema without references. ``others``: the schemas that it refers to, by the full names of their types."""
    return _walk(schema, "", others, set())


def types_in(schema: Any, space: str = "") -> dict[str, Any]:
    """The types that a schema defines by full name, each with its namespace said."""
    found: dict[str, Any] = {}
    if isinstance(schema, list):
        for branch in schema:
            found |= types_in(branch, space)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if kind in _NAMED and "name" in schema:
            name, space = _full_name(schema, space)
            found[name] = {**schema, "name": name.rpartition(".")[2], "namespace": space}
        for inner in (kind if not isinstance(kind, str) else None, schema.get("items"), schema.get("values")):
            found |= types_in(inner, space)
        for field in schema.get("fields") or ():
            found |= types_in(field.get("type"), space)
    return found


def _full_name(schema: Mapping[str, Any], space: str) -> tuple[str, str]:
    """(full name, namespace) of a type that is defined in a namespace."""
    name = str(schema["name"])
    own = name.rpartition(".")[0] or schema.get("namespace", space) or ""
    last = name.rpartition(".")[2]
    return (f"{own}.{last}" if own else last), own


def _walk(schema: Any, space: str, others: Mapping[str, Any], known: set[str]) -> Any:
    if isinstance(schema, list):
        return [_walk(branch, space, others, known) for branch in schema]
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES else _named(schema, space, others, known)
    if not isinstance(schema, dict):
        return schema
    kind, out = schema.get("type"), dict(schema)
    if kind in _NAMED:
        name, space = _full_name(schema, space)
        known.add(name)
        if "fields" in schema:
            out["fields"] = [{**f, "type": _walk(f["type"], space, others, known)} for f in schema["fields"]]
        return out
    for part in ("items", "values"):
        if part in schema:
            out[part] = _walk(schema[part], space, others, known)
    if kind not in ("array", "map"):
        out["type"] = _walk(kind, space, others, known)
    return out


def _named(name: str, space: str, others: Mapping[str, Any], known: set[str]) -> Any:
    full = name if "." in name or not space else f"{space}.{name}"
    if full in known:
        return name
    if full in others:
        return _walk(others[full], "", others, known)
    raise UnknownTypeError(full)
