"""Streams with an ordering column of any type, made from the seeded events: their files, schema and final rows."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.interop.histories import EPOCH
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev

PER_FILE = 300
FILES = 4
EPOCH_MICROS = int(EPOCH.timestamp()) * 1_000_000


@dataclass(frozen=True)
class Ordering:
    """The ordering column's Avro and Arrow type; ordering value n as JSON, and as a row has it."""

    avro: Any
    arrow: pa.DataType
    json: Callable[[int], Any]
    value: Callable[[int], Any]


def _same(n: int) -> int:
    return n


def _text(n: int) -> str:
    return f"v{n:07d}"


def _fraction(n: int) -> float:
    return n + 0.25


ORDERINGS = {
    "long": Ordering("long", pa.int64(), _same, _same),
    "int": Ordering("int", pa.int32(), _same, _same),
    "string": Ordering("string", pa.string(), _text, _text),
    "timestamp": Ordering(
        {"type": "long", "logicalType": "timestamp-micros"},
        pa.timestamp("us", tz="UTC"),
        lambda n: EPOCH_MICROS + n,
        lambda n: EPOCH + dt.timedelta(microseconds=n),
    ),
    "double": Ordering("double", pa.float64(), _fraction, _fraction),
}
# Kind of table: its type, and further configuration.
KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "cow": ("COPY_ON_WRITE", {}),
    "mor": ("MERGE_ON_READ", {}),
    "mor_base_inserts": ("MERGE_ON_READ", {"tagstream.inserts.to.base.files": "true"}),
}


@dataclass(frozen=True)
class Streamed:
    """A table that a stream wrote, and the rows that must be in it."""

    table: Path
    expected: pa.Table


def stream(folder: Path, spark: SparkSession, kind: str, ordering: str) -> Streamed:
    """Run a stream of moves, chains, late events, deletes of all sorts and duplicates into a new table."""
    typed = ORDERINGS[ordering]
    table_type, conf = KINDS[kind]
    events = list(ev.generate(FILES * PER_FILE, ev.Mix(keys=120, partitions=3), seed=11))
    case = StreamCase(folder, spark, table_type, conf, _schema(typed))
    _write_files(events, case.source, typed)
    reports = case.run()
    assert sum(report.records for report in reports) == len(events)
    assert min(sum(getattr(r, name) for r in reports) for name in ("moves", "deletes", "late", "updates")) > 0
    return Streamed(case.table, _rows(ev.oracle(events).values(), typed))


def _schema(typed: Ordering) -> dict[str, Any]:
    fields = [{**f, "type": typed.avro} if f["name"] == "ts" else f for f in ev.AVRO_SCHEMA["fields"]]
    return {**ev.AVRO_SCHEMA, "fields": fields}


def _write_files(events: list[ev.Event], folder: Path, typed: Ordering) -> None:
    folder.mkdir(parents=True)
    for number in range(FILES):
        chunk = events[number * PER_FILE : (number + 1) * PER_FILE]
        text = "".join(json.dumps({**e.row(), "ts": typed.json(e.ordering or 0)}) + "\n" for e in chunk)
        ev.write_event_file(folder, number, text, modified=1_600_000_000 + number)


def _rows(live: Iterable[ev.Event], typed: Ordering) -> pa.Table:
    at = ev.ARROW_SCHEMA.get_field_index("ts")
    schema = ev.ARROW_SCHEMA.set(at, pa.field("ts", typed.arrow))
    rows = [{**event.row(), "ts": typed.value(event.ordering or 0)} for event in live]
    return pa.Table.from_pylist(rows, schema=schema).sort_by("id")
