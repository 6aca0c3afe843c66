"""A new query begins where the newest commit of its stream ended. When that commit is undone before the query has any batch,
what it held is read again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tagstream.state.checkpoint import BEGINS
from tagstream.streaming.errors import CheckpointError
from tagstream.streaming.recovery.takeover import read_begins, write_begins
from tagstream.table.storage.posix import PosixStorage
from tests.simulation import checks
from tests.simulation.settings import Settings
from tests.simulation.world import World


@pytest.mark.parametrize("commits", [1, 2])
@pytest.mark.parametrize("index", ["FLINK_STATE", "GLOBAL_SIMPLE"])
def test_the_commit_that_it_followed_is_rolled_back(tmp_path: Path, index: str, commits: int) -> None:
    world = World(Settings(index=index), tmp_path)
    for _ in range(commits):
        world.send(20)
        assert world.run(1000, 0.0, {}) == "done"
    shutil.rmtree(world.folder / "checkpoint")
    assert world.run(1000, 0.0, {}) == "done"  # a new query, and no batch
    world.roll_back(world.model.now.instant)
    world.send(5)
    assert world.run(1000, 0.0, {}) == "done"
    assert world.all_taken() and not checks.quick(world) and not world.problems


def test_it_is_kept_until_the_place_is_fixed(tmp_path: Path) -> None:
    query_folder = PosixStorage(str(tmp_path), sync=False)
    assert read_begins(query_folder) is None
    write_begins(query_folder, "20260101000000000")
    write_begins(query_folder, "20260101000000001")
    assert read_begins(query_folder) == "20260101000000001"
    write_begins(query_folder, None)
    assert read_begins(query_folder) is None
    write_begins(query_folder, "20260101000000002")
    query_folder.replace("sources/0/0", b"v1\n{}")
    write_begins(query_folder, "20260101000000003")
    assert read_begins(query_folder) == "20260101000000002"


@pytest.mark.parametrize(
    ("content", "what"), [(b"{", "is damaged"), (b'{"version": 9, "after": "1"}', "another version")]
)
def test_one_that_cannot_be_read(tmp_path: Path, content: bytes, what: str) -> None:
    query_folder = PosixStorage(str(tmp_path), sync=False)
    query_folder.replace(BEGINS, content)
    with pytest.raises(CheckpointError, match=what):
        read_begins(query_folder)
