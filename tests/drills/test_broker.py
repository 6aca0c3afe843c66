"""The broker dies and comes back while the job runs; a topic forgets messages before they were read."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.drills.conftest import NewDrill, NewJob
from tests.drills.stream_job import DEADLINE_S
from tests.support.events import Mix, generate
from tests.support.kafka_broker import KafkaBroker
from tests.support.topic_log import delete_records

CHUNK = 200
FAIL_KEY = "hoodie.streamer.source.kafka.enable.failOnDataLoss"


@pytest.fixture
def frail_broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker of the test's own."""
    with KafkaBroker(tmp_path / "broker") as broker:
        yield broker


@pytest.mark.drill
def test_a_broker_that_comes_back_is_read_on(frail_broker: KafkaBroker, new_drill: NewDrill, new_job: NewJob) -> None:
    table_type = "COPY_ON_WRITE"
    events = generate(7 * CHUNK, Mix(keys=300, tombstones=0.02), seed=71)
    with new_drill("broker killed or stopped, started again", table_type, 5) as drill:
        job = new_job(table_type, CHUNK // 4, broker=frail_broker)
        job.produce(islice(events, CHUNK))
        with job.start("--continuous", "--min-sync-interval-seconds", "0") as process:
            process.wait_for(lambda: job.batches() > 0, DEADLINE_S, "the first batch")
            for number in range(4):  # the job is in the middle of a topic that takes it several batches
                frail_broker.stop() if number % 2 else frail_broker.kill()
                drill.injected += 1
                frail_broker.start()
                job.produce(islice(events, CHUNK))
                process.wait_for(job.all_taken, DEADLINE_S, "what was sent after the broker's return")
                drill.compare(job)
                job.produce(islice(events, CHUNK // 4))
            process.send(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0, process.output()[-4000:]
        frail_broker.kill()
        drill.injected += 1
        message = job.fails()
        assert message.startswith("no Kafka broker answers"), message
        frail_broker.start()
        job.finish()
        assert job.all_taken()
        drill.compare(job)


@pytest.mark.drill
def test_expired_offsets_stop_the_job_until_the_loss_is_accepted(
    drill_broker: KafkaBroker, new_drill: NewDrill, new_job: NewJob
) -> None:
    table_type = "MERGE_ON_READ"
    events = generate(5 * CHUNK, Mix(keys=300, tombstones=0.02), seed=73)
    with new_drill("offsets expired before they were read", table_type, 2) as drill:
        job = new_job(table_type, CHUNK // 2)
        job.produce(islice(events, CHUNK))
        job.finish()
        for _ in range(2):
            begin = [len(part) for part in job.log]
            job.produce(islice(events, CHUNK))
            forgotten = {p: begin[p] + (len(part) - begin[p]) // 3 for p, part in enumerate(job.log)}
            delete_records(drill_broker, job.topic, forgotten)
            drill.injected += 1
            message = job.fails()
            assert "no longer has offsets that the checkpoint needs" in message and FAIL_KEY in message, message
            drill.compare(job)  # nothing was skipped
            for p, end in forgotten.items():
                job.expired.setdefault(p, set()).update(range(begin[p], end))
            job.conf[FAIL_KEY] = "false"
            job.finish()
            del job.conf[FAIL_KEY]
            assert job.all_taken()
            drill.compare(job)
        job.produce(islice(events, CHUNK))
        job.finish()
        assert job.all_taken()
        drill.compare(job)
