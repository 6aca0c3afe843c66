"""Merges of the archive that Hudi 0.x was cut off in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.history.archive_merge import PLAN_FILE, MergeOptions, finish_hudis_merge, merge_archive
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.avro_timeline import write_record
from tests.table.history.archive_logs import FOLDER, files, name_of, put, whole
from tests.table.history.crashes import cut_off_at_each_change

# As in Hudi 0.15.0 (HoodieMergeArchiveFilePlan).
TEXT = {"type": "string", "avro.java.string": "String"}
SCHEMA = {
    "type": "record",
    "name": "HoodieMergeArchiveFilePlan",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "version", "type": ["int", "null"], "default": 1},
        {"name": "candidate", "type": ["null", {"type": "array", "items": TEXT}], "default": None},
        {"name": "mergedArchiveFileName", "type": ["null", TEXT], "default": None},
    ],
}
ALL = list(range(8))


def plan_of(storage: PosixStorage) -> bytes:
    paths = [f"file:{storage.where(FOLDER)}/{name_of(n)}" for n in (4, 3, 2, 1)]
    return write_record(SCHEMA, {"version": 1, "candidate": paths, "mergedArchiveFileName": name_of(5)})


def begun(tmp_path: Path) -> PosixStorage:
    """Four files of two actions, a plan to merge them, the merged file: the newest action first, as Hudi writes it."""
    storage = PosixStorage(str(tmp_path))
    for number in range(4):
        put(storage, (2 * number, 2 * number + 1))
    merged = b"".join(storage.read(f"{FOLDER}/{name_of(n)}") for n in (4, 3, 2, 1))
    storage.write_new(f"{FOLDER}/{PLAN_FILE}", plan_of(storage))
    storage.write_new(f"{FOLDER}/{name_of(5)}", merged)
    return storage


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_with_all_files_there_the_merged_one_goes(share: float, tmp_path: Path) -> None:
    storage = begun(tmp_path)
    data = storage.read(f"{FOLDER}/{name_of(5)}")
    storage.replace(f"{FOLDER}/{name_of(5)}", data[: int(len(data) * share)])
    assert finish_hudis_merge(storage, FOLDER) == (name_of(5),)
    assert storage.names(FOLDER) == tuple(name_of(n) for n in (1, 2, 3, 4))
    whole(storage, ALL)


@pytest.mark.parametrize("gone", [(1,), (4, 3), (1, 2, 3, 4)])
def test_with_files_gone_the_others_go(gone: tuple[int, ...], tmp_path: Path) -> None:
    storage = begun(tmp_path)
    for number in gone:
        storage.delete(f"{FOLDER}/{name_of(number)}")
    assert set(finish_hudis_merge(storage, FOLDER)) == {name_of(n) for n in (1, 2, 3, 4) if n not in gone}
    assert storage.names(FOLDER) == (name_of(5),)
    assert sorted(ALL) == ALL
    whole(storage, ALL)


def test_nothing_that_the_others_lack_is_deleted(tmp_path: Path) -> None:
    """A store that can append may have put more into the merged file; or a file of the plan's is another one by now."""
    storage = begun(tmp_path)
    more = PosixStorage(str(tmp_path / "more"))
    put(more, (8, 9))
    late = more.read(f"{FOLDER}/{name_of(1)}")
    storage.replace(f"{FOLDER}/{name_of(5)}", storage.read(f"{FOLDER}/{name_of(5)}") + late)
    assert finish_hudis_merge(storage, FOLDER) == ()
    assert len(files(storage)) == 5
    storage = begun(tmp_path / "second")
    storage.delete(f"{FOLDER}/{name_of(1)}")
    storage.replace(f"{FOLDER}/{name_of(2)}", late)
    assert finish_hudis_merge(storage, FOLDER) == (name_of(4), name_of(3))
    assert files(storage) == [name_of(2), name_of(5)]


@pytest.mark.parametrize("data", [b"", b"Obj", None])
def test_a_plan_that_was_cut_off_goes_alone(data: bytes | None, tmp_path: Path) -> None:
    storage = begun(tmp_path)
    storage.delete(f"{FOLDER}/{name_of(5)}")
    storage.replace(f"{FOLDER}/{PLAN_FILE}", plan_of(storage) if data is None else data)
    assert finish_hudis_merge(storage, FOLDER) == ()
    assert storage.names(FOLDER) == tuple(name_of(n) for n in (1, 2, 3, 4))
    assert finish_hudis_merge(storage, FOLDER) == ()


@pytest.mark.parametrize("gone", [(), (2,)])
def test_any_change_may_be_the_last(gone: tuple[int, ...], tmp_path: Path) -> None:
    storage = begun(tmp_path)
    for number in gone:
        storage.delete(f"{FOLDER}/{name_of(number)}")
    seen: list[tuple[str, ...]] = []

    def after(_: int) -> None:
        seen.append(storage.names(FOLDER))

    cut_off_at_each_change(storage, lambda cut: merge_archive(cut, FOLDER, MergeOptions()), after)
    assert PLAN_FILE not in seen[-1]
    whole(storage, ALL)
