"""Streams from a Hudi table (HoodieIncrSource): its snapshot, its commits, deletes and moves, in each kind of table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.batch.report import BatchReport
from tagstream.streaming.job.main import main
from tests.drills.chain_program import run as run_totals
from tests.streaming.stream_case import UNSET, StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
CLASS = "org.apache.hudi.utilities.sources.HoodieIncrSource"
NO_SCHEMA = {"hoodie.streamer.schemaprovider.source.schema.file": UNSET}
KINDS = [(kind, version) for kind in ("COPY_ON_WRITE", "MERGE_ON_READ") for version in ("6", "8", "9")]


@dataclass
class Chain:
    """A stream of JSON lines to table A, and one from A to B."""

    first: StreamCase
    second: StreamCase

    def write(self, events: list[ev.Event], number: int) -> None:
        """One file, which is one commit of A."""
        self.first.source.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{json.dumps(event.row())}\n" for event in events)
        (self.first.source / f"f{number:04d}.json").write_text(lines)

    def run(self, *more: str) -> list[BatchReport]:
        """Both streams to their ends; the reports of the second."""
        self.first.run()
        return self.second.run("--source-limit", "1000000000", *more)

    def check(self, events: list[ev.Event]) -> None:
        wanted = ev.rows(ev.oracle(events).values())
        for case in (self.first, self.second):
            wrong = compare(wanted, read_table(case.table, meta_columns=False), ["id"])
            assert not wrong, (case.table, wrong)


def chain_of(folder: Path, spark: SparkSession, kind: str, version: str = "6", **conf: str) -> Chain:
    given = {key.replace("_", "."): value for key, value in conf.items()}
    first = StreamCase(folder / "a", spark, kind, {"hoodie.write.table.version": version})
    path = {"hoodie.streamer.source.hoodieincr.path": str(first.table)}
    second = StreamCase(folder / "b", spark, kind, {**NO_SCHEMA, **path, **given}, source_class=CLASS)
    return Chain(first, second)


@pytest.mark.extended("more kinds of tables", first=("COPY_ON_WRITE-6", "MERGE_ON_READ-9"))
@pytest.mark.parametrize(("kind", "version"), KINDS)
def test_a_table_follows_another(tmp_path: Path, spark: SparkSession, kind: str, version: str) -> None:
    events = [e for e in ev.generate(900, ev.Mix(keys=120), seed=3) if not e.is_tombstone]
    chain = chain_of(tmp_path, spark, kind, version)
    for number, begin in enumerate(range(0, 900, 150)):
        chain.write(events[begin : begin + 150], number)
        if number in (1, 4):
            chain.run()
            chain.check(events[: begin + 150])
    chain.run()
    chain.check(events)
    assert chain.run() == []


def sums(events: list[ev.Event]) -> dict[str, tuple[int, int]]:
    """Four times the sum of ``amount``, and the number of rows, by partition."""
    found: dict[str, tuple[int, int]] = {}
    for row in ev.rows(ev.oracle(events).values()).to_pylist():
        total, count = found.get(row["part"], (0, 0))
        found[row["part"]] = (total + int(4 * (row["amount"] or 0)), count + 1)
    return found


@pytest.mark.extended("three streams, each with several starts")
def test_three_tables(tmp_path: Path, spark: SparkSession) -> None:
    """JSON to A, a user's sums of A per group to B, B with another key and without a group to C."""
    events = [e for e in ev.generate(600, ev.Mix(keys=60), seed=8) if not e.is_tombstone]
    chain = chain_of(tmp_path, spark, "MERGE_ON_READ", "8")
    totals = tmp_path / "totals"
    conf = {
        "hoodie.streamer.source.hoodieincr.path": str(totals / "table"),
        "hoodie.datasource.write.recordkey.field": "total_of",
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.table.ordering.fields": "version",
        "hoodie.streamer.transformer.sql": "SELECT concat('t', grp) total_of, total, rows, version "
        "FROM <SRC> WHERE rows > 3",
        "hoodie.streamer.transformer.class": "SqlQueryBasedTransformer",
    }
    last = StreamCase(tmp_path / "c", spark, "COPY_ON_WRITE", NO_SCHEMA | conf, source_class=CLASS)
    for number, begin in enumerate(range(0, 600, 200)):
        chain.write(events[begin : begin + 200], number)
        chain.first.run()
        run_totals(
            spark, chain.first.table, totals, {"--table-type": "COPY_ON_WRITE", "spark.sql.shuffle.partitions": "2"}
        )
        last.run("--source-limit", "1000000000")
        wanted = sums(events[: begin + 200])
        b = read_table(totals / "table", meta_columns=False).to_pylist()
        assert {row["grp"]: (row["total"], row["rows"]) for row in b} == wanted
        c = read_table(last.table, meta_columns=False).to_pylist()
        assert {row["total_of"]: (row["total"], row["rows"]) for row in c} == {
            f"t{group}": found for group, found in wanted.items() if found[1] > 3
        }


