"""The table's schema as Arrow and as Avro, with and without Hudi's meta columns.

Arrow types are the ones whose Parquet form Hudi's own writers use: byte and short are INT32, timestamps are
microseconds or milliseconds (UTC-adjusted, or local), decimals are fixed-length byte arrays of the smallest size.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.schema import avro_types

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"
META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
# Flink's change-log mode adds this sixth column after the five.
OPERATION = "_hoodie_operation"

_META_FIELDS = tuple(pa.field(name, pa.string()) for name in META_COLUMNS)
_META_AVRO = tuple({"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in META_COLUMNS)


def is_meta_column(name: str) -> bool:
    """Whether Hudi, not the user, owns the column."""
    return name in META_COLUMNS or name == OPERATION


def load_avro(avro: str | dict[str, Any]) -> dict[str, Any]:
    """Avro record schema as a dict, from its JSON text or itself."""
    if isinstance(avro, str):
        try:
            avro = json.loads(avro)
        except ValueError as error:
            raise UnsupportedTableError(f"the Avro schema is no JSON ({error}); check the schema file") from error
    if not isinstance(avro, dict) or avro.get("type") != "record":
        raise UnsupportedTableError("the Avro schema is no record; the top level of a table's schema must be one")
    return avro


def avro_json(avro: str | dict[str, Any]) -> str:
    """Compact JSON text, as Avro's own printer writes it into footers and block headers."""
    return json.dumps(load_avro(avro), separators=(",", ":"), ensure_ascii=False)


def avro_to_arrow(avro: str | dict[str, Any], keep_meta: bool = False) -> pa.Schema:
    """Arrow schema of the user columns of an Avro record; with ``keep_meta`` of all of its columns."""
    record = load_avro(avro)
    fields = avro_types.record_fields(record)
    return pa.schema([field for field in fields if keep_meta or not is_meta_column(field.name)])


def arrow_to_avro(schema: pa.Schema, table_name: str) -> dict[str, Any]:
    """Avro record of a table's columns under the names Hudi's Spark writer gives.

    The record is ``hoodie.<table>.<table>_record``; a column that may be null is ``["null", T]`` with default null.
    """
    name = avro_name(table_name)
    return avro_types.record_schema(schema, f"{name}_record", f"hoodie.{name}")


def avro_name(text: str) -> str:
    """Text with what Avro does not allow in a name replaced by ``__``, as Hudi does it."""
    if not text:
        raise ValueError("a table name must not be empty")
    head = "__" if re.match(r"[^A-Za-z_]", text) else text[0]
    return head + re.sub(r"[^A-Za-z0-9_]", "__", text[1:])


def storage_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with every type replaced by the one that is written: short becomes int32, large_string string."""
    return avro_to_arrow(arrow_to_avro(schema, "t"), keep_meta=True)


def user_schema(schema: pa.Schema) -> pa.Schema:
    """The schema without Hudi's meta columns."""
    return pa.schema([field for field in schema if not is_meta_column(field.name)])


def with_meta(schema: pa.Schema) -> pa.Schema:
    """Schema of a data file: the five meta columns, then the user columns in their written types."""
    return pa.schema([*_META_FIELDS, *storage_schema(user_schema(schema))])


def vector_columns(avro: str) -> str:
    """Columns of Hudi's type VECTOR as the footers of its base files name them (``e:VECTOR(128), f:VECTOR(64, DOUBLE)``
    without blanks between columns); empty where there are none.
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
    """Avro record with the five meta columns before its own ones."""
    record = load_avro(avro)
    own = [field for field in record["fields"] if field["name"] not in META_COLUMNS]
    return {**record, "fields": [*(dict(field) for field in _META_AVRO), *own]}
