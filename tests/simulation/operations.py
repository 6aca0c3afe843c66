"""Rows that go by other means than their own events: a stream of deletes, and partitions that are too old."""

from __future__ import annotations

from itertools import pairwise

from tagstream.table.metadata.record_encoding import instant_ms
from tagstream.table.timeline.operation import WriteOperationType
from tests.simulation.steps import action, batches, operate, run_stream, table_command
from tests.simulation.world import World

_DAY_MS = 86_400_000


@action
def stream_of_deletes(world: World) -> None:
    """The stream runs with DELETE for a while: each record deletes the row of its key, whatever it says itself."""
    told = world.settings
    if told.changes or told.operation or told.streams > 1 or not world.model.log or not world.all_taken():
        return
    world.copies.clear()  # what an old checkpoint would read again would be upserts
    world.send(world.random.choice((1, 3, 10)))
    world.operation = WriteOperationType.DELETE
    run_stream(world, {})
    world.operation = ""


@action
def expire(world: World) -> None:
    """Time passes, some partitions get rows, and a person deletes those that nobody has written to for some days."""
    told = world.settings
    if told.layout == "none" or told.toast or told.rings or not world.model.log:
        return
    if world.random.random() < 0.7:
        world.now_ms += 40 * _DAY_MS
        if world.random.random() < 0.7:
            batches(world)
    if not world.all_taken():  # as for the delete of a partition
        return
    world.index_is_whole = False
    world.copies.clear()
    before, known = world.model.now, len(world.model.log)
    days = world.random.choice((1, 30, 60))
    ended = operate(world, *table_command(world, "ttl", "--days", str(days)), calls=80)
    oldest = world.now_ms - days * _DAY_MS
    written = _written(world, known)
    left = {held.path for held in world.model.now.state.values() if held.row is not None}
    for path in sorted({str(held.path) for held in before.state.values() if held.row is not None}):
        # Services write files, too, which the command takes for writes of the partition. A plan keeps it.
        if path not in left and written.get(path, 0) > oldest:
            world.problems.append(f"ttl of {days} days: {path} is gone, and was written at {written[path]}")
        if path in left and ended == "done" and not _waits(world) and _newest_ms(world, known) < oldest:
            world.problems.append(f"ttl of {days} days: {path} is there still")


def _written(world: World, known: int) -> dict[str, int]:
    """When rows of each partition path were last written or deleted, by the first ``known`` writes: ms since 1970."""
    found: dict[str, int] = {}
    for before, after in pairwise([world.model.start, *world.model.log[:known]]):
        at = instant_ms(after.instant, utc=True)
        for ident, held in after.state.items():
            was = before.state.get(ident)
            if was != held:
                found |= {str(one.path): at for one in (was, held) if one is not None and one.path is not None}
    return found


def _newest_ms(world: World, known: int) -> int:
    return max((instant_ms(entry.instant, utc=True) for entry in world.model.log[:known]), default=0)


def _waits(world: World) -> bool:
    timeline = world.table().timeline()
    return bool(timeline.pending_compactions or timeline.pending_clusterings)
