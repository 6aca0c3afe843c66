"""Real Hudi writes into a streamed table, between two runs and in mid-run; the stream catches up and goes on right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.batch.report import BatchReport
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tests.interop.hudi_spark import HudiSpark
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import keys_found_twice, read_table

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
MIX = ev.Mix(keys=60, tombstones=0.0)
# What Spark reads from files is nullable, and Hudi 0.15 cannot merge its own nullable columns with a table's required ones.
NULLABLE = {
    **ev.AVRO_SCHEMA,
    "fields": [
        {**f, "type": f["type"] if isinstance(f["type"], list) else ["null", f["type"]], "default": None}
        for f in ev.AVRO_SCHEMA["fields"]
    ],
}


class Shared:
    """A table that the stream and Hudi write in turn; `told` is everything that both were told, in order."""

    def __init__(self, folder: Path, spark: SparkSession, hudi: HudiSpark, table_type: str) -> None:
        # Inserts in base files, so that Hudi finds the keys by its bloom index on either type.
        conf = {"tagstream.inserts.to.base.files": "true"} if table_type == "MERGE_ON_READ" else {}
        self.case = StreamCase(folder, spark, table_type, conf, NULLABLE)
        self.hudi = hudi
        self.events = list(ev.generate(700, MIX, seed=61))
        self.told: list[ev.Event] = []
        self._done = self._files = 0

    def stream(self, upto: int) -> list[BatchReport]:
        """Stream on to event `upto`."""
        done = self._done
        ev.write_files(self.events[done:upto], self.case.source, 100, first=self._files)
        self._files += -(-(upto - done) // 100)
        self.told += self.events[done:upto]
        self._done = upto
        return self.case.run()

    def live(self) -> list[ev.Event]:
        """Rows that the table should hold, by key."""
        return sorted(ev.oracle(self.told).values(), key=lambda e: e.key)

    @property
    def now(self) -> int:
        """An ordering value that no event told so far exceeds."""
        return max(e.ordering or 0 for e in self.told)

    def write(self, events: Sequence[ev.Event], operation: str = "upsert", **options: str) -> None:
        """Hudi writes the rows."""
        rows = pa.Table.from_pylist([e.row() for e in events], ev.ARROW_SCHEMA)
        settings = {
            "hoodie.index.type": "GLOBAL_BLOOM",
            "hoodie.bloom.index.update.partition.path": "true",
            "hoodie.metadata.enable": "false",
            **{k.replace("__", "."): v for k, v in options.items()},
        }
        self.hudi.write(HoodieTable.open(str(self.case.table)), rows, settings, operation)

    def check(self) -> None:
        """Our reader's table, hudi-rs's and Hudi's are the oracle's."""
        expected = ev.rows(self.live())
        for who, found in (
            ("hudi-rs", read_table(self.case.table)),
            (f"Hudi {self.hudi.version}", self.hudi.read(self.case.table)),
        ):
            assert keys_found_twice(found, "id").num_rows == 0, who
            wrong = compare(expected, found, ["id"])
            assert not wrong, f"{who}: {wrong}"
        assert validate(HoodieTable.open(str(self.case.table))) == []

    def catch_ups(self) -> int:
        """Catch-ups so far; the index was never loaded anew."""
        index = self.case.checkpoint / "tagstream" / "index"
        assert not (index / "gen-1").exists()
        return len(list(index.glob("gen-0/epoch-*/complete.json")))


@pytest.mark.parametrize("table_type", TYPES)
def test_everything_that_hudi_does_between_two_runs(
    hudi: HudiSpark, spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    shared = Shared(tmp_path, spark, hudi, table_type)
    shared.stream(200)
    rows, at = shared.live(), shared.now

    upserted = [ev.Event(e.key, e.partition, at, name="hudi", amount=1.5) for e in rows[:6]]
    upserted += [ev.Event(e.key, "p-hudi", at, name="moved", amount=2.5) for e in rows[6:12]]
    upserted += [ev.Event(f"hudi-{i}", "p-hudi", at, name="new", amount=0.5) for i in range(8)]
    shared.write(upserted)
    shared.told += upserted
    shared.stream(300)
    shared.check()
    assert shared.catch_ups() == 1

    deleted = [ev.Event(e.key, e.partition, e.ordering, deleted=True) for e in shared.live()[3:9]]
    shared.write([ev.Event(e.key, e.partition, shared.now, name="x", amount=0.0) for e in deleted], "delete")
    shared.told += deleted
    shared.stream(400)
    shared.check()
    assert shared.catch_ups() == 2

    rows, at = shared.live(), shared.now
    over = sorted({e.partition or "" for e in rows})[0]
    kept = [e for e in rows if e.partition == over][:2]
    new = [ev.Event(f"over-{i}", over, at, name="over", amount=1.0) for i in range(3)]
    shared.write([*kept, *new], "insert_overwrite")
    gone = [e for e in rows if e.partition == over and e not in kept]
    shared.told += [*new, *(ev.Event(e.key, e.partition, e.ordering, deleted=True) for e in gone)]
    shared.stream(500)
    shared.check()
    assert shared.catch_ups() == 3

    rows = shared.live()
    dropped = sorted({e.partition or "" for e in rows})[1]
    one = [e for e in rows if e.partition == dropped][:1]
    shared.write(one, "delete_partition", hoodie__datasource__write__partitions__to__delete=dropped)
    gone = [e for e in rows if e.partition == dropped]
    shared.told += [ev.Event(e.key, e.partition, e.ordering, deleted=True) for e in gone]
    shared.stream(600)
    shared.check()
    assert shared.catch_ups() == 4

    at = shared.now
    rewritten = [ev.Event(e.key, e.partition, at, name="clustered", amount=7.0) for e in shared.live()[:4]]
    inline = {"hoodie__clustering__inline": "true", "hoodie__clustering__inline__max__commits": "1"}
    if table_type == "MERGE_ON_READ":
        inline |= {"hoodie__compact__inline": "true", "hoodie__compact__inline__max__delta__commits": "1"}
    shared.write(rewritten, **inline)
    shared.told += rewritten
    shared.stream(700)
    shared.check()
    assert shared.catch_ups() == 5
    assert shared.case.run() == []


@pytest.mark.parametrize("table_type", TYPES)
def test_hudi_writes_in_mid_run(hudi: HudiSpark, spark: SparkSession, tmp_path: Path, table_type: str) -> None:
    shared = Shared(tmp_path, spark, hudi, table_type)
    foreign: list[ev.Event] = []

    def interfere(report: BatchReport) -> None:
        if report.batch_id == 1 and not foreign:
            rows = sorted(ev.oracle(shared.events[:200]).values(), key=lambda e: e.key)[:10]
            at = max(e.ordering or 0 for e in shared.events) + 1
            foreign.extend(ev.Event(e.key, "p-mid", at, name="mid", amount=3.0) for e in rows)
            shared.write(foreign)

    ev.write_files(shared.events[:400], shared.case.source, 100)
    reports = shared.case.run(on_batch=interfere)
    assert [r.batch_id for r in reports] == [0, 1, 2, 3]
    shared.told = [*shared.events[:200], *foreign, *shared.events[200:400]]
    shared.check()
    assert shared.catch_ups() == 1
