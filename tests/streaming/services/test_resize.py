"""A stream that resizes its buckets, and one that continues a table that real Hudi has resized."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tests.behaviours.test_index_streams import PER_FILE, mixed_events
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support import rings
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.table.buckets.case import hudis_rows, hudis_table

pytestmark = pytest.mark.spark
RINGS = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": "2",
}
RESIZES = {
    "hoodie.bucket.index.max.num.buckets": "6",
    "hoodie.bucket.index.split.threshold": "0.000001",
    "hoodie.clustering.plan.strategy.class": "SparkConsistentBucketClusteringPlanStrategy",
}


@pytest.mark.extended("more kinds of tables", first=("9-inline",))
@pytest.mark.parametrize("mode", ["inline", "async"])
@pytest.mark.parametrize("version", ["6", "9"])
def test_a_stream_splits_its_buckets(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture, version: str, mode: str
) -> None:
    events = mixed_events(is_global=False)
    clustering = {
        "hoodie.clustering.inline" if mode == "inline" else "hoodie.clustering.async.enabled": "true",
        f"hoodie.clustering.{mode}.max.commits": "1",
    }
    conf = {**RINGS, **RESIZES, **clustering, "hoodie.write.table.version": version}
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", conf)
    done = 0
    for files in (2, len(events) // PER_FILE):  # a start in between
        ev.write_files(events[done * PER_FILE : files * PER_FILE], case.source, PER_FILE, first=done)
        done = files
        case.run()
        expected = ev.rows(ev.oracle(events[: done * PER_FILE], global_index=False).values())
        assert not compare(expected, read_table(case.table), key=("id", "part"))
        count, wrong = rings.misplaced(case.table)
        assert count >= expected.num_rows and not wrong
    found = rings.rings(case.table).values()
    if mode == "inline":
        assert max(len(ring.nodes) for ring in found) == 6 and min(ring.seq_no for ring in found) >= 1
    else:  # each batch has rows for all buckets, so each plan gives way
        assert "was rolled back: a batch has rows for its file groups" in caplog.text
    assert validate(HoodieTable.open(str(case.table))) == []


def test_a_table_of_hudi_is_continued_after_a_resize(tmp_path: Path, spark: SparkSession) -> None:
    table = hudis_table(tmp_path)
    case = StreamCase(
        tmp_path, spark, conf={**RINGS, "hoodie.bucket.index.num.buckets": "3"}, existing=Path(table.base_path)
    )
    rows = {(row["part"], row["id"]): row for row in hudis_rows()}
    for number in range(3):
        changed = [
            {"id": f"k{n}", "ver": 10 + number, "name": f"ours {number}", "part": f"p{n % 2 if n < 120 else 2}"}
            for n in range(number, 140, 3)
        ]
        case.source.mkdir(exist_ok=True)
        (case.source / f"{number}.json").write_text("".join(json.dumps(each) + "\n" for each in changed))
        rows |= {(str(each["part"]), str(each["id"])): each for each in changed}
    assert len(case.run()) >= 1
    found = read_snapshot(HoodieTable.open(str(case.table)), columns=["id", "ver", "name", "part"]).to_pylist()
    by_place = lambda row: (row["part"], row["id"])  # noqa: E731
    assert sorted(found, key=by_place) == sorted(rows.values(), key=by_place)
    count, wrong = rings.misplaced(case.table)
    assert count > len(rows) and not wrong
    after = rings.rings(case.table)
    assert {partition: (ring.seq_no, len(ring.nodes)) for partition, ring in after.items()} == {
        "p0": (1, 8), "p1": (1, 8), "p2": (0, 3),
    }  # fmt: skip
    assert validate(HoodieTable.open(str(case.table))) == []
