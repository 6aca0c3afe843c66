"""A process of its own with one handle on the lock of a table, to kill and to stop.

As a program (`python -m tests.support.lock_holder JSON`) it takes one command a line and answers each with one line.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from tagstream.table.errors import TagstreamError
from tagstream.table.locks.lock import Surroundings
from tagstream.table.locks.opened import open_lock
from tagstream.table.locks.options import LockOptions
from tagstream.table.storage.opening import open_storage
from tests.support.paths import ROOT
from tests.support.process import process_state, wait_for

ANSWER_SECONDS = 120.0


class LockHolder:
    """The other process. As a context manager: started, and killed at the end."""

    def __init__(
        self, options: Mapping[str, Any], base_path: str, table: str, writer: str, env: Mapping[str, str] | None = None
    ) -> None:
        """`options`: fields of LockOptions; `env`: more variables of its environment."""
        told = {"options": dict(options), "base_path": base_path, "table": table, "writer": writer}
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "tests.support.lock_holder", json.dumps(told)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **(env or {})},
        )  # fmt: skip

    def tell(self, command: str) -> None:
        """Send a command without waiting for its answer."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(command + "\n")
        self._popen.stdin.flush()

    def answer(self) -> str:
        """The next answer; AssertionError when none comes."""
        assert self._popen.stdout is not None
        ready, _, _ = select.select([self._popen.stdout], [], [], ANSWER_SECONDS)
        assert ready, "no answer of the lock's holder"
        return self._popen.stdout.readline().strip()

    def ask(self, command: str) -> str:
        """`acquire SECONDS` and `held`: True or False; `release` and `close`: ok. An error's class and text."""
        self.tell(command)
        return self.answer()

    def stop(self) -> None:
        """SIGSTOP; returns when the process stands still."""
        self._popen.send_signal(signal.SIGSTOP)
        wait_for(lambda: process_state(self._popen.pid) == "T", ANSWER_SECONDS, "a process that stands still")

    def go_on(self) -> None:
        """SIGCONT."""
        self._popen.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; returns when the process has ended."""
        self._popen.kill()
        self._popen.communicate()

    def __enter__(self) -> LockHolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()


def main() -> None:
    """Answer commands until the input ends."""
    told = json.loads(sys.argv[1])
    here = Surroundings(writer=told["writer"], new_id=lambda: str(uuid.uuid4()), env=os.environ)
    lock = open_lock(
        LockOptions(**told["options"]), told["table"], told["base_path"], open_storage(told["base_path"]), here
    )
    assert lock is not None
    for line in sys.stdin:
        name, *rest = line.split()
        try:
            if name == "acquire":
                answer = str(lock.try_acquire(float(rest[0])))
            elif name == "held":
                answer = str(lock.is_held())
            else:
                (lock.release if name == "release" else lock.close)()
                answer = "ok"
        except TagstreamError as e:
            answer = f"{type(e).__name__}: {e}"
        print(answer.replace("\n", " "), flush=True)
    lock.close()


if __name__ == "__main__":
    main()
