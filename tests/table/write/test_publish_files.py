"""Data files get their names from the driver: those that the write statuses name, all announced before the first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.table.errors import InstantConflictError
from tagstream.table.file_group.log_format import write_log_file
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.validate import validate
from tagstream.table.timeline.commit_metadata import CommitMetadata, FileKind, WriteStat, WriteStatus
from tagstream.table.write import commit
from tagstream.table.write.markers import staged_path
from tests.support.faulty_storage import Faults, FaultyStorage
from tests.table.writer import CrashError, Writer, row

T = "20270101000000000"
TYPES = [COPY_ON_WRITE, MERGE_ON_READ]


def begin(writer: Writer) -> None:
    commit.request(writer.table, T, writer.action)
    commit.inflight(writer.table, T, writer.action)


def stage(writer: Writer, path: str, kind: FileKind = FileKind.CREATE, data: bytes = b"data") -> WriteStatus:
    """What a task leaves behind: a staged file, and its answer."""
    writer.table.storage.replace(staged_path(T, path), data)
    return WriteStatus(WriteStat("f", path, path.rpartition("/")[0]), kind)


def data_files(writer: Writer) -> list[str]:
    return [rel for rel in writer.table.storage.walk_files("") if not rel.startswith(".hoodie")]


@pytest.mark.parametrize("table_type", TYPES)
def test_nothing_is_in_a_partition_before(table_type: str, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, table_type).with_options(inserts_to_base_files=False)
    with pytest.raises(CrashError):
        writer.write([row(n, f"p{n}", 1) for n in range(4)], crash="files")
    assert data_files(writer) == []


@pytest.mark.parametrize("copies", [False, True])
def test_what_the_statuses_name_and_nothing_else(copies: bool, tmp_path: Path) -> None:
    """Two attempts have staged their files; one of them answered. A new partition gets its metafile."""
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    if copies:  # as an object store publishes: the staged files stay, until they are taken away
        storage = FaultyStorage(writer.table.storage, Faults(str(tmp_path / "faults"), copies=True))
        writer.table = replace(writer.table, storage=storage)
    begin(writer)
    stage(writer, f"p0/f_0-1-1_{T}.parquet")
    status = stage(writer, f"p0/f_0-1-2_{T}.parquet")
    commit.publish_files(writer.table, T, [status])
    assert data_files(writer) == ["p0/.hoodie_partition_metadata", f"p0/f_0-1-2_{T}.parquet"]
    commit.complete(writer.table, T, writer.action, CommitMetadata.build([status], {}, "{}"))
    assert list(writer.table.storage.walk_files(".hoodie/.temp")) == []
    assert writer.table.storage.read(status.stat.path) == b"data"


def test_markers_have_the_form_of_hudis_timeline_server(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, MERGE_ON_READ).with_options(inserts_to_base_files=False)
    begin(writer)
    assert list(writer.table.storage.walk_files(f".hoodie/.temp/{T}")) == [f".hoodie/.temp/{T}/MARKERS.type"]
    statuses = [
        stage(writer, f"p0/f_0-1-1_{T}.parquet"),
        stage(writer, "a/b/.g_1.log.2_0-1-1", FileKind.APPEND),
        stage(writer, f"h_0-1-1_{T}.parquet", FileKind.MERGE),
    ]
    commit.publish_files(writer.table, T, statuses)
    folder = Path(writer.table.base_path, ".hoodie/.temp", T)
    assert (folder / "MARKERS.type").read_text() == "TIMELINE_SERVER_BASED"
    assert (folder / "MARKERS0").read_text().splitlines() == [
        f"a/b/.g_1.log.2_0-1-1.marker.{'CREATE' if writer.table.config.names_logs_by_commit else 'APPEND'}",
        f"h_0-1-1_{T}.parquet.marker.MERGE",
        f"p0/f_0-1-1_{T}.parquet.marker.CREATE",
    ]


def test_a_name_that_is_taken_is_never_written_over(tmp_path: Path) -> None:
    """Another engine has appended under the same version and token; the rollback leaves its file alone."""
    writer = Writer.create(tmp_path, MERGE_ON_READ, groups=1).with_options(inserts_to_base_files=False)
    first = writer.write([row(1, "p0", 1)])
    storage = writer.table.storage
    log = next(rel for rel in storage.walk_files("p0") if ".log.1_" in rel)
    theirs = log.replace(".log.1_", ".log.2_")
    write_log_file(storage, theirs, [storage.read(log)])  # blocks of a completed instant
    begin(writer)
    with pytest.raises(InstantConflictError, match="name that exists"):
        commit.publish_files(writer.table, T, [stage(writer, theirs, FileKind.APPEND)])
    writer.rollback_pending()
    assert storage.read(theirs) == storage.read(log)
    assert writer.table.timeline().newest_completed == first


def test_a_rolled_back_instant_publishes_nothing(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    begin(writer)
    status = stage(writer, f"p0/f_0-1-1_{T}.parquet")
    writer.now_ms = 1_900_000_000_000
    writer.rollback_pending()
    with pytest.raises(InstantConflictError, match="rolled back by another process"):
        commit.publish_files(writer.table, T, [status])
    assert not [rel for rel in data_files(writer) if rel.endswith(".parquet")]


@pytest.mark.parametrize("table_type", TYPES)
def test_files_go_when_hudi_has_rolled_the_instant_back(table_type: str, tmp_path: Path) -> None:
    """It looked for files by the markers before they were published, and knows nothing of staged ones."""
    writer = Writer.create(tmp_path, table_type).with_options(inserts_to_base_files=False)
    writer.write([row(n, "p0", 1) for n in range(4)])
    before = data_files(writer)
    with pytest.raises(CrashError):
        writer.write([row(n, "p0", 2) for n in range(8)], crash="publish")
    (failed,) = writer.table.timeline().pending_writes
    published = [rel for rel in data_files(writer) if rel not in before]
    stats = [WriteStat("f", rel, "p0") for rel in published]
    assert stats
    writer.table.storage.delete(writer.timeline_rel(failed.file_name()))
    with pytest.raises(InstantConflictError, match="rolled back"):
        commit.complete(writer.table, failed.time, failed.action, CommitMetadata({"p0": tuple(stats)}))
    writer.table.storage.delete(writer.timeline_rel(f"{failed.time}.{failed.action}.requested"))
    writer.table.storage.delete_tree(f".hoodie/.temp/{failed.time}")
    assert data_files(writer) == before
    assert validate(writer.table) == []


def test_the_inflight_file_says_that_files_are_staged(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    commit.request(writer.table, T, "commit")
    metadata = CommitMetadata(operation="INSERT", extra={"k": "v"})
    (pending,) = writer.table.timeline().pending
    assert not commit.stages_files(writer.table, pending)
    commit.inflight(writer.table, T, "commit", metadata)
    content = CommitMetadata.from_bytes(writer.table.storage.read(writer.timeline_rel(f"{T}.inflight")), T)
    assert content.operation == "INSERT"
    assert content.extra == {"k": "v", "tagstream.data.files": "staged"}
    assert commit.stages_files(writer.table, pending)
