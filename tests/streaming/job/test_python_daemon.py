"""A worker whose JVM has hung up is no news; what else goes wrong in the daemon is told as before."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys

import pytest

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
    assert "Bad file descriptor" in run("hush()", _CLOSED).stderr, "another error is printed"


# The daemon itself, as Spark starts it; its worker waits for the end of the connection before it answers.
_MANAGER = """
import os
from pyspark import daemon, worker
from tagstream.streaming.job.python_daemon import hush
def work(infile, outfile):
    try:
        infile.read()
    except ConnectionResetError:
        pass
    outfile.write(b"an answer")
    {what}
worker.main = work
{first}
daemon.manager()
"""
_SECRET = b"secret"


def told_by_a_daemon(first: str, kill_worker: bool, what: str = "") -> str:
    env = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": _SECRET.decode(), "PYTHON_UNIX_DOMAIN_ENABLED": "false"}
    if kill_worker:  # as Spark sets it since 4.1
        env["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"
    argv = [sys.executable, "-c", _MANAGER.format(first=first, what=what)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(argv, env=env, **pipes) as process:  # type: ignore[call-overload]
        (port,) = struct.unpack("!i", process.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port)) as jvm, jvm.makefile("rb") as answers:
            (pid,) = struct.unpack("!i", answers.read(4))
            worker = os.pidfd_open(pid)
            jvm.sendall(struct.pack("!i", len(_SECRET)) + _SECRET)
            assert answers.read(6) == b"\0\0\0\2ok"
            jvm.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close resets the connection
        try:
            assert select.select([worker], [], [], 60)[0], "the worker has ended"
        finally:
            os.close(worker)
        _, told = process.communicate(timeout=60)
    return str(told, "utf-8")


@pytest.mark.parametrize("kill_worker", [True, False])
def test_a_daemon_whose_jvm_has_hung_up_says_nothing(kill_worker: bool) -> None:
    assert told_by_a_daemon("hush()", kill_worker) == ""
    told = told_by_a_daemon("hush()", kill_worker, "os.close(outfile.fileno())")
    assert "Bad file descriptor" in told, "another error is printed"


@pytest.mark.parametrize("kill_worker", [True, False])
def test_spark_s_own_daemon_prints_it(kill_worker: bool) -> None:
    assert "BrokenPipeError" in told_by_a_daemon("", kill_worker)
