"""Files that late tasks write for a settled instant are found by their markers and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.failed_writes import sweep, sweep_copies
from tagstream.table.services.validate import validate
from tagstream.table.timeline.commit_metadata import FileKind
from tagstream.table.timeline.lease import delete_heartbeat, is_alive
from tagstream.table.write.markers import TEMP_FOLDER
from tests.support.faulty_storage import Faults, FaultyStorage
from tests.table.writer import SCHEMA, CrashError, Writer, direct_marker, row


def late_copy(writer: Writer, path: str, instant: str) -> str:
    """A second attempt's file beside ``path``, with its marker."""
    partition, name = path.rsplit("/", 1)
    late = name.replace("0-1-", "0-7-")
    direct_marker(writer.table.storage, instant, f"{partition}/{late}", FileKind.CREATE)
    writer.table.storage.write_new(f"{partition}/{late}", writer.table.storage.read(path))
    return f"{partition}/{late}"


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_a_late_file_of_a_completed_instant(table_type: str, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, table_type, groups=1)
    instant = writer.write([row(1, "p0", 1)])
    timeline = writer.table.timeline()
    (stat,) = timeline.metadata(writer.table.storage, timeline.completed_writes[0]).all_stats()
    late = late_copy(writer, stat.path, instant)
    assert validate(writer.table) != []
    assert sweep(writer.table) == [late]
    assert validate(writer.table) == []
    assert sweep(writer.table) == []
    assert read_snapshot(writer.table, SCHEMA.names).to_pylist() == list(writer.live.values())


def test_a_late_file_of_a_rolled_back_instant(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE, groups=1)
    writer.write([row(1, "p0", 1)])
    with pytest.raises(CrashError):
        writer.write([row(1, "p0", 2)], crash="publish")
    failed = writer.table.timeline().pending_writes[0].time
    path = next(r for r in writer.table.storage.walk_files("p0") if failed in r)
    assert sweep(writer.table) == []  # it is unfinished: a rollback's work, not ours
    content = writer.table.storage.read(path)
    writer.rollback_pending()
    direct_marker(writer.table.storage, failed, path, FileKind.MERGE)
    writer.table.storage.write_new(path, content)
    assert sweep(writer.table) == [path]
    assert validate(writer.table) == []


def test_a_staged_commit_whose_writer_was_killed_behind_publishing_it(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, MERGE_ON_READ, groups=1)
    instant = writer.write([row(1, "p0", 1)])
    with pytest.raises(CrashError):
        writer.write([row(1, "p0", 2)], crash="publish")
    storage, pending = writer.table.storage, writer.table.timeline().pending_writes[0].time
    left, unfinished, other = (
        f"{TEMP_FOLDER}/{name}"
        for name in (f".{instant}.deltacommit.staged", f".{pending}.deltacommit.staged", ".other.staged")
    )
    for rel in (left, unfinished, other):
        storage.replace(rel, b"{}")
    assert sweep(writer.table) == [left]
    assert not storage.exists(left)
    assert storage.exists(unfinished)
    assert storage.exists(other)  # whose, we do not know
    writer.rollback_pending()
    assert not storage.exists(unfinished)
    assert validate(writer.table) == []


@pytest.mark.table_versions(6)
def test_a_late_marker_never_costs_another_writes_log_file(tmp_path: Path, version: int) -> None:
    """The names of log files repeat: one that was taken back, one of the run after it."""
    writer = Writer.create(tmp_path, MERGE_ON_READ, groups=1)
    writer.write([row(1, "p0", 1)])
    with pytest.raises(CrashError):
        writer.write([row(1, "p0", 2)], crash="publish")
    failed = writer.table.timeline().pending_writes[0].time
    (path,) = [r for r in writer.table.storage.walk_files("p0") if ".log.2_" in r]
    writer.rollback_pending()
    writer.attempt -= 1
    writer.write([row(1, "p0", 3)])
    assert writer.table.storage.exists(path)
    direct_marker(writer.table.storage, failed, path, FileKind.APPEND)
    assert sweep(writer.table) == []
    assert validate(writer.table) == []


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_a_copy_that_lands_after_the_rollback(table_type: str, tmp_path: Path) -> None:
    """A store goes on copying for a driver that is gone: the file is there again when nothing tells of it any more."""
    writer = Writer.create(tmp_path, table_type, groups=1)
    writer.write([row(1, "p0", 1)])
    before = {*writer.table.storage.walk_files("p0")}
    with pytest.raises(CrashError):
        writer.write([row(1, "p0", 2)], crash="publish")
    (path,) = {*writer.table.storage.walk_files("p0")} - before
    content = writer.table.storage.read(path)
    writer.rollback_pending()
    writer.table.storage.write_new(path, content)
    assert sweep_copies(writer.table) == []  # a link can't come later
    copies = FaultyStorage(writer.table.storage, Faults(str(tmp_path / "faults"), copies=True))
    table = HoodieTable.open(copies)
    assert path in sweep_copies(table)
    assert not table.storage.exists(path)
    writer.write([row(1, "p0", 3)])
    there = {*writer.table.storage.walk_files("p0")}
    sweep_copies(HoodieTable.open(copies))
    assert {*writer.table.storage.walk_files("p0")} == there
    assert validate(writer.table) == []
    assert read_snapshot(writer.table, SCHEMA.names).to_pylist() == list(writer.live.values())


def test_heartbeats(tmp_path: Path) -> None:
    storage = Writer.create(tmp_path, COPY_ON_WRITE).table.storage
    instant = "20270101000000000"
    assert not is_alive(storage, instant, 0)
    storage.replace(f".hoodie/.heartbeat/{instant}", b"")
    (beat,) = storage.list(".hoodie/.heartbeat")
    assert is_alive(storage, instant, beat.mtime_ms + 60_000)
    assert not is_alive(storage, instant, beat.mtime_ms + 180_001)
    delete_heartbeat(storage, instant)
    assert not is_alive(storage, instant, beat.mtime_ms)
