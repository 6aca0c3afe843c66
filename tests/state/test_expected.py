"""What a batch begins at, as the batch manifests tell it: all of it, part of it, never something that is not so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tagstream.state.batch_manifest import BatchManifest, DeltaRef, ExpectedChains, chains_before, short_chain
from tagstream.state.durable_files import FileRef, Pointer
from tagstream.state.garbage_collection import collect_garbage
from tagstream.state.layout import StateLayout
from tagstream.table.storage.posix import PosixStorage

LABELS = (0, 1, 2)
RETAIN = 5


def chain(batch: int, label: int, run: int = 1) -> str:
    return f"{batch:08d}{label:04d}{run:04d}".ljust(32, "f")


def write(
    folder: Path, batch: int, labels: tuple[int, ...], *, run: int = 1, index_load: int = 0, query: str = "q"
) -> str:
    deltas = {
        label: DeltaRef(
            "", Pointer(index_load, 0, None, (FileRef(batch, chain(batch, label, run), "f", 1, 1),))
        ).to_json()
        for label in labels
    }
    return BatchManifest(query, batch, run, deltas, f"i{batch}", index_load).write(
        PosixStorage(str(folder), sync=False)
    )


def before(folder: Path, batch: int, index_load: int = 0) -> ExpectedChains:
    return chains_before(PosixStorage(str(folder)), LABELS, "q", index_load, batch, RETAIN)


def short(places: Mapping[int, int], run: int = 1) -> dict[int, str]:
    """Label -> batch that changed it last, as chains."""
    return {label: short_chain(chain(batch, label, run)) for label, batch in places.items()}


def test_the_newest_change_before_the_batch_counts(tmp_path: Path) -> None:
    for batch, labels in enumerate([(0, 1), (1,), (0,), ()]):
        write(tmp_path, batch, labels)
    found = before(tmp_path, 4)
    assert (found.chains, found.whole) == (short({0: 2, 1: 1}), True)
    assert found.is_for("q", 0, 4)
    again = before(tmp_path, 2)  # a batch that is done again: what came after it does not count
    assert (again.chains, again.whole) == (short({0: 0, 1: 1}), True)
    assert before(tmp_path, 0) == ExpectedChains("q", 0, 0)


def test_the_manifest_of_the_later_run_counts(tmp_path: Path) -> None:
    write(tmp_path, 0, (0,), run=2)
    write(tmp_path, 0, (0,), run=1)  # by a driver that had been succeeded
    assert before(tmp_path, 1).chains == short({0: 0}, run=2)


def test_it_goes_on_in_the_process_as_it_would_from_the_files(tmp_path: Path) -> None:
    at = before(tmp_path, 0)
    for batch, labels in enumerate([(0, 1), (), (1, 2)]):
        name = write(tmp_path, batch, labels)
        at = at.after(BatchManifest.read(PosixStorage(str(tmp_path)), name).deltas)
        assert at == before(tmp_path, batch + 1)


def test_an_older_generation_is_void(tmp_path: Path) -> None:
    write(tmp_path, 0, (0, 1, 2))
    write(tmp_path, 1, (0,), index_load=1)
    found = before(tmp_path, 2, index_load=1)
    assert (found.chains, found.whole) == (short({0: 1}), True)


@pytest.mark.parametrize("fault", ["missing", "damaged", "newest missing", "other query", "newer generation"])
def test_nothing_is_said_of_what_lies_behind_a_fault(tmp_path: Path, fault: str) -> None:
    for batch, labels in enumerate([(0, 1), (1,), (2,), ()]):
        write(tmp_path, batch, labels)
    path = tmp_path / f"{3 if fault == 'newest missing' else 1:012d}-1.json"
    if fault == "damaged":
        path.write_bytes(path.read_bytes()[:-5])
    elif fault == "other query":
        write(tmp_path, 1, (1,), query="another")
    elif fault == "newer generation":
        write(tmp_path, 1, (1,), index_load=1)
    else:
        path.unlink()
    found = before(tmp_path, 4)
    assert (found.chains, found.whole) == ({} if fault == "newest missing" else short({2: 2}), False)


def test_manifests_that_are_garbage_are_not_missed(tmp_path: Path) -> None:
    layout = StateLayout(PosixStorage(str(tmp_path / "index")), str(tmp_path / "local"))
    folder = tmp_path / "manifests"
    at = before(folder, 0)
    for batch in range(40):
        name = write(folder, batch, (batch % 2,) if batch else (0, 2))
        at = at.after(BatchManifest.read(PosixStorage(str(folder)), name).deltas)
        if batch > RETAIN:
            collect_garbage(layout, LABELS, 0, batch - RETAIN, PosixStorage(str(folder)))
        assert before(folder, batch + 1) == at
    assert len(list(folder.iterdir())) < 10
