"""How a column's values are encoded in records, and how they are converted: the type names of Kafka Connect and
Debezium.

The name decides, not the JSON or Avro type (Debezium's documentation, "Data type mappings"): the same ``int64`` may be
a number, a time of day or a timestamp. A value without a name is read as the column's type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import (
    from_base64,
    from_hex,
    mask_of,
    nulls_of,
    only_where,
    text_where,
)
from tagstream.table.fields import struct_of
from tagstream.table.schema.decimals import decimal_text, to_decimals

Kind = Literal["plain", "decimal", "variable", "bytes", "days", "ticks", "uuid", "nested"]
BytesAs = Literal["base64", "hex", "raw"]

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE = "io.debezium.data.VariableScaleDecimal"
_TICKS = {
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.Time": "ms",
    "io.debezium.time.MicroTime": "us",
    "io.debezium.time.NanoTime": "ns",
    "org.apache.kafka.connect.data.Time": "ms",
}
_DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


@dataclass(frozen=True)
class Encoding:
    """The encoding of one value. ``scale``: of decimals. ``unit``: of ticks. ``wire``: the plain type to read, where it
    is not the column's (a float in a column of doubles).

    ``nested``: ``parts`` are the encodings of a record's fields by name, ``item`` that of a list's items or a map's
    values.
    """

    kind: Kind = "plain"
    scale: int = 0
    unit: str = "us"
    wire: pa.DataType | None = None
    parts: tuple[tuple[str, Encoding], ...] = ()
    item: Encoding | None = None

    def part(self, name: str) -> Encoding:
        """The encoding of a record's field."""
        return next((encoding for known, encoding in self.parts if known == name), PLAIN)


PLAIN = Encoding()


def nested(parts: Iterable[tuple[str, Encoding]] = (), item: Encoding | None = None) -> Encoding:
    """The encoding of a record, list or map; plain where all in it is plain."""
    found = tuple((name, encoding) for name, encoding in parts if encoding != PLAIN)
    return Encoding("nested", parts=found, item=item) if found or item not in (None, PLAIN) else PLAIN


def by_name(name: str | None, scale: int = 0, wire: pa.DataType | None = None) -> Encoding:
    """The encoding for a type's name."""
    if name == DECIMAL:
        return Encoding("decimal", scale)
    if name == VARIABLE:
        return Encoding("variable")
    if name in _TICKS:
        return Encoding("ticks", unit=_TICKS[name])
    if name in _DAYS:
        return Encoding("days")
    return Encoding("plain", wire=wire)


def for_column(encoding: Encoding, target: pa.DataType) -> Encoding:
    """The encoding for a column of type ``target``: bytes are in a text, a plain value is read as the column's type.

    A record, list or map in which all is plain is read as its own type as a whole.
    """
    if encoding.kind not in ("plain", "nested"):
        return encoding
    if pa.types.is_nested(target):
        return _for_nested(encoding, target)
    encoding = PLAIN if encoding.kind == "nested" else encoding
    if pa.types.is_binary(target) or (pa.types.is_fixed_size_binary(target) and not pa.types.is_decimal(target)):
        return replace(encoding, kind="bytes")
    return replace(encoding, wire=target) if encoding.wire is None else encoding


def _for_nested(encoding: Encoding, target: pa.DataType) -> Encoding:
    if pa.types.is_struct(target):
        parts = tuple((f.name, for_column(encoding.part(f.name), f.type)) for f in target)
        if any(part.kind != "plain" for _, part in parts):
            return Encoding("nested", parts=parts)
    else:
        inner = target.item_type if pa.types.is_map(target) else target.value_type
        item = for_column(encoding.item or PLAIN, inner)
        if item.kind != "plain":
            return Encoding("nested", item=item)
    return Encoding(wire=target if encoding.wire is None else encoding.wire)


