"""The processes of a Spark application, found by session and command line."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tests.support.process import session_members

PYTHON = b"pyspark.worker"  # the argument of every daemon, whose forks have its command line
PROGRAM = b"run_stream.py"
EXECUTOR = b"CoarseGrainedExecutorBackend"


def python_workers(session: int) -> list[int]:
    """Python workers of a session: the forks of Spark's daemons (same command line, a daemon as parent)."""
    daemons = set(_with(PYTHON, session))
    return [pid for pid in daemons if _parent(pid) in daemons]


def python_processes(session: int) -> list[int]:
    """Daemons and workers of a session."""
    return _with(PYTHON, session)


def executors(session: int) -> list[int]:
    """Executor JVMs in the session of a standalone worker."""
    return [pid for pid in _with(EXECUTOR, session) if _name(pid) == "java"]


def executor_host(executor: int) -> str:
    """The host that Spark knows an executor by."""
    words = Path(f"/proc/{executor}/cmdline").read_bytes().decode().split("\0")
    return words[words.index("--hostname") + 1]


def driver(session: int) -> int:
    """The Python process of a job that ``spark-submit`` has started in a session."""
    (found,) = (pid for pid in _with(PROGRAM, session) if _name(pid) != "java")
    return found


def _with(text: bytes, session: int) -> list[int]:
    found = []
    for pid in session_members(session):
        with suppress(OSError):
            if text in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
