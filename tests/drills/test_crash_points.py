"""SIGKILL at every named step of the commit protocol, alone and in pairs; after each, the table is the oracle's.

On tables of version 6 without a metadata table, and on those of version 9 with one that has a record index, or on the kind
of table that a run asks for. A metadata table is held against the files and keys after each kill.
"""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from tagstream.table.steps import COMMIT_STEPS
from tests.drills.conftest import NewDrill, NewJob
from tests.drills.steps import METADATA, PLAIN, batches_of, conf, kill_at_each, kill_in_turn, pair_circuit, points
from tests.support.events import Mix, generate
from tests.support.table_version import has_metadata

PER_BATCH = 80
TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")
MIX = Mix(keys=300, tombstones=0.03)


def test_the_circuit_has_every_pair_once() -> None:
    circuit = pair_circuit(COMMIT_STEPS)
    assert len(circuit) == len(COMMIT_STEPS) ** 2 + 1
    assert len(set(pairwise(circuit))) == len(COMMIT_STEPS) ** 2
    some = set(pairwise(pair_circuit(COMMIT_STEPS, METADATA)))
    assert some == {pair for pair in product(COMMIT_STEPS, repeat=2) if set(pair) & set(METADATA)}


@pytest.mark.drill
@pytest.mark.table_versions(9, also=(6, 8))
def test_a_kill_at_four_steps(version: int, new_drill: NewDrill, new_job: NewJob) -> None:
    told = "metadata_completed" if has_metadata() else "inflight"
    kill_at(("state_committed", "files_published", told, "completed"), version, "MERGE_ON_READ", new_drill, new_job)


@pytest.mark.drill
@pytest.mark.table_versions(6, 9)
@pytest.mark.parametrize("table_type", TYPES)
def test_a_kill_at_every_step_loses_and_doubles_nothing(
    version: int, table_type: str, new_drill: NewDrill, new_job: NewJob
) -> None:
    kill_at(points(), version, table_type, new_drill, new_job)


def kill_at(points: tuple[str, ...], version: int, table_type: str, new_drill: NewDrill, new_job: NewJob) -> None:
    with new_drill(f"SIGKILL at each step of a commit, version {version}", table_type, len(points)) as drill:
        job = new_job(table_type, PER_BATCH, conf=conf())
        job.produce(generate((len(points) + 2) * PER_BATCH, MIX, seed=7))
        kill_at_each(points, drill, job)


@pytest.mark.drill
@pytest.mark.parametrize(
    ("version", "table_type"),
    [(6, "MERGE_ON_READ"), pytest.param(9, "MERGE_ON_READ", marks=pytest.mark.matrix)],
    indirect=["version"],
)
def test_a_second_kill_in_the_recovery(version: int, table_type: str, new_drill: NewDrill, new_job: NewJob) -> None:
    """All pairs of steps without a metadata table; with one, the pairs that its steps are in."""
    circuit = pair_circuit(points(), METADATA if has_metadata() else PLAIN)
    what = f"SIGKILL at each pair of steps, the second in the recovery, version {version}"
    with new_drill(what, table_type, len(circuit)) as drill:
        job = new_job(table_type, PER_BATCH, conf=conf())
        job.produce(generate(batches_of(circuit) * PER_BATCH, MIX, seed=23))
        kill_in_turn(circuit, drill, job)


PULL_POINTS = tuple(point for point in PLAIN if point != "delta_durable")  # which is the stateful step's
IN_ORDER = Mix(keys=300, late=0, late_deletes=0, equal_ordering=0, tombstones=0.03)


@pytest.mark.drill
@pytest.mark.parametrize(
    ("index", "table_type"), [("GLOBAL_SIMPLE", "MERGE_ON_READ"), ("GLOBAL_BLOOM", "COPY_ON_WRITE")]
)
def test_a_kill_at_every_step_with_an_index_that_is_asked_in_the_sink(
    table_type: str, index: str, new_drill: NewDrill, new_job: NewJob
) -> None:
    """Without a stateful step a replay passes over the batch. Deletes come in order: none is remembered."""
    with new_drill(f"SIGKILL at each step of a commit, {index}", table_type, len(PULL_POINTS)) as drill:
        job = new_job(table_type, PER_BATCH, conf={"hoodie.index.type": index})
        job.produce(generate((len(PULL_POINTS) + 2) * PER_BATCH, IN_ORDER, seed=9))
        kill_at_each(PULL_POINTS, drill, job)
