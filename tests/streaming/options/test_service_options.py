"""Keys of the table services: who compacts, what is kept, and what contradicts."""

from __future__ import annotations

import pytest

from tagstream.streaming.options.service_options import CompactionMode
from tagstream.table.errors import ConfigError
from tagstream.table.services.options import CleanPolicy, Strategy, Trigger
from tests.streaming.options.test_options import conf, load

INLINE, BESIDE = "hoodie.compact.inline", "hoodie.datasource.compaction.async.enable"
PLAN = "hoodie.compact.schedule.inline"
RINGS = ("hoodie.index.type=BUCKET", "hoodie.index.bucket.engine=CONSISTENT_HASHING")
RESIZE_PLAN = "hoodie.clustering.plan.strategy.class=SparkConsistentBucketClusteringPlanStrategy"


@pytest.mark.parametrize(
    ("given", "by_version"),
    [
        ((), (CompactionMode.INLINE, CompactionMode.ASYNC)),
        ((f"{INLINE}=false",), (CompactionMode.INLINE, CompactionMode.ASYNC)),  # Hudi's default, spelled out
        ((f"{INLINE}=true",), (CompactionMode.INLINE, CompactionMode.INLINE)),
        ((f"{BESIDE}=true",), (CompactionMode.ASYNC, CompactionMode.ASYNC)),
        ((f"{BESIDE}=false",), (CompactionMode.INLINE, CompactionMode.INLINE)),
        ((f"{INLINE}=false", f"{BESIDE}=false"), (CompactionMode.OFF, CompactionMode.OFF)),
        ((f"{PLAN}=true",), (CompactionMode.SCHEDULE, CompactionMode.SCHEDULE)),
        (("hoodie.datasource.write.streaming.disable.compaction=true",), (CompactionMode.OFF, CompactionMode.OFF)),
    ],
)
def test_who_compacts_in_a_continuous_job(given: tuple[str, ...], by_version: tuple[CompactionMode, ...]) -> None:
    services = load(*conf(*given)).services
    found = tuple(services.compaction_mode(version, merge_on_read=True, continuous=True) for version in (6, 9))
    assert found == by_version
    assert services.compaction_mode(9, merge_on_read=False, continuous=True) is CompactionMode.OFF


def test_a_run_that_ends_compacts_between_its_batches() -> None:
    assert load().services.compaction_mode(9, merge_on_read=True, continuous=False) is CompactionMode.INLINE


def test_names_of_hudi_and_flink() -> None:
    services = load(*conf(
        "compaction.delta_commits=7", "compaction.trigger.strategy=num_or_time", "compaction.delta_seconds=60",
        "hoodie.compaction.strategy=org.apache.hudi.table.action.compact.strategy.UnBoundedCompactionStrategy",
        "hoodie.cleaner.policy=KEEP_LATEST_FILE_VERSIONS", "hoodie.cleaner.fileversions.retained=2",
        "archive.min_commits=12", "archive.max_commits=15", "hoodie.clean.commits.retained=3",
    )).services  # fmt: skip
    compaction = services.compaction
    assert (compaction.max_delta_commits, compaction.trigger, compaction.max_delta_seconds) == (
        7,
        Trigger.NUM_OR_TIME,
        60,
    )
    assert compaction.strategy is Strategy.UNBOUNDED
    assert services.clean is not None
    assert (services.clean.policy, services.clean.file_versions) == (CleanPolicy.KEEP_LATEST_FILE_VERSIONS, 2)
    assert services.archive is not None
    assert (services.archive.min_commits, services.archive.max_commits) == (12, 15)
    assert services.archive.compaction_deltas is None  # it is due by time


@pytest.mark.parametrize("key", ["hoodie.clustering.async.enabled", "hoodie.datasource.clustering.async.enable"])
def test_beside_the_batches(key: str) -> None:
    services = load(*conf(f"{key}=true", "hoodie.clustering.async.max.commits=7", "hoodie.clean.async=true")).services
    assert (services.clusters_beside, services.cleans_beside) == (True, True)
    assert services.clustering is not None
    assert services.clustering.max_commits == 7
    between = load(*conf("hoodie.clustering.inline=true", "hoodie.clustering.async.max.commits=7")).services
    assert between.clustering is not None
    assert (between.clusters_beside, between.cleans_beside, between.clustering.max_commits) == (False, False, 4)


def test_switched_off() -> None:
    services = load(*conf("hoodie.clean.automatic=false", "hoodie.archive.automatic=false")).services
    assert (services.clean, services.archive) == (None, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((f"{PLAN}=true", f"{INLINE}=true"), "one only plans compactions"),
        (
            ("hoodie.clustering.inline=true", "hoodie.clustering.async.enabled=true"),
            "between the batches or in parallel with them",
        ),
        (("hoodie.clustering.async.enabled=true", "hoodie.index.type=BUCKET"), "merged ones would not be"),
        (
            (*RINGS, "hoodie.clustering.plan.strategy.class=SparkSizeBasedClusteringPlanStrategy"),
            f"needs {RESIZE_PLAN}",
        ),
        ((f"{RESIZE_PLAN}",), "is for consistent hashing"),
        ((*RINGS, "hoodie.table.type=COPY_ON_WRITE"), "for merge-on-read tables only"),
        ((*RINGS, "hoodie.datasource.write.operation=insert_overwrite"), "use the simple engine"),
        ((*RINGS, "hoodie.bucket.index.partition.expressions=a,3"), "are for the simple engine"),
        (
            (*RINGS, "hoodie.partition.ttl.inline=true", "hoodie.partition.ttl.strategy.days.retain=3"),
            "a deleted partition",
        ),
        (("hoodie.index.type=BUCKET", "hoodie.bucket.index.partition.expressions=a"), "one comma and a number"),
        (
            ("hoodie.index.class=HoodieSimpleBucketIndex", "hoodie.index.bucket.engine=CONSISTENT_HASHING"),
            "contradicts",
        ),
        (("hoodie.keep.min.commits=10",), "hoodie.clean.commits.retained=10 and hoodie.keep.min.commits=10"),
        (("hoodie.keep.max.commits=20",), "must be greater than the first"),
        (
            ("hoodie.compaction.strategy=PartitionRegexBasedCompactionStrategy",),
            "needs hoodie.compaction.partition.path.regex",
        ),
        (("hoodie.compaction.strategy=x.Own",), "must be one of"),
        (("hoodie.clean.policy=KEEP_ALL",), "must be one of"),
        (("hoodie.archive.beyond.savepoint=true", "tagstream.unsupported=fail"), "a gap in the timeline"),
    ],
)
def test_what_is_refused(given: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as e:
        load(*conf(*given))
    assert message in str(e.value)


def test_resizes_of_consistent_hashing() -> None:
    found = load(
        *conf(
            *RINGS, RESIZE_PLAN, "hoodie.clustering.inline=true", "hoodie.bucket.index.num.buckets=4",
            "hoodie.bucket.index.max.num.buckets=32", "hoodie.bucket.index.merge.threshold=0.5",
            "hoodie.parquet.max.file.size=1000",
        )
    )  # fmt: skip
    assert found.index.is_consistent and found.services.clustering is not None
    limits = found.services.clustering.resize.limits(9)
    assert (limits.least, limits.most, limits.split_bytes, limits.merge_bytes) == (4, 32, 2000, 500)
    by_class = load(*conf("hoodie.index.class=org.apache.hudi.index.bucket.HoodieSparkConsistentBucketIndex"))
    assert by_class.index.is_consistent and by_class.index.type == "BUCKET"
