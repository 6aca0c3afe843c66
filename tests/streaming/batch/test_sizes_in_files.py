"""A stream over more partitions than a profile holds: tasks fill the file groups that they find in the profile's files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.batch import small_files as pinned_sizes
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
PARTITIONS = 9


def inserts(batch: int, partitions: range) -> list[ev.Event]:
    return [ev.Event(f"{p}-{batch}-{n}", f"p{p}", batch, name="x", amount=1.0) for p in partitions for n in range(3)]


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("index", ["FLINK_STATE", "BLOOM"])
def test_inserts_go_to_the_groups_that_are_there(
    index: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinned_sizes, "_IN_PROFILE", 4)
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", {"hoodie.index.type": index})
    batches = [range(PARTITIONS), range(4), range(2, 7), range(1), range(5, PARTITIONS)]
    events = [inserts(number, partitions) for number, partitions in enumerate(batches)]
    for number, some in enumerate(events):
        ev.write_files(some, case.source, len(some), first=number)
        if number in (2, 4):  # two runs, the first one of three batches
            case.run()
    wanted = ev.rows(ev.oracle([event for some in events for event in some]).values())
    assert not (wrong := compare(wanted, read_table(case.table, meta_columns=False), ["id"])), wrong
    view = HoodieTable.open(str(case.table)).view()
    first = {p: {s.file_id for s in view.latest_merged_slices(p)} for p in view.partitions()}
    assert {p: len(groups) for p, groups in first.items()} == {f"p{p}": 1 for p in range(PARTITIONS)}
    names = [path.name for path in case.root.rglob("sizes.*")]
    assert {name.split(".")[2] for name in names} == {"1", "2"}, names
