"""Type names of Kafka Connect and Debezium in an Avro schema: the encoding and the table's type for each.

A value schema of Debezium can be used unchanged as the table's schema file: of an envelope the row is used, and an
``int`` with the name of a date becomes a date.

Columns are also matched by aliases. Avro's rule (specification, "Schema Resolution"): a reader's field is read from a
writer's field that one of its aliases names. A field with a column of the table as its alias is that column with a new
name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from tagstream.streaming.source.decode.encodings import PLAIN, VARIABLE, Encoding, by_name, nested
from tagstream.streaming.source.decode.record_format import Facts

_MICROS = {"type": "long", "logicalType": "timestamp-micros"}
_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
_TABLE_TYPES: dict[str, Any] = {
    "io.debezium.time.Date": {"type": "int", "logicalType": "date"},
    "org.apache.kafka.connect.data.Date": {"type": "int", "logicalType": "date"},
    "io.debezium.time.Timestamp": _MILLIS,
    "org.apache.kafka.connect.data.Timestamp": _MILLIS,
    "io.debezium.time.MicroTimestamp": _MICROS,
    "io.debezium.time.NanoTimestamp": _MICROS,
    "io.debezium.time.ZonedTimestamp": _MICROS,
    # times of day remain numbers: Spark 3 cannot read a file with a column of Parquet's type TIME
    VARIABLE: "string",
}


_LOGICAL: dict[tuple[Any, Any], Encoding] = {
    ("bytes", "decimal"): Encoding("decimal"),
    ("fixed", "decimal"): Encoding("decimal"),
    ("int", "date"): Encoding("days"),
    ("int", "time-millis"): Encoding("ticks", unit="ms"),
    ("long", "time-micros"): Encoding("ticks", unit="us"),
    ("fixed", "uuid"): Encoding("uuid"),
    **{
        ("long", f"{local}timestamp-{word}"): Encoding("ticks", unit=unit)
        for local in ("", "local-")
        for word, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}


def row_record(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record of a row: of a Debezium envelope that of ``before`` and ``after``, else the schema itself."""
    fields = {f["name"]: f for f in schema.get("fields", ()) if isinstance(f, dict)}
    if not {"before", "after", "op", "source"} <= set(fields):
        return schema
    for name in ("before", "after"):  # the second one refers to the type of the first
        for branch in _branches(fields[name]["type"]):
            if isinstance(branch, dict) and branch.get("type") == "record":
                return branch
    return schema


def table_schema(avro_json: str) -> str:
    """The table's schema for a schema with type names. The names are kept next to the types.

    A schema without names is returned unchanged.
    """
    try:
        given = json.loads(avro_json)
    except ValueError:
        return avro_json  # the caller's parser reports the error
    if not isinstance(given, dict) or given.get("type") != "record":
        return avro_json
    row = row_record(given)
    fields = [_table_field(f) for f in row["fields"]]
    made = {**row, "fields": fields}
    return avro_json if made == given else json.dumps(made)


def without_field(avro_json: str, name: str) -> str:
    """A record's schema without a field, such as the mark of deletes, whose rows are not stored."""
    record = json.loads(avro_json)
    return json.dumps({**record, "fields": [f for f in record["fields"] if f["name"] != name]})


def with_operation(avro_json: str, name: str, *, filled: bool) -> str:
    """A row's schema with the text column ``name``. ``filled``: records without it have an empty text there."""
    record = json.loads(avro_json)
    if not isinstance(record, dict) or not isinstance(record.get("fields"), list):
        return avro_json  # the caller's parser reports the error
    made: dict[str, Any] = {"name": name, "type": ["string", "null"], "default": ""}
    made = made if filled else {"name": name, "type": ["null", "string"], "default": None}
    known = [f.get("name") for f in record["fields"] if isinstance(f, dict)]
    if name not in known:
        return json.dumps({**record, "fields": [*record["fields"], made]})
    field = record["fields"][known.index(name)]
    if not filled or field.get("default") is not None or _type(field["type"]) != "string":
        return avro_json
    fields = [made if f is field else f for f in record["fields"]]
    return json.dumps({**record, "fields": fields})


def column_encodings(avro_json: str) -> dict[str, Encoding]:
    """The encodings of the columns whose types, or types inside them, have names."""
    row = row_record(json.loads(avro_json))
    found = {f["name"]: avro_encoding(f["type"], logical=False) for f in row["fields"]}
    return {name: encoding for name, encoding in found.items() if encoding != PLAIN}


