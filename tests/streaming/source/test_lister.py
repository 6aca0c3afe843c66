"""The source folder from look to look, over restarts and kills: every line planned once."""

from __future__ import annotations

import json
import logging
import os
import random
from pathlib import Path

import pytest

from tagstream.streaming.errors import CheckpointError, SourceError
from tagstream.streaming.source.file_lister import FileLister, ListerOptions
from tagstream.streaming.source.file_plans import PlanLog, plan_number, read_plan
from tagstream.streaming.source.file_reader import FilesSpec, split_lines
from tagstream.table.errors import LeaseLostError
from tagstream.table.storage.posix import PosixStorage


class Case:
    """A folder, its plans, and a lister that is begun anew whenever a test wants."""

    def __init__(self, folder: Path, limit: int = 1 << 30) -> None:
        self.folder = folder / "in"
        self.folder.mkdir(exist_ok=True)
        self.root = PosixStorage(str(folder / "checkpoint"), sync=False)
        self.limit = limit
        self.time = 1_000
        self.lister = self.restart()

    def restart(self, changed: str = "fail") -> FileLister:
        options = ListerOptions(self.limit, 2, changed)  # type: ignore[arg-type]
        self.lister = FileLister(PosixStorage(str(self.folder)), PlanLog(self.root), options, lambda: 10**15)
        return self.lister

    def write(self, name: str, text: str, mode: str = "w") -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        with path.open(mode) as f:
            f.write(text)
        self.time += 1
        os.utime(path, (self.time, self.time))

    def planned(self) -> list[list[str]]:
        """The lines of every plan, in their order in the files."""
        spec = FilesSpec(PosixStorage(str(self.folder)), "fail")
        plans = (read_plan(self.root, n) for n in PlanLog(self.root).numbers)
        return [
            [v.decode() for s in p.splits for b in split_lines(spec, s) for v in b["value"].to_pylist()] for p in plans
        ]


