"""What profiles say of small files: as the whole list would, after any history; how much is written; what may be deleted."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tagstream.streaming.batch import small_files as pinned_sizes
from tagstream.streaming.batch.small_files import PREFIX, PinnedSizes, SmallFiles
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.write.file_sizes import FileSizeOptions
from tagstream.table.write.small_groups import SmallFile, SmallGroups
from tagstream.table.write.write_context import WriteProfile
from tests.table.stepping import Stepping


class Changing(SmallFiles):
    """One whose groups are set by the test."""

    def __init__(self) -> None:
        super().__init__(FileSizeOptions(1000, 1000, record_bytes=10), merge_on_read=False, base_only=False)

    def change(self, partition: str, file_id: str, size: float) -> None:
        self._set(partition, file_id, size)

    def list_again(self, sizes: dict[str, dict[str, float]]) -> None:
        self._sizes = sizes
        self._changed = None


def as_all(small: SmallFiles, groups: SmallGroups) -> None:
    """What is found for all partitions is what there is, from the profile's text, too."""
    wanted = {p: files for p, files in small.profile().items() if files}
    text = WriteProfile("t", "q", 1, 1, "20260101000000000", 0, (0,), small_groups=groups).to_json()
    again = WriteProfile.from_json(text, "x", groups.storage)
    for found in (groups.of(sorted(small.partitions())), again.small_files_of(sorted(small.partitions()))):
        assert {p: files for p, files in found.items() if files} == wanted


@pytest.mark.extended("longer random histories", first=("1",))
@pytest.mark.parametrize("seed", range(15))
def test_any_history_is_found_as_it_is(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of any size, tables listed again, runs that end, garbage collected; earlier profiles stay what they were."""
    monkeypatch.setattr(pinned_sizes, "_IN_PROFILE", 20)
    chance = random.Random(seed)
    storage, small, pinned, run = PosixStorage(str(tmp_path)), Changing(), PinnedSizes(), 1
    kept: list[tuple[int, SmallGroups, dict[str, tuple[SmallFile, ...]]]] = []
    for batch in range(60):
        for _ in range(chance.choice((0, 1, 3, 60))):
            small.change(f"p{chance.randrange(150)}", f"f{chance.randrange(3)}", chance.choice((0, 10, 500.5, 999)))
        small.record_bytes = chance.choice((10, 10, 7))
        if chance.random() < 0.05:
            small.list_again({f"p{n}": {"f0": 5.0 + n} for n in range(chance.randrange(200))})
        if chance.random() < 0.05:
            pinned, run, kept = PinnedSizes(), run + 1, []
            small.list_again({p: dict(small.groups(p)) for p in small.partitions()})
        groups = pinned.pin(storage, small, batch, run)
        as_all(small, groups)
        assert sum(1 + len(g) for g in groups.newest.values()) <= 20
        kept.append((batch, groups, groups.of(sorted(small.partitions()))))
        oldest = batch - 8
        storage.delete_many(pinned.superfluous(storage.names(""), oldest))
        # A profile that is kept names files that are kept.
        for number, old, found in kept:
            if number >= oldest:
                assert old.of(sorted(found)) == found
    assert len(storage.names("")) <= 25


def test_a_small_table_needs_no_file(tmp_path: Path) -> None:
    storage, small, pinned = PosixStorage(str(tmp_path)), Changing(), PinnedSizes()
    for batch in range(30):
        small.change(f"p{batch}", "f", 100)
        groups = pinned.pin(storage, small, batch, 1)
        as_all(small, groups)
    assert storage.names("") == ()


def test_a_batch_writes_what_it_changes_and_not_the_table(tmp_path: Path) -> None:
    """20,000 partitions, 10 of which each batch changes: all of them are written once in 260 batches."""
    written = [0]

    def before(kind: str, rel: str) -> None:
        written[0] += kind == "replace"

    plain = PosixStorage(str(tmp_path), sync=False)
    small, pinned = Changing(), PinnedSizes()
    small.list_again({f"p{n:06d}": {"f": 5.0} for n in range(20_000)})
    storage = Stepping(plain, before)
    first = pinned.pin(storage, small, 0, 1)
    assert (len(first.newest), len(first.files), written[0]) == (0, 1, 1)
    for batch in range(1, 301):
        for n in range(10):
            small.change(f"p{(batch * 10 + n) % 20_000:06d}", "f", 50.0)
        groups = pinned.pin(storage, small, batch, 1)
        assert len(groups.newest) <= 256
    assert groups.files[-1] != first.files[0], "an eighth has changed: all is written once more"
    assert written[0] <= 2 + 300 // 20
    as_all(small, groups)


def test_a_file_without_its_profile_is_of_no_harm(tmp_path: Path) -> None:
    """Killed between the two: the next run begins with a file of its own, and the other one goes with old profiles."""
    storage, small = PosixStorage(str(tmp_path)), Changing()
    sizes = {f"p{n}": {"f": 5.0} for n in range(2000)}
    small.list_again(dict(sizes))
    PinnedSizes().pin(storage, small, 7, 1)
    small.list_again({**sizes, "p0": {"g": 7.0}})
    pinned = PinnedSizes()
    as_all(small, pinned.pin(storage, small, 7, 2))
    assert len(storage.names("")) == 2
    assert pinned.superfluous(storage.names(""), 7) == []
    assert pinned.superfluous(storage.names(""), 8) == [f"{PREFIX}{7:020d}.1.0"]


def test_a_write_that_failed_loses_no_change(tmp_path: Path) -> None:
    plain, small, pinned = PosixStorage(str(tmp_path)), Changing(), PinnedSizes()

    def fails(kind: str, rel: str) -> None:
        if kind == "replace":
            raise OSError("the store is away")

    small.list_again({f"p{n}": {"f": 5.0} for n in range(2000)})
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            pinned.pin(Stepping(plain, fails), small, 1, 1)
    as_all(small, pinned.pin(plain, small, 1, 1))
    for n in range(700):
        small.change(f"p{n}", "f", 77.0)
    with pytest.raises(OSError, match="away"):
        pinned.pin(Stepping(plain, fails), small, 2, 1)
    as_all(small, pinned.pin(plain, small, 2, 1))
