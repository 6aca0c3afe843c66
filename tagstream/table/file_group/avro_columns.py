"""The records of an Avro data block as Arrow columns, without a Python object for each record.

A block has the length of each record before its bytes: a fixed of four bytes, so it is read as one more field of the
record. The lengths that are read must be those of the whole content. What the reader of container files cannot read,
and what is damaged, is left to the reader of records in ``log_file``, which names the fault.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from tagstream.table.chunks import content as bytes_of
from tagstream.table.errors import ConfigError
from tagstream.table.file_group.avro_reader import (
    AvroReader,
    container_block,
    container_header,
    readable_schema,
)
from tagstream.table.file_group.log_format import I32
from tagstream.table.schema.decimals import to_decimals

_LENGTH = "_record_length"


def columns_of(records: memoryview, count: int, avro_json: str, wanted: pa.Schema) -> pa.Table | None:
    """The columns ``wanted`` of the records, each after its length; ``avro_json`` is the writer's schema.

    None where the reader is not installed, where it cannot read the schema, and where the records do not fit it.
    """
    header = _header(avro_json)
    reader = _reader()
    if header is None or reader is None or count <= 0:
        return None
    try:
        found = reader.read([header, *container_block(records, count)], count, [_LENGTH, *wanted.names])
        if _total(found.field(_LENGTH)) != len(records):
            return None
        columns = [_fitted(found.field(field.name), field.type) for field in wanted]
        return pa.Table.from_arrays(columns, schema=wanted)
    except (ValueError, pa.ArrowException, _UnfitError):
        return None


class _UnfitError(Exception):
    """A column that is not converted to its type as a whole."""


@lru_cache(maxsize=1)
def _reader() -> AvroReader | None:
    try:
        return AvroReader()
    except ConfigError:
        return None


@lru_cache(maxsize=64)
def _header(avro_json: str) -> bytes | None:
    """The begin of a container file of records with their lengths; None for a schema that the reader cannot read."""
    try:
        plain: dict[str, Any] = readable_schema(json.loads(avro_json))
    except ConfigError:
        return None
    length = {"name": _LENGTH, "type": {"type": "fixed", "name": _LENGTH, "size": I32.size}}
    return container_header({**plain, "fields": [length, *plain["fields"]]})


def _total(lengths: pa.Array) -> int:
    """The bytes of records with these lengths, and of the lengths."""
    _, _, data = bytes_of(lengths)
    found = np.frombuffer(data.tobytes(), ">i4")
    return -1 if (found < 0).any() else int(found.sum(dtype=np.int64)) + I32.size * len(found)


def _fitted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values of the reader's type as a table's type."""
    t = pa.types
    if t.is_null(values.type):
        return values.cast(kind)
    if t.is_struct(kind):
        children = [_fitted(values.field(field.name), field.type) for field in kind]
        if not children:
            raise _UnfitError
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())
    if t.is_list(kind):
        return _with_child(values, kind, _fitted(values.values, kind.value_type))
    if t.is_map(kind):
        entries = [_fitted(values.keys, pa.string()), _fitted(values.items, kind.item_type)]
        fields = [pa.field("key", pa.string(), nullable=False), kind.item_field]
        return _with_child(values, kind, pa.StructArray.from_arrays(entries, fields=fields))
    if t.is_decimal(kind):
        made, wrong = to_decimals(values, kind.scale)
        if wrong.any():
            raise _UnfitError
        return made.cast(kind)
    return values.cast(kind)


def _with_child(values: pa.Array, kind: pa.DataType, child: pa.Array) -> pa.Array:
    """A list or map array with the offsets and nulls of ``values``."""
    return pa.Array.from_buffers(
        kind, len(values), values.buffers()[:2], values.null_count, values.offset, children=[child]
    )
