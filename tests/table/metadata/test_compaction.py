"""Compaction and cleaning of a metadata table: the same is said afterwards, from fewer files."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tagstream.table.errors import CorruptFileError
from tagstream.table.meta_client.table_config import MERGE_ON_READ
from tagstream.table.metadata import compaction
from tagstream.table.metadata.compaction import CompactionTask, clean, compact
from tagstream.table.metadata.hfile import HFile
from tagstream.table.timeline.commit_metadata import NO_PREVIOUS, CommitMetadata, WriteStat
from tagstream.table.timeline.instant import COMPACTION
from tests.table.metadata.case import Case
from tests.table.writer import CrashError, row

VERSIONS = (6, 8, 9)


def filled(folder: Path, version: int, commits: int = 3) -> Case:
    case = Case.create(folder, MERGE_ON_READ, version)
    for number in range(commits):
        more(case, number)
    return case


def more(case: Case, number: int) -> None:
    gone = [key for key in case.writer.live if key.endswith(str(number))][:3]
    case.writer.write([row(n, f"p{(n + number // 3) % 4}", number) for n in range(number * 5, number * 5 + 30)], deletes=[
        key for key in gone if not number * 5 <= int(key[1:]) < number * 5 + 30])  # fmt: skip


def hfiles(case: Case) -> list[str]:
    return sorted(path.name for path in (Path(case.metadata_writer.storage.root)).rglob("*.hfile"))


@pytest.mark.parametrize("version", VERSIONS)
def test_it_says_the_same_afterwards(version: int, tmp_path: Path) -> None:
    case = filled(tmp_path, version)
    assert compact(case.metadata_writer, case.times, max_delta_commits=40) is None
    before = {name: case.metadata.scan(name) for name in case.metadata.partitions if name != "record_index"}
    instant = compact(case.metadata_writer, case.times, max_delta_commits=3)
    assert instant is not None
    if version == 6:
        assert instant == case.writer.table.timeline().newest_completed + "001"  # type: ignore[operator]
    metadata = case.metadata
    assert {name: metadata.scan(name) for name in metadata.partitions if name != "record_index"} == before
    for name in metadata.partitions:
        for file_slice in metadata.slices(name):
            if not any(
                len(part.keys) for part in metadata.entries(file_slice)
            ):  # nothing but the group itself is there
                assert file_slice.base_file is None
                continue
            assert file_slice.base_file is not None
            assert file_slice.base_file.instant == instant
            assert not file_slice.log_files
    case.check()
    assert compact(case.metadata_writer, case.times, max_delta_commits=3) is None
    more(case, 4)
    case.check()


@pytest.mark.parametrize("version", VERSIONS)
def test_its_commit_counts_what_was_merged(version: int, tmp_path: Path) -> None:
    groups = {"files": 1, "record_index": 1}
    case = Case.create(tmp_path, MERGE_ON_READ, version, groups)
    for start in (0, 20):
        case.writer.write([row(n, "p0", 1) for n in range(start, start + 20)])
    found = {}
    for number in range(2):
        instant = compact(case.metadata_writer, case.times, max_delta_commits=2)
        (done,) = [i for i in case.metadata_writer.timeline().completed_writes if i.time == instant]
        rel = case.metadata_writer.rel(done)
        metadata = CommitMetadata.from_bytes(case.metadata_writer.storage.read(rel), rel)
        found[number] = {stat.partition_path: stat for stat in metadata.all_stats()}
        case.writer.write([row(n, "p1", 2) for n in range(5)], deletes=["k10", "k11"] if number == 0 else [])
        case.writer.write([row(n, "p1", 3) for n in range(40, 43)])
    first, second = (found[number]["record_index"] for number in range(2))
    assert (first.num_writes, first.num_inserts, first.num_updates, first.num_deletes) == (40, 40, 0, 0)
    assert (second.num_writes, second.num_inserts, second.num_updates, second.num_deletes) == (41, 3, 5, 2)
    assert first.prev_commit == NO_PREVIOUS
    assert first.prev_base_file is None
    assert second.prev_base_file == (first.file_name if version >= 8 else None)  # no member of version 6
    assert {"totalLogRecords": 10, "totalUpdatedRecordsCompacted": 10}.items() <= second.other.items()
    # a delete is a block of its own; the first compaction also had the empty file that begins the group
    assert [(stat.other["totalLogFilesCompacted"], stat.other["totalLogBlocks"]) for stat in (first, second)] == [
        (3, 3), (2, 3),
    ]  # fmt: skip


def test_its_tasks_may_run_elsewhere(tmp_path: Path) -> None:
    """In another process, in any order, and one of them twice."""
    case = filled(tmp_path, 9)

    def elsewhere(tasks: Sequence[CompactionTask]) -> Iterator[WriteStat | None]:
        sent = [pickle.dumps(task) for task in reversed(tasks)]
        pickle.loads(sent[0]).run()  # noqa: S301
        return (pickle.loads(data).run() for data in sent)  # noqa: S301

    assert compact(case.metadata_writer, case.times, 1, elsewhere) is not None
    case.check()


@pytest.mark.extended("more kinds of tables", first=("9",))
@pytest.mark.parametrize("version", VERSIONS)
def test_a_long_life(version: int, tmp_path: Path) -> None:
    case, compacted, cleaned = filled(tmp_path, version, commits=0), 0, 0
    for number in range(7):
        compacted += compact(case.metadata_writer, case.times, max_delta_commits=2) is not None
        deleted = clean(case.metadata_writer, case.times)
        cleaned += bool(deleted)
        more(case, number)
        case.check()
        assert not any(case.metadata_writer.storage.exists(rel) for rel in deleted)
    assert (compacted, cleaned) == (4, 3)  # the instants that made the partitions are delta commits, too
    slices: dict[str, set[str]] = {}
    for name in hfiles(case):
        slices.setdefault(name.split("_")[0], set()).add(name)
    assert max(map(len, slices.values())) == 2


@pytest.mark.extended("more kinds of tables", first=("0-9", "2-6"))
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("written", [0, 2])
def test_one_that_was_cut_off_is_carried_out(
    version: int, written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = filled(tmp_path, version)
    real, calls = compaction.write_base_file, iter(range(100))

    def crashing(*args: object, **options: object) -> object:
        if next(calls) >= written:
            raise CrashError
        return real(*args, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch, pytest.raises(CrashError):
        patch.setattr(compaction, "write_base_file", crashing)
        compact(case.metadata_writer, case.times, max_delta_commits=1)
    (begun,) = case.metadata_writer.timeline().pending
    assert begun.action == COMPACTION
    case.check()
    more(case, 4)  # the data goes on meanwhile
    case.check()
    assert compact(case.metadata_writer, case.times) == begun.time
    case.check()
    more(case, 5)
    case.check()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plan_that_a_driver_writes_down_when_it_wakes_up_goes(version: int, tmp_path: Path) -> None:
    """Its successor has compacted the slices that it names: it can't be carried out, and would end every start."""
    case = filled(tmp_path, version)
    writer = case.metadata_writer
    late = compaction._plan(writer, writer.timeline(), case.times, 1)
    assert late is not None
    case.writer.now_ms += 10
    more(case, 4)
    assert compact(writer, case.times, max_delta_commits=1) is not None
    writer.begin(late[0], COMPACTION, late[1])
    assert compact(case.metadata_writer, case.times) is None  # asked before each batch
    assert case.metadata_writer.timeline().pending == ()
    more(case, 5)
    assert compact(case.metadata_writer, case.times, max_delta_commits=1) is not None
    case.check()


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_of_an_unfinished_action_is_compacted(version: int, tmp_path: Path) -> None:
    case = filled(tmp_path, version)
    with pytest.raises(CrashError):
        case.writer.write([row(1, "p1", 9)], crash="told")
    assert compact(case.metadata_writer, case.times, max_delta_commits=1) is None


