"""Rows that are completed value by value: structs of columns, and which of them are still lacking."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import absent_bits, unpack_absent
from tagstream.table.chunks import flat
from tagstream.table.schema.conform import as_type

Bits = npt.NDArray[np.bool_]


def from_images(values: pa.StructArray, bits: Bits, short: pa.Table, images: pa.Table) -> tuple[pa.StructArray, Bits]:
    """Rows filled from images of the keys that they name."""
    if not images.num_rows or not bits.any():
        return values, bits
    found = pc.index_in(wanted_images(short), value_set=named_images(images))
    there = found.is_valid().to_numpy(zero_copy_only=False)
    has = unpack_absent(flat(images.column("absent")), values.type.num_fields)
    rows = pc.fill_null(found, 0).to_numpy()
    usable = bits & there[:, None] & ~has[rows]
    columns = []
    for i, column in enumerate(values.flatten()):
        theirs = struct_of(images.column("row")).flatten()[i].take(found)
        columns.append(pc.if_else(pa.array(usable[:, i]), theirs, column))
    return pa.StructArray.from_arrays(columns, fields=list(values.type)), bits & ~usable


def wanted_images(short: pa.Table) -> pa.Array:
    """The images that rows name: key and name of each, as :func:`named_images`; null where a row names none."""
    return _named(short, "from_key", "from_image")


def named_images(images: pa.Table) -> pa.Array:
    """Key and name of each image."""
    return _named(images, "skey", "image")


def _named(rows: pa.Table, key: str, name: str) -> pa.Array:
    names = pc.fill_null(flat(rows.column(name)), b"")
    return pc.binary_join_element_wise(names, flat(rows.column(key)), pa.scalar(b"\0", pa.binary()))


def merged(
    values: pa.StructArray, bits: Bits, held: pa.Table, found: pa.Array, there: Bits
) -> tuple[pa.StructArray, Bits]:
    columns = []
    for i, (field, column) in enumerate(zip(values.type, values.flatten(), strict=True)):
        use = bits[:, i] & there
        if use.any():
            column = pc.if_else(pa.array(use), as_type(flat(held.column(field.name)).take(found), field.type), column)
        columns.append(column)
    return pa.StructArray.from_arrays(columns, fields=list(values.type)), bits & ~there[:, None]


def with_values(images: pa.Table, values: pa.StructArray, bits: Bits) -> pa.Table:
    n = images.num_rows
    images = images.set_column(images.schema.get_field_index("row"), images.schema.field("row"), values)
    left = absent_bits(bits, np.arange(n), n)
    return images.set_column(images.schema.get_field_index("absent"), images.schema.field("absent"), left)


def place_keys(short: pa.Table, keys: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(flat(short.column("from_part")), flat(short.column("from_file")), keys, "\0")


def struct_of(column: pa.ChunkedArray) -> pa.StructArray:
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
