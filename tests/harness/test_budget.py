"""A run that has to end in time names what it did not start, and the next one begins elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.budget import begin_at
from tests.support.paths import ROOT

MODULE = """
import pytest

@pytest.fixture
def made():
    print("made")

@pytest.mark.parametrize("n", [1, 2])
def test_it(made, n): ...
"""


def ran(folder: Path, *words: str) -> str:
    (folder / "conftest.py").write_text("from tests.conftest import *  # noqa: F403\n")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    extended\n    table_versions\n")
    for name in ("test_a.py", "test_b.py", "test_c.py"):
        (folder / name).write_text(MODULE)
    command = [sys.executable, "-m", "pytest", "-v", "-s", "-p", "no:cacheprovider", *words]
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "SPARK_SUBMIT_OPTS": "-Dnone"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.extended("the same in two processes", first=("one process",))
@pytest.mark.parametrize("processes", [(), ("-n", "2", "--dist", "worksteal")], ids=["one process", "two"])
def test_what_comes_too_late_is_not_made_and_named(tmp_path: Path, processes: tuple[str, ...]) -> None:
    out = ran(tmp_path, "--until", "1600000000", *processes)
    assert "6 skipped" in out and "made" not in out
    _, _, told = out.partition("not run: 6 tests, for which there was no time left")
    named = [line for line in told.splitlines() if line.startswith("test_")]
    assert sorted(named) == [f"test_{f}.py::test_it[{n}]" for f in "abc" for n in (1, 2)]


def test_in_time_all_run(tmp_path: Path) -> None:
    out = ran(tmp_path, "--until", "99999999999")
    assert "6 passed" in out and "not run" not in out


@pytest.mark.extended("processes that are started, killed or paused")
def test_a_run_begins_at_the_file_that_a_text_chooses(tmp_path: Path) -> None:
    orders = set()
    for text in ("one", "two", "three", "four"):
        out = ran(tmp_path, "--begin-at", text, "--collect-only", "-qq")
        orders.add("".join(line.removeprefix("test_")[0] for line in out.splitlines() if "::" in line))
    assert orders <= {"aabbcc", "bbccaa", "ccaabb"} and len(orders) > 1


def test_every_file_is_the_first_one_of_some_text() -> None:
    files = ["a", "a", "b", "c", "c"]
    assert {begin_at(str(n), files) for n in range(50)} == {0, 2, 3}
