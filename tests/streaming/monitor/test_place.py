"""Where people find the log of a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tagstream.streaming.monitor.watch import log_place


def test_a_file_a_pipe_the_journal_a_pod(tmp_path: Path) -> None:
    with (tmp_path / "job.log").open("wb") as out:
        assert log_place({}, "h", 7, out.fileno()) == str(tmp_path / "job.log")
    read, write = os.pipe()
    try:
        found = os.fstat(write)
        journal = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert log_place(journal, "h", 7, write) == "the journal: journalctl _PID=7"
        assert log_place({"JOURNAL_STREAM": "8:9"}, "h", 7, write).endswith("its standard error is a pipe")
        assert log_place({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "orders-0", 7, write).startswith(
            "the pod's log: kubectl logs orders-0"
        )
    finally:
        os.close(read)
        os.close(write)
    assert log_place({}, "h", 7, write) == "", "a descriptor that is closed"


@pytest.mark.parametrize("target", ["/dev/null"])
def test_nothing(target: str) -> None:
    with open(target, "wb") as out:
        assert log_place({}, "h", 7, out.fileno()) == "nowhere (/dev/null)"
