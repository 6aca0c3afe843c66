"""The Avro schema of records: with defaults, and with the partition columns that a table's schema lacks.

The Arrow form of a schema has no defaults, so they are added to the schema that is written. A reader of that schema
then knows the value of a field that a record lacks, and so does a stream that starts without a schema file. Only a
default that Avro allows for the written type is kept, because Avro's readers refuse a schema with another. Decimals are
written as ``fixed``, whose defaults are bytes: their defaults are left out.

A nullable column is always written as ``["null", T]`` with the default null. Hudi 1.2 reorders every union of a schema
that it reads with into that order and keeps the default, and Avro then refuses each read ("Invalid default for field").
Another default of such a column is kept as a property that Avro's readers ignore.

A table may omit its partition columns from its files. Its records have them.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pyarrow as pa

from tagstream.table.schema.schema import arrow_to_avro

_INTEGERS = {"int": 31, "long": 63}
_BESIDE = "tagstream.default"
Names = dict[str, Any]


def keep_defaults(record: dict[str, Any], *sources: str) -> dict[str, Any]:
    """``record`` with the defaults of the first of the ``sources`` (Avro JSON) that has the field."""
    known = [json.loads(source) for source in sources]
    names: Names = {}
    for source in reversed(known):
        _collect(source, source.get("namespace", ""), names)
    fields = []
    for field in record["fields"]:
        of_it = (f for source in known for f in source["fields"] if f["name"] == field["name"])
        found = next(of_it, None)
        fields.append(field if found is None else _kept(field, found, names))
    return {**record, "fields": fields}


def default_of(field: dict[str, Any]) -> Any:
    """The value, in Avro's JSON form, of this field in a record that lacks it; None for null or without a default."""
    found = field.get("default")
    return field.get(_BESIDE) if found is None else found


def _kept(field: dict[str, Any], source: dict[str, Any], names: Names) -> dict[str, Any]:
    avro = _typed(field["type"], source["type"], names)
    out = {**field, "type": avro}
    default = default_of(source)
    if default is None:
        return out
    if isinstance(avro, list):  # ["null", T]
        return {**out, _BESIDE: default} if _fits(_branch(avro), default) else out
    return {**out, "default": default} if _fits(avro, default) else out


def _typed(avro: Any, source: Any, names: Names) -> Any:
    """The written type with the defaults of nested records; ``source`` is the type that it was made from."""
    source = names.get(source, source) if isinstance(source, str) else source
    if isinstance(avro, list):
        theirs = _branch(source)
        return [branch if branch == "null" else _typed(branch, theirs, names) for branch in avro]
    source = _branch(source)
    source = names.get(source, source) if isinstance(source, str) else source
    if not isinstance(avro, dict) or not isinstance(source, dict):
        return avro
    if isinstance(source.get("type"), dict | list):
        return _typed(avro, source["type"], names)
    for inside in ("items", "values"):
        if inside in avro and inside in source:
            return {**avro, inside: _typed(avro[inside], source[inside], names)}
    if avro.get("type") == "record" and "fields" in source:
        theirs = {f["name"]: f for f in source["fields"]}
        fields = [_kept(f, theirs[f["name"]], names) if f["name"] in theirs else f for f in avro["fields"]]
        return {**avro, "fields": fields}
    return avro


def _branch(avro: Any) -> Any:
    """A type; of a union with null, the other branch."""
    return next((branch for branch in avro if branch != "null"), "null") if isinstance(avro, list) else avro


def _collect(avro: Any, namespace: str, names: Names) -> None:
    """Add named types to ``names``, by each name that a field may use for them."""
    if isinstance(avro, list):
        for branch in avro:
            _collect(branch, namespace, names)
    if not isinstance(avro, dict):
        return
    name = avro.get("name")
    if avro.get("type") in ("record", "error", "enum", "fixed") and isinstance(name, str):
        inside = name.rpartition(".")[0] or avro.get("namespace", namespace)
        simple = name.rpartition(".")[2]
        names[simple] = avro
        names[f"{inside}.{simple}" if inside else simple] = avro
        for field in avro.get("fields", ()):
            _collect(field["type"], inside, names)
        return
    for part in ("type", "items", "values"):
        if part in avro:
            _collect(avro[part], namespace, names)


def _fits(avro: Any, value: Any) -> bool:
    """Whether Avro allows ``value`` as a default of a type; of a union: for its first branch."""
    if isinstance(avro, list):
        return _fits(avro[0], value)
    kind = avro["type"] if isinstance(avro, dict) else avro
    if kind in _INTEGERS:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and -(2 ** _INTEGERS[kind]) <= value < 2 ** _INTEGERS[kind]
    if kind in ("float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "bytes":
        return isinstance(value, str) and all(ord(c) < 256 for c in value)
    if kind == "array":
        return isinstance(value, list) and all(_fits(avro["items"], item) for item in value)
    if kind == "map":
        return isinstance(value, dict) and all(_fits(avro["values"], item) for item in value.values())
    if kind == "record":
        return isinstance(value, dict) and all(
            _fits(f["type"], value[f["name"]]) if f["name"] in value else "default" in f for f in avro["fields"]
        )
    plain = {"null": type(None), "boolean": bool, "string": str}.get(kind)
    return plain is not None and isinstance(value, plain)


def record_schema(text: str, dropped: Collection[str], given: pa.Schema | None = None) -> str:
    """The Avro schema of records: that of the stored rows (``text``, Avro JSON), with the ``dropped`` partition columns.

    ``given``: a schema of the records; the columns have its types and its order. Without it they are strings at the
    end, as Hudi reads them.
    """
    if not dropped:
        return text
    record = json.loads(text)
    fields = record["fields"]
    told = [] if given is None else given.names
    for name in sorted(dropped, key=lambda name: told.index(name) if name in told else len(told)):
        if given is None or name not in told:
            fields.append({"name": name, "type": ["null", "string"], "default": None})
            continue
        before = set(told[: told.index(name)])
        place = max((n + 1 for n, field in enumerate(fields) if field["name"] in before), default=0)
        fields.insert(place, arrow_to_avro(pa.schema([given.field(name)]), "t")["fields"][0])
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)
