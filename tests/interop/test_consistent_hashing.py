"""Real Hudi and we write a table with consistent hashing, and resize its buckets, by turns.

After each step both readers have the oracle's rows, and every record is in its bucket by a check of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.clustering import cluster, rollback_clustering
from tagstream.table.services.clustering_options import ClusteringOptions, ResizeOptions
from tagstream.table.services.clustering_plan import schedule_clustering
from tests.interop.hudi_spark import HudiSpark
from tests.interop.turns import Turns
from tests.streaming.stream_case import StreamCase, now_ms
from tests.support import rings
from tests.support.table_version import table_version

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]

RINGS = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.bucket.index.max.num.buckets": "8",
    "hoodie.bucket.index.min.num.buckets": "1",
}
_CLUSTERING = "org.apache.hudi.client.clustering."
BY_HUDI = {
    "hoodie.clustering.plan.strategy.class": f"{_CLUSTERING}plan.strategy.SparkConsistentBucketClusteringPlanStrategy",
    "hoodie.clustering.execution.strategy.class": (
        f"{_CLUSTERING}run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
    ),
    "hoodie.clustering.inline.max.commits": "1",
    "hoodie.index.bloom.num_entries": "1000",
    "hoodie.embed.timeline.server": "false",
}
SPLIT = {"hoodie.bucket.index.split.threshold": "0.000001", "hoodie.bucket.index.merge.threshold": "0.0000001"}
MERGE = {"hoodie.bucket.index.split.threshold": "100", "hoodie.bucket.index.merge.threshold": "100"}


@dataclass
class RingTurns(Turns):
    """Turns on a table with rings. ``seen``: the number of nodes of each partition after each resize."""

    indexed: Mapping[str, str] = field(default_factory=lambda: {**RINGS, **BY_HUDI, "hoodie.metadata.enable": "false"})
    moves: bool = False

    def check(self, who: str) -> None:
        super().check(who)
        count, wrong = rings.misplaced(self.case.table)
        assert count >= len(self.live) and not wrong, f"after {who}"

    def table(self) -> HoodieTable:
        return HoodieTable.open(str(self.case.table))

    def hudi_resizes(self, thresholds: Mapping[str, str], operation: str = "scheduleAndExecute") -> None:
        keys = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.bucket.index.hash.field": "id"}
        settings = {**self.indexed, **keys, **thresholds}
        if not self.hudi.is_0x:
            settings |= {"hoodie.write.table.version": str(table_version()), "hoodie.write.auto.upgrade": "false"}
        told = ",".join(f"{key}={value}" for key, value in settings.items())
        path = str(self.case.table)
        self.hudi.sql(path, f"call run_clustering(op => '{operation}', path => '{path}', options => '{told}')")

    def we_plan(self, thresholds: Mapping[str, str]) -> str:
        split, merge = (float(thresholds[f"hoodie.bucket.index.{name}.threshold"]) for name in ("split", "merge"))
        resize = ResizeOptions(most=8, least=1, split_threshold=split, merge_threshold=merge)
        planned = schedule_clustering(self.table(), ClusteringOptions(resize=resize), now_ms, force=True)
        assert planned is not None
        return planned

    def we_resize(self, thresholds: Mapping[str, str]) -> None:
        cluster(self.table(), self.we_plan(thresholds), now_ms)

    def sizes(self) -> set[tuple[int, int]]:
        """(number of resizes, number of nodes) of all partitions."""
        return {(ring.seq_no, len(ring.nodes)) for ring in rings.rings(self.case.table).values()}


@pytest.fixture
def turns(hudi: HudiSpark, spark: SparkSession, tmp_path: Path) -> RingTurns:
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", conf={**RINGS, "hoodie.clean.automatic": "false"})
    made = RingTurns(case, hudi)
    made.ours()
    made.check("us")
    return made


def test_a_table_of_ours_resized_by_turns(turns: RingTurns) -> None:
    turns.theirs()
    turns.check("Hudi")
    assert turns.sizes() == {(0, 2)}
    turns.hudi_resizes(SPLIT)
    assert turns.sizes() == {(1, 4)}
    turns.check("Hudi's split")
    turns.round = 1
    turns.ours()
    turns.check("us, after Hudi's split")
    turns.we_resize(SPLIT)
    assert turns.sizes() == {(2, 8)}
    turns.check("our split")
    turns.theirs()
    turns.check("Hudi, after our split")
    turns.round = 2
    turns.ours()
    turns.we_resize(MERGE)
    turns.check("our merge")
    assert {number for number, _ in turns.sizes()} == {3} and max(nodes for _, nodes in turns.sizes()) < 8
    turns.theirs()
    turns.check("Hudi, after our merge")
    turns.hudi_resizes(SPLIT)
    turns.hudi_resizes(MERGE)
    assert {number for number, _ in turns.sizes()} == {5}
    turns.round = 4
    turns.ours()
    turns.check("us, after Hudi's merge")


def test_each_carries_out_the_plan_of_the_other(turns: RingTurns) -> None:
    turns.hudi_resizes(SPLIT, "schedule")
    (planned,) = set(turns.table().timeline().pending_clusterings.values())
    cluster(turns.table(), planned, now_ms)
    turns.check("us, by Hudi's plan")
    turns.we_plan(SPLIT)
    turns.hudi_resizes(SPLIT, "execute")
    turns.check("Hudi, by our plan")
    assert turns.sizes() == {(2, 8)}
    turns.theirs()
    turns.check("Hudi")
    turns.round = 1
    turns.ours()
    turns.check("us")


def test_a_resize_that_is_rolled_back(turns: RingTurns) -> None:
    """Hudi continues with the ring from before it."""
    planned = turns.we_plan(SPLIT)
    table = turns.table()
    rollback_clustering(table, planned, f"{int(planned) + 1}")
    turns.check("our rollback")
    assert turns.sizes() == {(0, 2)}
    turns.theirs()
    turns.check("Hudi")
