"""The fields of Debezium's records, as envelopes or flattened: the row, its order, and values that were not sent.

Only PostgreSQL sends the placeholder, for values that are stored out of line and did not change (TOAST). Its form
depends on the type of the column. A text: itself. Bytes: its bytes. An array of texts: only itself. An array of whole
numbers or dates: its bytes as numbers. An array of uuids: the uuid made from it.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import mask_of
from tagstream.streaming.source.decode.connect_json import Body
from tagstream.streaming.source.decode.record_decoder import Path
from tagstream.streaming.source.decode.row_messages import DATABASE, NAMES, SCHEMA, TABLE, name_fields
from tagstream.table.chunks import flat

Order = Literal["lsn", "binlog", "arrival"]

# Columns in addition to the row's. An Avro name cannot begin with "@".
OP, LSN, SNAPSHOT, FILE, POS, ROW = "@op", "@lsn", "@snapshot", "@file", "@pos", "@row"
BEFORE = "@before."
_TEXT, _LONG = pa.string(), pa.int64()
_BESIDE: dict[Order, tuple[tuple[str, pa.DataType, Path], ...]] = {
    "lsn": ((LSN, _LONG, ("source", "lsn")), (SNAPSHOT, _TEXT, ("source", "snapshot"))),
    "binlog": ((FILE, _TEXT, ("source", "file")), (POS, _LONG, ("source", "pos")), (ROW, _LONG, ("source", "row"))),
    "arrival": (),
}
PLACES: list[tuple[Path, Path, Path]] = [
    (("source", "db"), ("source", "schema"), ("source", "table")),
    (("payload", "source", "db"), ("payload", "source", "schema"), ("payload", "source", "table")),
]
# Columns that HoodieStreamer's Debezium sources add before the row, where a table has them.
STREAMER_COLUMNS: dict[str, Path] = {
    "_change_operation_type": ("op",),
    "_upstream_event_processed_ts_ms": ("ts_ms",),
    "db_shard_source_partition": ("source", "name"),
    "db_schema_source_partition": ("source", "schema"),
    "_event_origin_ts_ms": ("source", "ts_ms"),
    "_event_tx_id": ("source", "txId"),
    "_event_lsn": ("source", "lsn"),
    "_event_xmin": ("source", "xmin"),
    "_event_bin_file": ("source", "file"),
    "_event_pos": ("source", "pos"),
    "_event_row": ("source", "row"),
}


def beside(order: Order) -> list[tuple[pa.Field, Path]]:
    """The fields that are read in addition to the row, with their paths in an envelope."""
    fields, paths = name_fields(*PLACES[0])
    found = [(pa.field(OP, _TEXT), ("op",)), *((field, paths[field.name]) for field in fields)]
    return found + [(pa.field(name, kind), path) for name, kind, path in _BESIDE[order]]


def row_path(name: str) -> Path:
    """The path of a table's column in an envelope."""
    return STREAMER_COLUMNS.get(name, ("after", name))


def binlog_order(body: pa.Table) -> pa.Array:
    """Positions in MySQL's binlog as bytes with the same order: file number, position, row. Null where one is unknown."""
    numbers = pc.extract_regex(flat(body.column(FILE)), r"\.(?P<n>[0-9]{1,9})$")
    file = pc.struct_field(numbers, "n").cast(_LONG)
    pos, row = flat(body.column(POS)), pc.fill_null(flat(body.column(ROW)), 0)
    known = pc.and_(file.is_valid(), pos.is_valid())
    n = len(file)
    words = np.zeros((n, 16), np.uint8)
    words[:, :4] = _big(pc.fill_null(file, 0), ">u4")
    words[:, 4:12] = _big(pc.fill_null(pos, 0), ">u8")
    words[:, 12:] = _big(row, ">u4")
    made = pa.Array.from_buffers(pa.binary(16), n, [None, pa.py_buffer(words.tobytes())]).cast(pa.binary())
    return pc.if_else(known, made, pa.scalar(None, pa.binary()))


def _big(values: pa.Array, kind: str) -> np.ndarray:
    return np.ascontiguousarray(values.to_numpy().astype(kind)).view(np.uint8).reshape(len(values), -1)


def envelope_fields(
    schema: pa.Schema, key_fields: Sequence[str], order: Order, *, files: bool
) -> tuple[pa.Schema, dict[str, Path]]:
    """The columns that are read from an envelope, and their paths."""
    fields = [*schema, *(field for field, _ in beside(order))]
    paths = {f.name: row_path(f.name) for f in schema} | {field.name: path for field, path in beside(order)}
    for name in key_fields if files else ():
        fields.append(schema.field(name).with_name(BEFORE + name))
        paths[BEFORE + name] = ("before", name)
    return pa.schema(fields), paths


