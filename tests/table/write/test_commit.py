"""The commit protocol: who is first wins, nothing is half visible, and a rolled-back writer stays out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tagstream.table.errors import InstantConflictError, LeaseLostError
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.rollback import rollback
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.commit_metadata import CommitMetadata, FileKind
from tagstream.table.write import commit
from tagstream.table.write.markers import has_markers, list_markers
from tests.table.writer import Writer, direct_marker, row

T1, T2, T3 = "20270101000000000", "20270101000001000", "20270101000002000"


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer.create(tmp_path, COPY_ON_WRITE)


def names(writer: Writer) -> list[str]:
    return sorted(
        p.name for p in Path(writer.table.base_path, writer.table.config.timeline_folder).iterdir() if p.is_file()
    )


def test_states_appear_one_after_the_other(writer: Writer) -> None:
    commit.request(writer.table, T1, "commit")
    commit.inflight(writer.table, T1, "commit")
    assert [name for name in names(writer) if name != "hoodie.properties"] == [
        f"{T1}.commit.requested",
        f"{T1}.inflight",
    ]
    assert writer.table.timeline().newest_completed is None
    commit.complete(writer.table, T1, "commit", CommitMetadata.build([], {"k": "v"}, "{}"))
    assert writer.completed_rel(T1).rsplit("/", 1)[-1] in names(writer)
    timeline = writer.table.timeline()
    assert timeline.metadata(writer.table.storage, timeline.completed_writes[0]).extra == {"schema": "{}", "k": "v"}
    assert [p.name for p in Path(writer.table.base_path, ".hoodie/.temp").iterdir()] == []


def test_an_instant_can_be_taken_once(writer: Writer) -> None:
    commit.request(writer.table, T1, "commit")
    with pytest.raises(InstantConflictError, match=T1):
        commit.request(writer.table, T1, "commit")
    commit.inflight(writer.table, T1, "commit")
    with pytest.raises(InstantConflictError, match="inflight"):
        commit.inflight(writer.table, T1, "commit")
    commit.complete(writer.table, T1, "commit", CommitMetadata())
    before = names(writer), writer.table.storage.read(writer.completed_rel(T1))
    with pytest.raises(InstantConflictError, match="completed already"):
        commit.complete(writer.table, T1, "commit", CommitMetadata(extra={"a": "b"}))
    assert (names(writer), writer.table.storage.read(writer.completed_rel(T1))) == before


def test_the_guard_is_the_last_word(writer: Writer) -> None:
    commit.request(writer.table, T1, "commit")
    commit.inflight(writer.table, T1, "commit")

    def lost() -> None:
        raise LeaseLostError("gone")

    with pytest.raises(LeaseLostError):
        commit.complete(writer.table, T1, "commit", CommitMetadata(), guard=lost)
    assert not writer.table.timeline().completed_writes


@pytest.mark.parametrize("moment", ["before", "in the guard", "after the last look"])
def test_a_writer_that_was_rolled_back_cannot_publish(
    moment: str, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused driver wakes up after another one has rolled its instant back."""
    commit.request(writer.table, T1, "commit")
    commit.inflight(writer.table, T1, "commit")

    def roll_back() -> None:
        rollback(writer.table, T1, T2)

    guard = None
    if moment == "before":
        roll_back()
    elif moment == "in the guard":
        guard = roll_back
    else:
        publish = PosixStorage.publish

        def late(self: PosixStorage, pairs: Sequence[tuple[str, str]], *, are_free: bool) -> None:
            monkeypatch.undo()
            roll_back()
            publish(self, pairs, are_free=are_free)

        monkeypatch.setattr(PosixStorage, "publish", late)
    with pytest.raises(InstantConflictError, match="rolled back"):
        commit.complete(writer.table, T1, "commit", CommitMetadata(), guard=guard)
    assert [i.action for i in writer.table.timeline().instants] == ["rollback"]


def test_markers_of_both_kinds_are_read(writer: Writer) -> None:
    storage = writer.table.storage
    direct_marker(storage, T1, "a/b/x.parquet", FileKind.MERGE)
    direct_marker(storage, T1, ".y.log.1_1-0-1", FileKind.APPEND)
    assert has_markers(storage, T1)
    assert not has_markers(storage, T2)
    direct = [(m.partition_path, m.file_name, m.kind) for m in list_markers(storage, T1)]
    assert direct == [("", ".y.log.1_1-0-1", "APPEND"), ("a/b", "x.parquet", "MERGE")]
    storage.write_new(f".hoodie/.temp/{T2}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    storage.write_new(f".hoodie/.temp/{T2}/MARKERS3", b"p1/u.parquet.marker.CREATE\np1/v.parquet.marker.MERGE\n")
    assert [m.path for m in list_markers(storage, T2)] == ["p1/u.parquet", "p1/v.parquet"]


def test_commit_file_says_what_hudi_says(writer: Writer) -> None:
    first = writer.write([row(n, "p0", 1) for n in range(4)])
    second = writer.write([row(0, "p0", 2), row(9, "p0", 2)], deletes=["k2"])
    timeline = writer.table.timeline()
    old, new = (timeline.metadata(writer.table.storage, i) for i in timeline.completed_writes)
    assert old.operation == "UPSERT"
    assert {s.prev_commit for s in old.all_stats()} == {"null"}
    assert sum(s.num_inserts for s in old.all_stats()) == 4
    assert {s.prev_commit for s in new.all_stats()} == {first}
    counts = [sum(getattr(s, n) for s in new.all_stats()) for n in ("num_updates", "num_inserts", "num_deletes")]
    assert counts == [1, 1, 1]
    for stat in new.all_stats():
        assert stat.file_size == writer.table.storage.size(stat.path)
        assert stat.file_name.endswith(f"_{second}.parquet")


def test_a_commit_does_not_grow_with_the_logs_of_a_slice(tmp_path: Path) -> None:
    """Version 6 of Hudi names all logs of a slice in each commit; one that nobody compacts would grow with every batch."""
    writer = Writer.create(tmp_path, MERGE_ON_READ, groups=1).with_options(inserts_to_base_files=False)
    sizes, names = [], []
    for version in range(1, 31):
        instant = writer.write([row(1, "p0", version)])
        sizes.append(writer.table.storage.size(writer.completed_rel(instant)))
        timeline = writer.table.timeline()
        (stat,) = timeline.metadata(writer.table.storage, timeline.completed_writes[-1]).all_stats()
        assert stat.log_files == (stat.file_name,)
        names.append(stat.file_name)
    assert sizes[-1] - sizes[1] < 20
    assert len(set(names)) == 30
    (found,) = writer.table.view().latest_merged_slices("p0")
    assert [log.name for log in found.log_files] == names
