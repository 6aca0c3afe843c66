"""Nulls where a table's schema allows none, at every depth: a row that has one is bad."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import Mask, nulls_of, text_where
from tagstream.table.chunks import flat


def missing_values(rows: pa.Table, schema: pa.Schema, needed: Mask) -> pa.Array:
    """Why a row lacks a value that ``schema`` asks for; null where it has all. ``needed``: the rows that must have them."""
    reason = pa.nulls(rows.num_rows, pa.string())
    for field in schema:
        if not (field.nullable or pa.types.is_null(field.type)):
            mask = nulls_of(rows.column(field.name)) & needed
            reason = pc.coalesce(
                reason, text_where(mask, f"field {field.name} is null, and the table asks for a value")
            )
        if not asks_inside(field.type):
            continue
        for path, found in _inside(flat(rows.column(field.name)), field.type, field.name):
            mask = found & needed
            if mask.any():
                reason = pc.coalesce(reason, text_where(mask, f"field {path} is null, and the table asks for a value"))
    return reason


def may_lack_all(kind: pa.DataType) -> pa.DataType:
    """The type with nothing inside that must not be null: what rows have before they are looked at."""
    t = pa.types
    if not asks_inside(kind):
        return kind
    if t.is_struct(kind):
        return pa.struct([_free(child) for child in kind])
    if t.is_list(kind):
        return pa.list_(_free(kind.value_field))
    return pa.map_(kind.key_type, _free(kind.item_field))


def _free(child: pa.Field) -> pa.Field:
    return pa.field(child.name, may_lack_all(child.type))


def asks_inside(kind: pa.DataType) -> bool:
    """Whether a value may hold something that must not be null."""
    if pa.types.is_map(kind):  # a key is never null
        return not kind.item_field.nullable or asks_inside(kind.item_type)
    children = [kind.field(n) for n in range(kind.num_fields)]
    return any(not child.nullable or asks_inside(child.type) for child in children)


def _inside(values: pa.Array, kind: pa.DataType, path: str) -> Iterator[tuple[str, Mask]]:
    """(path, the rows whose value there lacks what is asked for) for each child of a nested column."""
    t = pa.types
    there = ~nulls_of(values)
    if t.is_struct(kind):
        for i, child in enumerate(kind):
            inner = values.field(i)  # without the nulls of the struct itself
            if not child.nullable:
                yield f"{path}.{child.name}", nulls_of(inner) & there
            for name, mask in _inside(inner, child.type, f"{path}.{child.name}") if asks_inside(child.type) else ():
                yield name, mask & there
    elif t.is_list(kind) or t.is_map(kind):
        if t.is_map(kind):
            values = values.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
            items, child = pc.struct_field(pc.list_flatten(values), "value"), kind.item_field
        else:
            items, child = pc.list_flatten(values), kind.value_field
        of_row = pc.list_parent_indices(values).to_numpy()
        found = [(path, nulls_of(items))] if not child.nullable else []
        if asks_inside(child.type):
            found += _inside(items, child.type, f"{path}.{child.name}")
        for name, mask in found:
            rows = np.zeros(len(values), np.bool_)
            rows[of_row[mask]] = True
            yield name, rows