# The paths of additional fields in a flattened record (ExtractNewRecordState): `add.fields=op,source.lsn` or `...,lsn`.
_DELETED, _MARK, _SHORT = "@deleted", "@mark", "@short."
_FLAT: Mapping[str, tuple[Path, Path]] = {
    LSN: (("__source_lsn",), ("__lsn",)),
    SNAPSHOT: (("__source_snapshot",), ("__snapshot",)),
    FILE: (("__source_file",), ("__file",)),
    POS: (("__source_pos",), ("__pos",)),
    ROW: (("__source_row",), ("__row",)),
    DATABASE: (("__source_db",), ("__db",)),
    SCHEMA: (("__source_schema",), ("__schema",)),
    TABLE: (("__source_table",), ("__table",)),
}
_NAMED = tuple((name, _TEXT) for name in NAMES)
FLAT_PLACES: list[tuple[Path, Path, Path]] = [
    tuple((*around, *_FLAT[name][i]) for name in NAMES)  # type: ignore[misc]
    for around in ((), ("payload",))
    for i in (0, 1)
]


def flat_fields(schema: pa.Schema, order: Order) -> tuple[pa.Schema, dict[str, Path]]:
    """The columns that are read from a flattened record, and their paths."""
    fields = [*schema, pa.field(OP, _TEXT), pa.field(_DELETED, _TEXT), pa.field(_MARK, pa.bool_())]
    paths: dict[str, Path] = {f.name: (f.name,) for f in schema}
    paths |= {OP: ("__op",), _DELETED: ("__deleted",), _MARK: ("_hoodie_is_deleted",)}
    for name, kind in (*_NAMED, *((name, kind) for name, kind, _ in _BESIDE[order])):
        for given, path in zip((name, _SHORT + name), _FLAT[name], strict=True):
            fields.append(pa.field(given, kind))
            paths[given] = path
    return pa.schema(fields), paths


class FlatBody:
    """Decodes flattened records as if they were envelopes. A delete is marked by a text, or by an operation field that
    the connector adds.
    """

    def __init__(self, body: Body, order: Order) -> None:
        self._body = body
        self._order = order

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """Rows with the additional columns of an envelope. A record without a position counts as it arrives."""
        rows, reason = self._body.decode(values)
        deleted = pa.array(mask_of(pc.equal(flat(rows.column(_DELETED)), "true")) | mask_of(rows.column(_MARK)))
        op = pc.if_else(deleted, "d", pc.coalesce(flat(rows.column(OP)), pa.scalar("u")))
        rows = rows.set_column(rows.schema.get_field_index(OP), OP, op)
        for name, kind in (*_NAMED, *((name, kind) for name, kind, _ in _BESIDE[self._order])):
            both = pc.coalesce(flat(rows.column(name)), flat(rows.column(_SHORT + name))).cast(kind)
            rows = rows.set_column(rows.schema.get_field_index(name), name, both)
        if self._order == "lsn":
            unknown = flat(rows.column(LSN)).is_null()
            by_arrival = pc.if_else(unknown, pa.scalar("incremental"), flat(rows.column(SNAPSHOT)))
            rows = rows.set_column(rows.schema.get_field_index(SNAPSHOT), SNAPSHOT, by_arrival)
        return rows, reason


UNAVAILABLE_VALUE = "__debezium_unavailable_value"
Mask = npt.NDArray[np.bool_]


class Placeholder:
    """Finds the placeholder in columns."""

    def __init__(self, text: str = UNAVAILABLE_VALUE) -> None:
        self._text = text
        raw = text.encode()
        self._raw = raw
        digest = bytearray(hashlib.md5(raw, usedforsecurity=False).digest())
        digest[6], digest[8] = (
            digest[6] & 0x0F | 0x30,
            digest[8] & 0x3F | 0x80,
        )  # a uuid of version 3, as Java's UUID.nameUUIDFromBytes makes it
        self._texts = (text, str(uuid.UUID(bytes=bytes(digest))))

    def can_be_in(self, kind: pa.DataType) -> bool:
        """Whether a column of this type can have it."""
        t = pa.types
        if t.is_list(kind):
            inner = kind.value_type
            return bool(t.is_string(inner) or t.is_binary(inner) or t.is_integer(inner) or t.is_date32(inner))
        return bool(t.is_string(kind) or t.is_binary(kind))

    def find(self, column: pa.Array) -> Mask:
        """Mask of the rows that have it; all false for a type that cannot have it."""
        t = pa.types
        if t.is_string(column.type):
            return mask_of(pc.equal(column, self._text))
        if t.is_binary(column.type):
            return mask_of(pc.equal(column, self._raw))
        if t.is_list(column.type) and self.can_be_in(column.type):
            return self._in_lists(column)
        return np.zeros(len(column), np.bool_)

    def _in_lists(self, column: pa.Array) -> Mask:
        found = np.zeros(len(column), np.bool_)
        inner = column.type.value_type
        numbers = pa.types.is_integer(inner) or pa.types.is_date32(inner)
        wanted = len(self._raw) if numbers else 1
        length = pc.fill_null(pc.list_value_length(column), -1).to_numpy()
        candidates = np.flatnonzero(length == wanted)
        if not len(candidates):
            return found
        values = pc.list_flatten(column.take(pa.array(candidates)))
        if pa.types.is_date32(inner):
            values = values.view(pa.int32())
        if numbers:
            data = pc.fill_null(values.cast(pa.int64()), -1).to_numpy().reshape(-1, wanted)
            same = (data == np.frombuffer(self._raw, np.uint8)).all(axis=1)
        else:
            accepted: Any = [self._raw] if pa.types.is_binary(inner) else list(self._texts)
            same = mask_of(pc.is_in(values, value_set=pa.array(accepted, inner)))
        found[candidates] = same
        return found
