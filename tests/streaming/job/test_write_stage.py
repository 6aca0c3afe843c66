"""Small batches are written by the driver, others by Spark's tasks; the rows are the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.job import write_stage as module
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
SIZES = (50, 40, module.FEW_RECORDS + 1, 30, 20)
BAD = '{"id": 7, "part"\n'


@pytest.mark.extended("the other table type", first=("MERGE_ON_READ",))
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_batches_of_different_sizes(
    table_type: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch after a small one is looked at before it is written: it may be large."""
    by_driver: list[int] = []

    def noted(spec: Any, packed: Sequence[bytes], *more: Any) -> list[tuple[str, str]]:
        by_driver.append(spec.batch_id)
        assert all(len(value) < 1_000 for value in packed), "only places come to the driver"
        return write_packed(spec, packed, *more)

    write_packed = module.write_packed
    monkeypatch.setattr(module, "write_packed", noted)
    conf = {"hoodie.datasource.write.partitionpath.field": "", "tagstream.inserts.to.base.files": "first"}
    case = StreamCase(tmp_path, spark, table_type, conf)
    events = list(ev.generate(sum(SIZES), ev.Mix(keys=60), seed=4))
    starts = [sum(SIZES[:n]) for n in range(len(SIZES))]
    for number, (start, size) in enumerate(zip(starts, SIZES, strict=True)):
        ev.write_files(events[start : start + size], case.source, size, first=number)
    with (case.source / sorted(p.name for p in case.source.iterdir())[-1]).open("a") as last:
        last.write(BAD)
    reports = case.run("--commit-on-errors")
    assert [r.records for r in reports] == [*SIZES[:-1], SIZES[-1] + 1]
    assert [r.quarantined for r in reports] == [0, 0, 0, 0, 1]
    assert by_driver == [1, 4], "the first has none before it; 2 was tagged first, and was large; 3 follows a large one"
    expected = ev.rows(ev.oracle(events).values())
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), ["id"])), wrong
    assert validate(HoodieTable.open(str(case.table))) == []
