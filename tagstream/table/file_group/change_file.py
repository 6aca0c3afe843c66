"""Change files of a table with change data capture (``hoodie.table.cdc.enabled``).

A change file is next to a base file and has its write token: ``.<file id>_<instant>.log.1_<token>.cdc``. It has log blocks
of type CDC_DATA, whose content is that of an Avro data block. What a record has depends on the table's logging mode:

- OP_KEY_ONLY: ``op`` and ``record_key``; readers find the rows in the base files before and after.
- DATA_BEFORE: ``op``, ``record_key`` and ``before``; readers find the row after in the base file.
- DATA_BEFORE_AFTER: ``op``, ``ts_ms`` (the instant), ``before`` and ``after``.

``op`` is ``i``, ``u`` or ``d``. ``before`` and ``after`` are rows without meta columns. The schemas are those of Hudi's
HoodieCDCUtils, in the form that its log blocks have.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

import pyarrow as pa

from tagstream.table.chunks import flat
from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.log_file import decode, encode, scan_log_file
from tagstream.table.file_group.log_format import BlockType, HeaderKey, encode_block
from tagstream.table.file_group.names import log_file_name
from tagstream.table.schema.conform import conform
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.storage.storage import Storage

CDC_SUFFIX = ".cdc"


class LoggingMode(StrEnum):
    """What change files have (``hoodie.table.cdc.supplemental.logging.mode``)."""

    OP_KEY_ONLY = "OP_KEY_ONLY"
    DATA_BEFORE = "DATA_BEFORE"
    DATA_BEFORE_AFTER = "DATA_BEFORE_AFTER"


# The names of Hudi 0.13, which a table may still have.
OLD_MODES = {
    "CDC_OP_KEY": LoggingMode.OP_KEY_ONLY,
    "CDC_DATA_BEFORE": LoggingMode.DATA_BEFORE,
    "CDC_DATA_BEFORE_AFTER": LoggingMode.DATA_BEFORE_AFTER,
}


def change_file_name(file_id: str, instant: str, token: str) -> str:
    """Name of the change file of a base file."""
    return log_file_name(file_id, instant, 1, token) + CDC_SUFFIX


def change_schema(mode: LoggingMode, avro_json: str) -> dict[str, Any]:
    """The Avro schema of change records; ``avro_json`` is that of the table's rows without meta columns."""
    if mode is LoggingMode.OP_KEY_ONLY:
        names = ("op", "record_key")
        return {"type": "record", "name": "Record", "fields": [{"name": n, "type": ["string", "null"]} for n in names]}
    row = json.loads(avro_json)
    own, _, name = row["name"].rpartition(".")
    namespace = own or row.get("namespace", "")
    row = {"type": "record", "name": name, **{k: v for k, v in row.items() if k not in ("type", "name", "namespace")}}
    fields = [_field("op", "string"), _field("record_key", "string"), _field("before", row)]
    if mode is LoggingMode.DATA_BEFORE_AFTER:
        fields[1:] = [_field("ts_ms", "string"), _field("before", row), _field("after", name)]
    within = {"namespace": namespace} if namespace else {}
    return {"type": "record", "name": "CDC", **within, "doc": "", "fields": fields}


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "doc": "", "default": None}


def image(rows: pa.Table | None, count: int, avro_json: str) -> pa.Array:
    """The rows, without meta columns, as one struct array; ``count`` nulls if there are none."""
    schema = avro_to_arrow(avro_json)
    if rows is None:
        return pa.nulls(count, pa.struct(list(schema)))
    rows = conform(rows.select([n for n in rows.column_names if n in schema.names]), schema, "rows of a change file")
    return pa.StructArray.from_arrays([flat(column) for column in rows.columns], fields=list(schema))


def changes_of(op: str, keys: pa.Array, before: pa.Table | None, after: pa.Table | None, avro_json: str) -> pa.Table:
    """Changes with one operation, as :func:`change_block` takes them; ``keys`` are the record keys."""
    count = len(keys)
    columns = [pa.repeat(op, count), keys, image(before, count, avro_json), image(after, count, avro_json)]
    return pa.table(columns, names=["op", "record_key", "before", "after"])


def change_block(mode: LoggingMode, changes: pa.Table, avro_json: str, instant: str) -> bytes:
    """One whole block of changes: a table with the columns op, record_key, before and after."""
    schema = change_schema(mode, avro_json)
    rows = changes.append_column("ts_ms", pa.repeat(instant, changes.num_rows))
    text = json.dumps(schema, separators=(",", ":"))
    content = encode(rows.select([field["name"] for field in schema["fields"]]), text)
    return encode_block(BlockType.CDC_DATA, {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: text}, content)


def read_change_file(storage: Storage, rel: str) -> pa.Table:
    """The records of a change file, in the schema of their blocks. CorruptFileError for a file that has other blocks."""
    found = []
    for block in scan_log_file(storage, rel):
        if block.type is not BlockType.CDC_DATA or block.avro_schema is None:
            raise CorruptFileError(
                f"{block.where} is in a change file and has no change records: restore the file, or read the changes "
                "after this commit"
            )
        found.append(decode(block.content(), block.avro_schema, block.where))
    if not found:
        raise CorruptFileError(f"{storage.where(rel)} is a change file without a block: restore the file")
    return pa.concat_tables(found)
