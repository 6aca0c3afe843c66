"""A table that real Hudi wrote, continued by the stream: an update, a move and an insert, and what it must hold then."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.hudi_rs import keys_found_twice
from tests.table.reference import BY_PARTITION, NAMES, unpack

# Keys that are in two partitions are for an index by partition (tests/index/test_record_index.py).
CONTINUED = sorted({*NAMES} - BY_PARTITION)
# Between a compaction's plan and its commit hudi-rs does not see the deltas behind the plan.
NOT_BY_HUDI_RS = ("mor_v6_compaction_pending",)
KEY, PATH = "_hoodie_record_key", "_hoodie_partition_path"
_KINDS = str | int | float | bool


@dataclass(frozen=True)
class Continued:
    """The table's folder and the rows it must hold: key, partition path, and the columns that JSON has types for."""

    name: str
    table: Path
    expected: pa.Table

    def check(self, found: pa.Table, who: str) -> None:
        """The rows found are exactly the expected ones."""
        assert keys_found_twice(found).num_rows == 0, who
        columns = self.expected.column_names
        rows = {row[KEY]: row for row in found.select(columns).cast(self.expected.schema).to_pylist()}
        wanted = {row[KEY]: row for row in self.expected.to_pylist()}
        wrong = {k: (rows.get(k), wanted.get(k)) for k in rows.keys() | wanted.keys() if rows.get(k) != wanted.get(k)}
        assert wrong == {}, who


def send(case: StreamCase, rows: list[dict[str, Any]], number: int = 0) -> None:
    """Put rows into the case's source."""
    case.source.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    ev.write_event_file(case.source, number, text, modified=1_700_000_000 + number)


def continue_table(name: str, folder: Path, spark: SparkSession) -> Continued:
    """Stream one batch into the table on a new checkpoint."""
    bucketed = "bucket" in name
    conf = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "4"} if bucketed else {}
    case = StreamCase(folder / "job", spark, conf=conf, existing=unpack(name, folder))
    table = HoodieTable.open(str(case.table))
    config = table.config
    before = read_snapshot(table)
    kept = [KEY, PATH, *(f.name for f in before.schema if not f.name.startswith("_hoodie_") and _has_json(f.type))]
    rows = {row[KEY]: row for row in before.select(kept).to_pylist()}
    (order,) = config.ordering_fields
    keys = sorted(rows)
    updated = rows[keys[0]] | {order: rows[keys[0]][order] + 1}
    changed = [updated]
    elsewhere = [row for row in rows.values() if row[PATH] != rows[keys[-1]][PATH]]
    if elsewhere and not bucketed:  # whose index is not global: a row in another partition is another row
        to = {name: elsewhere[0][name] for name in (*config.partition_fields, PATH)}
        changed.append(rows[keys[-1]] | to | {order: rows[keys[-1]][order] + 1})
    new = dict.fromkeys(config.record_key_fields, "new") | ({"seq": 7} if "seq" in config.record_key_fields else {})
    key = ",".join(f"{k}:{v}" for k, v in new.items()) if len(new) > 1 else "new"
    changed.append(updated | new | {KEY: key})
    send(case, [{k: v for k, v in row.items() if k not in (KEY, PATH) and v is not None} for row in changed])
    (report,) = case.run()
    if bucketed:  # whether a key's bucket holds it already is not known
        assert (report.updates + report.inserts, report.moves, report.late) == (2, 0, 0)
    else:
        assert (report.updates, report.moves, report.inserts, report.late) == (1, len(changed) - 2, 1, 0)
    wanted = [*(rows | {row[KEY]: row for row in changed}).values()]
    return Continued(name, case.table, pa.Table.from_pylist(wanted, schema=before.select(kept).schema))


def _has_json(kind: pa.DataType) -> bool:
    return (
        pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )
