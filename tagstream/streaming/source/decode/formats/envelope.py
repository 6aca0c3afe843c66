"""What is read of Debezium's envelope: the row, and beside it what orders its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import mask_of
from tagstream.streaming.source.decode.formats.body import Body
from tagstream.streaming.source.decode.messages.tables import DATABASE, NAMES, SCHEMA, TABLE, name_fields
from tagstream.streaming.source.decode.record import Path
from tagstream.table.chunks import flat

Order = Literal["lsn", "binlog", "arrival"]

# Columns beside the row's; a name of Avro's cannot begin so.
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
# Columns that HoodieStreamer's Debezium sources put in front of the row, where a table has them.
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
    """The fields that are read beside the row, with their places in an envelope."""
    fields, paths = name_fields(*PLACES[0])
    found = [(pa.field(OP, _TEXT), ("op",)), *((field, paths[field.name]) for field in fields)]
    return found + [(pa.field(name, kind), path) for name, kind, path in _BESIDE[order]]


def row_path(name: str) -> Path:
    """Where an envelope has a column of the table."""
    return STREAMER_COLUMNS.get(name, ("after", name))


def binlog_order(body: pa.Table) -> pa.Array:
    """Positions in MySQL's binlog as bytes that sort as they do: file number, position, row; null where one is unknown."""
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
    """The columns that are read of an envelope, and their places."""
    fields = [*schema, *(field for field, _ in beside(order))]
    paths = {f.name: row_path(f.name) for f in schema} | {field.name: path for field, path in beside(order)}
    for name in key_fields if files else ():
        fields.append(schema.field(name).with_name(BEFORE + name))
        paths[BEFORE + name] = ("before", name)
    return pa.schema(fields), paths


# Where a flattened record (ExtractNewRecordState) has what is beside the row: `add.fields=op,source.lsn` or `...,lsn`.
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
    """The columns that are read of a flattened record, and their places."""
    fields = [*schema, pa.field(OP, _TEXT), pa.field(_DELETED, _TEXT), pa.field(_MARK, pa.bool_())]
    paths: dict[str, Path] = {f.name: (f.name,) for f in schema}
    paths |= {OP: ("__op",), _DELETED: ("__deleted",), _MARK: ("_hoodie_is_deleted",)}
    for name, kind in (*_NAMED, *((name, kind) for name, kind, _ in _BESIDE[order])):
        for given, path in zip((name, _SHORT + name), _FLAT[name], strict=True):
            fields.append(pa.field(given, kind))
            paths[given] = path
    return pa.schema(fields), paths


class FlatBody:
    """Flattened records as if they were envelopes. A delete says so by a text, or by an operation that was asked for."""

    def __init__(self, body: Body, order: Order) -> None:
        self._body = body
        self._order = order

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """Rows with what stands beside them in an envelope; a record without a position counts as it arrives."""
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
