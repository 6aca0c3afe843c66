"""What the metadata table was told of a commit is taken back with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tagstream.table.errors import CorruptFileError, LeaseLostError, MetadataCompactedError
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.meta_client.table_config import MERGE_ON_READ
from tagstream.table.metadata import delta_commit as delta
from tagstream.table.metadata import rollback
from tagstream.table.metadata.changes import Changes, PartitionChange, WrittenFile
from tagstream.table.metadata.compaction import compact
from tagstream.table.metadata.delta_commit import delta_commit
from tagstream.table.metadata.metadata_writer import MetadataWriter
from tagstream.table.metadata.rollback import check_rollback, forget_undone, recover, roll_back
from tagstream.table.services.archiving import archive_table
from tagstream.table.services.options import ArchiveOptions, CleanOptions
from tagstream.table.services.rollback import resume_rollbacks
from tagstream.table.services.rollback import rollback as data_rollback
from tagstream.table.timeline.instant import DELTA_COMMIT, ROLLBACK
from tests.table.metadata.case import Case
from tests.table.writer import CrashError, row

VERSIONS = (6, 8, 9)
EARLY = ("requested", "inflight", "half", "all")


def filled(folder: Path, version: int) -> Case:
    case = Case.create(folder, MERGE_ON_READ, version)
    case.writer.write([row(n, f"p{n % 2}", 1) for n in range(30)])
    case.check()
    return case


def failing_write(case: Case) -> str:
    """A write that dies after the metadata table was told; with deletes, moves and new keys."""
    gone = next(key for key in case.writer.live if int(key[1:]) < 20)
    with pytest.raises(CrashError):
        case.writer.write([row(n, "p5", 9) for n in range(20, 40)], deletes=[gone], crash="told")
    (failed,) = case.writer.table.timeline().pending_writes
    return failed.time


def take_back(case: Case, failed: str) -> None:
    """The rollback of the data tells the metadata table, in the order of each version."""
    check_rollback(case.metadata_writer, failed)
    data_rollback(case.writer.table, failed, case.times())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_that_failed_after_it_was_told(version: int, tmp_path: Path) -> None:
    case = filled(tmp_path, version)
    failed = failing_write(case)
    take_back(case, failed)
    case.check()
    writer = case.metadata_writer
    assert failed not in {i.time for i in writer.timeline().instants if i.action == "deltacommit"}
    assert not writer.timeline().pending
    logs = [log for name in writer.partitions for log in case.metadata.slices(name) for log in log.log_paths]
    blocks = [block for rel in logs for block in scan_log_file(writer.storage, rel)]
    commands = [block for block in blocks if block.type is BlockType.COMMAND]
    if version == 6:
        assert {block.target_instant for block in commands} == {failed}
    else:
        assert not commands
        assert failed not in {block.instant for block in blocks}
    case.writer.write([row(n, "p5", 2) for n in range(20, 40)], deletes=["k1"])
    case.check()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("when", EARLY)
def test_an_attempt_that_was_cut_off_is_taken_back_before_the_next(
    version: int, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same instant is told again, of other files: a replay in the same action of the data."""
    case = filled(tmp_path, version)
    writer, instant = case.metadata_writer, case.times()
    changes = Changes(
        {"p0": PartitionChange((WrittenFile("x.parquet", 5, {}, "b"), WrittenFile(".y.log.1_0-0-0", 6, {})))}
    )
    with monkeypatch.context() as patch, pytest.raises(CrashError):
        crash_at(patch, when)
        delta_commit(writer, instant, changes, case.times)
    again = Changes({"p1": PartitionChange((WrittenFile("z.parquet", 7, {}, "c"),))})
    delta_commit(writer, instant, again, case.times)
    case.writer.table.storage.write_new(f"{case.writer.table.config.timeline_folder}/{done_name(case, instant)}", b"{}")
    assert "x.parquet" not in case.metadata.files("p0")
    assert ".y.log.1_0-0-0" not in case.metadata.files("p0")
    assert case.metadata.files("p1")["z.parquet"] == 7


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("at", ["before it completes", "after it completed"])
def test_what_a_driver_writes_that_lost_its_lease_is_rolled_back(version: int, at: str, tmp_path: Path) -> None:
    """It stood still before a file of the metadata table, and its successor has rolled its write back meanwhile."""
    case = filled(tmp_path, version)
    failed = failing_write(case)
    take_back(case, failed)
    calls = iter(range(2))
    gone = Changes({"p1": PartitionChange((WrittenFile("gone_0-1-1_1.parquet", 5, {}, "b"),))}, columns=case.columns)

    def check() -> None:
        if next(calls) == (at == "after it completed"):
            raise LeaseLostError("taken over")

    with pytest.raises(LeaseLostError, match="taken over"):
        delta_commit(case.metadata_writer, failed, gone, case.times, check=check)
    if version == 6 and at == "after it completed":  # the name is of all who write this instant
        assert forget_undone(case.metadata_writer, case.times) == (failed,)
    else:
        done = [i for i in case.metadata_writer.timeline().instants if i.is_completed]
        assert failed not in {i.time for i in done}
        recover(case.metadata_writer, case.times)
    assert failed not in {i.time for i in case.metadata_writer.timeline().instants if i.action == DELTA_COMMIT}
    case.check()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_driver_that_lost_its_lease_leaves_its_successors_execution_of_the_plan_alone(
    version: int, tmp_path: Path
) -> None:
    """A clustering is executed again at the instant of its plan, so both have the same names."""
    case = filled(tmp_path, version)
    instant = case.times()
    ours, theirs = (
        Changes({"p1": PartitionChange((WrittenFile(f"{name}.parquet", 5, {}, "b"),))}, columns=case.columns)
        for name in ("ours", "theirs")
    )

    def check() -> None:
        delta_commit(case.metadata_writer, instant, theirs, case.times)
        raise LeaseLostError("taken over")

    with pytest.raises(LeaseLostError, match="taken over"):
        delta_commit(case.metadata_writer, instant, ours, case.times, check=check)
    case.writer.table.storage.write_new(f"{case.writer.table.config.timeline_folder}/{done_name(case, instant)}", b"{}")
    assert "theirs.parquet" in case.metadata.files("p1")
    assert "ours.parquet" not in case.metadata.files("p1")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_driver_that_woke_up_completed_is_removed(version: int, tmp_path: Path) -> None:
    """It died before it found that its lease was gone. Readers count it once the data's timeline begins behind it."""
    case = filled(tmp_path, version)
    failed = failing_write(case)
    take_back(case, failed)
    gone = Changes({"p1": PartitionChange((WrittenFile("gone_0-1-1_1.parquet", 5, {}, "b"),))}, columns=case.columns)
    delta_commit(case.metadata_writer, failed, gone, case.times)
    case.writer.write([row(n, "p5", 2) for n in range(20, 40)])
    assert forget_undone(case.metadata_writer, case.times) == (failed,)
    assert forget_undone(case.metadata_writer, case.times) == ()
    assert failed not in {i.time for i in case.metadata_writer.timeline().instants if i.action == DELTA_COMMIT}
    case.check()


