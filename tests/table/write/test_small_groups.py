"""File groups that take inserts, in files and in the profile: what a task finds, and how little of a file it reads."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path

import pytest

from tagstream.table.errors import CorruptFileError
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.write import small_groups
from tagstream.table.write.small_groups import BLOCK_GROUPS, SmallFile, SmallGroups, write_sizes
from tagstream.table.write.write_context import WriteProfile
from tests.table.stepping import Stepping


def many(count: int) -> dict[str, dict[str, float]]:
    """So many partitions of one to three groups; names in another order than by length, some not of ASCII."""
    return {f"p={n}/{'ä' * (n % 3)}": {f"f{n}-{i}": 10.5 * n + i for i in range(1 + n % 3)} for n in range(count)}


@pytest.mark.parametrize("count", [1, BLOCK_GROUPS, 1500])
def test_each_partition_is_found_and_no_other(count: int, tmp_path: Path) -> None:
    storage, sizes = PosixStorage(str(tmp_path)), many(count)
    file = write_sizes(storage, "sizes", sizes.items())
    groups = SmallGroups(1_000_000, 100, {}, (file,), storage)
    assert groups.of([]) == {}
    found = groups.of([*sizes, "p=", "a", "zzz"])
    assert found.keys() == sizes.keys()
    for partition, files in found.items():
        wanted = [SmallFile(f, int((1_000_000 - size) / 100)) for f, size in sorted(sizes[partition].items())]
        assert list(files) == wanted


def test_what_is_newer_counts_and_no_groups_are_none(tmp_path: Path) -> None:
    storage = PosixStorage(str(tmp_path))
    old = write_sizes(storage, "old", {"a": {"f": 10.0}, "b": {"f": 10.0}, "c": {"f": 10.0}}.items())
    mid = write_sizes(storage, "mid", {"b": {"f": 20.0}, "c": {"f": 20.0}, "d": {}}.items())
    groups = SmallGroups(100, 10, {"c": {"f": 30.0, "g": 95.0}, "e": {}}, (mid, old), storage)
    rooms = {p: [(f.file_id, f.free_records) for f in files] for p, files in groups.of("abcdef").items()}
    assert rooms == {"a": [("f", 9)], "b": [("f", 8)], "c": [("f", 7)], "d": [], "e": []}


def test_the_room_is_of_the_batch_and_the_sizes_are_of_the_file(tmp_path: Path) -> None:
    """The estimate for a record changes with any commit; no file is written for that."""
    storage = PosixStorage(str(tmp_path))
    file = write_sizes(storage, "sizes", {"p": {"f": 100.0}}.items())
    for record_bytes, room in ((1, 900), (7, 128), (1000, 0)):
        found = SmallGroups(1000, record_bytes, {}, (file,), storage).of(["p"])["p"]
        assert [f.free_records for f in found] == [room][: room > 0]


@pytest.mark.extended("longer random histories")
def test_a_task_reads_the_blocks_of_its_partitions_once(tmp_path: Path) -> None:
    plain, sizes = PosixStorage(str(tmp_path)), many(100_000)
    file = write_sizes(plain, "sizes", sizes.items())
    storage = Stepping(plain, lambda *_: None)
    length = plain.size("sizes")
    wanted = random.Random(1).sample(sorted(sizes), 10)
    small_groups._known.clear()
    read = 0

    def count(rel: str, offset: int, size: int) -> bytes:
        nonlocal read
        read += size
        return plain.read_range(rel, offset, size)

    storage.read_range = count  # type: ignore[method-assign]
    groups = SmallGroups(1_000_000, 100, {}, (file,), storage)
    assert len(groups.of(wanted)) == 10
    assert read < length / 10
    before = read
    assert len(SmallGroups(1_000_000, 50, {}, (file,), storage).of(wanted)) == 10
    assert read == before, "it was read already"
    groups.of(sorted(sizes))
    assert read < 1.5 * length


def test_another_file_of_the_name_and_a_damaged_one_are_refused(tmp_path: Path) -> None:
    storage = PosixStorage(str(tmp_path))
    file = write_sizes(storage, "sizes", many(600).items())
    data = storage.read("sizes")
    for broken in (data[:-1], b"x" + data[1:], data[:-3] + b"9]]"):
        small_groups._known.clear()
        storage.replace("sizes", broken)
        with pytest.raises(CorruptFileError, match="sizes is damaged"):
            SmallGroups(1000, 1, {}, (file,), storage).of(["p=0/"])
    small_groups._known.clear()
    storage.delete("sizes")
    with pytest.raises(FileNotFoundError):
        SmallGroups(1000, 1, {}, (file,), storage).of(["p=0/"])


def test_a_profile_is_read_as_it_was_pinned_and_so_is_one_of_the_version_before(tmp_path: Path) -> None:
    storage = PosixStorage(str(tmp_path))
    file = write_sizes(storage, "sizes", many(3).items())
    groups = SmallGroups(1_000_000, 100, {"q": {"ä": 1.25}}, (file,), storage)
    profile = WriteProfile("t", "q", 7, 1, "20260101000000000", 0, (0, 1), small_groups=groups)
    again = WriteProfile.from_json(profile.to_json(), "x", storage)
    assert again == profile
    for copy in (again, pickle.loads(pickle.dumps(profile))):  # noqa: S301 -- as Spark sends it to tasks
        assert copy.small_files_of(["q", "p=1/ä", "none"]) == groups.of(["q", "p=1/ä"])
    old = json.loads(WriteProfile("t", "q", 7, 1, "20260101000000000", 0, (0, 1)).to_json())
    del old["small_groups"]
    old |= {"version": 2, "small_files": {"p": [["f", 3]]}}
    assert WriteProfile.from_json(json.dumps(old)).small_files_of(["p", "q"]) == {"p": (SmallFile("f", 3),)}
