"""A driver that restarts within its process looks at its lease before it takes anything back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tagstream.streaming.lease_keeper import LEASE_TTL_MS, LeaseKeeper
from tagstream.streaming.recovery.settle import roll_back, settle
from tagstream.table.errors import LeaseLostError
from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tagstream.table.timeline import lease as leases
from tagstream.table.timeline.lease import LeaseOwner
from tagstream.table.write import commit
from tests.table.writer import CrashError, Writer, row


def test_the_work_of_a_successor_is_not_taken_back(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    writer.write([row(1, "p0", 1)])
    keeper = LeaseKeeper(writer.table.storage, lambda: 0)
    # The parts of a job's context that this looks at.
    job: Any = SimpleNamespace(
        table=writer.table, lease=keeper, index=None, instant=None, clock_ms=lambda: writer.now_ms
    )
    keeper.acquire("old")
    try:
        successor = LeaseOwner("another-host", "boot", 1, 1, "new")
        leases.acquire(writer.table.storage, successor, LEASE_TTL_MS, LEASE_TTL_MS)
        with pytest.raises(CrashError):
            writer.write([row(1, "p0", 2)], crash="publish")
        (pending,) = writer.table.timeline().pending_writes
        for take_back in (settle, lambda job: roll_back(job, pending.time)):
            with pytest.raises(LeaseLostError, match="process 1 on another-host"):
                take_back(job)
        assert writer.table.timeline().pending_writes == (pending,)
        assert not writer.table.timeline().pending_rollbacks
    finally:
        keeper.release()
    assert commit.stages_files(writer.table, pending)