@pytest.mark.parametrize(("version", "by"), [(6, "compaction"), (8, "compaction"), (9, "compaction"), (8, "archive")])
def test_it_is_removed_while_the_timeline_tells_that_it_was_rolled_back(version: int, by: str, tmp_path: Path) -> None:
    case = filled(tmp_path, version)
    failed = failing_write(case)
    take_back(case, failed)
    for number in range(8):
        case.writer.write([row(number, "p5", 2)])
        if number == 4 and by == "archive":
            assert compact(case.metadata_writer, case.times, 1) is not None
    gone = Changes({"p1": PartitionChange((WrittenFile("gone_0-1-1_1.parquet", 5, {}, "b"),))}, columns=case.columns)
    delta_commit(case.metadata_writer, failed, gone, case.times)
    if by == "compaction":
        assert compact(case.metadata_writer, case.times, 1) is not None
    else:
        often = ArchiveOptions(min_commits=2, max_commits=3)
        done = archive_table(case.writer.table, often, CleanOptions(commits=1), lambda: case.writer.now_ms)
        assert done is not None and ROLLBACK in {i.action for i in done.instants}
    assert failed not in {i.time for i in case.metadata_writer.timeline().instants if i.action == DELTA_COMMIT}
    assert "gone_0-1-1_1.parquet" not in case.metadata.files("p1")
    case.check()


