"""Programs of other languages and environments that take a command a line and answer with a line that begins with ANSWER."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

ANSWER = "ANSWER "
ENDED = "(ended)"  # the answer of a program that has ended
ANSWER_SECONDS = 240.0


class AnsweringProgram:
    """A running program. As a context manager: started, and killed at the end."""

    def __init__(self, command: Sequence[str | Path], log: Path) -> None:
        """`log`: the file for its errors."""
        self._log = log.open("w")
        self._popen = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self._answers: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            if line.startswith(ANSWER):
                self._answers.put(line[len(ANSWER) :].strip())
        self._answers.put(ENDED)

    def tell(self, command: str) -> None:
        """Send a command without waiting for its answer."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(command + "\n")
        self._popen.stdin.flush()

    def answer(self) -> str:
        """The next answer; queue.Empty when none comes."""
        return self._answers.get(timeout=ANSWER_SECONDS)

    def ask(self, command: str) -> str:
        """Send a command and give its answer."""
        self.tell(command)
        return self.answer()

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._popen.poll() is None

    def kill(self) -> None:
        """SIGKILL; returns when the process has ended."""
        self._popen.kill()
        self._popen.wait()

    def __enter__(self) -> AnsweringProgram:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        self._reader.join()
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.close()
        self._popen.stdout.close()
        self._log.close()
