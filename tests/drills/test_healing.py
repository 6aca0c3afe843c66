"""Index and table that do not fit any more: older copies, commits taken away, damaged files, another writer's commits."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.rollback import rollback
from tests.drills.conftest import NewDrill, NewJob
from tests.drills.kafka_job import KafkaJob
from tests.drills.stream_job import DEADLINE_S
from tests.drills.test_checkpoint_surgery import LOGS_STAY
from tests.support.events import Event, Mix, generate, oracle, rows
from tests.support.foreign_writer import ForeignWriter
from tests.support.process import wait_for
from tests.support.table_version import timeline_of

CHUNK = 150
TYPES = ["MERGE_ON_READ", "COPY_ON_WRITE"]
MIX = Mix(keys=300, deletes=0.12, late=0.15)


@dataclass
class SharedJob(KafkaJob):
    """``foreign``: what another writer wrote, with the number of the job's batches before it."""

    foreign: list[tuple[int, list[Event]]] = field(default_factory=list)

    def expected(self) -> pa.Table:
        ends = [{}, *(commit["end_offsets"] for commit in self.commits())]
        events: list[Event] = []
        for number, (begin, end) in enumerate(pairwise(ends)):
            events += [e for at, theirs in self.foreign if at == number for e in theirs]
            events += self._between(begin, end)
        events += [e for at, theirs in self.foreign if at >= len(ends) - 1 for e in theirs]
        return rows(oracle(events).values())


def newest_offsets(job: KafkaJob) -> int:
    """Messages below the offsets of the newest commit."""
    return sum(job.commits()[-1]["end_offsets"][job.topic].values())


@pytest.mark.drill
@pytest.mark.parametrize("table_type", TYPES)
def test_an_older_copy_of_the_checkpoint(table_type: str, new_drill: NewDrill, new_job: NewJob) -> None:
    events = generate(20 * CHUNK, MIX, seed=91)
    with new_drill("an older copy of the checkpoint is put back", table_type, 3) as drill:
        job = new_job(table_type, CHUNK)
        job.produce(islice(events, 2 * CHUNK))
        job.finish()
        for number in range(3):
            copy = job.folder / "copy"
            shutil.copytree(job.checkpoint, copy)
            job.produce(islice(events, 2 * CHUNK))
            job.finish()
            shutil.rmtree(job.checkpoint)
            copy.rename(job.checkpoint)
            drill.injected += 1
            if number % 2 == 0:
                job.produce(islice(events, CHUNK))
            job.finish()
            assert newest_offsets(job) == job.sent
            drill.compare(job)


def newest_instant(job: KafkaJob) -> None:
    """The newest completed instant deleted by hand."""
    job.completed()[-1].unlink()


def restored(job: KafkaJob) -> None:
    """The table restored to what it was two commits ago."""
    table = HoodieTable.open(str(job.table))
    for instant in reversed(table.timeline().completed_writes[-2:]):
        (timeline_of(job.table) / instant.file_name()).unlink()
        newest = HoodieTable.open(str(job.table)).timeline().newest
        rollback(table, instant.time, next_instant(0, newest or instant.time))


def damage(kind: str) -> Callable[[KafkaJob], None]:
    """Every file of a kind cut short, and the local stores gone, so that they are needed."""

    def cut(job: KafkaJob) -> None:
        found = list((job.query_folder / "tagstream" / "index" / kind).glob("*/*.sst"))
        assert found
        for path in found:
            path.write_bytes(path.read_bytes()[:-9])
        shutil.rmtree(job.local, ignore_errors=True)

    cut.__doc__ = f"{kind} of the index cut short"
    return cut