def json_type(encoding: Encoding, target: pa.DataType) -> pa.DataType:
    """The type for the JSON decoder to read."""
    if encoding.kind == "nested":
        if pa.types.is_struct(target):
            return pa.struct([f.with_type(json_type(encoding.part(f.name), f.type)) for f in target])
        item = encoding.item or PLAIN
        if pa.types.is_map(target):
            return pa.map_(target.key_type, target.item_field.with_type(json_type(item, target.item_type)))
        return pa.list_(target.value_field.with_type(json_type(item, target.value_type)))
    if encoding.kind == "uuid":
        return pa.string()
    if encoding.kind in ("decimal", "bytes"):
        return pa.string()
    if encoding.kind == "variable":
        return pa.struct([pa.field("scale", pa.int32()), pa.field("value", pa.string())])
    if encoding.kind == "ticks":
        return pa.int64()
    if encoding.kind == "days":
        return pa.int32()
    return target if encoding.wire is None else encoding.wire


def finish(
    column: pa.Array, encoding: Encoding, field: pa.Field, bytes_as: BytesAs, *, truncate: bool = False
) -> tuple[pa.Array, pa.Array | None]:
    """Convert a column to its field's type. Returns also why a value does not fit (null where it does).

    ``truncate``: the part of a timestamp below the column's unit is cut off (``tagstream.decode.times``).
    """
    if pa.types.is_nested(field.type) and pa.types.is_nested(column.type) and not column.type.equals(field.type):
        return _finish_nested(column, encoding, field, bytes_as, truncate=truncate)
    if encoding.kind == "ticks" and not pa.types.is_timestamp(field.type):
        return _of_day(column, encoding, field)
    try:
        made, reason = _MAKE[encoding.kind](column, encoding, bytes_as)
    except pa.ArrowInvalid as e:
        return pa.nulls(len(column), field.type), text_where(~nulls_of(column), f"field {field.name}: {e}")
    if truncate and encoding.kind == "ticks":
        made = cut_off(made, field.type)
    array, misfit = fitted(made, field)
    if reason is not None:
        reason = pc.binary_join_element_wise(f"field {field.name}: ", reason, "")
    beyond = beyond_calendar(array, field)
    if beyond is not None:
        array = pc.if_else(beyond.is_null(), array, pa.scalar(None, array.type))
    return array, _first(_first(reason, misfit), beyond)


def fitted(column: pa.Array, field: pa.Field) -> tuple[pa.Array, pa.Array | None]:
    """Cast a column to a field's type without a loss. Returns also why a value does not fit.

    Values are cast one by one only if the cast of the column fails.
    """
    if column.type.equals(field.type):
        return column, None
    if pa.types.is_string(field.type) and pa.types.is_decimal(column.type):
        column = pc.cast(column, pa.string())
    if pa.types.is_float64(column.type) and pa.types.is_float32(field.type):
        return _narrowed(column, field)
    try:
        return column.cast(field.type), None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    good: list[pa.Array] = []
    why: list[str | None] = []
    for i in range(len(column)):  # rare: only if a cast of the whole column has failed
        one = column.slice(i, 1)
        try:
            good.append(one.cast(field.type))
            why.append(None)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            good.append(pa.nulls(1, field.type))
            why.append(
                None if one.null_count else f"field {field.name}: {str(one[0].as_py())[:40]} does not fit {field.type}"
            )
    return pa.concat_arrays(good) if good else pa.array([], field.type), pa.array(why, pa.string())


def _narrowed(column: pa.Array, field: pa.Field) -> tuple[pa.Array, pa.Array | None]:
    """Doubles as floats. A value that is too great for a float is rejected, and does not become infinity."""
    made = column.cast(field.type)
    over = mask_of(pc.and_(pc.is_inf(made), pc.invert(pc.is_inf(column))))
    if not over.any():
        return made, None
    texts = pc.binary_join_element_wise(
        f"field {field.name}: ", pc.cast(column, pa.string()), " does not fit float", ""
    )
    return only_where(~over, made), only_where(over, texts)


