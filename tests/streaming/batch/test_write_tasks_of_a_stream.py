"""The driver pins the lanes of the file groups that the batch before wrote to, and the tasks go by them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.batch.located import WriteTasks, shared_out
from tagstream.table.file_group.names import parse_base_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
# No deletes: an index in the table does not remember them, and late events of a deleted key bring its row back.
MIX = ev.Mix(keys=60, partitions=7, deletes=0.0, late_deletes=0.0, deletes_without_partition=0.0)


@pytest.mark.extended("more indexes", first=("STATE",))
@pytest.mark.parametrize("index", ["STATE", "GLOBAL_SIMPLE"])
def test_a_batch_goes_by_the_work_of_the_one_before(tmp_path: Path, spark: SparkSession, index: str) -> None:
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", conf={"hoodie.index.type": index})
    events = list(ev.generate(400, MIX, seed=64))
    ev.write_files(events, case.source, 100)
    assert len(case.run()) == 4
    assert not compare(ev.rows(ev.oracle(events).values()), read_table(case.table, meta_columns=False), ["id"])
    profiles = [json.loads(p.read_text()) for p in sorted((case.checkpoint / "tagstream" / "profiles").iterdir())]
    write_tasks = json.loads((case.checkpoint / "tagstream" / "meta.json").read_text())["shuffle_partitions"]
    table = HoodieTable.open(str(case.table))
    timeline = table.timeline()
    commits = [timeline.metadata(table.storage, instant) for instant in timeline.completed_writes]
    assert profiles[0]["write_lanes"] == {}
    followed = 0
    for before, profile, commit in zip(commits, profiles[1:], commits[1:], strict=False):
        pinned = profile["write_lanes"]
        work = {(s.partition_path, s.file_id): s.num_writes + s.num_deletes for s in before.all_stats()}
        assert pinned == shared_out(work, write_tasks)
        for stat in commit.all_stats():
            name = parse_base_file_name(stat.file_name)
            assert name is not None
            (wanted,) = (
                WriteTasks(write_tasks, pinned).of(pa.array([stat.partition_path]), pa.array([stat.file_id])).tolist()
            )
            assert int(name.write_token.split("-")[0]) == wanted
            followed += stat.file_id in pinned.get(stat.partition_path, {})
    assert followed > 3
    assert {write_task for files in profiles[-1]["write_lanes"].values() for write_task in files.values()} == set(
        range(write_tasks)
    )
