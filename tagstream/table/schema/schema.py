"""The table's schema as Arrow and as Avro, with and without Hudi's meta columns.

Arrow types are those whose Parquet form Hudi's writers use: byte and short are INT32, timestamps are
microseconds or milliseconds (UTC-adjusted, or local), decimals are fixed-length byte arrays of the smallest size.
Names of Avro types are those of Hudi's Spark writer, so that its schema checks pass: the namespace of a nested record
is its parent's full name; a decimal is a fixed named ``fixed`` in the namespace of its column's full name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tagstream.table.errors import UnsupportedTableError

_PLAIN = {
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "null": pa.null(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_FROM_ARROW = {arrow: {"type": base, "logicalType": name} for (base, name), arrow in _LOGICAL.items()}
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")

Names = dict[str, pa.DataType]


def record_fields(record: dict[str, Any]) -> list[pa.Field]:
    """Arrow fields of an Avro record schema. UnsupportedTableError names a column whose type is not supported."""
    return _fields(record, record.get("namespace", ""), {}, "")


def _fields(record: dict[str, Any], namespace: str, names: Names, path: str) -> list[pa.Field]:
    fields = []
    for field in record["fields"]:
        arrow, nullable = _nullable(field["type"], namespace, names, f"{path}{field['name']}")
        fields.append(pa.field(field["name"], arrow, nullable=nullable))
    return fields


def _nullable(avro: Any, namespace: str, names: Names, path: str) -> tuple[pa.DataType, bool]:
    if not isinstance(avro, list):
        return _to_arrow(avro, namespace, names, path), avro == "null"
    branches = [branch for branch in avro if branch != "null"]
    if len(branches) != 1:
        raise _unsupported(path, f"a union of {len(branches)} types; only a type and null can be a column")
    return _to_arrow(branches[0], namespace, names, path), len(branches) < len(avro)


def _to_arrow(avro: Any, namespace: str, names: Names, path: str) -> pa.DataType:
    if isinstance(avro, str):
        return _PLAIN.get(avro) or _reference(avro, namespace, names, path)
    if not isinstance(avro, dict) or "type" not in avro:
        raise _unsupported(path, f"{avro!r}, which is not an Avro type")
    kind, logical = avro["type"], avro.get("logicalType")
    if not isinstance(kind, str):
        return _to_arrow(kind, namespace, names, path)
    if logical == "decimal":
        return _decimal(avro, namespace, names, path)
    if kind == "array":
        element, nullable = _nullable(avro["items"], namespace, names, f"{path}.element")
        return pa.list_(pa.field("element", element, nullable=nullable))
    if kind == "map":
        value, nullable = _nullable(avro["values"], namespace, names, f"{path}.value")
        return pa.map_(pa.string(), pa.field("value", value, nullable=nullable))
    if kind in ("record", "error"):
        inner, full = full_name(avro, namespace)
        return _register(names, full, pa.struct(_fields(avro, inner, names, f"{path}.")))
    if kind == "enum":
        return _register(names, full_name(avro, namespace)[1], pa.string())
    if kind == "fixed":
        return _register(names, full_name(avro, namespace)[1], pa.binary(avro["size"]))
    # an unknown logical type is its plain type, as the Avro specification says
    return _LOGICAL.get((kind, str(logical))) or _to_arrow(kind, namespace, names, path)


def _decimal(avro: dict[str, Any], namespace: str, names: Names, path: str) -> pa.DataType:
    precision, scale = avro.get("precision"), avro.get("scale", 0)
    if not isinstance(precision, int) or not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise _unsupported(path, f"a decimal({precision},{scale}); precision must be 1 to 38")
    arrow = pa.decimal128(precision, scale)
    return _register(names, full_name(avro, namespace)[1], arrow) if avro["type"] == "fixed" else arrow


def full_name(avro: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """(namespace inside the named type, its full name)."""
    name: str = avro["name"]
    if "." in name:
        return name.rpartition(".")[0], name
    own = avro.get("namespace", namespace) or ""
    return own, f"{own}.{name}" if own else name


def _register(names: Names, full_name: str, arrow: pa.DataType) -> pa.DataType:
    names[full_name] = arrow
    return arrow


def _reference(name: str, namespace: str, names: Names, path: str) -> pa.DataType:
    full = name if "." in name or not namespace else f"{namespace}.{name}"
    found = names.get(full)
    if found is None:
        # a record is registered after its fields, so a recursive type ends here, too
        raise _unsupported(path, f"the type {name!r}, which is unknown or recursive")
    return found


def record_schema(fields: pa.Schema | pa.StructType, name: str, namespace: str) -> dict[str, Any]:
    """Avro record of Arrow fields; UnsupportedTableError names a column without an Avro form."""
    child = f"{namespace}.{name}"
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            raise _unsupported(field.name, "its name twice in one record; rename one of the columns")
        seen.add(field.name)
    return {
        "type": "record",
        "name": name,
        "namespace": namespace,
        "fields": [_avro_field(field, child) for field in fields],
    }


def _avro_field(field: pa.Field, namespace: str) -> dict[str, Any]:
    if not _NAME.match(field.name):
        raise _unsupported(
            field.name,
            "a name that Avro does not allow (letters, digits and _ only); give the column another name, and in a schema "
            "file this name as its alias, which records may still use",
        )
    avro = _from_arrow(field.type, field.name, namespace)
    if field.nullable:
        return {"name": field.name, "type": ["null", avro], "default": None}
    return {"name": field.name, "type": avro}


def _from_arrow(arrow: pa.DataType, name: str, namespace: str) -> Any:
    t = pa.types
    if t.is_null(arrow):
        raise _unsupported(
            name, 'only the type null, which has no values; remove it, or give it one (["null", "string"])'
        )
    if arrow in _FROM_ARROW:
        return dict(_FROM_ARROW[arrow])
    if t.is_timestamp(arrow) and arrow.unit != "ns":
        unit = "micros" if arrow.unit == "us" else "millis"
        return {"type": "long", "logicalType": f"timestamp-{unit}" if arrow.tz else f"local-timestamp-{unit}"}
    if t.is_int8(arrow) or t.is_int16(arrow) or t.is_int32(arrow) or t.is_uint8(arrow) or t.is_uint16(arrow):
        return "int"
    if t.is_int64(arrow) or t.is_uint32(arrow):
        return "long"
    if t.is_float32(arrow) or t.is_float64(arrow):
        return "float" if t.is_float32(arrow) else "double"
    if t.is_boolean(arrow):
        return "boolean"
    if t.is_string(arrow) or t.is_large_string(arrow) or t.is_string_view(arrow):
        return "string"
    if t.is_binary(arrow) or t.is_large_binary(arrow) or t.is_binary_view(arrow):
        return "bytes"
    if t.is_dictionary(arrow):
        return _from_arrow(arrow.value_type, name, namespace)
    if t.is_decimal(arrow) and arrow.precision <= 38 and arrow.scale >= 0:
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": f"{namespace}.{name}",
            "size": decimal_size(arrow.precision),
            "logicalType": "decimal",
            "precision": arrow.precision,
            "scale": arrow.scale,
        }
    if t.is_fixed_size_binary(arrow):
        return {"type": "fixed", "name": "fixed", "namespace": f"{namespace}.{name}", "size": arrow.byte_width}
    if t.is_list(arrow) or t.is_large_list(arrow):
        return {"type": "array", "items": _element(arrow.value_field, name, namespace)}
    if t.is_map(arrow) and t.is_string(arrow.key_type):
        return {"type": "map", "values": _element(arrow.item_field, name, namespace)}
    if t.is_struct(arrow):
        return record_schema(arrow, name, namespace)
    raise _unsupported(name, f"the Arrow type {arrow}, which Hudi tables do not have")


def _element(field: pa.Field, name: str, namespace: str) -> Any:
    """Avro type of elements, which use their column's name."""
    avro = _from_arrow(field.type, name, namespace)
    return ["null", avro] if field.nullable else avro


