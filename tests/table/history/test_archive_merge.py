"""Small files of version 6's archive merged: what readers see at every cut, how much is written, how many files stay."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tagstream.table.errors import CorruptFileError
from tagstream.table.history.archive import TimelinePlace, newest_archived
from tagstream.table.history.archive_log import read_archive
from tagstream.table.history.archive_merge import NOTE_FILE, MergeOptions, files_to_merge, merge_archive
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.storage import Storage
from tests.table.history.archive_logs import FOLDER, as_hudi, files, name_of, numbers, put, whole
from tests.table.history.crashes import cut_off_at_each_change
from tests.table.stepping import Stepping

THREE = MergeOptions(files=3)


def made(tmp_path: Path, count: int, each: int = 2) -> PosixStorage:
    """An archive of so many files of so many actions."""
    storage = PosixStorage(str(tmp_path))
    for number in range(count):
        put(storage, range(number * each, (number + 1) * each))
    return storage


def test_the_oldest_file_takes_its_neighbours_up_and_they_go_one_run_later(tmp_path: Path) -> None:
    storage = made(tmp_path, 4)
    old = storage.read(f"{FOLDER}/{name_of(1)}")
    assert merge_archive(storage, FOLDER, THREE) == ()
    assert files(storage) == [name_of(n) for n in (1, 2, 3, 4)]
    assert storage.read(f"{FOLDER}/{name_of(1)}").startswith(old), "it has grown, and nothing else"
    whole(storage, list(range(8)))
    put(storage, [8, 9])
    assert merge_archive(storage, FOLDER, THREE) == (name_of(2), name_of(3))
    assert files(storage) == [name_of(n) for n in (1, 4, 5)]
    assert not storage.exists(f"{FOLDER}/{NOTE_FILE}")
    whole(storage, list(range(10)))
    assert merge_archive(storage, FOLDER, THREE) == ()


def test_the_newest_file_stays_so_that_no_number_comes_twice(tmp_path: Path) -> None:
    storage = made(tmp_path, 3)
    for _ in range(3):
        merge_archive(storage, FOLDER, THREE)
    assert files(storage) == [name_of(n) for n in (1, 2, 3)]
    put(storage, [6])
    for _ in range(3):
        merge_archive(storage, FOLDER, THREE)
    assert files(storage) == [name_of(n) for n in (1, 4)]
    assert put(storage, [7]) == name_of(5)


def test_any_change_may_be_the_last(tmp_path: Path) -> None:
    """Each time it is cut off more is archived before it is tried again."""
    storage = made(tmp_path, 13)
    there = list(range(26))

    def after(_: int) -> None:
        whole(storage, there)

    def work(cut: Storage) -> None:
        put(cut, [len(there), len(there) + 1])
        there.extend((len(there), len(there) + 1))
        for _ in range(3):
            merge_archive(cut, FOLDER, THREE)

    cuts = cut_off_at_each_change(storage, work, after)
    assert cuts > 5
    for _ in range(20):
        merge_archive(storage, FOLDER, THREE)
    whole(storage, there)
    assert len(files(storage)) < 8


@pytest.mark.parametrize("seed", range(8))
def test_random_histories(seed: int, tmp_path: Path) -> None:
    """Archivings of any size, cut off anywhere, now and then with another limit; readers look at each step."""
    chance = random.Random(seed)
    storage = PosixStorage(str(tmp_path))
    there: list[int] = []
    for _ in range(14):
        new = range(len(there), len(there) + chance.randint(1, 6))
        put(storage, new)
        there.extend(new)
        options = MergeOptions(files=chance.randint(2, 4), small_bytes=chance.choice((60_000, 400_000, 20 << 20)))
        left = chance.randint(0, 5)

        def before(kind: str, *_: str) -> None:
            nonlocal left
            if kind in ("replace", "delete"):
                left -= 1
                if left < 0:
                    raise ConnectionAbortedError
                whole(storage, there, ours=False)

        with suppress(ConnectionAbortedError):
            merge_archive(Stepping(storage, before), FOLDER, options)
        whole(storage, there)
    for _ in range(10):
        merge_archive(storage, FOLDER, MergeOptions(files=2))
    whole(storage, there)
    assert len(files(storage)) <= 6


def test_who_has_listed_the_files_before_can_read_them(tmp_path: Path) -> None:
    storage = made(tmp_path, 5)
    listed = files(storage)
    merge_archive(storage, FOLDER, THREE)
    assert files(storage) == listed


@pytest.mark.parametrize("at", range(1, 6))
def test_a_reader_that_finds_a_file_gone_lists_again(at: int, tmp_path: Path) -> None:
    storage = made(tmp_path, 5)
    opened = 0

    def before(kind: str, rel: str) -> None:
        nonlocal opened
        opened += kind == "open_input"
        if kind == "open_input" and opened == at:
            for _ in range(4):
                merge_archive(storage, FOLDER, THREE)

    slow = Stepping(storage, before)
    assert [int(a.time) for a in read_archive(slow, FOLDER)] == list(range(10))
    storage = made(tmp_path / "newest", 5)
    opened = 0
    place = TimelinePlace(Stepping(storage, before), 1, "", FOLDER, utc=True)
    assert {int(a.time) for a in newest_archived(place)} == set(range(10))


def test_a_file_that_never_comes_is_named(tmp_path: Path) -> None:
    storage = made(tmp_path, 2)

    def before(kind: str, rel: str) -> None:
        if kind == "open_input" and rel.endswith(name_of(2)):
            raise FileNotFoundError(rel)

    with pytest.raises(FileNotFoundError, match=r"archive\.2_"):
        list(read_archive(Stepping(storage, before), FOLDER))


def test_a_note_alone_deletes_nothing(tmp_path: Path) -> None:
    """One of a run that was cut off before the file has grown is carried out; one that means nothing is dropped."""
    storage = made(tmp_path, 4)
    note = {"into": name_of(1), "files": [name_of(2), name_of(3), name_of(9)]}
    storage.replace(f"{FOLDER}/{NOTE_FILE}", json.dumps(note).encode())
    assert merge_archive(storage, FOLDER, THREE) == ()
    assert len(files(storage)) == 4
    assert merge_archive(storage, FOLDER, THREE) == (name_of(2), name_of(3))
    whole(storage, list(range(8)))
    for data in (json.dumps({**note, "into": name_of(7)}).encode(), b"{", b"[]"):
        storage.replace(f"{FOLDER}/{NOTE_FILE}", data)
        assert merge_archive(storage, FOLDER, THREE) == ()
        whole(storage, list(range(8)))


def test_a_file_written_under_a_taken_up_name_stays(tmp_path: Path) -> None:
    """As after a change of the table's version and back, with the note left behind."""
    storage = made(tmp_path, 4)
    merge_archive(storage, FOLDER, THREE)
    other = made(tmp_path / "other", 1, each=40)
    storage.replace(f"{FOLDER}/{name_of(2)}", other.read(f"{FOLDER}/{name_of(1)}"))
    for _ in range(4):
        merge_archive(storage, FOLDER, THREE)
    assert sorted(numbers(storage)) == list(range(40))


