"""Commands under test: killed whole, waited for with a deadline, never left behind."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.process import DeadlineError, Process, wait_for

# A parent whose child makes a process group of its own, as Spark's Python daemon does.
FAMILY = """
import subprocess, sys, time
child = "import os, time; os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child])
time.sleep(600)
"""


@pytest.mark.kill
def test_kill_reaches_a_child_in_another_group(tmp_path: Path) -> None:
    process = Process([sys.executable, "-c", FAMILY], tmp_path / "log")
    process.wait_for(lambda: process.output().endswith("\n"), 20, "the child's id")
    child = psutil.Process(int(process.output()))
    process.kill()
    assert process.returncode == -signal.SIGKILL
    wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 5, "the child's end")


def test_a_block_that_fails_leaves_no_process(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Process(["sleep", "600"], tmp_path / "log") as process:
        raise KeyError
    assert process.returncode == -signal.SIGKILL


def test_the_deadline_says_what_and_shows_the_output(tmp_path: Path) -> None:
    with Process(["sh", "-c", "echo hello; exec sleep 600"], tmp_path / "log") as process:
        process.wait_for(lambda: "hello" in process.output(), 20, "hello")
        with pytest.raises(DeadlineError, match=r"(?s)waited 0.1 s for rain: sh -c.*hello"):
            process.wait_for(lambda: False, 0.1, "rain")
        process.send(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM


def test_an_early_end_is_told_from_a_late_one(tmp_path: Path) -> None:
    with (
        Process(["sh", "-c", "echo bad >&2; exit 3"], tmp_path / "log") as process,
        pytest.raises(DeadlineError, match=r"(?s)ended with 3 before rain.*bad"),
    ):
        process.wait_for(lambda: False, 20, "rain")