def test_an_older_pending_action_holds_it_back_on_version_6(tmp_path: Path) -> None:
    for version, compacts in ((6, False), (9, True)):
        case = Case.create(tmp_path / str(version), MERGE_ON_READ, version)
        with pytest.raises(CrashError):
            case.writer.write([row(1, "p1", 9)], crash="inflight")
        case.writer.write([row(2, "p1", 9)])
        assert (compact(case.metadata_writer, case.times, max_delta_commits=1) is not None) == compacts


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plan_whose_files_are_gone_is_named(version: int, tmp_path: Path) -> None:
    case = filled(tmp_path, version)
    writer = case.metadata_writer
    planned = compaction._plan(writer, writer.timeline(), case.times, 1)
    assert planned is not None
    writer.begin(planned[0], COMPACTION, planned[1])
    writer.storage.delete(case.metadata.slices("files")[0].log_paths[-1])
    with pytest.raises(CorruptFileError, match="files-0000-0"):
        compact(writer, case.times)


def test_many_keys_over_several_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A base file that is merged in many pieces, with keys of the logs before, between and behind its own."""
    monkeypatch.setattr("tagstream.table.metadata.compaction_merge._STREAMED", 1)
    monkeypatch.setattr("tagstream.table.metadata.hfile_writer.BLOCK_BYTES", 300)
    case = Case.create(tmp_path, MERGE_ON_READ, 9, {"files": 1, "record_index": 2})
    case.writer.write([row(n, "p0", 1) for n in range(100, 400, 3)])
    assert compact(case.metadata_writer, case.times, 1) is not None
    case.writer.write(
        [row(n, "p1", 2) for n in [*range(0, 150, 7), *range(390, 420)]], deletes=["k100", "k103", "k397"]
    )
    assert compact(case.metadata_writer, case.times, 1) is not None
    case.check()
    for file_slice in case.metadata.slices("record_index"):
        assert file_slice.base_path is not None
        keys = [
            k for b in HFile.open(case.metadata.storage, file_slice.base_path).scan() for k in b.column(0).to_pylist()
        ]
        assert keys == sorted(set(keys))