@pytest.mark.extended("the same decisions over another real stream")
def test_a_target_with_another_place_for_its_rows(tmp_path: Path, spark: SparkSession) -> None:
    """Partitions by a column that changes, an index that is not global, and no ordering field: the source's order counts."""
    chain = chain_of(tmp_path, spark, "COPY_ON_WRITE", "6", hoodie_index_type="BLOOM")
    chain.second.conf = {
        **chain.second.conf,
        "hoodie.datasource.write.partitionpath.field": "name",
        "hoodie.table.ordering.fields": UNSET,
    }
    first = [ev.Event(f"k{n}", "p", 1, name="x") for n in range(4)]
    chain.write(first, 0)
    chain.run()
    second = [
        ev.Event("k0", "p", 2, name="y"),
        ev.Event("k1", "p", 2, deleted=True, name="x"),
        ev.Event("k2", "q", 2, name="x"),
    ]
    chain.write(second, 1)
    chain.write([ev.Event("k2", "q", 3, name="z"), ev.Event("k3", "p", 3, deleted=True, name="x")], 2)
    (report,) = chain.run()
    chain.check([*first, *second, ev.Event("k2", "q", 3, name="z"), ev.Event("k3", "p", 3, deleted=True)])
    assert report.records > 5, "an update that moves a row is also a delete of the row before it"


def test_a_dry_run_and_a_source_that_does_not_exist(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = chain_of(tmp_path, spark, "COPY_ON_WRITE")
    assert main(chain.second.arguments("--dry-run")) != 0
    assert "does not exist" in capsys.readouterr().err
    chain.write([ev.Event("k0", "p", 1, name="x")], 0)
    chain.first.run()
    chain.second.conf = {**chain.second.conf, "hoodie.table.ordering.fields": "amount"}
    assert main(chain.second.arguments("--dry-run")) == 0
    said = capsys.readouterr()
    assert "orders its rows by amount" in said.out + said.err
    assert not chain.second.table.exists()


@pytest.mark.extended("the same decisions over another real stream")
def test_a_column_that_the_source_table_gets(tmp_path: Path, spark: SparkSession) -> None:
    chain = chain_of(tmp_path, spark, "MERGE_ON_READ", "9")
    chain.write([ev.Event("k0", "p", 1, name="x")], 0)
    chain.run()
    fields = [*ev.AVRO_SCHEMA["fields"], {"name": "note", "type": ["null", "string"], "default": None}]
    chain.first.schema = {**ev.AVRO_SCHEMA, "fields": fields}
    row = {**ev.Event("k1", "p", 2, name="y").row(), "note": "new"}
    (chain.first.source / "f0001.json").write_text(json.dumps(row) + "\n")
    chain.run()
    rows = read_table(chain.second.table, meta_columns=False).to_pylist()
    assert sorted((row["id"], row["note"]) for row in rows) == [("k0", None), ("k1", "new")]
