"""The steps of a commit that a drill kills at, alone and in pairs, and where the start after such a kill begins."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tagstream.table.steps import COMMIT_STEPS
from tests.drills.report import Drill
from tests.drills.stream_job import CountedJob, StreamJob
from tests.support.table_version import has_metadata

COMPLETED = COMMIT_STEPS.index("completed")
METADATA = tuple(point for point in COMMIT_STEPS if point.startswith("metadata_"))
PLAIN = tuple(point for point in COMMIT_STEPS if point not in METADATA)
KEPT = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "2",
    "hoodie.metadata.compact.max.delta.commits": "3",
}
WITHOUT = {"hoodie.metadata.enable": "false"}
REPLAYED = ("delta_durable", "state_committed", "commit_log")  # the steps that a batch goes through in a replay, too


@dataclass(frozen=True)
class Position:
    """Where the next start begins: at ``batch``, which the table holds already when it is to be replayed."""

    batch: int
    replay: bool = False

    def crash_at(self, point: str) -> int:
        """The batch whose step ``point`` comes first. A replay passes few of them: the others are the next batch's."""
        return self.batch + (self.replay and point not in REPLAYED)

    def after(self, point: str) -> Position:
        """Where the start after that crash begins."""
        batch = self.crash_at(point)
        if point == "commit_log":
            return Position(batch + 1)
        return Position(batch, replay=COMMIT_STEPS.index(point) >= COMPLETED or (self.replay and batch == self.batch))

    @property
    def committed(self) -> int:
        """Batches in the table."""
        return self.batch + self.replay


def pair_circuit(points: tuple[str, ...], among: Collection[str] = COMMIT_STEPS) -> list[str]:
    """Shortest sequence with every ordered pair of points of which one is in ``among``, a point with itself too."""
    follow = {point: [other for other in points if point in among or other in among] for point in points}
    stack, circuit = [points[0]], []
    while stack:  # Hierholzer: walk until stuck, then splice in the edges left over
        if follow[stack[-1]]:
            stack.append(follow[stack[-1]].pop())
        else:
            circuit.append(stack.pop())
    return circuit[::-1]


def points() -> tuple[str, ...]:
    """The steps of a commit to the kind of table that this is run on."""
    return COMMIT_STEPS if has_metadata() else PLAIN


def conf() -> dict[str, str]:
    """The job's, of that kind."""
    return KEPT if has_metadata() else WITHOUT


def kill_at_each(points: Sequence[str], drill: Drill, job: CountedJob) -> None:
    """One start for each point, which dies there; the table is compared after each, and at the end of the stream."""
    for batch, point in enumerate(points, start=1):
        job.crash(point, batch)
        drill.injected += 1
        drill.compare(job)
        assert job.batches() == batch + (COMMIT_STEPS.index(point) >= COMPLETED), point
    _to_the_end(drill, job)


def batches_of(circuit: Sequence[str]) -> int:
    """How many batches :func:`kill_in_turn` needs."""
    at = Position(0)
    for point in circuit:
        at = at.after(point)
    return at.batch + 4


def kill_in_turn(circuit: Sequence[str], drill: Drill, job: CountedJob) -> None:
    """One start for each point of a circuit, each of which dies in the recovery from the one before or right after it."""
    at = Position(0)
    for point in circuit:
        job.crash(point, at.crash_at(point))
        at = at.after(point)
        drill.injected += 1
        drill.compare(job)
        assert job.batches() == at.committed, f"{point}: {job.batches()} batches committed, {at}"
        job.committed()
    _to_the_end(drill, job)


def _to_the_end(drill: Drill, job: CountedJob) -> None:
    job.finish()
    assert job.all_taken()
    drill.compare(job)


def kill_with_all_input(steps: Sequence[str], drill: Drill, job: StreamJob) -> None:
    """As :func:`kill_at_each` for a job whose whole input is there from the start, in files."""
    job.write_input()
    for step in steps:
        job.crash(step, job.committed())
        drill.injected += 1
        job.check()
        drill.compare(job)
    job.finish()
    assert job.all_taken()
    job.check()
    drill.compare(job)
