"""Moving on to a new root: one step that is done or not done, by the one who knows the present one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.state.checkpoint import QueryFolder, current_query_folder, next_query_folder
from tagstream.state.errors import StateError
from tagstream.table.storage.posix import PosixStorage
from tests.support.faulty_storage import Faults, FaultyStorage, InjectedError


@pytest.fixture
def checkpoint(tmp_path: Path) -> PosixStorage:
    return PosixStorage(str(tmp_path / "c"), sync=False)


def test_the_first_root_is_the_checkpoint_itself(checkpoint: PosixStorage) -> None:
    assert current_query_folder(checkpoint) == QueryFolder(0, checkpoint)
    assert not checkpoint.exists("")


def test_a_new_root_takes_the_place_of_the_old_one_and_nothing_is_moved(checkpoint: PosixStorage) -> None:
    checkpoint.replace("metadata", b"spark's")
    first = next_query_folder(checkpoint, current_query_folder(checkpoint), "the table was restored")
    first.files.replace("metadata", b"the next one's")
    assert (
        current_query_folder(checkpoint)
        == first
        == QueryFolder(1, checkpoint.below("tagstream/roots/1"), first.version)
    )
    second = next_query_folder(checkpoint, first, "again")
    assert (current_query_folder(checkpoint), second.number) == (second, 2)
    assert (checkpoint.read("metadata"), first.files.read("metadata")) == (b"spark's", b"the next one's")
    assert second.files.read("why.txt").decode() == (
        f"This query continues the one in {first.files.root}, which was retired: again.\n"
    )


def test_whatever_call_goes_wrong_there_is_one_root(tmp_path: Path) -> None:
    """As after a kill at that call: what comes next finds the old root or the new one, and can go on from it."""
    count = 0
    for kind in ("fail", "lose"):
        for n in range(1, 30):
            checkpoint = PosixStorage(str(tmp_path / f"{kind}{n}"), sync=False)
            before = next_query_folder(checkpoint, current_query_folder(checkpoint), "first")
            wrong = FaultyStorage(checkpoint, replace(Faults(str(tmp_path / f"f{kind}{n}")), **{kind: n}))
            try:
                next_query_folder(wrong, before, "second")
            except InjectedError:
                count += 1
            else:
                break
            found = current_query_folder(checkpoint)
            assert found in (before, QueryFolder(2, checkpoint.below("tagstream/roots/2"), found.version))
            after = next_query_folder(checkpoint, found, "third")
            assert current_query_folder(checkpoint) == after
            assert after.number > found.number and after.files.names("") == ("why.txt",)
    assert count >= 6


def test_a_process_that_was_succeeded_retires_nothing(checkpoint: PosixStorage) -> None:
    mine = current_query_folder(checkpoint)
    theirs = next_query_folder(checkpoint, mine, "by the successor")
    with pytest.raises(StateError, match="another process has retired the query in"):
        next_query_folder(checkpoint, mine, "by the one that stood still")
    assert current_query_folder(checkpoint) == theirs


@pytest.mark.parametrize("data", [b"", b"[]", b'{"version":1}', b'{"version":9,"root":1}'])
def test_a_damaged_register_is_named(checkpoint: PosixStorage, data: bytes) -> None:
    checkpoint.swap("tagstream/root", data, None)
    with pytest.raises(StateError, match="tagstream/root"):
        current_query_folder(checkpoint)


def make_query_folder(name: str) -> Callable[[PosixStorage], None]:
    return lambda checkpoint: checkpoint.replace(f"tagstream/roots/{name}/offsets/0", b"")


def test_a_root_that_is_there_already_is_never_taken(checkpoint: PosixStorage) -> None:
    """As when an older copy of the checkpoint was put over a newer one."""
    make_query_folder("7")(checkpoint)
    make_query_folder("x")(checkpoint)
    assert next_query_folder(checkpoint, current_query_folder(checkpoint), "why").number == 8
