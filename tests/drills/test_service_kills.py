"""SIGKILL at every named step of every table service; after each, the table is the oracle's.

The numbers are so small that each batch brings a compaction and a clean, and each few an archiving: so the second kill often
falls into the recovery from the first.
"""

from __future__ import annotations

import random
from itertools import islice

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.steps import SERVICE_STEPS
from tests.drills.conftest import NewDrill, NewJob
from tests.drills.kafka_job import KafkaJob
from tests.support.events import Event, Mix, generate

pytestmark = [pytest.mark.drill, pytest.mark.matrix]
PER_BATCH = 60
MIX = Mix(keys=150, tombstones=0.03)
SMALL = {
    "hoodie.compact.inline.max.delta.commits": "1", "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.metadata.compact.max.delta.commits": "1",
    "hoodie.archive.automatic": "true",
}  # fmt: skip
RECORD_INDEX = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "2",
}
WITHOUT = {"hoodie.metadata.enable": "false"}
BESIDE = {"hoodie.datasource.compaction.async.enable": "true"}
CLUSTERED = {
    "hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "2",
    "tagstream.inserts.to.base.files": "true", "hoodie.parquet.small.file.limit": "0",
}  # fmt: skip
CLEANED_BESIDE = {"hoodie.clean.async.enabled": "true"}
CLUSTERED_BESIDE = {
    "hoodie.clustering.async.enabled": "true", "hoodie.clustering.async.max.commits": "1",
    "hoodie.clustering.plan.strategy.partition.regex.pattern": "cold",
    "tagstream.inserts.to.base.files": "true", "hoodie.parquet.small.file.limit": "0",
}  # fmt: skip
CASES = {
    "version 6": ("6", "MERGE_ON_READ", WITHOUT),
    "version 6, metadata table": ("6", "MERGE_ON_READ", RECORD_INDEX),
    "version 9, metadata table": ("9", "MERGE_ON_READ", RECORD_INDEX),
    "version 9, beside the batches": ("9", "MERGE_ON_READ", RECORD_INDEX | BESIDE),
    "version 8": ("8", "MERGE_ON_READ", WITHOUT),
    "version 9, copy-on-write": ("9", "COPY_ON_WRITE", RECORD_INDEX),
    "version 6, clustered": ("6", "COPY_ON_WRITE", WITHOUT | CLUSTERED),
    "version 9, clustered": ("9", "MERGE_ON_READ", RECORD_INDEX | CLUSTERED),
    "version 6, cleaned beside the batches": ("6", "COPY_ON_WRITE", RECORD_INDEX | CLEANED_BESIDE),
    "version 9, cleaned beside the batches": ("9", "MERGE_ON_READ", RECORD_INDEX | BESIDE | CLEANED_BESIDE),
}
TWICE = ("version 6", "version 9, metadata table", "version 9, beside the batches")


def points_of(table_type: str, conf: dict[str, str]) -> list[str]:
    """The steps that such a table's services have; where there is clustering, or cleaning beside the batches, its alone."""
    if "hoodie.clustering.inline" in conf:
        found = [p for p in SERVICE_STEPS if p.startswith("clustering_") and p != "clustering_stopped"]
    elif "hoodie.clustering.async.enabled" in conf:
        found = [p for p in SERVICE_STEPS if p.startswith("clustering_")]
    elif "hoodie.clean.async.enabled" in conf:
        found = [p for p in SERVICE_STEPS if p.startswith("clean_")]
    else:
        kinds = ("compaction_", "clean_", "archive_") if table_type == "MERGE_ON_READ" else ("clean_", "archive_")
        found = [p for p in SERVICE_STEPS if p.startswith(kinds)]
    return [p for p in found if "_metadata" not in p or conf.get("hoodie.metadata.enable") == "true"]


@pytest.mark.parametrize("name", CASES)
def test_a_kill_at_every_step_of_every_service(name: str, new_drill: NewDrill, new_job: NewJob) -> None:
    version, table_type, more = CASES[name]
    points = points_of(table_type, more)
    sequence = [*points, *(random.Random(5).sample(points, len(points)) if name in TWICE else ())]
    with new_drill(f"SIGKILL at each step of the services, {name}", table_type, len(sequence)) as drill:
        job = new_job(table_type, PER_BATCH, conf=SMALL | more | {"hoodie.write.table.version": version})
        job.produce(generate(4 * len(sequence) * PER_BATCH, MIX, seed=31))
        for point in sequence:
            job.crash(point, "*")
            drill.injected += 1
            drill.compare(job)
            job.committed()
        job.finish("--source-limit", str(40 * PER_BATCH))
        assert job.all_taken()
        drill.compare(job)
        check_healthy(job)


@pytest.mark.parametrize(
    ("version", "table_type", "more"),
    [("6", "COPY_ON_WRITE", WITHOUT), ("9", "MERGE_ON_READ", RECORD_INDEX)],
    ids=["version 6", "version 9"],
)
def test_a_kill_at_every_step_of_a_clustering_beside_the_batches(
    version: str, table_type: str, more: dict[str, str], new_drill: NewDrill, new_job: NewJob
) -> None:
    """One partition is clustered, to which batches bring new keys, and then nothing while others are written to; updates of
    its keys, which take the plan back, come for the step of that alone, and of all that was moved at the end."""
    conf = SMALL | more | CLUSTERED_BESIDE | {"hoodie.write.table.version": version}
    points = points_of(table_type, conf)
    sequence = random.Random(6).sample(points, len(points))
    name = f"SIGKILL at each step of a clustering beside the batches, version {version}"
    with new_drill(name, table_type, len(sequence)) as drill:
        job = new_job(table_type, PER_BATCH, conf=conf)
        hot, cold = generate(5 * len(sequence) * PER_BATCH, MIX, seed=32), list[Event]()
        for number, point in enumerate(sequence):
            new = [f"cold-{number}-{n}" for n in range(2 * PER_BATCH)]
            cold += [Event(key, "cold", 1_000_000, name="new", amount=1.0) for key in new]
            job.produce([*cold[-len(new) :], *islice(hot, 4 * PER_BATCH)])
            if point == "clustering_stopped":
                job.produce(Event(e.key, "cold", 2_000_000, name="updated", amount=2.0) for e in cold)
            job.crash(point, "*")
            drill.injected += 1
            drill.compare(job)
            job.committed()
        job.produce(Event(e.key, "cold", 3_000_000, name="last", amount=3.0) for e in cold)
        job.finish()
        assert job.all_taken()
        drill.compare(job)
        check_healthy(job)


def check_healthy(job: KafkaJob) -> None:
    """Nothing is pending, nothing is left of what was killed, and files, timeline and metadata table agree."""
    table = HoodieTable.open(str(job.table))
    assert validate(table) == []
    assert validate_metadata(table) == []
    assert table.timeline().pending == ()
    left = job.table / ".hoodie" / ".temp"
    assert not left.exists() or list(left.iterdir()) == []
