"""What a cluster under a job loses: executors, and whole hosts with what lies on their disks."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator

from tests.drills.stream_job import DEADLINE_S, CountedJob
from tests.support.cluster import Cluster
from tests.support.process import Process, process_state, wait_for


def kill_executors(
    cluster: Cluster, job: CountedJob, process: Process, kills: int, rng: random.Random
) -> Iterator[int]:
    """Kill executors in turn, one after each commit; yields the process id of each."""
    for number in range(kills):
        before = job.batches()
        process.wait_for(lambda b=before: job.batches() > b, DEADLINE_S, "a commit")
        yield kill_executor(cluster, process, number % len(cluster.workers), rng.choice)


def kill_executor(
    cluster: Cluster, process: Process, worker: int, choose: Callable[[list[int]], int] = lambda found: found[0]
) -> int:
    """Wait until a worker has executors, and kill one; its process id."""
    process.wait_for(lambda: bool(cluster.executors(worker)), DEADLINE_S, "an executor")
    victim = choose(cluster.executors(worker))
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: process_state(victim) in ("", "Z"), 30, "the executor's end")
    return victim
