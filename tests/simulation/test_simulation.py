"""The simulation itself: a seed gives one history, JSON gives it back, a kill ends all effects, a failure shrinks."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.simulation import checks
from tests.simulation.model import Event, Model
from tests.simulation.mutations import FIRST, MUTATIONS, Mutation
from tests.simulation.processes import Killed, Processes, SimulatedStorage
from tests.simulation.program import Program, run, shrink
from tests.simulation.settings import Settings
from tests.simulation.steps import ACTIONS, Step
from tests.support.paths import PACKAGE

SMALL = Program(0, Settings(keys=3), (Step("batches", 1), Step("clock", 2), Step("batches", 3)))


def test_a_seed_gives_the_same_history_twice(tmp_path: Path) -> None:
    program = Program.of(7)
    assert program == Program.of(7) == Program.from_json(program.to_json())
    first, second = (run(program, tmp_path / "world") for _ in range(2))
    assert first == second and first.log and not first.problems


def test_every_step_can_be_drawn() -> None:
    drawn = {step.kind for seed in range(300) for step in Program.of(seed).steps}
    assert drawn == ACTIONS.keys()
    indexes = {Settings.draw(Random(seed)).index for seed in range(300)}
    assert {"FLINK_STATE", "GLOBAL_RECORD_LEVEL_INDEX", "RECORD_LEVEL_INDEX", "BUCKET", "BLOOM", "SIMPLE"} <= indexes


@pytest.mark.parametrize("after", [False, True])
def test_a_killed_process_changes_nothing_any_more(tmp_path: Path, after: bool) -> None:
    processes = Processes()
    storage = SimulatedStorage.of(str(tmp_path), processes)
    with pytest.raises(Killed), processes.process(kill_at=2, after=after):
        storage.write_new("one", b"1")
        try:
            storage.write_new("two", b"2")
        finally:
            with pytest.raises(Killed):
                storage.delete("one")
            assert processes.start_of(processes.newest) is None
    assert (tmp_path / "one").exists() and (tmp_path / "two").exists() is after
    storage.delete("one")
    assert not (tmp_path / "one").exists()


def test_the_oracle_knows_late_equal_and_partial_events() -> None:
    model = Model(partial=True)

    def event(order: int, **row: object) -> Event:
        return Event("k", (order, 0), {"id": "k", "part": "p", **row}, not row)

    state = model.folded({}, [event(5, txt="a", lng=1), event(3, txt="late"), event(5, txt="b")])
    assert state["k"].row == {"id": "k", "part": "p", "txt": "b", "lng": 1}
    gone = model.folded(state, [event(6)])
    assert gone["k"].row is None and model.folded(gone, [event(4, txt="x")]) == gone


def test_offsets_that_pass_events_over_are_found() -> None:
    model = Model(partial=False)
    assert model.batch("1", [], {}, {0: 2}) is None
    assert "passes over events" in (model.batch("2", [], {0: 3}, {0: 4}) or "")


def test_a_failure_is_found_and_made_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that readers lose."""
    right = checks.read_snapshot
    monkeypatch.setattr(checks, "read_snapshot", lambda *a, **k: right(*a, **k).slice(1))
    found = run(SMALL, tmp_path / "world")
    assert found.problems and "is lost" in found.problems[0]
    assert len(shrink(SMALL, tmp_path / "world", found.kind).steps) == 1
    monkeypatch.undo()
    assert not run(SMALL, tmp_path / "world").problems


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.defect.name)
def test_each_mutation_has_its_place(mutation: Mutation) -> None:
    defect = mutation.defect
    text = (PACKAGE / defect.file).read_text("utf-8")
    assert text.count(defect.old) == 1
    compile(text.replace(defect.old, defect.new), defect.file, "exec")
    assert any(Program.of(seed).has(mutation.needs) for seed in range(FIRST, FIRST + 2000))
