"""Streams from a Hudi table (HoodieIncrSource): its snapshot, its commits, deletes and moves, in each kind of table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.batch.report import BatchReport
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
