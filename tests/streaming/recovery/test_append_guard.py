"""A stream that appends does not append again what a newer copy of its checkpoint has appended."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.simulation import checks
from tests.simulation.settings import Settings
from tests.simulation.world import World


def older_copy(world: World, *, batches: int) -> None:
    """Put a checkpoint back whose table has ``batches`` more of its stream."""
    world.send(20)
    assert world.run(1000, 0.0, {}) == "done"
    shutil.copytree(world.checkpoint, world.folder / "copy")
    for _ in range(batches):
        world.send(20)
        assert world.run(1000, 0.0, {}) == "done"
    assert world.put_back("checkpoint", "copy")


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("operation", ["INSERT", "BULK_INSERT"])
@pytest.mark.parametrize("version", [6, 9])
def test_a_topic_is_read_on_where_the_newest_commit_ended(
    tmp_path: Path, version: int, operation: str, batches: int
) -> None:
    world = World(Settings(version=version, index="GLOBAL_SIMPLE", operation=operation), tmp_path)
    older_copy(world, batches=batches)
    for _ in range(2):
        world.send(20)
        assert world.run(1000, 0.0, {}) == "done"
        assert world.all_taken() and not checks.quick(world)


def test_files_are_refused(tmp_path: Path) -> None:
    world = World(Settings(index="GLOBAL_SIMPLE", operation="INSERT", source="json"), tmp_path)
    older_copy(world, batches=2)
    world.send(20)
    why = world.run(1000, 0.0, {})
    assert "and a newer one of stream" in why
    assert "the checkpoint does not know: it is an older copy: all records of the source would be read again" in why
    assert not checks.quick(world)
