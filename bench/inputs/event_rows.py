"""Rows of generated events, column by column: Arrow for Parquet, JSON lines for a stream, and the Avro schema of both.

Eight columns (about 190 bytes per line), and further columns of four kinds for wide rows.
"""

from __future__ import annotations

import binascii
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CITIES = ("Lisbon", "Oslo", "Kyoto", "Quito", "Accra", "Perth", "Turin", "Izmir")
_FIRST = (
    ("id", "string"), ("part", "string"), ("ts", "long"), ("name", "string"),
    ("city", "string"), ("amount", "double"), ("qty", "int"), ("note", "string"),
)  # fmt: skip
_NOT_NULL = ("id", "ts")
_ARROW = {"string": pa.string(), "long": pa.int64(), "double": pa.float64(), "int": pa.int32()}
_MORE = ("long", "double", "int", "string")


def columns_of(count: int) -> list[tuple[str, str]]:
    """Name and Avro type of the first `count` columns."""
    return [*_FIRST, *((f"c{n:03d}", _MORE[n % 4]) for n in range(len(_FIRST), count))]


def avro_schema(count: int) -> dict[str, Any]:
    """Avro's record of `count` columns."""
    fields: list[dict[str, Any]] = [
        {"name": name, "type": kind}
        if name in _NOT_NULL
        else {"name": name, "type": ["null", kind], "default": None}
        for name, kind in columns_of(count)
    ]  # fmt: skip
    return {"type": "record", "name": "event", "fields": fields}


def keys_of(numbers: np.ndarray) -> pa.Array:
    """Record keys, all of the same length."""
    return pc.binary_join_element_wise("k", pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), 10, "0"), "")


def partitions_of(numbers: np.ndarray) -> pa.Array:
    """Partition values."""
    return pc.binary_join_element_wise("p", pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), 2, "0"), "")


def event_rows(
    numbers: np.ndarray, partitions: np.ndarray, ts: np.ndarray, columns: int, random: np.random.Generator
) -> pa.Table:
    """Events of the keys `numbers`. The other values are drawn from `random`."""
    count = len(numbers)
    cents = random.integers(1, 10_000_000, count)
    data: dict[str, pa.Array] = {
        "id": keys_of(numbers),
        "part": partitions_of(partitions),
        "ts": pa.array(ts, pa.int64()),
        "name": pc.binary_join_element_wise("name-", _hex(random, count, 8), ""),
        "city": pa.array(CITIES).take(pa.array(numbers & 7)),
        "amount": pa.array(cents / 100),
        "qty": pa.array(cents % 1000, pa.int32()),
        "note": _hex(random, count, 18),
    }
    for name, kind in columns_of(columns)[len(data) :]:
        if kind == "string":
            data[name] = _hex(random, count, 6)
        elif kind == "double":
            data[name] = pa.array(random.integers(1, 10_000_000, count) / 100)
        else:
            data[name] = pa.array(random.integers(0, 2**31 - 1, count), _ARROW[kind])
    return pa.table(data, pa.schema([(name, _ARROW[kind]) for name, kind in columns_of(columns)]))


def json_lines(rows: pa.Table) -> bytes:
    """One JSON object per line, fields in the schema's order. No value needs an escape."""
    return as_bytes(pc.binary_join_element_wise(json_objects(rows), "\n", ""))


def json_objects(rows: pa.Table) -> pa.Array:
    """One JSON object per row, fields in the schema's order; null where a field is null. No value needs an escape."""
    parts: list[Any] = []
    before = "{"
    for name in rows.column_names:
        column = rows[name].combine_chunks()
        quote = '"' if pa.types.is_string(column.type) else ""
        parts += [f'{before}"{name}":{quote}', pc.cast(column, pa.string())]
        before = f"{quote},"
    return pc.binary_join_element_wise(*parts, before[:-1] + "}", "")


def as_bytes(lines: pa.Array) -> bytes:
    """The array's strings, concatenated."""
    _, offsets, data = lines.buffers()
    bounds = np.frombuffer(offsets, np.int32, count=len(lines) + 1, offset=lines.offset * 4)
    return bytes(memoryview(data)[bounds[0] : bounds[-1]]) if len(lines) else b""


def _hex(random: np.random.Generator, count: int, size: int) -> pa.Array:
    """Strings of `size` random bytes in hexadecimal."""
    text = binascii.hexlify(random.bytes(count * size))
    offsets = np.arange(0, (count + 1) * 2 * size, 2 * size, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))
