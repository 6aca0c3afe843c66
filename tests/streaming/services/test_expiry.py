"""A stream deletes partitions that are too old: their keys have no rows for the index, too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.cli.main import main as tagstream
from tests.streaming import stream_case
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
DAY_MS = 86_400_000
TTL = {"hoodie.partition.ttl.inline": "true", "hoodie.partition.ttl.strategy.days.retain": "10"}


def write(case: StreamCase, number: int, events: Sequence[ev.Event]) -> None:
    ev.write_files(events, case.source, len(events), first=number)


@pytest.mark.extended("the other table type", first=("MERGE_ON_READ",))
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_keys_of_an_expired_partition(
    table_type: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, now = StreamCase(tmp_path, spark, table_type, TTL), stream_case.now_ms
    old = [ev.Event(f"k{n}", "p0" if n < 20 else "p1", 1, name="old") for n in range(40)]
    newer = [ev.Event(f"k{n}", "p1", 2, name="newer") for n in range(30, 40)]
    monkeypatch.setattr(stream_case, "now_ms", lambda: now() - 15 * DAY_MS)
    write(case, 0, old)
    case.run()
    monkeypatch.setattr(stream_case, "now_ms", now)
    write(case, 1, newer)
    case.run()
    again = [ev.Event(f"k{n}", "p0", 3, name="again") for n in range(5)]
    late = [ev.Event(f"k{n}", "p0", 0, name="older than the rows that were deleted") for n in range(5, 8)]
    write(case, 2, [*again, *late])
    (report, *_) = case.run()
    assert (report.inserts, report.late) == (5, 3)
    wanted = ev.rows([*old[20:30], *newer, *again])
    assert not (wrong := compare(wanted, read_table(case.table, meta_columns=False), ["id"])), wrong
    at = ["--target-base-path", str(case.table), "--checkpoint-dir", str(case.checkpoint)]
    assert tagstream(["index", "verify", *at]) == 0
