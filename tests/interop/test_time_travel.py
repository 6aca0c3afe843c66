"""Real Hudi reads a streamed table as of past commits, and what came between two of them, while the table's services run."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.instant import CLEAN, COMMIT, Instant
from tests.interop.hudi_spark import HudiSpark
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import keys_found_twice

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]
PER_BATCH, BATCHES = 60, 14
ASKED = 6  # batches at the end that are asked for
RETAINED = 10  # commits: those batches, and the compactions between them
MIX = ev.Mix(keys=90, deletes=0.08)
SERVICES = {
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "2",
    "hoodie.clean.commits.retained": str(RETAINED),
    "hoodie.keep.min.commits": str(RETAINED + 2),
    "hoodie.keep.max.commits": str(RETAINED + 3),
    "hoodie.parquet.small.file.limit": "1000000",
}
# Before the first compaction of the range, across several, and up to now.
RANGES = [
    (BATCHES - 6, BATCHES - 5),
    (BATCHES - 6, BATCHES - 2),
    (BATCHES - 4, BATCHES - 1),
    (BATCHES - 2, BATCHES - 1),
]


class Streamed:
    """A table of one commit a file, and what it held after each."""

    def __init__(self, folder: Path, spark: SparkSession, table_type: str) -> None:
        events = list(ev.generate(BATCHES * PER_BATCH, MIX, seed=83))
        self.chunks = [events[n : n + PER_BATCH] for n in range(0, len(events), PER_BATCH)]
        case = StreamCase(folder, spark, table_type, conf=SERVICES)
        self.path = case.table
        self.at: list[str] = []
        for number, chunk in enumerate(self.chunks):
            ev.write_files(chunk, case.source, PER_BATCH, first=number)
            (report,) = case.run()
            self.at.append(report.instant)
        self.timeline = HoodieTable.open(str(case.table)).timeline()

    def seen_at(self, batch: int) -> str:
        """A time at which the batch was the newest write: from table version 8 on Hudi asks for completion times."""
        found = self.timeline.find(self.at[batch])
        assert found is not None
        return found.completion_time or found.time

    def rows(self, batch: int) -> pa.Table:
        """The oracle's rows after a batch."""
        return ev.rows(self._live(batch).values())

    def changed(self, after: int, last: int) -> pa.Table:
        """Of the rows after batch ``last``, those that a batch later than ``after`` wrote."""
        new = {id(event) for chunk in self.chunks[after + 1 : last + 1] for event in chunk}
        return ev.rows([event for event in self._live(last).values() if id(event) in new])

    def _live(self, batch: int) -> dict[object, ev.Event]:
        return ev.oracle([event for chunk in self.chunks[: batch + 1] for event in chunk])


def done(instants: tuple[Instant, ...], action: str) -> int:
    return sum(i.action == action and i.is_completed for i in instants)


def check(found: pa.Table, expected: pa.Table, what: str) -> None:
    assert keys_found_twice(found, "id").num_rows == 0, what
    wrong = compare(expected, found, ["id"])
    assert not wrong, f"{what}: {wrong}"


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_past_states_and_increments(table_type: str, hudi: HudiSpark, spark: SparkSession, tmp_path: Path) -> None:
    streamed = Streamed(tmp_path / "stream", spark, table_type)
    instants = streamed.timeline.instants
    assert done(instants, CLEAN) > 0
    assert table_type == "COPY_ON_WRITE" or done(instants, COMMIT) > 0  # compactions
    for batch in range(BATCHES - ASKED, BATCHES):
        found = hudi.read(streamed.path, **{"as.of.instant": streamed.seen_at(batch)})
        check(found, streamed.rows(batch), f"Hudi {hudi.version} as of batch {batch}")
    for after, last in RANGES:
        found = hudi.read(
            streamed.path,
            **{
                "hoodie.datasource.query.type": "incremental",
                "hoodie.datasource.read.begin.instanttime": streamed.seen_at(after),
                "hoodie.datasource.read.end.instanttime": streamed.seen_at(last),
            },
        )
        expected = streamed.changed(after, last)
        assert 0 < expected.num_rows < streamed.rows(last).num_rows
        check(found, expected, f"Hudi {hudi.version}, batches {after + 1} to {last}")
