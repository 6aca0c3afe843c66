"""The drills' own parts: the report fails when it must, and the oracle of a lost checkpoint forgets the right things."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.drills.lost_checkpoint import oracle_of_lost_checkpoints
from tests.drills.report import Drill, table_of, write_json
from tests.drills.stream_job import Outcome
from tests.support.compare import Differences
from tests.support.events import Event, Mix, generate, oracle

NONE = Differences(0, 0, 0, {}, ())


@dataclass
class Job:
    """Stands for a job whose comparison is known."""

    differences: Differences

    def compare(self) -> Outcome:
        return Outcome(10, 9, self.differences)


def drill(meant: int) -> Drill:
    return Drill("a fault", "MERGE_ON_READ", meant)


def test_a_drill_with_its_faults_and_a_comparison_passes() -> None:
    with drill(2) as it:
        it.injected += 2
        it.compare(Job(NONE))  # type: ignore[arg-type]
    assert it.passed and it.line().startswith(
        "ok   a fault [mor]: 2 of 2 faults, 1 comparisons, rows expected 10, found 9"
    )


@pytest.mark.parametrize(("injected", "compares"), [(1, True), (2, False)])
def test_too_few_faults_or_no_comparison_fails(injected: int, compares: bool) -> None:
    it = drill(2)
    with pytest.raises(AssertionError, match="injected"), it:
        it.injected += injected
        if compares:
            it.compare(Job(NONE))  # type: ignore[arg-type]
    assert not it.passed


def test_differences_fail_and_are_counted(tmp_path: Path) -> None:
    it = drill(1)
    with pytest.raises(AssertionError, match="1 lost"), it:
        it.injected += 1
        it.compare(Job(Differences(1, 2, 3, {"ts": 4}, ())))  # type: ignore[arg-type]
    assert (it.lost, it.duplicates, it.wrong, it.passed) == (1, 3, 6, False)
    write_json([it], 1.5, tmp_path / "out" / "drills.json")
    doc: dict[str, Any] = json.loads((tmp_path / "out" / "drills.json").read_text())
    assert doc["totals"] == {"meant": 1, "injected": 1, "duplicates": 3, "lost": 1, "wrong": 6, "failed": 1}
    assert table_of([it], 1.5).row_count == 1


def put(key: str, ts: int, part: str = "p") -> Event:
    return Event(key, part, ts, name=f"n{ts}")


def gone(key: str, ts: int) -> Event:
    return Event(key, None, ts, deleted=True)


@pytest.mark.parametrize("logs_keep_deletes", [True, False])
def test_what_a_lost_checkpoint_forgets(logs_keep_deletes: bool) -> None:
    batches = [
        [put("logged", 10), put("live", 10)],
        [gone("logged", 20), gone("never", 20), put("flash", 10), gone("flash", 20)],
        [put("logged", 15), put("never", 15), put("flash", 15), put("live", 5)],
    ]
    found = oracle_of_lost_checkpoints(batches, [2], logs_keep_deletes=logs_keep_deletes)
    back = {"never", "flash"} | (set() if logs_keep_deletes else {"logged"})
    assert set(found) == {"live"} | back
    assert found["live"].ordering == 10
    assert set(oracle_of_lost_checkpoints(batches, [], logs_keep_deletes=False)) == {"live"}


def test_without_a_loss_it_is_the_plain_oracle() -> None:
    events = list(generate(2000, Mix(keys=100), seed=3))
    batches = [events[i : i + 100] for i in range(0, 2000, 100)]
    assert oracle_of_lost_checkpoints(batches, [], logs_keep_deletes=True) == oracle(events)
