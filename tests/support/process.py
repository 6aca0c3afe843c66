"""A command under test: in a session of its own, its output in a file, killed whole, watched with a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

POLL_SECONDS = 0.02


class DeadlineError(AssertionError):
    """What a test waited for did not happen in time, or the process ended before it did."""


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Poll `condition` until it holds. Raises DeadlineError naming `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise DeadlineError(f"waited {seconds:g} s for {what}")
        time.sleep(POLL_SECONDS)


def in_thread(work: Callable[[], object]) -> threading.Thread:
    """A thread that does it, started."""
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def session_members(session: int) -> list[int]:
    """Living processes of a session. By session and not by group: Spark's Python daemon makes a group of its own."""
    members = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            # pid (name) state ppid pgrp session ...; the name may hold blanks and parentheses
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] not in "ZX":
                members.append(int(entry.name))
    return members


def process_state(pid: int) -> str:
    """The kernel's letter for a process (R, S, D, T stopped, Z ended and not reaped); empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


class Process:
    """A running command. As a context manager it leaves nothing behind, however the block ends."""

    def __init__(
        self, command: Sequence[str | Path], log: Path, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.command = [str(part) for part in command]
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            self._popen = subprocess.Popen(
                self.command,
                cwd=cwd,
                env=None if env is None else dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id, which is the session's id too."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        return self._popen.poll()

    def output(self) -> str:
        """Everything written so far, standard error included."""
        return self.log.read_text("utf-8", errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the command itself (SIGTERM, SIGSTOP, SIGCONT)."""
        self._popen.send_signal(number)

    def pause(self) -> None:
        """SIGSTOP every process of the session and wait until each has stopped."""
        wait_for(self._all_stopped, 10, "the session to stand still")

    def resume(self) -> None:
        """SIGCONT every process of the session."""
        for pid in session_members(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    @property
    def stopped(self) -> bool:
        """True while the command itself is stopped by a signal."""
        return process_state(self.pid) == "T"

    def _all_stopped(self) -> bool:
        running = [pid for pid in session_members(self.pid) if process_state(pid) not in ("T", "")]
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return not running

    def kill(self) -> None:
        """SIGKILL every process of the session until none is left, then reap the command."""
        while members := session_members(self.pid):
            for pid in members:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_SECONDS)
            self._popen.poll()  # else a killed leader stays in the list as long as it is unreaped
        self._popen.wait()

    def wait(self, seconds: float) -> int:
        """Exit code. Raises DeadlineError with the end of the output when it runs on."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise DeadlineError(f"still running after {seconds:g} s: {self._described()}") from error

    def wait_for(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Poll `condition` while the command runs. Raises DeadlineError when time is over or the command ended."""
        ended = False

        def happened() -> bool:
            nonlocal ended
            ended = self.returncode is not None  # looked at first: what it did before it ended still counts
            return condition() or ended

        try:
            wait_for(happened, seconds, what)
        except DeadlineError as error:
            raise DeadlineError(f"{error}: {self._described()}") from error
        if ended and not condition():
            raise DeadlineError(f"ended with {self.returncode} before {what}: {self._described()}")

    def wait_until_up(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """As :meth:`wait_for`, of a server that was just started: one that does not come up is killed."""
        try:
            self.wait_for(condition, seconds, what)
        except BaseException:
            self.kill()
            raise

    def _described(self) -> str:
        return f"{' '.join(self.command)}\n{self.output()[-4000:]}"

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
