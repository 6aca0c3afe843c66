"""A public table, its rows, and five events of a stream for it: what the table must hold afterwards."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import PARTITION_PATH, RECORD_KEY
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.public_tables import unpack

Row = dict[str, Any]
META = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")


@dataclass(frozen=True)
class Shape:
    """What is special about a table. ``changed``: the column that an update changes, ``key``: the one of a new key.

    ``conf``: keys that the job needs. ``by_partition``: a key is there twice, and the index is one by partition then.
    """

    changed: str
    key: str = "id"
    conf: Mapping[str, str] = field(default_factory=dict)
    by_partition: bool = False


TRIPS = Shape("rider", "_row_key")
PAYMENTS = Shape("merchant_name", "txn_id", by_partition=True)
SHAPES = {
    "hudi_hudi-v8-table": Shape("name"),
    "hudi_hudi-v8-table-cow": Shape("name"),
    "hudi_hudi-v9-table": Shape("name"),
    "hudi_hudi-v9-table-complex-keygen": Shape("name"),
    "hudi_multi_pt_v8_mor": Shape("price"),
    "hudi_non_extractable_partition_path": Shape("name"),
    "hudi_timestamp_keygen_pt_epoch_to_yyyy_mm_dd_hh_v8_mor": Shape("name"),
    "hudi_trips_logical_types_json_cow_read_v6": TRIPS,
    "hudi_trips_logical_types_json_cow_write": TRIPS,
    "hudi_trips_logical_types_json_mor_read_v6": TRIPS,
    "hudi_trips_logical_types_json_mor_read_v8_parquet_log": TRIPS,
    "hudi_v6_composite_key": Shape("price"),
    "hudi_vector_cow": Shape("name"),
    "ms_in_us_whole_seconds": TRIPS,
    "rs_cow_v6_timebasedkeygen_nonhivestyle": Shape(
        "name", conf={"hoodie.keygen.timebased.timestamp.type": "DATE_STRING"}
    ),
    "rs_cow_v9_timebasedkeygen_epochmillis": PAYMENTS,
    "rs_cow_v9_timebasedkeygen_unixtimestamp": PAYMENTS,
    "rs_mor_v8_trips_8i3u1d": Shape("rider", "uuid"),
    "rs_mor_v9_mor_8i4u_commit_time": Shape("name"),
    "rs_mor_v9_mor_nonpart_3commits": Shape("name"),
}
REFUSED = {
    "hudi_bootstrap_data": "bootstrapped table",
    "hudi_hudi-v5-table": "upgrade it with a Hudi before 1.0",
    "hudi_stock_ticks_mor__2": "upgrade it with a Hudi before 1.0",
    "rs_cow_v9_lance_nonpartitioned": "LANCE base files",
}


@dataclass
class PublicCase:
    """The table's folder, a job on it, and the rows that it must hold: by partition path and record key."""

    name: str
    shape: Shape
    case: StreamCase
    rows: dict[tuple[str, str], Row]

    @staticmethod
    def of(name: str, folder: Path, spark: SparkSession) -> PublicCase:
        """The table as it was published; the rows by this project's reader."""
        shape = SHAPES[name]
        place = unpack(name, folder)
        conf = {"tagstream.decode.bytes": "iso-8859-1", **shape.conf}
        conf |= {"index.global.enabled": "false"} if shape.by_partition else {}
        case = StreamCase(folder / "job", spark, conf=conf, existing=place)
        return PublicCase(name, shape, case, rows_of(place))

    @property
    def table(self) -> HoodieTable:
        """The table as it is now."""
        return HoodieTable.open(str(self.case.table))

    def stream(self) -> tuple[int, int, int, int]:
        """Five events in one batch: two updates, an insert, an update of it, a delete of its keys alone. Returns what the
        batch counted: updates, inserts, deletes, late ones."""
        events, self.rows = self._events()
        self.case.source.mkdir(parents=True, exist_ok=True)
        ev.write_event_file(self.case.source, 0, "".join(json.dumps(e) + "\n" for e in events), modified=1_700_000_000)
        (report,) = self.case.run()
        return report.updates, report.inserts, report.deletes, report.late

    def written(self) -> list[tuple[str, str]]:
        """Partition path and record key of the rows that the stream has changed and added, and that are there."""
        changed = self.shape.changed
        return [
            at
            for at, row in sorted(self.rows.items())
            if str(row[changed]).startswith("changed") or row[changed] in (1.0, 2.0, 3.0)
        ]

    def change(self, place: tuple[str, str]) -> str | float:
        """Expect another value and a greater order in a row; returns the value."""
        self.rows[place] = self._newer(
            self.rows[place], 7, read_snapshot(self.table, columns=[self.shape.changed]).schema
        )
        value: str | float = self.rows[place][self.shape.changed]
        return value

    def _events(self) -> tuple[list[Row], dict[tuple[str, str], Row]]:
        config, changed = self.table.config, self.shape.changed
        schema = read_snapshot(self.table, columns=[changed]).schema
        rows = dict(self.rows)
        keys = [key for _, key in rows]
        once = [at for at in sorted(rows) if keys.count(at[1]) == 1 and rows[at][changed] is not None]
        first, last = once[0], once[-1]
        events = []
        for place, number in ((first, 1), (last, 2)) if first != last else ((first, 1), (first, 2)):
            rows[place] = self._newer(rows[place], number, schema)
            events.append(rows[place])
        fresh = self._newer(rows[first], 1, schema) | {self.shape.key: _other_key(rows[first][self.shape.key])}
        key = self._key_of(fresh, first[1])
        for number in (2, 3):
            fresh = self._newer(fresh, number, schema)
            events.append(fresh)
        rows[first[0], key] = fresh | {RECORD_KEY: key}
        gone = rows.pop(last) if first != last else {}
        fields = (*config.record_key_fields, *config.partition_fields, *config.ordering_fields)
        delete = {name: gone[name] for name in fields} | {"_hoodie_is_deleted": True}
        events.append(delete if gone else events[-1])
        return [_json({k: v for k, v in e.items() if k not in (RECORD_KEY, PARTITION_PATH)}) for e in events], rows

    def _newer(self, row: Row, number: int, schema: pa.Schema) -> Row:
        changed = self.shape.changed
        value = float(number) if pa.types.is_floating(schema.field(changed).type) else f"changed {number}"
        order = {name: _next(row[name]) for name in self.table.config.deciding_fields}
        return row | {changed: value} | order

    def _key_of(self, row: Row, like: str) -> str:
        fields = self.table.config.record_key_fields
        named = len(fields) > 1 or like.startswith(f"{fields[0]}:")
        return ",".join(f"{name}:{row[name]}" for name in fields) if named else str(row[fields[0]])

    def check(self) -> None:
        """The rows are exactly the expected ones."""
        found, wanted = rows_of(self.case.table), self.rows
        wrong = {
            k: (found.get(k), wanted.get(k)) for k in found.keys() | wanted.keys() if found.get(k) != wanted.get(k)
        }
        assert wrong == {}, self.name


def rows_of(place: Path | str) -> dict[tuple[str, str], Row]:
    """The live rows by partition path and record key, without those whose key is there twice in a partition."""
    rows = read_snapshot(HoodieTable.open(str(place)))
    rows = rows.drop_columns([name for name in META if name in rows.column_names])
    found = [((r[PARTITION_PATH], r[RECORD_KEY]), r) for r in rows.to_pylist(maps_as_pydicts="strict")]
    times = Counter(at for at, _ in found)
    return {at: row for at, row in found if times[at] == 1}


def _next(value: Any) -> Any:
    return value + 1 if not isinstance(value, str) else value + "1"


def _other_key(value: Any) -> Any:
    return f"{value}-new" if isinstance(value, str) else value + 1_000_000


def _json(value: Any) -> Any:
    """A value as a record in JSON has it."""
    if isinstance(value, Mapping):
        return {k: _json(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_json(v) for v in value]
    if isinstance(value, bytes):
        return value.decode("iso-8859-1")
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, dt.date) else value