def test_new_files_grown_files_and_nothing_new(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.write("a", '{"n": 1}\n{"n"')
    case.write("day=1/b", '{"n": 3}\n')
    case.write("_SUCCESS", "x")
    case.write("_temporary/c", '{"n": 9}\n')
    assert case.lister.look() == 1
    assert list(case.lister.waiting.items()) == [("a", 4)]
    assert case.lister.look() == 0
    case.write("a", ': 2}\n{"n": 4}', "a")
    assert case.restart().look() == 1
    assert case.lister.waiting == {}
    assert case.restart().look() == 0
    assert case.planned() == [['{"n": 1}', '{"n": 3}'], ['{"n": 2}', '{"n": 4}']]


def test_a_batch_is_cut_at_files_in_the_order_of_their_times(tmp_path: Path) -> None:
    case = Case(tmp_path, limit=20)
    for name in ("c", "a", "b"):
        case.write(name, json.dumps({"n": name}) + "\n")
    case.write("d", '{"n": "a long one"}\n')
    assert case.lister.look() == 4
    assert case.planned() == [['{"n": "c"}'], ['{"n": "a"}'], ['{"n": "b"}'], ['{"n": "a long one"}']]


def test_the_times_of_plans_rise(tmp_path: Path) -> None:
    """Spark takes them by time; made at once, they would often have the same."""
    case = Case(tmp_path, limit=1)
    for n in range(50):
        case.write(f"{n:02d}", json.dumps({"n": n}) + "\n")
    assert case.lister.look() == 50
    times = [e.mtime_ms for e in case.root.list("tagstream/source/plans") if e.name.endswith(".jsonl")]
    assert len(set(times)) == 50
    assert times == sorted(times)


def test_appended_at_random_and_looked_at_by_runs_that_die(tmp_path: Path) -> None:
    """Bytes arrive in any pieces and runs die anywhere between plans: each line is planned once, in order, whole."""
    rng = random.Random(7)
    case = Case(tmp_path, limit=50)
    whole = {
        f"f{i}": "".join(json.dumps({"f": i, "n": n, "t": "}{" * (n % 3)}) + "\n" for n in range(40)) for i in range(3)
    }
    at = dict.fromkeys(whole, 0)
    while any(at[name] < len(text) for name, text in whole.items()):
        name = rng.choice(list(whole))
        size = rng.randrange(1, 90)
        case.write(name, whole[name][at[name] : at[name] + size], "a")
        at[name] += size
        if rng.random() < 0.5:
            case.lister.look()
        if rng.random() < 0.2:
            case.restart()
    case.restart().look()
    lines = [line for plan in case.planned() for line in plan if line.strip()]
    for name, text in whole.items():
        mine = [line for line in lines if json.loads(line)["f"] == int(name[1:])]
        assert mine == text.splitlines()


def test_a_run_that_dies_between_two_plans_goes_on_after_the_first(tmp_path: Path) -> None:
    case = Case(tmp_path, limit=1)
    case.write("a", '{"n": 1}\n')
    case.write("b", '{"n": 2}\n')
    calls = []

    def die() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    options = ListerOptions(1, 2)
    dying = FileLister(PosixStorage(str(case.folder)), PlanLog(case.root), options, lambda: 10**15, die)
    with pytest.raises(KeyboardInterrupt):
        dying.look()
    assert case.planned() == [['{"n": 1}']]
    assert case.restart().look() == 1
    assert case.planned() == [['{"n": 1}'], ['{"n": 2}']]


def test_two_runs_never_plan_the_same_bytes(tmp_path: Path) -> None:
    case = Case(tmp_path)
    other = case.lister
    case.restart()
    case.write("a", '{"n": 1}\n')
    assert case.lister.look() == 1
    with pytest.raises(LeaseLostError, match="was written by another run of this stream"):
        other.look()
    assert case.planned() == [['{"n": 1}']]


def test_a_file_that_was_written_over_ends_the_job_or_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    case = Case(tmp_path)
    case.write("a", '{"n": 1}\n{"n": 2}\n')
    case.lister.look()
    case.write("a", '{"n": 7}\n')
    with pytest.raises(
        SourceError, match=r"in/a was overwritten: it has 9 bytes now, but 18 were read.*=again.*=ignore"
    ):
        case.lister.look()
    with pytest.raises(SourceError, match="was overwritten"):
        case.restart().look()
    with caplog.at_level(logging.WARNING, "tagstream"):
        assert case.restart("ignore").look() == 0
    assert "Its present lines count as read" in caplog.text
    case.write("b", '{"n": 3}\n')
    case.write("a", '{"n": 8}\n', "a")
    assert case.lister.look() == 1  # both in one plan, and the new position with them
    assert case.restart().look() == 0
    case.write("a", '{"n": 9}\n')
    assert case.restart("again").look() == 1
    spec = FilesSpec(PosixStorage(str(case.folder)), "again")
    last = read_plan(case.root, PlanLog(case.root).numbers[-1])
    assert [v for s in last.splits for b in split_lines(spec, s) for v in b["value"].to_pylist()] == [b'{"n": 9}']
    assert case.restart().look() == 0


def test_a_touched_file_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    case = Case(tmp_path)
    case.write("a", '{"n": 1}\n')
    case.lister.look()
    case.write("a", '{"n": 1}\n')
    with caplog.at_level(logging.WARNING, "tagstream"):
        assert case.lister.look() == case.lister.look() == 0
    assert caplog.text.count("has a new modification time") == 1


def test_what_waits_is_told_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    case = Case(tmp_path)
    for n in range(7):
        case.write(f"{n}", '{"n": ')
    case.lister.look()
    with caplog.at_level(logging.WARNING, "tagstream"):
        case.lister.report_waiting()
    assert f"{case.folder}/0 (6 bytes)" in caplog.text
    assert "and 2 more files" in caplog.text


def test_positions_are_kept_and_old_plans_go(tmp_path: Path) -> None:
    case = Case(tmp_path)
    for n in range(130):
        case.write("a", json.dumps({"n": n}) + "\n", "a")
        assert case.lister.look() == 1
    log = PlanLog(case.root)
    log.forget_plans(range(1, 101))
    assert log.numbers[0] == 101
    assert case.restart().look() == 0
    case.write("a", '{"n": 130}\n', "a")
    assert case.lister.look() == 1
    log.forget_plans(log.numbers)  # plans that the kept positions do not have in them stay
    assert case.restart().look() == 0


def test_a_damaged_file_is_told_by_name(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.write("a", '{"n": 1}\n')
    case.lister.look()
    path = tmp_path / "checkpoint" / "tagstream" / "source" / "plans" / f"plan-{1:020d}.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CheckpointError, match="is damaged"):
        case.restart()


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.folder.rmdir()
    with pytest.raises(SourceError, match="does not exist"):
        case.lister.look()


@pytest.mark.parametrize(
    ("path", "number"),
    [
        (f"file:///c/tagstream/source/plans/plan-{12:020d}.jsonl", 12),
        (f"file:///c/tagstream/roots/1/tagstream/source/plans/plan-{3:020d}.jsonl", 3),
        ("file:///in/1.json", None),
        ("file:///in/plans/12.jsonl", None),
    ],
)
def test_plans_are_told_from_data(path: str, number: int | None) -> None:
    assert plan_number(path) == number
