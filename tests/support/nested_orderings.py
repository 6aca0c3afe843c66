"""The events of :mod:`tests.support.two_orderings` with their two fields inside a struct of a struct, ``meta.order``.

Tables of version 6 know one ordering field: there ``catch_up`` alone decides, and ``step`` is the same in all events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.support import events as ev
from tests.support import two_orderings as two


def conf(version: int) -> dict[str, str]:
    """The settings of a table."""
    names = two.FIELDS[: 1 if version == 6 else 2]
    return {
        "hoodie.table.ordering.fields": ",".join(f"meta.order.{name}" for name in names),
        "hoodie.write.table.version": str(version),
    }


def avro_schema(kind: two.Kind, **more: Any) -> dict[str, Any]:
    """The table's schema; everything inside may be null. ``more``: further fields of ``meta``, with their types."""
    pairs = zip(two.FIELDS, kind.avro, strict=True)
    order = [{"name": name, "type": ["null", avro], "default": None} for name, avro in pairs]
    inner = {"type": "record", "name": "order_r", "fields": order}
    members = [{"name": "order", "type": ["null", inner], "default": None}]
    members += [{"name": n, "type": kind, "default": None} for n, kind in {"by": ["null", "string"], **more}.items()]
    meta = {"type": "record", "name": "meta_r", "fields": members}
    plain = two.avro_schema(kind)
    fields = [f for f in plain["fields"] if f["name"] not in two.FIELDS]
    return {**plain, "fields": [*fields, {"name": "meta", "type": ["null", meta], "default": None}]}


def rows(events: Iterable[ev.Event], kind: two.Kind, version: int) -> list[dict[str, Any]]:
    """The fields of events, with both ordering values at the top: what the oracle takes."""
    made = [two.row(event, kind) for event in events]
    return [{**fields, "step": made[0]["step"]} for fields in made] if version == 6 else made


def line(fields: dict[str, Any]) -> dict[str, Any]:
    """A row as it is sent."""
    plain = {name: value for name, value in fields.items() if name not in two.FIELDS}
    return {**plain, "meta": {"order": {name: fields[name] for name in two.FIELDS}, "by": None}}


def write_rows(rows: Sequence[dict[str, Any]], folder: Path, number: int) -> None:
    """One file of events, a line each."""
    two.write_rows([line(fields) for fields in rows], folder, number)


def arrow(fields: Iterable[dict[str, Any]], kind: two.Kind) -> pa.Table:
    """Rows of the table, as another writer has them; ``fields``: typed (:func:`two_orderings.as_row`)."""
    plain = two.arrow_schema(kind)
    order = pa.struct([plain.field(name) for name in two.FIELDS])
    kept = [field for field in plain if field.name not in two.FIELDS]
    schema = pa.schema([*kept, pa.field("meta", pa.struct([pa.field("order", order), pa.field("by", pa.string())]))])
    return pa.Table.from_pylist([line(each) for each in fields], schema=schema)


def flat(found: pa.Table) -> pa.Table:
    """Rows that were read, with both ordering values at the top."""
    order = pc.struct_field(found.column("meta").combine_chunks(), ["order"])
    for name in two.FIELDS:
        found = found.append_column(name, pc.struct_field(order, name))
    return found.drop_columns(["meta"])
