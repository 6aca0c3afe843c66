"""The events of a case, in three batches, and their forms: as each kind of source has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.pairs.options import STATES, deletes_name_no_place

Row = dict[str, Any]

_NULLABLE = ("city", "day", "zone", "told", "v", "amount")
_TYPES: Mapping[str, Any] = {
    "id": "string",
    "sub": "string",
    "num": "long",
    "city": "string",
    "day": {"type": "int", "logicalType": "date"},
    "zone": "int",
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "told": "string",
    "ts": "long",
    "seq": "int",
    "v": "string",
    "amount": "double",
}
COLUMNS = tuple(_TYPES)
DELETED = "_hoodie_is_deleted"
SPARK_COLUMNS = (
    "id string, sub string, num bigint, city string, day date, zone int, at timestamp, told string, ts bigint, seq int, "
    f"v string, amount double, {DELETED} boolean"
)
_FIRST = datetime(2024, 2, 27, 22, 30, 15, tzinfo=UTC)
_CITIES = ("Basel", "Saint-Gall & Co", "Genève", "Chur.1", "x+y z")
_ODD_CITIES = ("a/b", "x=y", "100%", "Genève: 1", "[z]?")
_ZONES = (-7, 0, 12, 5, 2_000_000_000)
NOWHERE = -1  # the partition of null values


@dataclass(frozen=True)
class Event:
    """A change of the key number ``key``. ``place``: the number of its partition, for each layout."""

    key: int
    place: int
    ts: int
    v: str
    seq: int = 0
    deleted: bool = False


BATCHES: tuple[tuple[Event, ...], ...] = (
    (
        *(Event(key, key % 3, 10, "new") for key in range(8)),
        Event(8, NOWHERE, 10, "nowhere"),
        Event(1, 1, 9, "older in the same batch"),
        Event(2, 2, 10, "lesser in seq", seq=-1),
        Event(11, 0, 10, "to be deleted, and never seen again"),
        Event(30, 1, 10, "gone at once"),
        Event(30, 1, 11, "", deleted=True),
    ),
    (
        Event(0, 0, 20, "updated"),
        Event(1, 3, 20, "moved"),
        Event(2, 2, 20, "", deleted=True),
        Event(3, 0, 5, "late"),
        Event(4, 1, 10, "of equal order"),
        Event(5, 4, 4, "late, in another place"),
        Event(6, 0, 10, "lesser in seq", seq=-5),
        Event(9, 2, 20, "inserted"),
        Event(11, 0, 20, "", deleted=True),
        Event(31, 1, 20, "", deleted=True),
    ),
    (
        Event(1, 1, 30, "back"),
        Event(2, 2, 30, "again"),
        Event(7, 1, 30, "", deleted=True),
        Event(9, 2, 30, "updated"),
        Event(10, 0, 30, "inserted"),
        Event(0, 0, 6, "", deleted=True),  # late
        Event(4, 2, 30, "moved"),
        Event(4, 3, 31, "moved twice"),
        Event(8, 1, 30, "out of nowhere"),
        Event(11, 0, 15, "after its delete, but older"),
    ),
)
ONE_MORE = (Event(12, 1, 40, "one more"),)


def events_of(case: Mapping[str, str]) -> tuple[tuple[Event, ...], ...]:
    """The batches of a case; one more where archiving has to have a commit that may go.

    Only the state index remembers deletes: others are given no event that is older than one.
    """
    keeps, deletes = case["index"] in STATES, not deletes_name_no_place(case)
    return tuple(
        tuple(
            event
            for event in batch
            if (keeps or not event.v.startswith("after its")) and (deletes or not event.deleted)
        )
        for batch in (*BATCHES, *((ONE_MORE,) if case["services"] == "archiving" else ()))
    )


def row(event: Event, odd: bool) -> Row:
    """The columns of an event. ``odd``: texts with characters that have to be escaped in a path."""
    place = max(event.place, 0)
    at = _FIRST + timedelta(days=place, milliseconds=place)
    known = event.place != NOWHERE
    return {
        "id": f"k{event.key}",
        "sub": f"s{event.key}",
        "num": event.key * 1000 - 3000,
        "city": (_ODD_CITIES if odd else _CITIES)[place] if known else None,
        "day": at.date() if known else None,
        "zone": _ZONES[place] if known else None,
        "at": at,
        "told": at.strftime("%Y-%m-%d %H:%M:%S") if known else None,
        "ts": event.ts,
        "seq": event.seq,
        "v": event.v,
        "amount": None if event.key == 3 else event.ts / 4,
    }


def avro_schema(source: str) -> Row:
    """The schema file of a source. Plain JSON marks its deletes in a column."""
    fields: list[Row] = [
        {"name": name, "type": ["null", kind], "default": None} if name in _NULLABLE else {"name": name, "type": kind}
        for name, kind in _TYPES.items()
    ]
    if source in ("json", "json by SQL"):
        fields.append({"name": DELETED, "type": "boolean", "default": False})
    return {"type": "record", "name": "place", "fields": fields}


def line(event: Event, odd: bool, source: str, number: int) -> str:
    """An event as a line of a file. ``number``: its position in the source's log."""
    values = row(event, odd)
    numbers = {**values, "at": _millis(values["at"]), "day": _days(values["day"])}
    texts = {
        **values,
        "at": values["at"].isoformat(" ", "milliseconds")[:-6],
        "day": values["day"] and str(values["day"]),
    }
    match source:
        case "json" | "json by SQL":
            return json.dumps({**numbers, DELETED: event.deleted})
        case "DataFrame":
            return json.dumps({**texts, DELETED: event.deleted})
        case "debezium-json":
            return json.dumps(_envelope(event, numbers, number))
        case "debezium-json with schemas":
            made = {"schema": _ENVELOPE_SCHEMA, "payload": _envelope(event, numbers, number)}
            return json.dumps(made, separators=(",", ":"))
        case "debezium-flat-json":
            return json.dumps({**numbers, "__deleted": str(event.deleted).lower(), "__source_lsn": number})
        case "maxwell-json":
            kind = "delete" if event.deleted else "update"
            return json.dumps({"database": "d", "table": "t", "type": kind, "ts": number, "data": texts})
        case _:
            kind = "DELETE" if event.deleted else "UPDATE"
            data = {name: None if value is None else str(value) for name, value in texts.items()}
            return json.dumps({"type": kind, "isDdl": False, "data": [data], "old": None, "ts": number})


