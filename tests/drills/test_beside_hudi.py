"""Real Hudi 1.2 writes into the same file groups while a batch of ours is under way: before, between, and across its steps.

The job stands still at a named step. Hudi's write then runs to its end (``whole``), or begins there and completes only when
the job goes on (``across``), so that it has read the slices from before our commit. Hudi touches other keys than the stream
does, in the same file groups, so nothing that either of them wrote may be missing at the end.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from bench.peers import home as peers
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate_metadata import validate_metadata
from tests.drills.conftest import NewDrill, NewJob
from tests.drills.kafka_job import KafkaJob
from tests.drills.report import Drill
from tests.drills.stream_job import DEADLINE_S, Outcome
from tests.interop.hudi_spark import HudiSpark
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.support.process import Process, wait_for
from tests.support.table_version import timeline_of

TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
STEPS = ("profile_pinned", "inflight", "state_committed", "files_written", "manifest_durable")
KEYS, THEIRS = 40, 10
HEALED = ("removed its rows from", "is removed from the timeline")
# Hudi as it comes takes every pending write for that of a dead writer and rolls it back. With locks it looks at heartbeats
# and at what was committed since it began.
AS_IT_COMES = {"hoodie.clean.failed.writes.policy": "EAGER"}
WITH_LOCKS = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
}
# The same lock in both: nothing has to be repaired afterwards, and nobody waits for a pending write.
ONE_LOCK = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "200",
    "hoodie.write.lock.client.num_retries": "1000",
}
# Both write to the metadata table of a table of version 9.
ONE_LOCK_9 = {**ONE_LOCK, "hoodie.metadata.enable": "true", "hoodie.write.table.version": "9"}
STRATEGY = "org.apache.hudi.client.transaction.PreferWriterConflictResolutionStrategy"
PREFER = {**ONE_LOCK, "hoodie.write.lock.conflict.resolution.strategy": STRATEGY}
LOCKED = (ONE_LOCK, ONE_LOCK_9, PREFER)
UNLOCKED_STEPS = STEPS[2:]  # at the others the job holds the lock, and Hudi waits
CLUSTERING = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}
COMPACTION = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}


@pytest.fixture(scope="module")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiSpark]:
    """Hudi 1.2.0, running."""
    peers.set_up()
    with HudiSpark("1.2.0", tmp_path_factory.mktemp("hudi")) as running:
        yield running


@dataclass
class Beside:
    """A job and Hudi on one table. ``theirs``: what Hudi wrote and was told to be done."""

    job: KafkaJob
    hudi: HudiSpark
    options: dict[str, str]
    theirs: dict[str, ev.Event] = field(default_factory=dict)
    ordering: int = 1
    healed: int = 0

    def begin(self) -> None:
        """All keys of both, in few file groups."""
        self.ours()
        first = [ev.Event(f"h{i}", "p0", 1, name="first", amount=0.0) for i in range(THEIRS)]
        self.job.produce(first)
        self.job.finish()
        self.theirs = {e.key: e for e in first}

    def ours(self) -> None:
        """A newer version of each of our keys, and a new key."""
        self.ordering += 1
        keys = [*(f"k{i}" for i in range(KEYS)), f"new-{self.ordering}"]
        self.job.produce(ev.Event(k, "p0", self.ordering, name=f"ours {self.ordering}", amount=1.0) for k in keys)

    def write(self, number: int, hold: Path | None = None) -> str:
        """Hudi's write; what it said when it failed, since a writer with locks may be told that another was first."""
        events = [ev.Event(f"h{i}", "p0", 1000 + number, name=f"hudi {number}", amount=2.0) for i in range(THEIRS)]
        rows = pa.Table.from_pylist([e.row() for e in events], ev.ARROW_SCHEMA)
        options = {"hoodie.index.type": "SIMPLE", "hoodie.metadata.enable": "false", **self.options}
        try:
            self.hudi.write(HoodieTable.open(str(self.job.table)), rows, options, hold=hold)
        except AssertionError as e:
            if "ConflictException" not in str(e):
                raise
            return str(e)
        self.theirs.update({e.key: e for e in events})
        return ""

    def compare(self) -> Outcome:
        """The table by hudi-rs against the stream's oracle, with Hudi's rows over it."""
        done = self.job.commits()
        live = {e.key: e for e in ev.oracle(self.job.reached(done[-1]["end_offsets"])).values()} | self.theirs
        expected, found = ev.rows(live.values()), read_table(self.job.table, meta_columns=False)
        return Outcome(expected.num_rows, found.num_rows, compare(expected, found, ["id"]))

    def check(self, drill: Drill) -> None:
        """Nothing is missing; counted in the drill's line. The metadata table, if there is one, is right."""
        drill.count(self.compare())
        assert validate_metadata(HoodieTable.open(str(self.job.table))) == []

    def all_taken(self) -> bool:
        """Every message is below the newest commit's offsets. A query that was retired begins its batches anew."""
        done = self.job.commits()
        return bool(done) and sum(done[-1]["end_offsets"][self.job.topic].values()) == self.job.sent

    def end(self, process: Process) -> str:
        """Wait until the running job has taken everything, and end it; what it said."""
        process.wait_for(self.all_taken, DEADLINE_S, "all that was sent")
        process.send(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0, process.output()[-4000:]
        return process.output()

    def next_batch(self) -> int:
        """The number of the next batch of the query that is at work."""
        return int(self.job.commits()[-1]["batch_id"]) + 1

    def pending(self, before: set[str]) -> bool:
        """Whether an instant that was not there ``before`` has begun."""
        return bool(self.instants() - before)

    def instants(self) -> set[str]:
        return {p.name.split(".")[0].split("_")[0] for p in timeline_of(self.job.table).glob("2*.*")}


@pytest.fixture
def beside(new_job: NewJob, hudi: HudiSpark, request: pytest.FixtureRequest) -> Beside:
    """A table that both have written; parameters: table type and Hudi's options."""
    table_type, options = request.param
    conf = {"tagstream.inserts.to.base.files": "true", "hoodie.parquet.max.file.size": "1048576"}
    if options in LOCKED:
        conf |= {name: value for name, value in options.items() if name != "hoodie.clean.failed.writes.policy"}
    found = Beside(new_job(table_type, 100_000, conf=conf), hudi, options)
    found.begin()
    return found


def both(kind: str) -> list[object]:
    """Both table types; the services that Hudi runs with its write only where it has them."""
    service = {"COPY_ON_WRITE": CLUSTERING, "MERGE_ON_READ": COMPACTION}
    options = {
        "as it comes": dict.fromkeys(TYPES, AS_IT_COMES), "with locks": dict.fromkeys(TYPES, WITH_LOCKS),
        "services": service, "one lock": dict.fromkeys(TYPES, ONE_LOCK), "one lock 9": dict.fromkeys(TYPES, ONE_LOCK_9),
        "prefer": dict.fromkeys(TYPES, PREFER),
    }  # fmt: skip
    return [pytest.param((t, options[kind][t]), id=f"{t}, {kind}") for t in TYPES]


@pytest.mark.drill
@pytest.mark.parametrize("how", ["whole", "across"])
@pytest.mark.parametrize(
    "beside",
    [*both("as it comes"), *both("with locks"), *both("services"), *both("one lock"), *both("one lock 9")],
    indirect=True,
)
def test_hudi_writes_while_a_batch_is_under_way(beside: Beside, how: str, new_drill: NewDrill, tmp_path: Path) -> None:
    job, steps = beside.job, UNLOCKED_STEPS if beside.options in LOCKED else STEPS
    with new_drill(f"Hudi writes {how} a batch", job.table_type, len(steps)) as drill, ThreadPoolExecutor(1) as pool:
        for number, step in enumerate(steps):
            beside.ours()
            with job.start(crash=f"{step}@{beside.next_batch()}:pause") as process:
                process.wait_for(lambda p=process: p.stopped, DEADLINE_S, f"the stop at {step}")
                process.pause()
                before, hold = beside.instants(), tmp_path / f"go-{number}"
                write: Future[str] = pool.submit(beside.write, number, hold if how == "across" else None)
                if how == "across":
                    wait_for(lambda b=before, w=write: beside.pending(b) or w.done(), DEADLINE_S, "Hudi's instant")
                    process.resume()
                    time.sleep(1.0)  # not a wait for anything: how long the two run side by side
                    hold.touch()
                    write.result(DEADLINE_S)
                else:
                    write.result(DEADLINE_S)
                    process.resume()
                assert process.wait(DEADLINE_S) == 0, process.output()[-6000:]
            drill.injected += 1
            healed = job.finish()  # what Hudi's rollback or commit took away from a batch that had ended is found now
            beside.healed += any(text in healed for text in HEALED)
            assert beside.all_taken()
            beside.check(drill)
        drill.fault += f", {beside.healed} found and healed afterwards"
        assert beside.healed == 0 or beside.options not in LOCKED


@pytest.mark.drill
@pytest.mark.parametrize("beside", [*both("as it comes"), *both("one lock"), *both("one lock 9")], indirect=True)
def test_hudi_writes_again_and_again(beside: Beside, new_drill: NewDrill) -> None:
    job, rounds = beside.job, 25 if beside.options in LOCKED else 10
    with (
        new_drill("Hudi writes in a loop", job.table_type, rounds) as drill,
        job.start("--continuous", "--min-sync-interval-seconds", "0") as process,
    ):
        for number in range(rounds):
            beside.ours()
            beside.write(number)
            assert process.returncode is None, process.output()[-6000:]
            drill.injected += 1
        said = beside.end(process) + job.finish()
        assert beside.options not in LOCKED or not any(text in said for text in HEALED)
        beside.check(drill)


@pytest.mark.drill
@pytest.mark.parametrize("beside", [*both("one lock"), *both("one lock 9")], indirect=True)
def test_hudi_does_the_services_of_a_stream(beside: Beside, new_drill: NewDrill) -> None:
    """Compaction, clustering and cleaning by Hudi while the stream commits: each completes, and no row is missing."""
    job, table = beside.job, beside.job.table
    told = ",".join(f"{name}={value}" for name, value in beside.options.items())
    listed = "" if beside.options is ONE_LOCK_9 else ",hoodie.metadata.enable=false"
    calls = {
        "clean": f"call run_clean(table => 'drilled', retain_commits => 2, options => '{told}')",
        "clustering": f"call run_clustering(op => 'scheduleAndExecute', path => '{table}', options => '{told},"
        f"hoodie.clustering.plan.strategy.small.file.limit=1073741824{listed}')",
    }
    if job.table_type == "MERGE_ON_READ":
        calls["compaction"] = (
            f"call run_compaction(op => 'scheduleAndExecute', path => '{table}', options => '{told},"
            "hoodie.compact.inline.max.delta.commits=1')"
        )
    rounds = 4
    own = ("hoodie.compact.inline=false", "hoodie.clean.automatic=false", "hoodie.clustering.inline=false")
    off = [word for setting in own for word in ("--hoodie-conf", setting)]
    with (
        new_drill(f"Hudi's {', '.join(calls)} beside a stream", job.table_type, rounds * len(calls)) as drill,
        job.start("--continuous", "--min-sync-interval-seconds", "0", *off) as process,
    ):
        for _ in range(rounds):
            for call in calls.values():
                beside.ours()
                wait_for(lambda: beside.all_taken() or process.returncode is not None, DEADLINE_S, "a batch")
                beside.ours()
                beside.hudi.sql(table, f"create table if not exists drilled using hudi location '{table}'", call)
                assert process.returncode is None, process.output()[-6000:]
                drill.injected += 1
        said = beside.end(process)
        drill.fault += f", {said.count('The query starts again')} batches repeated"
        beside.ours()  # Hudi's services have narrowed the ranges of the partition, and the next batch widens them
        said += job.finish(*off)
        assert not any(text in said for text in HEALED)
        beside.check(drill)
        assert not HoodieTable.open(str(table)).timeline().pending


@pytest.mark.drill
@pytest.mark.parametrize("beside", both("prefer"), indirect=True)
def test_hudis_clustering_stops_for_a_batch(beside: Beside, new_drill: NewDrill) -> None:
    """A batch does not wait for a clustering that Hudi has planned, and Hudi does not complete it."""
    job, table = beside.job, beside.job.table
    options = ",".join(f"{name}={value}" for name, value in beside.options.items())
    more = "hoodie.metadata.enable=false,hoodie.clustering.plan.strategy.small.file.limit=1073741824"
    call = f"call run_clustering(path => '{table}', options => '{options},{more}', op => "
    with new_drill("Hudi's clustering, planned before a batch", job.table_type, 1) as drill:
        beside.hudi.sql(
            table, f"create table if not exists drilled using hudi location '{table}'", f"{call}'schedule')"
        )
        assert HoodieTable.open(str(table)).timeline().pending_clusterings
        before = len(job.commits())
        beside.ours()
        said = job.finish()
        assert len(job.commits()) > before
        assert "The query starts again" not in said
        with pytest.raises(AssertionError, match="ConflictException"):
            beside.hudi.sql(table, f"{call}'execute')")
        drill.injected += 1
        beside.check(drill)
        beside.ours()
        job.finish()
        beside.check(drill)
