"""What drills set in the environment: crash points and a clock that is wrong. Without it both are out of the way."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from tagstream.streaming.clock import clock_from_env
from tagstream.streaming.crash import CRASH_POINTS, CrashPlan
from tests.support.paths import ROOT
from tests.support.process import Process

REACH = """
import os
from tagstream.streaming.crash import CrashPlan
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
