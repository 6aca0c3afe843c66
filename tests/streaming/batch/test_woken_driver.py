"""Spark's state files as a driver leaves them that stood still in a batch, was succeeded, and woke up afterwards."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.job import sink
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
# Partitions that no batch had before, so that the two runs of a batch make file groups of their own; and no deletes, of
# which a load of the index forgets some.
MIX = ev.Mix(keys=2000, partitions=300, deletes=0.0, late_deletes=0.0, deletes_without_partition=0.0)


class Died(Exception):
    """Stands for the first driver's standing still with its tag stage behind it."""


class TwoRuns:
    """Batch 1 was run twice: by a driver whose state files are kept in ``kept``, and by the one that committed it."""

    def __init__(self, folder: Path, spark: SparkSession, table_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.case = StreamCase(folder, spark, table_type)
        self.events = list(ev.generate(400, MIX, seed=61))
        self.kept = folder / "kept"
        ev.write_files(self.events[:100], self.case.source, 100)
        assert len(self.case.run()) == 1
        ev.write_files(self.events[100:200], self.case.source, 100, first=1)

        def die(*_: object, **__: object) -> list[str]:
            raise Died

        with monkeypatch.context() as patch:
            patch.setattr(sink.protocol, "announce_files", die)
            with pytest.raises(Died):
                self.case.run()
        self.versions = sorted((self.case.checkpoint / "state" / "0").glob("[0-9]*/2.*"))
        assert self.versions
        for path in self.versions:
            target = self.kept / path.relative_to(self.case.checkpoint)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
            checksum = path.with_name(f".{path.name}.crc")
            if checksum.exists():
                shutil.copy2(checksum, target.with_name(checksum.name))

    def wake(self) -> None:
        """Put the first run's files over the second's, as Spark's rename does."""
        before = {path: path.read_bytes() for path in self.versions}
        shutil.copytree(self.kept, self.case.checkpoint, dirs_exist_ok=True)
        assert any(path.read_bytes() != data for path, data in before.items())

    def is_right(self, events: list[ev.Event]) -> None:
        rows = ev.rows(ev.oracle(events).values())
        assert not (wrong := compare(rows, read_table(self.case.table, meta_columns=False), ["id"])), wrong
        assert validate(HoodieTable.open(str(self.case.table))) == []


@pytest.mark.extended("killed or paused processes")
@pytest.mark.parametrize("table_type", TYPES)
def test_its_state_is_refused_and_the_index_loaded_anew(
    tmp_path: Path,
    spark: SparkSession,
    table_type: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    two = TwoRuns(tmp_path, spark, table_type, monkeypatch)
    assert len(two.case.run()) == 1
    two.wake()
    again = [ev.Event(e.key, e.partition, (e.ordering or 0) + 10_000, name="again") for e in two.events[100:200]]
    ev.write_files(again, two.case.source, 100, first=2)
    with caplog.at_level(logging.WARNING):
        assert [r.batch_id for r in two.case.run()] == [2]
    two.is_right([*two.events[:200], *again])
    assert "overwrote" in caplog.text
    assert (two.case.checkpoint / "tagstream" / "index" / "gen-1" / "complete.json").exists()
    ev.write_files(two.events[200:], two.case.source, 100, first=3)
    assert len(two.case.run()) == 2
    two.is_right([*two.events[:200], *again, *two.events[200:]])


@pytest.mark.extended("longer random histories")
def test_its_state_under_a_batch_that_is_replayed(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = TwoRuns(tmp_path, spark, "MERGE_ON_READ", monkeypatch)
    ev.write_files(two.events[200:300], two.case.source, 100, first=2)
    assert len(two.case.run()) == 2
    for name in ("2", ".2.crc"):  # Spark does not know that batch 2 is done
        (two.case.checkpoint / "commits" / name).unlink()
    two.wake()
    ev.write_files(two.events[300:], two.case.source, 100, first=3)
    assert [(r.batch_id, r.replayed) for r in two.case.run()] == [(2, True), (3, False)]
    two.is_right(two.events)


@pytest.mark.extended("the same decisions over another real stream")
def test_what_the_driver_tells_the_tag_step(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark, conf={"index.key.groups": "3"})
    events = list(ev.generate(150, MIX, seed=63))
    ev.write_files(events, case.source, 50)
    case.run()
    profiles = [json.loads(p.read_text()) for p in sorted((case.checkpoint / "tagstream" / "profiles").iterdir())]
    assert [(len(p["chains"]), p["chains_whole"]) for p in profiles] == [(0, True), (3, True), (3, True)]