def avro_encoding(avro: Any, *, logical: bool = True, names: dict[str, Any] | None = None) -> Encoding:
    """The encoding of a value of an Avro type, at any depth.

    ``logical``: the value is a datum, whose logical types count (Avro's specification, "Logical Types"); else only the
    names of Kafka Connect and Debezium count. ``names``: types that were named before.
    """
    names = {} if names is None else names
    kind = _type(avro)
    if isinstance(kind, str):
        kind = names.get(kind, names.get(kind.rpartition(".")[2]))
    if not isinstance(kind, dict):
        return PLAIN
    if isinstance(kind.get("type"), dict | list):
        return avro_encoding(kind["type"], logical=logical, names=names)
    parameters = kind.get("connect.parameters") or {}
    scale = int(parameters.get("scale") or kind.get("scale") or 0)
    found = by_name(kind.get("connect.name"), scale)
    if found == PLAIN and logical:
        found = _LOGICAL.get((kind.get("type"), kind.get("logicalType")), PLAIN)
        found = Encoding("decimal", scale) if found.kind == "decimal" else found
    if found != PLAIN:
        return found
    if kind.get("type") in ("record", "error"):
        inside = names | dict.fromkeys(_names_of(kind))  # a type that contains itself cannot be a row
        parts = []
        for f in kind.get("fields", ()):
            parts.append((f["name"], avro_encoding(f["type"], logical=logical, names=inside)))
            inside |= _named(f["type"])
        return nested(parts)
    if kind.get("type") in ("array", "map"):
        return nested(
            item=avro_encoding(kind["items" if kind["type"] == "array" else "values"], logical=logical, names=names)
        )
    return PLAIN


def _names_of(kind: Mapping[str, Any]) -> list[str]:
    """The names by which a type can be referred to: its last name, and that with its namespace where it has one."""
    name = kind.get("name")
    if not isinstance(name, str):
        return []
    last, space = name.rpartition(".")[2], name.rpartition(".")[0] or kind.get("namespace")
    return [last, f"{space}.{last}"] if space else [last]


def _named(avro: Any) -> dict[str, Any]:
    """The named types inside a type, for the types after it."""
    found: dict[str, Any] = {}
    for branch in _branches(avro):
        if not isinstance(branch, dict):
            continue
        found |= dict.fromkeys(_names_of(branch), branch)
        for inner in (branch.get("items"), branch.get("values"), *(f["type"] for f in branch.get("fields", ()))):
            found |= _named(inner) if inner is not None else {}
    return found


def renamed(avro_json: str, columns: Collection[str], aliases: Mapping[str, str] | None = None) -> str:
    """A row's schema in which fields get the names of the table's ``columns`` that their aliases name. The old name
    becomes an alias.

    Unchanged where no alias is a column. ``aliases``: further names of columns, and the column of each.
    """
    try:
        record = json.loads(avro_json)
    except ValueError:
        return avro_json  # the caller's parser reports the error
    if not isinstance(record, dict) or not isinstance(record.get("fields"), list):
        return avro_json
    names = {str(f.get("name")) for f in record["fields"] if isinstance(f, dict)}
    fields, changed = [], False
    for field in record["fields"]:
        found = column_of(field, columns, names) if isinstance(field, dict) else None
        if found is None and isinstance(field, dict) and field.get("name") not in columns:
            found = (aliases or {}).get(str(field.get("name")))
            found = None if found in names else found
        if found is not None:
            others = [alias for alias in field.get("aliases") or () if alias != found]
            field, changed = {**field, "name": found, "aliases": [field["name"], *others]}, True
        fields.append(field)
    return json.dumps({**record, "fields": fields}) if changed else avro_json


def column_of(field: Mapping[str, Any], columns: Collection[str], names: Collection[str]) -> str | None:
    """The column that a field is by an alias; None where it has the column's name. ``names``: of all fields of the
    record.
    """
    if field.get("name") in columns:
        return None
    return next((alias for alias in field.get("aliases") or () if alias in columns and alias not in names), None)


def writer_fields(
    schema: Mapping[str, Any], columns: Collection[str], facts: Mapping[str, Facts] | None = None
) -> dict[str, str]:
    """By column: the field of a writer's row that is this column by an alias of the field, or of the column
    (``facts``).
    """
    fields = [f for f in row_record(schema).get("fields", ()) if isinstance(f, dict)]
    names = {f["name"] for f in fields}
    found = {column_of(f, columns, names): str(f["name"]) for f in fields}
    out = {column: name for column, name in found.items() if column is not None}
    for column, known in (facts or {}).items():
        given = next((alias for alias in known.aliases if alias in names), None)
        if given is not None and column in columns and column not in names:
            out.setdefault(column, given)
    return out


def _table_field(field: Mapping[str, Any]) -> dict[str, Any]:
    made = _table_type(field["type"])
    if made == field["type"]:
        return dict(field)
    out = {**field, "type": made}
    if out.get("default") is not None:
        del out["default"]  # it has the form of the old type
    return out


def _table_type(avro: Any) -> Any:
    """The table's type for a type with names, at any depth."""
    if isinstance(avro, list):
        return [_table_type(branch) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    name = avro.get("connect.name")
    if name in _TABLE_TYPES:
        to = _TABLE_TYPES[name]
        return {**to, "connect.name": name} if isinstance(to, dict) else {"type": to, "connect.name": name}
    if avro.get("type") in ("record", "error"):
        return {**avro, "fields": [_table_field(f) if isinstance(f, dict) else f for f in avro.get("fields", ())]}
    for part in ("items", "values"):
        if part in avro:
            return {**avro, part: _table_type(avro[part])}
    return {**avro, "type": _table_type(avro["type"])} if isinstance(avro.get("type"), dict | list) else avro


def _type(avro: Any) -> Any:
    """A type; of a union with null, the other type."""
    return next((branch for branch in _branches(avro) if branch != "null"), "null")


def _branches(avro: Any) -> list[Any]:
    return avro if isinstance(avro, list) else [avro]
