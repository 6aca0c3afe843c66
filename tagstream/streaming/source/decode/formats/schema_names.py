"""Type names of Kafka Connect and Debezium in an Avro schema: what a column comes as, and the schema of the table they mean.

A value schema of Debezium's can be given as the table's schema file as it stands in the registry: of an envelope the row is
taken, and an ``int`` that is named a date becomes one.

Columns go by aliases, too. Avro's rule (specification, "Schema Resolution"): a reader's field is read from a writer's field
that one of its aliases names. A field whose alias is a column of the table is that column under a new name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from tagstream.streaming.source.decode.facts import Facts
from tagstream.streaming.source.decode.formats.encodings import DECIMAL, VARIABLE, Encoding, by_name

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
    # times of day stay numbers: Spark 3 reads no file with a column of Parquet's type TIME
    VARIABLE: "string",
}


def row_record(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record of a row: of a Debezium envelope that of ``before`` and ``after``, else the schema itself."""
    fields = {f["name"]: f for f in schema.get("fields", ()) if isinstance(f, dict)}
    if not {"before", "after", "op", "source"} <= set(fields):
        return schema
    for name in ("before", "after"):  # the second names the first one's type
        for branch in _branches(fields[name]["type"]):
            if isinstance(branch, dict) and branch.get("type") == "record":
                return branch
    return schema


def table_schema(avro_json: str) -> str:
    """The schema of the table that a schema with type names means; names stay beside their types.

    The same text for one without any.
    """
    try:
        given = json.loads(avro_json)
    except ValueError:
        return avro_json  # whoever reads it says so
    if not isinstance(given, dict) or given.get("type") != "record":
        return avro_json
    row = row_record(given)
    fields = [_table_field(f) for f in row["fields"]]
    made = {**row, "fields": fields}
    return avro_json if made == given else json.dumps(made)


def column_encodings(avro_json: str) -> dict[str, Encoding]:
    """How the columns come whose types are named."""
    row = row_record(json.loads(avro_json))
    return {f["name"]: avro_encoding(f["type"]) for f in row["fields"] if _name_of(f["type"]) is not None}


def avro_encoding(avro: Any) -> Encoding:
    """How a column of an Avro type comes."""
    kind = _type(avro)
    if not isinstance(kind, dict):
        return Encoding()
    parameters = kind.get("connect.parameters") or {}
    return by_name(kind.get("connect.name"), int(parameters.get("scale") or kind.get("scale") or 0))


def renamed(avro_json: str, columns: Collection[str], aliases: Mapping[str, str] | None = None) -> str:
    """A row's schema whose fields have the names of the table's ``columns`` that their aliases name; the name that a field
    had becomes its alias. The same text where no alias is a column. ``aliases``: further names of columns, with the columns.
    """
    try:
        record = json.loads(avro_json)
    except ValueError:
        return avro_json  # whoever reads it says so
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
    """The column that a field is by an alias; None where it is its own. ``names``: of all fields beside it."""
    if field.get("name") in columns:
        return None
    return next((alias for alias in field.get("aliases") or () if alias in columns and alias not in names), None)


def writer_fields(
    schema: Mapping[str, Any], columns: Collection[str], facts: Mapping[str, Facts] | None = None
) -> dict[str, str]:
    """column -> the field of a writer's row that is it by an alias: one of the field's, or of the column's (``facts``)."""
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
    name = _name_of(field["type"])
    if name is None or (name not in _TABLE_TYPES):
        return dict(field)
    to = _TABLE_TYPES[name]
    kind = {**to, "connect.name": name} if isinstance(to, dict) else {"type": to, "connect.name": name}
    out = dict(field)
    if isinstance(field["type"], list):
        out["type"] = [kind if _is_named(branch) else branch for branch in field["type"]]
    else:
        out["type"] = kind
    if out.get("default") is not None:
        del out["default"]  # it is in the form of the type that was
    return out


def _is_named(branch: Any) -> bool:
    return isinstance(branch, dict) and "connect.name" in branch


def _name_of(avro: Any) -> str | None:
    kind = _type(avro)
    if not isinstance(kind, dict):
        return None
    name = kind.get("connect.name")
    if name is None and kind.get("logicalType") == "decimal" and kind.get("type") == "bytes":
        return DECIMAL if "connect.parameters" in kind else None
    return str(name) if name is not None else None


def _type(avro: Any) -> Any:
    """A type, or of a union with null the other one."""
    return next((branch for branch in _branches(avro) if branch != "null"), "null")


def _branches(avro: Any) -> list[Any]:
    return avro if isinstance(avro, list) else [avro]
