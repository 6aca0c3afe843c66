"""A worker whose JVM has hung up is no news; what else goes wrong in the daemon is told as before."""

from __future__ import annotations

import subprocess
import sys

# A worker of pyspark's own daemon in a process of its own, since it sets signals; its work leaves bytes to be flushed.
_WORKER = """
import os, socket, sys
from pyspark import daemon, worker
from tagstream.streaming.job.python_daemon import hush
ours, theirs = socket.socketpair()
def work(infile, outfile):
    outfile.write(b"an answer")
    {what}
worker.main = work
{first}
sys.exit(daemon.worker(ours, True))
"""
_HUNG_UP, _CLOSED = "theirs.close()", "os.close(outfile.fileno())"


def run(first: str, what: str) -> subprocess.CompletedProcess[str]:
    program = _WORKER.format(first=first, what=what)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)


def test_a_jvm_that_has_hung_up_is_no_news() -> None:
    told = run("", _HUNG_UP)
    assert (told.returncode, "BrokenPipeError" in told.stderr) == (0, True), "as Spark's own daemon does"
    told = run("hush()", _HUNG_UP)
    assert (told.returncode, told.stderr) == (0, "")
    assert "Bad file descriptor" in run("hush()", _CLOSED).stderr, "another error is told"
