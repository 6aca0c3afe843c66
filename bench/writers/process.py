"""Runs a process and its children to their end, with limited time, and measures their memory. None of them is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.writers.case import BenchError
from tests.support.process import session_members

_LOOK_S = 1.0
_TAIL = 2000  # bytes of a log in which an error is searched for


@dataclass
class Peak:
    """The peak memory of all JVMs together, and of all Python processes together, in MiB.

    Pages that several processes share (Python workers are forks of one process) count once.
    """

    jvm: float = 0.0
    python: float = 0.0


def _look(session: int, peak: Peak) -> None:
    """Take a sample of the memory."""
    jvm = python = 0
    for pid in session_members(session):
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.name().startswith("java"):
                jvm += process.memory_full_info().pss
            elif process.name().startswith("python"):
                python += process.memory_full_info().pss
    peak.jvm = max(peak.jvm, jvm / 2**20)
    peak.python = max(peak.python, python / 2**20)


def _end(session: int) -> None:
    """Kill the running processes. All are in one session, also those with their own process group."""
    while members := session_members(session):
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def run_process(command: Sequence[str], env: Mapping[str, str], log: Path, timeout_s: float) -> Peak:
    """Run the command with its output in `log`. BenchError when it fails or takes longer than `timeout_s`.

    However this ends, also by Ctrl-C, none of its processes is left.
    """
    peak = Peak()
    limit = time.monotonic() + timeout_s
    with log.open("wb") as out:
        process = subprocess.Popen(
            list(command), env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            cwd=log.parent, start_new_session=True,
        )  # fmt: skip
        try:
            while True:
                _look(process.pid, peak)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_S)
                    break
                if time.monotonic() > limit:
                    raise BenchError(f"not done after {timeout_s:.0f} s; see {log}")
        finally:
            _end(process.pid)
            process.wait()
    if process.returncode:
        raise BenchError(f"exit code {process.returncode}: {reason(log)} (all in {log})")
    return peak


def reason(log: Path) -> str:
    """The last line of a log that names an error; a cause in a Java trace before Python's error about an ended JVM."""
    with log.open("rb") as f:
        f.seek(max(0, log.stat().st_size - _TAIL * 20))
        lines = f.read().decode("utf-8", "replace").splitlines()
    for signs in (("Caused by:",), ("Error:", "Exception:", "Error ", "Exception ")):
        named = [line.strip() for line in lines if any(sign in line for sign in signs)]
        if named:
            return named[-1][:_TAIL]
    return lines[-1][:_TAIL] if lines else "(it said nothing)"
