"""SIGKILL of `tagstream table upgrade` and `downgrade` at each of their changes: readers and the stream never notice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.upgrade_layouts import leftovers
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.cli.killed import killed_at
from tests.drills.conftest import NewDrill
from tests.drills.report import Drill
from tests.drills.stream_job import Outcome
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.support.table_version import using

PER_BATCH, BEFORE = 80, 9
EVENTS = list(ev.generate(100 * PER_BATCH, ev.Mix(keys=150), seed=41))
STREAM_AT_EACH = 9  # kills, between which a batch of the stream is committed
CONF = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "6",
    "hoodie.clean.commits.retained": "2",
    "compaction.delta_commits": "4",
    "tagstream.inserts.to.base.files": "true",  # hudi-rs does not look for times of archived logs without a base file
}


class Changed:
    """A stream, its table, and how many of the events it has taken."""

    def __init__(self, folder: Path, spark: SparkSession, table_type: str, version: int) -> None:
        self.case, self.folder = StreamCase(folder, spark, table_type, conf=CONF), folder
        self.batches = 0
        with using(version):
            self.stream(BEFORE)

    def stream(self, batches: int = 1) -> None:
        """So many more batches."""
        first = self.batches
        self.batches += batches
        more = EVENTS[first * PER_BATCH : self.batches * PER_BATCH]
        ev.write_files(more, self.case.source, PER_BATCH, first=first)
        assert len(self.case.run()) == batches

    def look(self, drill: Drill) -> int:
        """Hold the table against the events; its version."""
        wanted = ev.rows(ev.oracle(EVENTS[: self.batches * PER_BATCH]).values())
        rows = read_table(self.case.table, meta_columns=False)
        drill.count(Outcome(wanted.num_rows, rows.num_rows, compare(wanted, rows, ["id"])))
        table = HoodieTable.open(str(self.case.table))
        assert validate(table) == []
        assert validate_metadata(table) == []
        return table.config.version

    def change(self, drill: Drill, command: str, to: int) -> None:
        """Each attempt dies one change later than the one before, on what that one left, until one comes to its end."""
        versions = set()
        argv = ["table", command, "--target-base-path", self.case.table, "--to", to, "--yes"]
        for n in range(1, 1000):
            code = killed_at(n, argv, self.case.table, self.folder / f"faults-{to}-{n}")
            versions.add(self.look(drill))
            if code == 0:
                break
            assert code == -signal.SIGKILL
            drill.injected += 1
            if n % STREAM_AT_EACH == 0:
                self.stream()
                versions.add(self.look(drill))
        table = HoodieTable.open(str(self.case.table))
        assert table.config.version == to
        assert len(versions) == 2
        assert leftovers(table) == ()
        assert not table.timeline().pending


@pytest.mark.drill
@pytest.mark.matrix
@pytest.mark.spark
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_killed_at_each_change(table_type: str, new_drill: NewDrill, spark: SparkSession, tmp_path: Path) -> None:
    """Up, and down again; the stream goes on in between, on a half of a change too."""
    with new_drill("SIGKILL at each change of an upgrade", table_type, 40) as drill:
        changed = Changed(tmp_path, spark, table_type, 6)
        changed.change(drill, "upgrade", 9)
        changed.stream(2)
        changed.look(drill)
    with new_drill("SIGKILL at each change of a downgrade", table_type, 150) as drill:
        changed.change(drill, "downgrade", 6)
        changed.stream(2)
        changed.look(drill)
