"""A driver that restarts within its process looks at its lease before it takes anything back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tagstream.streaming.batch.context import BatchHistory, IndexPosition
from tagstream.streaming.lease_keeper import LEASE_TTL_MS, LeaseKeeper
from tagstream.streaming.recovery.pending_writes import new_instant, roll_back, settle
from tagstream.table.errors import LeaseLostError
from tagstream.table.locks.lock import TableLock
from tagstream.table.locks.options import LockOptions
from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tagstream.table.metadata.changes import Changes, PartitionChange, WrittenFile
from tagstream.table.metadata.compaction import compact
from tagstream.table.metadata.delta_commit import delta_commit
from tagstream.table.metadata.metadata_writer import fresh_times
from tagstream.table.services.rollback import rollback
from tagstream.table.timeline import lease as leases
from tagstream.table.timeline.instant import DELTA_COMMIT
from tagstream.table.timeline.lease import LeaseOwner
from tagstream.table.write import commit
from tests.table.metadata.case import Case
from tests.table.writer import CrashError, Writer, row

NO_LOCK = TableLock(None, LockOptions())


def test_the_work_of_a_successor_is_not_taken_back(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    writer.write([row(1, "p0", 1)])
    keeper = LeaseKeeper(writer.table.storage, lambda: 0)
    # The parts of a job's context that this looks at.
    job: Any = SimpleNamespace(
        table=writer.table,
        env=SimpleNamespace(lease=keeper, index=None, lock=NO_LOCK, clock_ms=lambda: writer.now_ms),
        history=BatchHistory(),
        metadata=None,
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


@pytest.mark.parametrize("version", [6, 9])
def test_what_a_driver_that_woke_up_told_the_metadata_table_is_removed(version: int, tmp_path: Path) -> None:
    case = Case.create(tmp_path, COPY_ON_WRITE, version)
    case.writer.write([row(1, "p0", 1)])
    with pytest.raises(CrashError):
        case.writer.write([row(2, "p0", 2)], crash="told")
    (failed,) = case.writer.table.timeline().pending_writes
    rollback(case.writer.table, failed.time, case.times())
    lost = Changes({"p0": PartitionChange((WrittenFile("gone_0-1-1_1.parquet", 5, {}, "b"),))}, columns=case.columns)
    delta_commit(case.metadata_writer, failed.time, lost, case.times)
    keeper = LeaseKeeper(case.writer.table.storage, lambda: 0)
    job: Any = SimpleNamespace(
        table=case.writer.table,
        env=SimpleNamespace(lease=keeper, index=None, lock=NO_LOCK, clock_ms=lambda: case.writer.now_ms),
        history=BatchHistory(),
        position=IndexPosition(),
        metadata=None,
    )
    keeper.acquire("new")
    try:
        settle(job)
    finally:
        keeper.release()
    done = {i.time for i in case.metadata_writer.timeline().instants if i.action == DELTA_COMMIT}
    assert failed.time not in done
    case.check()


@pytest.mark.parametrize("is_open", [False, True], ids=["before it is opened", "as a batch begins"])
def test_an_instant_is_later_than_all_of_the_metadata_table(is_open: bool, tmp_path: Path) -> None:
    """Its services take times, too: with a clock that stepped back the next ones are those that the data has not seen."""
    case = Case.create(tmp_path, COPY_ON_WRITE, 9)
    case.writer.write([row(1, "p0", 1)])
    case.writer.now_ms -= 60_000
    writer = case.metadata_writer
    for _ in range(3):
        compact(writer, fresh_times(writer.table, writer, lambda: case.writer.now_ms), 1)
        taken = writer.timeline().newest
        job: Any = SimpleNamespace(
            table=case.writer.table,
            metadata=SimpleNamespace(writer=writer) if is_open else None,
            env=SimpleNamespace(clock_ms=lambda: case.writer.now_ms),
        )
        assert new_instant(job) > (taken or "")
        case.writer.write([row(1, "p0", 2)])
    case.check()