def test_what_is_cut_off_is_left_out_and_what_is_broken_is_not_merged(tmp_path: Path) -> None:
    storage = made(tmp_path, 4)
    rel = f"{FOLDER}/{name_of(2)}"
    data = storage.read(rel)
    storage.replace(rel, data + data[:-9])
    for _ in range(2):
        merge_archive(storage, FOLDER, THREE)
    assert files(storage) == [name_of(1), name_of(4)]
    whole(storage, list(range(8)))
    storage.replace(f"{FOLDER}/{name_of(1)}", b"what is this?")
    for number in range(4, 9):
        put(storage, [2 * number, 2 * number + 1])
    assert merge_archive(storage, FOLDER, MergeOptions(files=2)) == ()
    with pytest.raises(CorruptFileError, match=r"archive\.1_"):
        list(read_archive(storage, FOLDER))


def test_another_holder_of_the_lease_stops_it(tmp_path: Path) -> None:
    storage = made(tmp_path, 4)

    def lost() -> None:
        raise PermissionError

    for _ in range(2):
        before = {name: storage.read(f"{FOLDER}/{name}") for name in storage.names(FOLDER)}
        with pytest.raises(PermissionError):
            merge_archive(storage, FOLDER, THREE, lost)
        assert {name: storage.read(f"{FOLDER}/{name}") for name in storage.names(FOLDER)} == before
        merge_archive(storage, FOLDER, THREE)


@dataclass
class Sizes:
    """An archive of which only the files' sizes are known."""

    options: MergeOptions
    sizes: list[int] = field(default_factory=list)
    written: int = 0

    def archive(self, size: int) -> None:
        self.sizes.append(size)
        found = files_to_merge(self.sizes, self.options)
        if found is not None:
            taken = self.sizes[found.start : found.stop]
            assert max(taken) * 2 <= sum(taken) <= self.options.small_bytes
            assert len(found) <= 100 * self.options.files
            self.written += sum(taken)
            self.sizes[found.start : found.stop] = [sum(taken)]


@pytest.mark.parametrize("sizes", ["same", "any", "rare large ones", "falling"])
def test_files_and_bytes_stay_few(sizes: str) -> None:
    """So many files of 20 MB as the archive needs and some dozens more; each byte is written a few times."""
    chance = random.Random(5)
    archive = Sizes(MergeOptions())
    for number in range(5_000):
        size = {
            "same": 30_000,
            "any": int(10_000 * 2 ** (chance.random() * 8)),
            "rare large ones": 2_000_000 if chance.random() < 0.02 else 20_000,
            "falling": 40_000 - 4 * number,
        }[sizes]
        archive.archive(size)
    total = sum(archive.sizes)
    assert len(archive.sizes) <= 2 * total / (20 << 20) + 60
    assert archive.written <= 6 * total


def test_many_files_from_before_become_few(tmp_path: Path) -> None:
    archive = Sizes(MergeOptions(), [30_000] * 5_000)
    for _ in range(80):
        archive.archive(30_000)
    assert len(archive.sizes) <= 40


def test_hudis_reader_would_miss_some_of_the_past_were_the_files_copied_into_a_newer_one(tmp_path: Path) -> None:
    """Why it is not done as Hudi 0.x does it; the model of its reader shows it."""
    storage = made(tmp_path, 4)
    merged = b"".join(storage.read(f"{FOLDER}/{name_of(n)}") for n in (3, 4))
    storage.write_new(f"{FOLDER}/{name_of(5)}", merged)
    assert as_hudi(storage) == list(range(8))
    assert as_hudi(storage, lambda n: n >= 0) == [4, 5, 6, 7]
