"""The history of versions 8 and 9: real ones read, ours written, and what a crash at any step leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.history.action_files import ArchivedAction
from tagstream.table.history.lsm import (
    History,
    HistoryFile,
    Manifest,
    file_name,
    manifest_versions,
    read_manifest,
    write_manifest,
)
from tagstream.table.history.lsm_write import merge_levels, remove_old, rows_of, write_batch
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.avro_timeline import read_record
from tests.table.history.crashes import cut_off_at_each_change
from tests.table.reference import unpack

FOLDER = "history"


def action(number: int, name: str = "commit") -> ArchivedAction:
    return ArchivedAction(f"{number:017d}", name, f"{number + 1:017d}", b"m%d" % number, b"p" if number % 2 else None)


@pytest.fixture
def storage(tmp_path: Path) -> PosixStorage:
    return PosixStorage(str(tmp_path / "t"))


def times(history: History) -> list[str]:
    return history.read(["instantTime"])["instantTime"].to_pylist()


def test_a_history_that_hudi_wrote(tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack("mor_v9_services", tmp_path)))
    history = table.history()
    assert history.manifest.version == 1
    rows = history.read(["instantTime", "completionTime", "action"]).to_pylist()
    assert len(rows) == 12
    assert rows[3] == {"instantTime": "20261122084457516", "completionTime": "20261122084504799", "action": "commit"}
    # A delta commit that was begun before another one ended.
    assert history.completion_time("20261122084457973") == "20261122084501718"
    assert history.completion_time("20261122084457974") is None
    assert history.completion_times("20261122084457516", "20261122084504925") == {
        r["instantTime"]: r["completionTime"] for r in rows[3:6]
    }
    for found in history.actions():
        assert found.metadata is not None
        content = read_record(found.metadata, found.time)
        assert content["extraMetadata"]["schema"]
        if found.action == "replacecommit":
            assert found.plan is not None
            assert "operationType" in read_record(found.plan, found.time)


def test_only_files_and_columns_that_are_asked_for_are_read(storage: PosixStorage) -> None:
    for number in (1, 5, 9):
        write_batch(storage, FOLDER, [action(number), action(number + 1)])
    history = History(storage, FOLDER)
    for file in history.manifest.files[:2]:
        storage.delete(f"{FOLDER}/{file.name}")
    assert times(History(storage, FOLDER, [Manifest(3, history.manifest.files[2:])])) == [f"{n:017d}" for n in (9, 10)]
    assert history.read(["plan"], first=f"{10:017d}").to_pylist() == [{"plan": None}]
    assert history.completion_time(f"{9:017d}") == f"{10:017d}"
    with pytest.raises(CorruptFileError, match="is missing, though the manifest"):
        history.read(last=f"{5:017d}")


def test_what_is_written_is_what_hudis_reader_wants(storage: PosixStorage) -> None:
    write_batch(storage, FOLDER, [action(2), action(1), action(3, "clean")])
    (file,) = read_manifest(storage, FOLDER).files
    assert file == HistoryFile(file_name(f"{1:017d}", f"{3:017d}", 0), storage.size(f"{FOLDER}/{file.name}"))
    parquet = pq.ParquetFile(storage.where(f"{FOLDER}/{file.name}"))
    footer = {k.decode(): v.decode() for k, v in parquet.metadata.metadata.items()}
    assert json.loads(footer["parquet.avro.schema"])["name"] == "HoodieLSMTimelineInstant"
    assert footer["writer.model.name"] == "avro"
    assert [parquet.schema.column(n).logical_type.type for n in range(3)] == ["STRING"] * 3
    assert parquet.metadata.row_group(0).column(3).compression == "GZIP"
    manifest = json.loads(storage.read(f"{FOLDER}/manifest_1"))
    assert manifest == {"files": [{"fileName": file.name, "fileLen": file.size}]}
    assert storage.read(f"{FOLDER}/_version_") == b"1"


def test_every_step_of_a_batch_can_be_cut_off_and_repeated(storage: PosixStorage) -> None:
    write_batch(storage, FOLDER, [action(1)])
    seen = []

    def look(_: int) -> None:
        found = times(History(storage, FOLDER))
        assert found in ([f"{1:017d}"], [f"{n:017d}" for n in (1, 2, 3)])
        seen.append(len(found))

    batch = [action(2), action(3)]
    changes = cut_off_at_each_change(storage, lambda cut: write_batch(cut, FOLDER, batch), look)
    assert changes == 3  # the file, the manifest, the version
    assert seen[0] == 1
    assert seen[-1] == 3
    before = read_manifest(storage, FOLDER)
    assert write_batch(storage, FOLDER, batch) == before


def test_a_batch_that_overlaps_one_of_before_adds_what_is_new(storage: PosixStorage) -> None:
    write_batch(storage, FOLDER, [action(1), action(3)])
    write_batch(storage, FOLDER, [action(1), action(2), action(3)])
    write_batch(storage, FOLDER, [action(1), action(1, "clean"), action(3)])
    assert times(History(storage, FOLDER)) == [f"{n:017d}" for n in (1, 1, 2, 3)]


@pytest.mark.parametrize("version", [None, b"", b"x", b"\xff\xfe", b"-1", b"9", "²".encode(), b"1" * 40])
def test_the_greatest_manifest_counts_where_no_version_can_be_read(
    storage: PosixStorage, version: bytes | None
) -> None:
    for number in (1, 2, 3):
        write_batch(storage, FOLDER, [action(number)])
    storage.delete(f"{FOLDER}/_version_")
    if version is not None:
        storage.write_new(f"{FOLDER}/_version_", version)
    assert read_manifest(storage, FOLDER).version == 3
    storage.replace(f"{FOLDER}/manifest_4", b"{cut off")
    assert read_manifest(storage, FOLDER).version == 3


def test_manifests_that_are_none_are_named(storage: PosixStorage) -> None:
    assert read_manifest(storage, FOLDER) == Manifest(0)
    for text in (b"[]", b'{"files": [{"fileName": "../x.parquet", "fileLen": 1}]}', b'{"files": [{}]}'):
        storage.replace(f"{FOLDER}/manifest_1", text)
        with pytest.raises(CorruptFileError, match="manifest_1"):
            read_manifest(storage, FOLDER)
    storage.replace(f"{FOLDER}/{file_name('1', '2', 0)}", b"no parquet")
    write_manifest(storage, FOLDER, Manifest(1, (HistoryFile(file_name("1", "2", 0), 10),)))
    with pytest.raises(CorruptFileError, match="no readable archived instants"):
        History(storage, FOLDER).read()
    storage.delete(f"{FOLDER}/manifest_1")
    with pytest.raises(CorruptFileError, match="has lost its manifests"):
        read_manifest(storage, FOLDER)


def test_rows_of_a_later_version_are_refused(storage: PosixStorage) -> None:
    rows = rows_of([action(1)])
    rows = rows.set_column(5, rows.schema.field("version"), pa.array([2], pa.int32()))
    with storage.open_output(f"{FOLDER}/{file_name('1', '1', 0)}") as out:
        pq.write_table(rows, out)
    write_manifest(storage, FOLDER, Manifest(1, (HistoryFile(file_name("1", "1", 0), 10),)))
    with pytest.raises(UnsupportedTableError, match="version 2"):
        History(storage, FOLDER).read()


def test_levels_are_merged_and_old_files_go(storage: PosixStorage) -> None:
    for number in range(1, 25):
        write_batch(storage, FOLDER, [action(number)])
        reader = History(storage, FOLDER)
        assert reader.manifest.version > 0
        remove_old(storage, FOLDER, merge_levels(storage, FOLDER, files_a_level=3))
        # Who has looked at the manifest before still finds its files.
        assert times(reader) == times(History(storage, FOLDER)) == [f"{n:017d}" for n in range(1, number + 1)]
    names = sorted(file.name for file in read_manifest(storage, FOLDER).files)
    assert names == [file_name(f"{first:017d}", f"{last:017d}", level) for first, last, level in
                     [(1, 9, 2), (10, 18, 2), (19, 21, 1), (22, 24, 1)]]  # fmt: skip
    assert manifest_versions(storage, FOLDER)[-1] == read_manifest(storage, FOLDER).version
    assert len(manifest_versions(storage, FOLDER)) <= 4
    assert History(storage, FOLDER).completion_time(f"{5:017d}") == f"{6:017d}"


def test_merging_can_be_cut_off_anywhere(storage: PosixStorage) -> None:
    for number in range(1, 10):
        write_batch(storage, FOLDER, [action(number)])
    before = History(storage, FOLDER).read()

    def work(cut: Storage) -> None:
        remove_old(cut, FOLDER, merge_levels(cut, FOLDER, files_a_level=3))

    def whole(_: int) -> None:
        assert History(storage, FOLDER).read() == before

    cut_off_at_each_change(storage, work, whole)
    named = read_manifest(storage, FOLDER).names
    assert {n for n in storage.names(FOLDER) if n.endswith(".parquet")} >= named


def test_files_that_are_large_enough_stay(storage: PosixStorage) -> None:
    for number in range(1, 5):
        write_batch(storage, FOLDER, [action(number)])
    assert merge_levels(storage, FOLDER, files_a_level=3, target_bytes=100) == 0
    size = read_manifest(storage, FOLDER).files[0].size
    assert merge_levels(storage, FOLDER, files_a_level=3, target_bytes=2 * size + 10) == 1
    assert [f.level for f in read_manifest(storage, FOLDER).files] == [0, 0, 1]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), min_size=1, max_size=8), st.integers(2, 4))
def test_any_order_of_batches_and_merges_keeps_every_action_once(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], files: int
) -> None:
    storage = PosixStorage(str(tmp_path_factory.mktemp("t")))
    for batch in batches:
        write_batch(storage, FOLDER, [action(number) for number in set(batch)])
        remove_old(storage, FOLDER, merge_levels(storage, FOLDER, files_a_level=files))
    wanted = sorted({number for batch in batches for number in batch})
    history = History(storage, FOLDER)
    assert times(history) == [f"{number:017d}" for number in wanted]
    assert sorted(a.time for a in history.actions()) == times(history)
    assert history.completion_times() == {f"{n:017d}": f"{n + 1:017d}" for n in wanted}
