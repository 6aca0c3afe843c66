"""Rows with values of every kind of type that an Avro block has."""

from __future__ import annotations

import decimal
import random
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema([
    pa.field("i", pa.int32()), pa.field("s", pa.string()), pa.field("d", pa.float64()), pa.field("f", pa.float32()),
    pa.field("c", pa.decimal128(20, 3)), pa.field("w", pa.binary(4)), pa.field("b", pa.binary()),
    pa.field("l", pa.list_(pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]))),
    pa.field("m", pa.map_(pa.string(), pa.struct([("q", pa.binary())]))),
    pa.field("n", pa.struct([("u", pa.bool_()), ("v", pa.decimal128(5, 2))])),
])  # fmt: skip
NUMBERS = {32: (0, -1, 63, 64, -64, -65, 2**31 - 1, -(2**31)), 64: (0, 2**63 - 1, -(2**63), 8191, 8192)}


def value(kind: pa.DataType, rnd: random.Random) -> Any:
    """A value of a type, often one at a bound of it; sometimes null."""
    t = pa.types
    if rnd.random() < 0.2:
        return None
    if t.is_integer(kind):
        return rnd.choice(NUMBERS[kind.bit_width])
    if t.is_string(kind):
        return rnd.choice(["", "ä", "long " * 40])
    if t.is_fixed_size_binary(kind):
        return rnd.randbytes(kind.byte_width)
    if t.is_binary(kind):
        return rnd.choice([b"", b"\0\1", b"x" * 200])
    if t.is_floating(kind):
        return rnd.choice([0.0, -1.5, 1e10])
    if t.is_decimal(kind):
        return decimal.Decimal(rnd.choice([0, 1, -1, 127, 128, -128, -129, 255, 256, 99999])) / 100
    if t.is_boolean(kind):
        return rnd.random() < 0.5
    if t.is_list(kind):
        return [value(kind.value_type, rnd) for _ in range(rnd.randrange(4))]
    if t.is_map(kind):
        return [(f"k{n}", value(kind.item_type, rnd)) for n in range(rnd.randrange(4))]
    return {field.name: value(field.type, rnd) for field in kind}


def random_rows(count: int, seed: int) -> pa.Table:
    """Rows of :data:`SCHEMA`."""
    rnd = random.Random(seed)
    return pa.Table.from_pylist([{f.name: value(f.type, rnd) for f in SCHEMA} for _ in range(count)], schema=SCHEMA)