def half(job: KafkaJob) -> None:
    """Spark's half of the checkpoint deleted."""
    for path in job.query_folder.iterdir():
        if path.name not in ("tagstream", "why.txt"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize(
    ("table_type", "fault", "times"),
    [
        pytest.param(table_type, fault, 2, marks=pytest.mark.drill)
        for fault in (newest_instant, restored, damage("deltas"), damage("snapshots"), half)
        for table_type in TYPES
    ],
)
def test_the_index_is_loaded_anew(
    table_type: str, fault: Callable[[KafkaJob], None], times: int, new_drill: NewDrill, new_job: NewJob
) -> None:
    events = generate((4 + 3 * times) * CHUNK, MIX, seed=93)
    with new_drill((fault.__doc__ or "").rstrip("."), table_type, times) as drill:
        job = new_job(table_type, CHUNK, conf=LOGS_STAY)
        job.produce(islice(events, 3 * CHUNK))
        job.finish()
        if "snapshots" in (fault.__doc__ or ""):  # the loading of the index makes the first
            shutil.rmtree(job.checkpoint)
            job.losses.append(job.batches())
            job.produce(islice(events, CHUNK))
            job.finish()
        for _ in range(times):
            fault(job)
            drill.injected += 1
            job.losses.append(job.batches())
            job.produce(islice(events, CHUNK))
            job.finish()
            assert newest_offsets(job) == job.sent
            drill.compare(job)
            job.produce(islice(events, 2 * CHUNK))
            job.finish()
            drill.compare(job)


@pytest.mark.drill
@pytest.mark.parametrize("table_type", TYPES)
def test_another_writer_between_two_runs(table_type: str, new_drill: NewDrill, new_job: NewJob) -> None:
    events = generate(14 * CHUNK, MIX, seed=95)
    with new_drill("another writer commits between two runs", table_type, 4) as drill:
        job = shared(new_job(table_type, CHUNK))
        writer = ForeignWriter(job.table)
        job.produce(islice(events, 2 * CHUNK))
        job.finish()
        for number in range(4):
            live = sorted(oracle_events(job), key=lambda e: e.key)
            at = max(e.ordering or 0 for e in live)
            some = live[number::7][:12]
            theirs = [Event(e.key, f"p-{number}", at, name="theirs", amount=1.0) for e in some[:6]]
            # With the row's own ordering value: a copy-on-write table tells of no other once the row is gone.
            theirs += [Event(e.key, e.partition, e.ordering, deleted=True) for e in some[6:9]]
            theirs += [Event(e.key, e.partition, at, name="same", amount=2.0) for e in some[9:]]
            theirs += [Event(f"theirs-{number}-{i}", "p-new", at, name="new", amount=3.0) for i in range(5)]
            writer.upsert(theirs)
            job.foreign.append((job.batches(), theirs))
            drill.injected += 1
            job.produce(islice(events, 2 * CHUNK))
            job.finish()
            assert newest_offsets(job) == job.sent
            drill.compare(job)


@pytest.mark.drill
@pytest.mark.parametrize("table_type", TYPES)
def test_another_writer_in_mid_run(table_type: str, new_drill: NewDrill, new_job: NewJob) -> None:
    events = generate(16 * CHUNK, MIX, seed=97)
    with new_drill("another writer commits while the job runs", table_type, 4) as drill:
        job = shared(new_job(table_type, CHUNK))
        writer = ForeignWriter(job.table)
        job.produce(events)
        with job.start() as process:
            for number in range(4):
                wanted = 2 + 3 * number
                wait_for(lambda n=wanted: job.batches() >= n, DEADLINE_S, f"batch {wanted}")  # type: ignore[misc]
                # Keys of its own: two writers of one file group at one time need Hudi's lock providers.
                theirs = [Event(f"theirs-{number}-{i}", "p-theirs", 1, name="new", amount=3.0) for i in range(5)]
                writer.upsert(theirs)
                job.foreign.append((0, theirs))
                drill.injected += 1
            assert process.wait(DEADLINE_S) == 0, process.output()[-6000:]
            assert process.output().count("The query starts again") >= 1
        assert newest_offsets(job) == job.sent
        drill.compare(job)


@pytest.mark.drill
@pytest.mark.parametrize("table_type", TYPES)
def test_a_second_writer_and_a_table_that_is_gone(table_type: str, new_drill: NewDrill, new_job: NewJob) -> None:
    events = generate(6 * CHUNK, MIX, seed=99)
    with new_drill("a second writer is started; the table is taken away", table_type, 3) as drill:
        job = new_job(table_type, CHUNK)
        job.produce(islice(events, 2 * CHUNK))
        with job.start("--continuous") as process:
            wait_for(lambda: job.batches() >= 2, DEADLINE_S, "two batches")
            for checkpoint in (job.checkpoint, job.folder / "another"):
                line = job.fails("--checkpoint-dir", str(checkpoint))
                assert "is being written by process" in line, line
                drill.injected += 1
            job.produce(islice(events, CHUNK))
            wait_for(job.all_taken, DEADLINE_S, "the new messages")
            process.send(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0, process.output()[-6000:]
        drill.compare(job)
        kept = job.table.rename(job.folder / "kept")
        line = job.fails()
        assert "was deleted or created again" in line and str(job.checkpoint) in line, line
        drill.injected += 1
        shutil.rmtree(job.table, ignore_errors=True)
        Path(kept).rename(job.table)
        job.produce(islice(events, CHUNK))
        job.finish()
        assert job.all_taken()
        drill.compare(job)


def shared(job: KafkaJob) -> SharedJob:
    """The same job, for a table that another writer writes, too; the topic is there already."""
    made = SharedJob.__new__(SharedJob)
    made.__dict__.update(job.__dict__)
    made.foreign = []
    return made


def oracle_events(job: SharedJob) -> list[Event]:
    """Live events of everything committed so far."""
    table = job.expected().to_pylist()
    return [Event(r["id"], r["part"], r["ts"], False, r["name"], r["amount"]) for r in table]
