"""Change events that two fields order, ``catch_up`` and then ``step``, of several types; and the rows they must lead to.

They are the seeded events of ``events.py``; each ordering value becomes a pair. Many pairs share their epoch, so that the
step decides, and a later epoch often has a smaller step: neither field alone gives the order.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support import events as ev

FIELDS = ("epoch", "step")
CONF = {"hoodie.table.ordering.fields": ",".join(FIELDS)}
STEPS = 40
_START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_START_MICROS = int(_START.timestamp()) * 1_000_000
Pair = tuple[Any, Any]


@dataclass(frozen=True)
class Kind:
    """Types of the two fields, in Avro and Arrow; the pair of an ordering value in JSON, and one in JSON as a row has it."""

    avro: tuple[Any, Any]
    arrow: tuple[pa.DataType, pa.DataType]
    pair: Callable[[int], Pair]
    value: Callable[[Pair], Pair] = lambda pair: pair


def _long(n: int) -> Pair:
    return n // STEPS - 30, n % STEPS - STEPS // 2


def _text(n: int) -> Pair:
    return f"e{n // STEPS:05d}", "é" * (n % STEPS)


def _double(n: int) -> Pair:
    return (n // STEPS - 30) / 4, (n % STEPS - STEPS // 2) / 8


def _timestamp(n: int) -> Pair:
    return _START_MICROS + n // STEPS, n % STEPS


def _moment(pair: Pair) -> Pair:
    return _START + dt.timedelta(microseconds=pair[0] - _START_MICROS), pair[1]


def _day(n: int) -> Pair:
    return n // STEPS, n % STEPS - STEPS // 2


def _date(pair: Pair) -> Pair:
    return dt.date(1970, 1, 1) + dt.timedelta(days=pair[0]), pair[1]


_MICROS = {"type": "long", "logicalType": "timestamp-micros"}
KINDS = {
    "long": Kind(("long", "long"), (pa.int64(), pa.int64()), _long),
    "text": Kind(("string", "string"), (pa.string(), pa.string()), _text),
    "double": Kind(("double", "double"), (pa.float64(), pa.float64()), _double),
    "date": Kind(({"type": "int", "logicalType": "date"}, "int"), (pa.date32(), pa.int32()), _day, _date),
    "timestamp": Kind((_MICROS, "long"), (pa.timestamp("us", "UTC"), pa.int64()), _timestamp, _moment),
}


def avro_schema(kind: Kind) -> dict[str, Any]:
    """The table's schema; both fields may be null, and the mark of deletes, too."""
    fields: list[dict[str, Any]] = []
    for field in ev.AVRO_SCHEMA["fields"]:
        if field["name"] == "ts":
            pairs = zip(FIELDS, kind.avro, strict=True)
            fields += [{"name": name, "type": ["null", avro], "default": None} for name, avro in pairs]
        elif field["name"] == "_hoodie_is_deleted":
            fields.append({**field, "type": ["null", "boolean"], "default": None})
        else:
            fields.append(field)
    return {**ev.AVRO_SCHEMA, "fields": fields}


def arrow_schema(kind: Kind) -> pa.Schema:
    """The same in Arrow."""
    at = ev.ARROW_SCHEMA.get_field_index("ts")
    fields = list(ev.ARROW_SCHEMA)
    fields[at : at + 1] = [pa.field(name, arrow) for name, arrow in zip(FIELDS, kind.arrow, strict=True)]
    return pa.schema(fields)


def row(event: ev.Event, kind: Kind) -> dict[str, Any]:
    """An event's fields in JSON."""
    fields = event.row()
    pair = (None, None) if event.ordering is None else kind.pair(event.ordering)
    del fields["ts"]
    return {**fields, **dict(zip(FIELDS, pair, strict=True))}


def write_rows(rows: Sequence[dict[str, Any]], folder: Path, number: int) -> None:
    """One file of events, a line each."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(fields) + "\n" for fields in rows)
    ev.write_event_file(folder, number, text, modified=1_600_000_000 + number)


def oracle(rows: Iterable[dict[str, Any]], kind: Kind) -> pa.Table:
    """The rows that are left: of each key the last event among those of the greatest pair, unless that is a delete."""
    newest: dict[str, dict[str, Any]] = {}
    for fields in rows:
        before = newest.get(fields["id"])
        if before is None or _pair(fields) >= _pair(before):
            newest[fields["id"]] = fields
    live = [as_row(fields, kind) for fields in newest.values() if not fields["_hoodie_is_deleted"]]
    return pa.Table.from_pylist(live, schema=arrow_schema(kind)).sort_by("id")


def without_late_after_deletes(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events without those that are older than a delete of their key before them: only the state index tells them."""
    gone: dict[str, Pair] = {}
    kept = []
    for fields in rows:
        key, pair = fields["id"], _pair(fields)
        if key in gone and pair < gone[key]:
            continue
        if fields["_hoodie_is_deleted"]:
            gone[key] = pair
        kept.append(fields)
    return kept


def as_row(fields: dict[str, Any], kind: Kind) -> dict[str, Any]:
    """Fields in JSON as a row of the table has them."""
    return {**fields, **dict(zip(FIELDS, kind.value(_pair(fields)), strict=True))}


def _pair(fields: dict[str, Any]) -> Pair:
    return fields["epoch"], fields["step"]
