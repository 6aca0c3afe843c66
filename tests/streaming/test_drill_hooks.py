"""What drills set in the environment: crash points and a clock that is wrong. Without it both are out of the way."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tagstream.streaming.process import CrashPlan, clock_from_env
from tagstream.table.steps import CRASH_POINTS
from tests.support.paths import ROOT
from tests.support.process import Process, process_state

REACH = """
import os
from tagstream.streaming.process import CrashPlan
plan = CrashPlan.from_env(os.environ, os.getpgrp())
plan.reach("requested", 3)
plan.reach("inflight", 2)
print("not yet", flush=True)
plan.reach("inflight", 3)
plan.reach("inflight", 3)
print("went on", flush=True)
"""


def run(folder: Path, crash: str) -> Process:
    env = {"TAGSTREAM_CRASH": crash, "TAGSTREAM_CRASH_NOTE": str(folder / "note")}
    return Process([sys.executable, "-c", REACH], folder / "log", cwd=ROOT, env=env)


def test_without_a_plan_nothing_happens() -> None:
    plan = CrashPlan.from_env({}, 0)
    for point in CRASH_POINTS:
        plan.reach(point, -1)
        plan.reach_logged(point, 5)


@pytest.mark.parametrize("text", ["no_such@1", "inflight@1:sleep", "inflight@x"])
def test_a_plan_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        CrashPlan.from_env({"TAGSTREAM_CRASH": text}, 0)


@pytest.mark.kill
def test_the_process_dies_at_its_point_and_leaves_a_note(tmp_path: Path) -> None:
    with run(tmp_path, "inflight@3") as process:
        assert process.wait(30) == -signal.SIGKILL
        assert process.output() == "not yet\n"
    assert (tmp_path / "note").read_text() == "inflight@3\n"


@pytest.mark.kill
def test_a_pause_happens_once(tmp_path: Path) -> None:
    with run(tmp_path, "inflight@3:pause") as process:
        process.wait_for(lambda: process.stopped, 30, "the pause")
        process.pause()
        assert process.output() == "not yet\n"
        process.resume()
        assert process.wait(30) == 0
        assert process.output().endswith("went on\n")


def test_the_clock_is_the_systems_or_off_by_what_is_asked(tmp_path: Path) -> None:
    def off(env: dict[str, str]) -> float:
        return clock_from_env(env)() - time.time() * 1000

    assert abs(off({})) < 5000
    assert abs(off({"TAGSTREAM_CLOCK_OFFSET_MS": "-3600000"}) + 3_600_000) < 5000
    path = tmp_path / "offset"
    path.write_text("7200000")
    clock = clock_from_env({"TAGSTREAM_CLOCK_OFFSET_MS": str(path)})
    assert abs(clock() - time.time() * 1000 - 7_200_000) < 5000
    path.write_text("-86400000\n")
    assert abs(clock() - time.time() * 1000 + 86_400_000) < 5000


# A worker makes a group of its own, as Spark's do; its parent is the driver.
DRIVER = """
import os, sys
from tagstream.streaming.process import CrashPlan
plan = CrashPlan.from_env({"TAGSTREAM_CRASH": "state_committed@3:pause", "TAGSTREAM_CRASH_NOTE": sys.argv[1]}, os.getpid())
worker = os.fork()
if worker == 0:
    os.setpgid(0, 0)
    plan.reach("state_committed", 2)
    plan.reach("state_committed", 3)
    os._exit(7)
code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
plan.reach("state_committed", 3)
sys.exit(code)
"""


@pytest.mark.kill
def test_a_worker_that_was_stopped_with_its_driver_goes_on_with_it(tmp_path: Path) -> None:
    note = tmp_path / "note"
    with Process([sys.executable, "-c", DRIVER, note], tmp_path / "log") as process:
        process.wait_for(lambda: process.stopped, 60, "the driver to be stopped")
        process.pause()
        assert note.read_text() == "state_committed@3\n"
        assert process_state(process.pid) == "T"
        process.resume()
        assert process.wait(60) == 7, process.output()


@pytest.mark.extended("processes that are started, killed or paused")
@pytest.mark.kill
def test_a_worker_waits_for_a_driver_that_stands_still(tmp_path: Path) -> None:
    with Process([sys.executable, "-c", DRIVER, tmp_path / "note"], tmp_path / "log") as process:
        process.wait_for(lambda: process.stopped, 60, "the driver to be stopped")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert [process_state(int(child)) in ("S", "R") for child in children] == [True]
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(60) == 7, process.output()