def _envelope(event: Event, values: Row, number: int) -> Row:
    source = {"lsn": number, "snapshot": "false"}
    if event.deleted:
        return {"op": "d", "before": values, "after": None, "source": source}
    return {"op": "u", "before": None, "after": values, "source": source}


def _millis(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _days(day: Any) -> int | None:
    return None if day is None else (day - datetime(1970, 1, 1, tzinfo=UTC).date()).days


def _connect(name: str) -> Row:
    kind: Row = {"string": {"type": "string"}, "long": {"type": "int64"}, "int": {"type": "int32"}}.get(
        str(_TYPES[name]), {"type": "double"}
    )
    kind = {"day": {"type": "int32", "name": "io.debezium.time.Date"}}.get(name, kind)
    kind = {"at": {"type": "int64", "name": "io.debezium.time.Timestamp"}}.get(name, kind)
    return {**kind, "optional": name in _NULLABLE, "field": name}


def _struct(field: str) -> Row:
    return {"type": "struct", "fields": [_connect(name) for name in _TYPES], "optional": True, "field": field}


_ENVELOPE_SCHEMA: Row = {
    "type": "struct",
    "fields": [
        _struct("before"),
        _struct("after"),
        {
            "type": "struct",
            "fields": [{"type": "int64", "field": "lsn"}, {"type": "string", "field": "snapshot"}],
            "field": "source",
        },
        {"type": "string", "field": "op"},
    ],
    "name": "d.t.Envelope",
}
