"""Rollback leaves no trace of a failed write, wherever it died and whoever wrote it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.table.errors import InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.log_format import write_log_file
from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services import failed_writes as rollback_plan
from tagstream.table.services.rollback import RollbackResult, resume_rollbacks, rollback
from tagstream.table.services.validate import validate
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import Instant, State
from tagstream.table.write import commit
from tests.support.hudi_rs import read_table
from tests.table.reference import expected_records, records, unpack
from tests.table.stepping import Stepping
from tests.table.writer import SCHEMA, CrashError, Writer, row

TYPES = [COPY_ON_WRITE, MERGE_ON_READ]


def filled(tmp_path: Path, table_type: str) -> Writer:
    writer = Writer.create(tmp_path, table_type)
    writer.write([row(n, f"p{n % 2}", 1) for n in range(10)])
    writer.write([row(n, f"p{(n + 1) % 2}", 2) for n in range(4)], deletes=["k9"])
    return writer


def fail(writer: Writer, at: str) -> str:
    with pytest.raises(CrashError):
        writer.write([row(n, "p0", 3) for n in range(12)], deletes=["k8"], crash=at)
    return writer.table.timeline().pending_writes[0].time


def check(writer: Writer) -> None:
    assert validate(writer.table) == []
    for rows in (read_snapshot(writer.table, SCHEMA.names), read_table(writer.table.base_path, meta_columns=False)):
        assert {r["id"]: r for r in rows.to_pylist()} == writer.live
        assert rows.num_rows == len(writer.live)


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("at", ["request", "inflight", "files", "publish"])
def test_after_a_crash_at_any_step(at: str, table_type: str, tmp_path: Path) -> None:
    writer = filled(tmp_path, table_type)
    before = {p.name for p in tmp_path.rglob("*") if "p0" in p.parts or "p1" in p.parts}
    failed = fail(writer, at)
    writer.rollback_pending()
    assert {p.name for p in tmp_path.rglob("*") if "p0" in p.parts or "p1" in p.parts} == before
    assert not list(Path(writer.table.base_path, ".hoodie").rglob(f"{failed}*"))
    check(writer)
    writer.write([row(n, "p1", 4) for n in range(12)])
    check(writer)


@pytest.mark.parametrize("table_type", TYPES)
def test_a_failed_write_with_direct_markers(table_type: str, tmp_path: Path) -> None:
    writer = filled(tmp_path, table_type)
    fail(writer, "publish")
    writer.as_hudi_left_it()
    writer.rollback_pending()
    check(writer)


@pytest.mark.parametrize("table_type", TYPES)
def test_a_commit_whose_completed_file_was_taken_back(table_type: str, tmp_path: Path) -> None:
    """Its markers are gone, though it has files: only a listing finds them."""
    writer = filled(tmp_path, table_type)
    live, where = dict(writer.live), dict(writer.where)
    instant = writer.write([row(n, "p0", 3) for n in range(12)], deletes=["k8"])
    writer.table.storage.delete(writer.completed_rel(instant))
    writer.rollback_pending()
    writer.live, writer.where = live, where
    check(writer)


@pytest.mark.parametrize("at", ["inflight", "files"])
def test_without_markers_nothing_of_the_table_is_looked_at(at: str, tmp_path: Path) -> None:
    writer = filled(tmp_path, MERGE_ON_READ)
    failed = fail(writer, at)
    looks: list[str] = []
    table = replace(writer.table, storage=Stepping(writer.table.storage, lambda _, *names: looks.extend(names)))
    result = rollback(table, failed, writer.instant())
    assert result.deleted == result.blocks == ()
    assert not [name for name in looks if not name.startswith(".hoodie")]
    check(writer)


@pytest.mark.parametrize("table_type", TYPES)
def test_a_rollback_that_dies_is_finished_with_its_own_plan(
    table_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = filled(tmp_path, table_type)
    failed = fail(writer, "publish")
    deletes = 0
    real = PosixStorage.delete

    def dies(self: PosixStorage, rel: str) -> bool:
        nonlocal deletes
        if rel.startswith("p"):
            deletes += 1
            if deletes == 2:
                raise CrashError
        return real(self, rel)

    monkeypatch.setattr(PosixStorage, "delete", dies)
    begun = writer.instant()
    with pytest.raises(CrashError):
        rollback(writer.table, failed, begun)
    monkeypatch.undo()
    result = rollback(writer.table, failed, writer.instant())
    assert result.instant == begun
    assert resume_rollbacks(writer.table) == []
    check(writer)


def test_a_rollback_that_died_after_its_files_were_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = filled(tmp_path, MERGE_ON_READ)
    failed = fail(writer, "publish")
    real = PosixStorage.write_new

    def dies(self: PosixStorage, rel: str, data: bytes) -> None:
        if rel.endswith(".rollback"):
            raise CrashError
        real(self, rel, data)

    monkeypatch.setattr(PosixStorage, "write_new", dies)
    with pytest.raises(CrashError):
        rollback(writer.table, failed, writer.instant())
    monkeypatch.undo()
    assert not writer.table.timeline().pending_writes
    assert [r.failed for r in resume_rollbacks(writer.table)] == [failed]
    check(writer)


def test_completed_unknown_and_late_instants_are_refused(tmp_path: Path) -> None:
    writer = filled(tmp_path, COPY_ON_WRITE)
    newest = writer.table.timeline().newest_completed or ""
    with pytest.raises(InstantConflictError, match="is completed"):
        rollback(writer.table, newest, writer.instant())
    with pytest.raises(InstantConflictError, match="not on the timeline"):
        rollback(writer.table, "20990101000000000", writer.instant())
    failed = fail(writer, "files")
    with pytest.raises(InstantConflictError, match="not newer"):
        rollback(writer.table, failed, failed)


def test_a_commit_published_in_the_last_moment_is_not_taken_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = filled(tmp_path, COPY_ON_WRITE)
    failed = fail(writer, "publish")

    def publish(table: HoodieTable, instant: str, action: str) -> None:
        at = "20990101000000000" if table.config.has_completion_times else None
        done = Instant(instant, action, State.COMPLETED, at)
        content = CommitMetadata().to_bytes(table.config.version)
        table.storage.write_new(f"{table.config.timeline_folder}/{done.file_name()}", content)

    monkeypatch.setattr("tagstream.table.services.rollback.unstage", publish)
    with pytest.raises(InstantConflictError, match="is completed"):
        rollback(writer.table, failed, writer.instant())
    assert not writer.table.timeline().pending_rollbacks


def roll_all(table: HoodieTable) -> list[RollbackResult]:
    timeline = table.timeline()
    instant = next_instant(1_893_456_000_000, timeline.newest)
    return [rollback(table, failed.time, instant) for failed in timeline.pending_writes]


@pytest.mark.parametrize("name", ["cow_v6_failed_left", "mor_v6_rollback_and_inflight", "flink_mor"])
def test_what_real_hudi_left_behind(name: str, tmp_path: Path) -> None:
    base_path = unpack(name, tmp_path)
    table = HoodieTable.open(str(base_path))
    results = roll_all(table)
    assert len(results) == 1
    assert validate(table) == []
    assert records(read_snapshot(table)) == expected_records(base_path)
    assert read_table(base_path).num_rows == len(expected_records(base_path))
    if name != "flink_mor":  # its failed write had not written anything yet
        assert results[0].deleted


def test_the_plan_and_its_result_are_on_the_timeline(tmp_path: Path) -> None:
    writer = filled(tmp_path, COPY_ON_WRITE)
    failed = fail(writer, "publish")
    result = rollback(writer.table, failed, writer.instant())
    read = writer.table.storage.read
    (instant,) = [i for i in writer.table.timeline().instants if i.action == "rollback"]
    plan = read_record(read(writer.timeline_rel(f"{result.instant}.rollback.requested")), "plan")
    done = read_record(read(writer.timeline_rel(instant.file_name())), "metadata")
    assert plan["instantToRollback"] == {"commitTime": failed, "action": "commit"}
    planned = {path for r in plan["RollbackRequests"] for path in r["filesToBeDeleted"]}
    deleted = {path for p in done["partitionMetadata"].values() for path in p["successDeleteFiles"]}
    assert planned == deleted == {writer.table.storage.where(rel) for rel in result.deleted}
    assert done["commitsRollback"] == [failed]
    assert read(writer.timeline_rel(f"{result.instant}.rollback.inflight")) == b""
    if writer.table.config.has_completion_times:
        assert (instant.completion_time or "") > max(failed, result.instant)


@pytest.mark.table_versions(6)  # from version 8 on a log file is of one commit
def test_a_log_file_shared_with_other_instants_gets_a_rollback_block(tmp_path: Path, version: int) -> None:
    """Some writers append their blocks to a log file that is there already (HDFS): it must not be deleted."""
    writer = filled(tmp_path, MERGE_ON_READ)
    failed = fail(writer, "publish")
    writer.as_hudi_left_it()
    storage = writer.table.storage
    log = next(r for r in storage.walk_files("p0") if ".log.3" in r)
    earlier = log.replace(".log.3", ".log.2").rsplit("_", 1)[0]
    earlier = next(r for r in storage.walk_files("p0") if r.startswith(earlier))
    both = storage.read(earlier) + storage.read(log)
    storage.delete(log)
    storage.delete(earlier)
    write_log_file(storage, earlier, [both])
    result = rollback(writer.table, failed, writer.instant())
    assert len(result.blocks) == 1
    assert storage.exists(earlier)
    for rows in (read_snapshot(writer.table, SCHEMA.names), read_table(writer.table.base_path, meta_columns=False)):
        assert {r["id"]: r for r in rows.to_pylist()} == writer.live
    # The table moves on; the failed instant falls behind the timeline's start and must stay invisible.
    for n in range(3):
        writer.write([row(n, "p0", 9)])
    for instant in writer.table.timeline().completed_writes[:-1]:
        storage.delete(f".hoodie/{instant.file_name()}")
        for state in ("requested", "inflight"):
            storage.delete(f".hoodie/{instant.time}.deltacommit.{state}")
    assert {r["id"]: r for r in read_snapshot(writer.table, SCHEMA.names).to_pylist()} == writer.live


def test_a_pending_compaction_is_not_a_failed_write(tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack("mor_v6_compaction_pending", tmp_path)))
    assert table.timeline().pending_writes == ()
    plan = table.timeline().pending[0]
    with pytest.raises(UnsupportedTableError, match="compaction"):
        rollback(table, plan.time, "20990101000000000")


def test_a_plan_of_a_moved_table_is_understood() -> None:
    record = {
        "RollbackRequests": [
            {
                "partitionPath": "a/b",
                "fileId": "f",
                "latestBaseInstant": "1",
                "filesToBeDeleted": ["file:/x/a/b/n.parquet"],
            }
        ]
    }
    assert rollback_plan.requests_of(record)[0].files == ("a/b/n.parquet",)


def test_zero_byte_inflight_files_are_fine(tmp_path: Path) -> None:
    writer = filled(tmp_path, COPY_ON_WRITE)
    instant = writer.instant()
    commit.request(writer.table, instant, "commit")
    writer.table.storage.write_new(f".hoodie/{instant}.inflight", b"")
    writer.rollback_pending()
    check(writer)


def test_torn_files_without_markers_are_found_by_listing(tmp_path: Path) -> None:
    """The markers are lost, and the log file of a new file group ends in the middle of its block."""
    writer = Writer.create(tmp_path, MERGE_ON_READ)
    writer.write([row(n, "p0", 1) for n in range(4)])
    with pytest.raises(CrashError):
        writer.write([row(n, "p1", 2) for n in range(6)], crash="publish")
    failed = writer.table.timeline().pending_writes[0].time
    logs = list(writer.table.storage.walk_files("p1"))
    for rel in logs:
        path = Path(writer.table.storage.where(rel))
        path.write_bytes(path.read_bytes()[:-30])
    writer.table.storage.delete_tree(f".hoodie/.temp/{failed}")
    writer.rollback_pending()
    assert [r for r in writer.table.storage.walk_files("p1") if ".log." in r] == []
    check(writer)