def cut_off(moments: pa.Array, target: pa.DataType) -> pa.Array:
    """Timestamps without the part below the target's unit, rounded to the past."""
    size, own = _PER_DAY[target.unit], _PER_DAY[moments.type.unit]
    if size >= own:
        return moments
    ticks = pc.fill_null(moments.view(pa.int64()), 0).to_numpy()
    whole = pa.array(ticks - ticks % (own // size), mask=nulls_of(moments))
    return whole.view(moments.type)


def _finish_nested(
    column: pa.Array, encoding: Encoding, field: pa.Field, bytes_as: BytesAs, *, truncate: bool
) -> tuple[pa.Array, pa.Array | None]:
    kind, empty = field.type, nulls_of(column)
    if pa.types.is_struct(kind):
        arrays: list[pa.Array] = []
        reason: pa.Array | None = None
        for child in kind:
            there = column.type.get_field_index(child.name) >= 0
            found = pc.struct_field(column, child.name) if there else pa.nulls(len(column), child.type)
            part = encoding.part(child.name) if there else PLAIN
            named = child.with_name(f"{field.name}.{child.name}")
            array, why = finish(found, part, named, bytes_as, truncate=truncate)
            arrays.append(array)
            reason = _first(reason, why)
        return struct_of(arrays, list(kind), empty), reason
    lengths = pc.fill_null(pc.list_value_length(_as_list(column)), 0).to_numpy().astype(np.int64)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    inside = pc.list_flatten(_as_list(column))
    inner = kind.item_field if pa.types.is_map(kind) else kind.value_field
    values = inside.field(1) if pa.types.is_map(kind) else inside
    named = inner.with_name(f"{field.name}[]")
    array, why = finish(values, encoding.item or PLAIN, named, bytes_as, truncate=truncate)
    if pa.types.is_map(kind):
        keys = inside.field(0).cast(kind.key_type)
        made: pa.Array = pa.MapArray.from_arrays(offsets, keys, array).cast(kind)
        made = pc.if_else(pa.array(~empty), made, pa.scalar(None, kind)) if empty.any() else made
    else:
        made = pa.ListArray.from_arrays(offsets, array, type=kind, mask=pa.array(empty))
    return made, None if why is None else of_whole(why, lengths)


def _as_list(column: pa.Array) -> pa.Array:
    """A map as the list of its entries."""
    if not pa.types.is_map(column.type):
        return column
    entries = pa.StructArray.from_arrays([column.keys, column.items], names=["key", "value"])
    return pa.ListArray.from_arrays(column.offsets, entries, mask=column.is_null())


def of_whole(why: pa.Array, lengths: np.ndarray) -> pa.Array:
    """The first reason among each list's items."""
    bad = np.flatnonzero(~nulls_of(why))
    lists = np.repeat(np.arange(len(lengths)), lengths)[bad]
    of_list, first = np.unique(lists, return_index=True)
    place = np.full(len(lengths), -1, np.int64)
    place[of_list] = bad[first]
    return why.take(pa.array(place, mask=place < 0))


Made = tuple[pa.Array, pa.Array | None]


def _plain(column: pa.Array, _encoding: Encoding, _bytes_as: BytesAs) -> Made:
    return column, None


def _bytes(column: pa.Array, _encoding: Encoding, bytes_as: BytesAs) -> Made:
    if not pa.types.is_string(column.type) or bytes_as == "raw":
        return column.cast(pa.binary()), None
    made, wrong = (from_hex if bytes_as == "hex" else from_base64)(column)
    return made, text_where(wrong, f"is not {bytes_as}") if wrong.any() else None


def _decimal(column: pa.Array, encoding: Encoding, _bytes_as: BytesAs) -> Made:
    raw, reason = _bytes(column, encoding, "base64")
    made, wrong = to_decimals(raw, encoding.scale)
    if wrong.any():
        reason = _first(reason, text_where(wrong, "has more than 38 digits"))
    return made, reason


def _variable(column: pa.Array, _encoding: Encoding, _bytes_as: BytesAs) -> Made:
    """Decimals of any scale, as text. A loop over the scales that occur."""
    scales = pc.fill_null(pc.struct_field(column, "scale"), 0).to_numpy(zero_copy_only=False)
    raw, reason = _bytes(pc.struct_field(column, "value"), Encoding(), "base64")
    out = pa.nulls(len(column), pa.string())
    long: list[int] = []
    for scale in np.unique(scales).tolist():
        mine = scales == scale
        if not 0 <= scale <= 38:
            long += np.flatnonzero(mine & ~nulls_of(raw)).tolist()
            continue
        made, wrong = to_decimals(raw, scale)
        out = pc.if_else(pa.array(mine), pc.cast(made, pa.string()), out)
        long += np.flatnonzero(wrong & mine).tolist()
    if long:  # a loop: few numbers have more than 38 digits
        texts = out.to_pylist()
        for i in long:
            texts[i] = decimal_text(raw[i].as_py(), int(scales[i]))
        out = pa.array(texts, pa.string())
    return out, reason


def _days(column: pa.Array, _encoding: Encoding, _bytes_as: BytesAs) -> Made:
    return column if pa.types.is_date32(column.type) else column.cast(pa.int32()).view(pa.date32()), None


def _ticks(column: pa.Array, encoding: Encoding, _bytes_as: BytesAs) -> Made:
    return column.cast(pa.int64()).view(pa.timestamp(encoding.unit)), None


def _of_day(column: pa.Array, encoding: Encoding, field: pa.Field) -> Made:
    """Ticks of a time of day. In a column of numbers or texts they are not converted."""
    if not pa.types.is_time(field.type):
        return fitted(column, field)
    ticks = pc.fill_null(column, 0).to_numpy()
    wrong = (ticks < 0) | (ticks >= _PER_DAY[encoding.unit])
    if wrong.any():
        column = pc.if_else(pa.array(wrong), pa.scalar(None, column.type), column)
    # from ms Arrow only casts to time32
    made = (
        column.cast(pa.int32()).view(pa.time32("ms"))
        if encoding.unit == "ms"
        else column.view(pa.time64(encoding.unit))
    )
    array, misfit = fitted(made, field)
    return array, _first(text_where(wrong, f"field {field.name}: is not within a day") if wrong.any() else None, misfit)


def _uuid(column: pa.Array, _encoding: Encoding, _bytes_as: BytesAs) -> Made:
    """Sixteen bytes as the text of a UUID (RFC 9562)."""
    raw = column.cast(pa.binary())
    digits = pa.array([None if value is None else value.hex() for value in raw.to_pylist()], pa.string())
    parts = [pc.utf8_slice_codeunits(digits, a, b) for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))]
    return pc.binary_join_element_wise(*parts, "-"), None


_MAKE: dict[Kind, Callable[[pa.Array, Encoding, BytesAs], Made]] = {
    "plain": _plain,
    "bytes": _bytes,
    "decimal": _decimal,
    "variable": _variable,
    "days": _days,
    "ticks": _ticks,
    "uuid": _uuid,
}


def beyond_calendar(array: pa.Array, field: pa.Field) -> pa.Array | None:
    """Why a date or a timestamp cannot be stored: infinity, or a year that readers do not support."""
    t = pa.types
    if t.is_date32(field.type):
        days = pc.fill_null(array.view(pa.int32()), 0).to_numpy().astype(np.int64)
    elif t.is_timestamp(field.type):
        days = pc.fill_null(array.view(pa.int64()), 0).to_numpy() // _PER_DAY[field.type.unit]
    else:
        return None
    wrong = (days < _FIRST_DAY) | (days > _LAST_DAY)
    return text_where(wrong, f"field {field.name}: is infinite, or not in the years 1 to 9999") if wrong.any() else None


def _first(reason: pa.Array | None, other: pa.Array | None) -> pa.Array | None:
    if reason is None or other is None:
        return other if reason is None else reason
    return pc.coalesce(reason, other)
