"""Parts of the checkpoint are taken away between two runs: entries of Spark's commit log, or all of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import islice

import pytest

from tests.drills.conftest import NewDrill, NewJob
from tests.drills.kafka_job import KafkaJob
from tests.support.events import Mix, generate

CHUNK = 150
# A compaction takes deletes out of the logs, and an index that is loaded from the table then knows nothing of them.
LOGS_STAY = {"hoodie.datasource.write.streaming.disable.compaction": "true"}


def last_commits_entry(job: KafkaJob) -> None:
    """Spark's last commits entry, with the checksum file beside it: the last batch is replayed."""
    newest = max(int(p.name) for p in (job.query_folder / "commits").iterdir() if p.name.isdigit())
    (job.query_folder / "commits" / str(newest)).unlink()
    (job.query_folder / "commits" / f".{newest}.crc").unlink()


def last_commits_entry_and_instant(job: KafkaJob) -> None:
    """The table's newest completed instant, too: the last batch is done again."""
    last_commits_entry(job)
    job.completed()[-1].unlink()


@pytest.mark.parametrize(
    ("table_type", "surgery", "times"),
    [
        pytest.param("MERGE_ON_READ", last_commits_entry, 3, marks=pytest.mark.drill),
        pytest.param("COPY_ON_WRITE", last_commits_entry, 3, marks=pytest.mark.drill),
        pytest.param("MERGE_ON_READ", last_commits_entry_and_instant, 3, marks=pytest.mark.drill),
        pytest.param("COPY_ON_WRITE", last_commits_entry_and_instant, 3, marks=pytest.mark.drill),
    ],
)
def test_a_batch_that_the_logs_do_not_know(
    table_type: str, surgery: Callable[[KafkaJob], None], times: int, new_drill: NewDrill, new_job: NewJob
) -> None:
    events = generate((2 + 2 * times) * CHUNK, Mix(keys=300, tombstones=0.02), seed=81)
    with new_drill(f"deleted: {surgery.__name__.replace('_', ' ')}", table_type, times) as drill:
        job = new_job(table_type, CHUNK, conf=LOGS_STAY)
        job.produce(islice(events, 2 * CHUNK))
        job.finish()
        for number in range(times):
            surgery(job)
            drill.injected += 1
            if number % 2 == 0:  # with new events behind the batch, or without
                job.produce(islice(events, CHUNK))
            job.finish()
            assert job.all_taken()
            drill.compare(job)
        job.produce(islice(events, CHUNK))
        job.finish()
        assert job.all_taken()
        drill.compare(job)


@pytest.mark.drill
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_lost_checkpoint_is_made_anew_from_the_table(table_type: str, new_drill: NewDrill, new_job: NewJob) -> None:
    # Many late events: those that are older than a delete tell whether the delete is still known.
    events = generate(11 * CHUNK, Mix(keys=300, deletes=0.15, late=0.2), seed=83)
    with new_drill("whole checkpoint deleted", table_type, 4) as drill:
        job = new_job(table_type, CHUNK, conf=LOGS_STAY)
        job.produce(islice(events, 2 * CHUNK))
        job.finish()
        for number in range(4):
            if number % 2:  # after a death in the middle of a batch
                job.produce(islice(events, CHUNK))
                job.crash("files_written", job.commits()[-1]["batch_id"] + 1)
            shutil.rmtree(job.checkpoint)
            job.losses.append(job.batches())
            drill.injected += 1
            job.produce(islice(events, CHUNK))
            job.finish()
            assert job.all_taken()
            drill.compare(job)
        job.produce(islice(events, CHUNK))
        job.finish()
        assert job.all_taken()
        drill.compare(job)
