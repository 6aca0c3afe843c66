"""A stream whose source folder is cleaned: rows stay right, and what a batch still needs stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
PER_FILE = 30


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.is_file())


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("clean", ["delete", "archive"])
def test_files_go_when_their_batches_are_finished(tmp_path: Path, spark: SparkSession, clean: str) -> None:
    events = list(ev.generate(6 * PER_FILE, ev.Mix(keys=40, tombstones=0), seed=41))
    conf = {"tagstream.source.dfs.clean": clean}
    conf |= {"tagstream.source.dfs.archive.dir": str(tmp_path / "old")} if clean == "archive" else {}
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", conf)
    first = [p.name for p in ev.write_files(events[: 4 * PER_FILE], case.source, PER_FILE)]

    def fail(step: str, batch: int) -> None:
        if (step, batch) == ("files_written", 2):
            raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError, match="the disk is gone"):
        case.run(at=fail)
    assert names(case.source) == first, "nothing was finished when the folder was looked at"
    assert [r.batch_id for r in case.run()] == [2, 3]
    assert names(case.source) == first[2:], "those of the batches that were finished at the start"
    ev.write_files(events[4 * PER_FILE :], case.source, PER_FILE, first=4)
    assert len(case.run()) == 2
    assert len(names(case.source)) == 2
    assert case.run() == [] and names(case.source) == []
    if clean == "archive":
        assert len(names(tmp_path / "old")) == 6
        assert (tmp_path / "old" / first[0]).read_text().count("\n") == PER_FILE
    rows = ev.rows(ev.oracle(events).values())
    assert not compare(rows, read_table(case.table, meta_columns=False), ["id"])
