"""A lock of real Hudi, in a process of its own: ``LockProgram.java`` drives Hudi's LockManager and its provider."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.peers import home as peers
from tests.support.answering import AnsweringProgram

PROGRAM = Path(__file__).with_name("LockProgram.java")
VERSION = "1.2.0"
_OCC = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}


def class_path(*before: Path | str) -> str:
    """Hudi and Hadoop; `before`: what Java looks into first."""
    (spark,) = (peers.home() / "venv").glob("lib/python3*/site-packages/pyspark/jars")
    return ":".join([*map(str, before), str(peers.bundle(VERSION)), f"{spark}/*"])


def hudi_lock(properties: Mapping[str, str], log: Path, *before: Path | str) -> AnsweringProgram:
    """Hudi's lock with these properties, ready. It waits 0.5 s in a try, and tries two times."""
    waits = {
        "hoodie.write.lock.wait_time_ms": "500",
        "hoodie.write.lock.client.num_retries": "1",
        "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
    }
    told = {**_OCC, **waits, **properties}
    options = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *(f"-D{k}={v}" for k, v in told.items())]
    program = AnsweringProgram(["java", *options, "-cp", class_path(*before), str(PROGRAM)], log)
    assert program.answer() == "ready", log.read_text()[-3000:]
    return program