def done_name(case: Case, instant: str) -> str:
    return (
        f"{instant}_{case.times()}.deltacommit"
        if case.metadata_writer.has_completion_times
        else f"{instant}.deltacommit"
    )


def crash_at(patch: pytest.MonkeyPatch, when: str) -> None:
    def stop(*_: object, **__: object) -> None:
        raise CrashError

    calls = iter(range(100))
    real_begin, real_log = delta.MetadataWriter._create, delta.delta_log_file
    if when == "requested":

        def begin(self: delta.MetadataWriter, found: object, data: bytes) -> None:
            if next(calls):
                raise CrashError
            real_begin(self, found, data)  # type: ignore[arg-type]

        patch.setattr(delta.MetadataWriter, "_create", begin)
    elif when == "inflight":
        patch.setattr(delta, "delta_log_file", stop)
    elif when == "half":
        patch.setattr(delta, "delta_log_file", lambda *a: real_log(*a) if next(calls) < 1 else stop())
    else:
        patch.setattr(delta, "delta_content", stop)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("carried_out", [True, False])
def test_a_rollback_that_was_cut_off_is_finished(
    version: int, carried_out: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = filled(tmp_path, version)
    failed = failing_write(case)
    real = rollback.MetadataWriter.complete

    def stop(*_: object) -> None:
        raise CrashError

    def no_rollback(self: MetadataWriter, instant: str, action: str, *rest: Any) -> object:
        return stop() if action == ROLLBACK else real(self, instant, action, *rest)

    with monkeypatch.context() as patch, pytest.raises(CrashError):
        if carried_out:
            patch.setattr(rollback.MetadataWriter, "complete", no_rollback)
        else:
            patch.setattr(rollback, "_carry_out", stop)
        take_back(case, failed)
    assert case.metadata_writer.timeline().pending_rollbacks
    assert len(resume_rollbacks(case.writer.table)) == 1
    assert not case.metadata_writer.timeline().pending
    case.check()
    case.writer.write([row(n, "p7", 2) for n in range(5)])
    case.check()


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_compacted_cannot_be_taken_back(version: int, tmp_path: Path) -> None:
    case = filled(tmp_path, version)
    newest = case.writer.table.timeline().newest_completed
    assert newest is not None
    check_rollback(case.metadata_writer, newest)
    assert compact(case.metadata_writer, case.times, 1) is not None
    with pytest.raises(MetadataCompactedError, match=newest):
        roll_back(case.metadata_writer, newest, case.times(), case.times)
    assert not case.metadata_writer.timeline().pending
    failed = failing_write(case)
    take_back(case, failed)
    case.check()


@pytest.mark.parametrize("version", VERSIONS)
def test_one_that_it_was_never_told_of(version: int, tmp_path: Path) -> None:
    case = filled(tmp_path, version)
    with pytest.raises(CrashError):
        case.writer.write([row(50, "p5", 2)], crash="publish")
    (failed,) = case.writer.table.timeline().pending_writes
    before = case.metadata_writer.timeline().instants
    assert not roll_back(case.metadata_writer, failed.time, case.times(), case.times)
    assert case.metadata_writer.timeline().instants == before
    recover(case.metadata_writer, case.times)
    assert case.metadata_writer.timeline().instants == before


def test_a_pending_rollback_without_a_plan_is_named(tmp_path: Path) -> None:
    case = filled(tmp_path, 9)
    writer = case.metadata_writer
    writer.storage.write_new(f"{writer.config.timeline_folder}/20260102000000000.rollback.inflight", b"")
    with pytest.raises(CorruptFileError, match=r"20260102000000000\.rollback\.requested"):
        case.writer.write([row(50, "p5", 2)])
