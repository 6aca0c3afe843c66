"""A checkpoint in the making: nothing before its last file, and what is left of a killed one can be told and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.state.checkpoint import (
    META_FILE,
    begin_building,
    clear_unfinished,
    finish_building,
    is_unfinished,
    new_meta,
    read_meta,
)
from tagstream.table.storage.posix import PosixStorage
from tests.support.faulty_storage import Faults, FaultyStorage, InjectedError

META = new_meta(4, 2, "orders", "int64", True)


@pytest.fixture
def checkpoint(tmp_path: Path) -> PosixStorage:
    return PosixStorage(str(tmp_path / "c"), sync=False)


def begun(checkpoint: PosixStorage) -> None:
    begin_building(checkpoint, "a test")
    for rel in ("index/gen-1/0.json", "index/gen-1/complete.json", "takeover.json"):
        checkpoint.replace(f"tagstream/{rel}", b"1")


def test_the_last_file_makes_it_one(checkpoint: PosixStorage) -> None:
    begun(checkpoint)
    assert is_unfinished(checkpoint)
    assert finish_building(checkpoint, META)
    assert not is_unfinished(checkpoint) and not clear_unfinished(checkpoint)
    assert read_meta(checkpoint) == META
    assert checkpoint.names("tagstream") == ("index", "meta.json", "takeover.json")


def test_what_another_has_made_meanwhile_stays(checkpoint: PosixStorage) -> None:
    begun(checkpoint)
    checkpoint.write_new(META_FILE, b"theirs")
    assert not finish_building(checkpoint, META)
    assert checkpoint.read(META_FILE) == b"theirs"


def test_leftovers_go_and_what_has_no_mark_stays(checkpoint: PosixStorage) -> None:
    assert not clear_unfinished(checkpoint)
    checkpoint.replace("tagstream/index/deltas/0/x.sst", b"1")
    assert not clear_unfinished(checkpoint)
    begun(checkpoint)
    assert clear_unfinished(checkpoint)
    assert [*checkpoint.walk_files("")] == []


def test_a_clearing_that_is_cut_off_is_finished_by_the_next(tmp_path: Path) -> None:
    for n in range(1, 30):
        checkpoint = PosixStorage(str(tmp_path / f"{n}"), sync=False)
        begun(checkpoint)
        try:
            clear_unfinished(FaultyStorage(checkpoint, Faults(str(tmp_path / f"faults{n}"), fail=n)))
        except InjectedError:
            assert is_unfinished(checkpoint)
            assert clear_unfinished(checkpoint)
            assert [*checkpoint.walk_files("")] == []
        else:
            assert n > 5
            return


def test_a_lost_answer_of_the_last_step_is_told_rightly(checkpoint: PosixStorage, tmp_path: Path) -> None:
    begun(checkpoint)
    told_twice = FaultyStorage(checkpoint, Faults(str(tmp_path / "faults"), repeat=1, only=("write_new",)))
    assert finish_building(told_twice, META)
    assert read_meta(checkpoint) == META