def decimal_size(precision: int) -> int:
    """Bytes of the smallest fixed that holds a decimal of this precision (digits)."""
    size = 1
    while 2 ** (8 * size - 1) <= 10**precision:
        size += 1
    return size


def _unsupported(path: str, what: str) -> UnsupportedTableError:
    return UnsupportedTableError(f"column {path!r} has {what}")


COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"
META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
# Flink's change-log mode adds this column after the five.
OPERATION = "_hoodie_operation"

_META_FIELDS = tuple(pa.field(name, pa.string()) for name in META_COLUMNS)
_META_AVRO = tuple({"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in META_COLUMNS)


def is_meta_column(name: str) -> bool:
    """Whether a column is one of Hudi's, not the user's."""
    return name in META_COLUMNS or name == OPERATION


def load_avro(avro: str | dict[str, Any]) -> dict[str, Any]:
    """Avro record schema as a dict, from JSON text or a dict. UnsupportedTableError when it is not a record."""
    if isinstance(avro, str):
        try:
            avro = json.loads(avro)
        except ValueError as error:
            raise UnsupportedTableError(f"the Avro schema is not JSON ({error}); check the schema file") from error
    if not isinstance(avro, dict) or avro.get("type") != "record":
        raise UnsupportedTableError("the Avro schema is not a record; the top level of a table's schema must be one")
    return avro


def avro_json(avro: str | dict[str, Any]) -> str:
    """Compact JSON text, as Avro's printer writes it into footers and block headers."""
    return json.dumps(load_avro(avro), separators=(",", ":"), ensure_ascii=False)


def avro_to_arrow(avro: str | dict[str, Any], keep_meta: bool = False) -> pa.Schema:
    """Arrow schema of the user columns of an Avro record; with ``keep_meta`` of all columns."""
    record = load_avro(avro)
    fields = record_fields(record)
    return pa.schema([field for field in fields if keep_meta or not is_meta_column(field.name)])


def arrow_to_avro(schema: pa.Schema, table_name: str) -> dict[str, Any]:
    """Avro record of a table's columns under the names that Hudi's Spark writer uses.

    The record is ``hoodie.<table>.<table>_record``; a nullable column is ``["null", T]`` with the default null.
    """
    name = avro_name(table_name)
    return record_schema(schema, f"{name}_record", f"hoodie.{name}")


def avro_name(text: str) -> str:
    """Text with each character that Avro does not allow in a name replaced by ``__``, as Hudi does it."""
    if not text:
        raise ValueError("a table name must not be empty")
    head = "__" if re.match(r"[^A-Za-z_]", text) else text[0]
    return head + re.sub(r"[^A-Za-z0-9_]", "__", text[1:])


def storage_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with the types that are written: short becomes int32, large_string becomes string."""
    return avro_to_arrow(arrow_to_avro(schema, "t"), keep_meta=True)


def user_schema(schema: pa.Schema) -> pa.Schema:
    """The schema without Hudi's meta columns."""
    return pa.schema([field for field in schema if not is_meta_column(field.name)])


def with_meta(schema: pa.Schema) -> pa.Schema:
    """Schema of a data file: the five meta columns, then the user columns in their written types."""
    return pa.schema([*_META_FIELDS, *storage_schema(user_schema(schema))])


def vector_columns(avro: str) -> str:
    """Columns of Hudi's type VECTOR as in the footers of its base files: ``e:VECTOR(128),f:VECTOR(64, DOUBLE)``.

    Empty where there are none. ``avro`` is the schema as JSON.
    """
    if '"vector"' not in avro:
        return ""
    found = []
    for column in load_avro(avro)["fields"]:
        branches = column["type"] if isinstance(column["type"], list) else [column["type"]]
        for kind in (b for b in branches if isinstance(b, dict) and b.get("logicalType") == "vector"):
            element = kind.get("elementType", "FLOAT")
            found.append(f"{column['name']}:VECTOR({kind['dimension']}{'' if element == 'FLOAT' else f', {element}'})")
    return ",".join(found)


def with_meta_avro(avro: str | dict[str, Any]) -> dict[str, Any]:
    """Avro record with the five meta columns before its user columns."""
    record = load_avro(avro)
    own = [field for field in record["fields"] if field["name"] not in META_COLUMNS]
    return {**record, "fields": [*(dict(field) for field in _META_AVRO), *own]}
