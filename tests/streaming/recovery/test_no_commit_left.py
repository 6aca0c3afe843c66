"""A table whose commits were all rolled back: what they held is read again, and a table that is another one is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.simulation import checks
from tests.simulation.settings import Settings
from tests.simulation.world import World


@pytest.mark.parametrize("index", ["FLINK_STATE", "GLOBAL_SIMPLE"])
@pytest.mark.parametrize("version", [6, 9])
def test_the_only_commit_is_rolled_back(tmp_path: Path, version: int, index: str) -> None:
    world = World(Settings(version=version, index=index), tmp_path)
    world.send(20)
    assert world.run(1000, 0.0, {}) == "done"
    world.roll_back(world.model.now.instant)
    assert world.run(1000, 0.0, {}) == "done"
    assert world.all_taken() and not checks.quick(world)


def test_a_table_that_was_deleted_is_refused(tmp_path: Path) -> None:
    world = World(Settings(), tmp_path)
    world.send(20)
    assert world.run(1000, 0.0, {}) == "done"
    shutil.rmtree(world.path)
    assert "was deleted or created again" in world.run(1000, 0.0, {})
