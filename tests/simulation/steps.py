"""What can happen in a world, step by step. Each step has a seed of its own, so the others stay as they are when one is left
out; one that cannot happen now does nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from tagstream.table.timeline.operation import WriteOperationType
from tests.simulation import checks
from tests.simulation.settings import MERGE_ON_READ, Settings
from tests.simulation.values import ADDED
from tests.simulation.world import World

Action = Callable[[World], None]
ACTIONS: dict[str, Action] = {}
_LONGEST_RUN = 400  # storage calls of a run of the stream, about
_MOST_TRIES = 4
_NO_LIMIT = 1_000_000


@dataclass(frozen=True)
class Step:
    """One thing that happens. ``seed``: of all that it draws."""

    kind: str
    seed: int

    def to_json(self) -> list[Any]:
        """For a program that runs again."""
        return [self.kind, self.seed]


def action(function: Action) -> Action:
    """Names a step by its function."""
    ACTIONS[function.__name__] = function
    return function


def draw(random: Random, settings: Settings, count: int) -> list[Step]:
    """The steps of a history: batches, and in between what goes back in time more often than in life."""
    kinds, chances = zip(*_CHANCES.items(), strict=True)
    found = [Step("batches", random.getrandbits(32))]
    while len(found) < count:
        kind = random.choices(kinds, chances)[0]
        if kind in ("compact", "compact_plan") and settings.table_type != MERGE_ON_READ:
            continue
        found.append(Step(kind, random.getrandbits(32)))
    return [*found, Step("batches", random.getrandbits(32))]


def _others(world: World) -> None:
    """While a driver stands still its lease ends, and a successor takes over; then it wakes up."""
    world.now_ms += 120_000
    ended = world.run(1000, 0.0, {})
    world.woken = True
    world.say(f"  meanwhile: {ended[:60]}")


def _plan(world: World, calls: int, chance: float, *, pauses: bool = False) -> dict[str, Any]:
    """A fault at one of the storage calls of a process, by chance."""
    random = world.random
    if random.random() >= chance:
        return {}
    at = random.randint(1, calls)
    kind = random.choices(("kill", "fail", "lose", "pause"), (6, 1, 1, 1 if pauses else 0))[0]
    if kind == "pause":
        return {"pause_at": at, "on_pause": partial(_others, world)}
    if kind == "kill" and random.random() < 0.3:  # the files of a write are there, and nobody may see them yet
        return {"kill_on": random.choice(("commit", ".inflight", ".commit.requested", ".clean", ".savepoint"))}
    if kind == "kill":
        return {"kill_at": at, "after": random.random() < 0.5}
    return {f"{kind}_at": at}


def run_stream(world: World, plan: dict[str, Any]) -> None:
    """Run the stream until it has taken all, as whoever is woken by it would. With a second stream: that one before it, in
    the middle of it and after it."""
    if world.settings.streams > 1:
        if world.random.random() < 0.4:
            _second(world, _plan(world, 150, 0.5))
        if not plan and world.random.random() < 0.8:
            meanwhile = partial(_second, world, _plan(world, 150, 0.2))
            often = world.random.choice((0, 20, 60))
            plan = {"pause_at": world.random.randint(1, 150), "pause_every": often, "on_pause": meanwhile}
        _run_first(world, plan)
        for _ in range(_MOST_TRIES):
            if (ended := _second(world, {})) == "done":
                break
        else:
            world.problems.append(f"the second stream does not start: {ended}")
        plan = {}
    _run_first(world, plan)
    if not world.problems and not world.all_taken():
        world.problems.append(f"the stream has ended at {world.model.now.offsets}, the topic has more")


def _second(world: World, plan: dict[str, Any]) -> str:
    """The second stream takes what is there, next to the first or alone."""
    return world.run(world.random.choice((3, 10, 1000)), 0.0, plan, which=1)


def _run_first(world: World, plan: dict[str, Any]) -> None:
    random = world.random
    waiting = sum(len(mine) for mine in world.sent) - sum(world.model.now.offsets.values())
    limit, retried = max(random.choice((3, 10, 1000)), waiting // 4), random.choice((0.0, 0.0, 0.3))
    if world.settings.operation == WriteOperationType.INSERT_OVERWRITE_TABLE:  # a run is one batch
        limit = _NO_LIMIT
    ended = world.run(limit, retried, plan)
    if "the table was deleted or created again" in ended and not world.model.log:  # its only commit was rolled back
        shutil.rmtree(world.checkpoint)
        ended = world.run(limit, retried, {})
    for _ in range(_MOST_TRIES):
        if ended == "done":
            break
        if ended == "killed":
            world.problems += [f"while the stream is dead: {problem}" for problem in checks.quick(world)]
            if random.random() < 0.4:
                world.lose_local()
        if "complete that action first" in ended:
            ACTIONS["carry_out"](world)
        elif ended.startswith("refused") and not plan:
            world.problems.append(f"the stream does not start: {ended}")
            return
        plan = {}
        ended = world.run(limit, retried, plan)
    world.index_is_whole = (
        ended == "done" and not world.faults
    )  # what failed at the very end is caught up by the next start
    if ended.startswith("refused"):
        world.problems.append(f"the stream does not start: {ended}")


@action
def batches(world: World) -> None:
    """New events, and the stream takes them, dying in between or not."""
    world.send(world.random.choice((1, 3, 10, 30)))
    run_stream(world, _plan(world, world.random.choice((60, 150, _LONGEST_RUN)), 0.3, pauses=True))


@action
def restart(world: World) -> None:
    """The stream starts and finds nothing new."""
    if world.has_table:
        run_stream(world, {})


def operate(world: World, *argv: str, calls: int = 60) -> str:
    """A command, given again until it is not killed."""
    plan = _plan(world, calls, 0.25)
    ended = ""
    for _ in range(_MOST_TRIES):
        ended = world.operate(*argv, plan=plan)
        if ended != "killed" and not (plan and ended.startswith("refused")):
            break
        plan = {}
    world.take_in()
    return ended


def table_command(world: World, command: str, *more: str) -> tuple[str, ...]:
    return ("table", command, "--target-base-path", str(world.path), *more, "--yes")


@action
def add_column(world: World) -> None:
    """The schema file gets a column."""
    new = [c.name for c in ADDED if c.name not in world.columns]
    if new:
        world.set_columns((*world.columns, new[0]))


@action
def lose_local(world: World) -> None:
    """The local stores are lost."""
    world.lose_local()


@action
def cut_local(world: World) -> None:
    """A file of the local stores is cut off."""
    world.say(f"  cut {world.truncate_local()}")


@action
def old_local(world: World) -> None:
    """The local stores are of an earlier time."""
    if world.random.random() < 0.5:
        world.copy("local", "old_local")
    else:
        world.put_back("local", "old_local")


@action
def keep_checkpoint(world: World) -> None:
    """Somebody copies the checkpoint."""
    if world.checkpoint.exists():
        world.copy("checkpoint", "old_checkpoint")
        world.copies.add("old_checkpoint")


@action
def old_checkpoint(world: World) -> None:
    """The copy of the checkpoint is put back."""
    told = world.settings
    if (
        not (told.toast or told.truncates or told.remembers or told.streams > 1)
        and "old_checkpoint" in world.copies
        and world.put_back("checkpoint", "old_checkpoint")
    ):
        world.index_is_whole = False


@action
def new_checkpoint(world: World) -> None:
    """The checkpoint is lost; the stream begins with an empty one."""
    told = world.settings
    # It has rows that were renamed, and the order of rows, deletes and TRUNCATEs: docs/guide/records.md.
    if world.checkpoint.exists() and not (told.toast or told.truncates or told.remembers or told.streams > 1):
        shutil.rmtree(world.checkpoint)
        world.index_is_whole = False


@action
def clock(world: World) -> None:
    """The clock is set forward, or back."""
    far = 40 * 86_400_000 if not world.settings.toast else 86_400_000  # rows that were renamed are kept for 7 days
    world.now_ms += world.random.choice((-3_600_000, -5_000, 60_000, far))


_CHANCES = {
    "batches": 50, "restart": 4, "clean": 7, "archive": 7, "cluster": 5, "cluster_plan": 3, "compact": 5,
    "compact_plan": 4, "savepoint": 8, "savepoint_delete": 3, "restore": 8, "rollback": 6, "delete_partition": 3,
    "change_version": 4, "add_column": 3, "carry_out": 2, "back_over_a_service": 3, "savepoint_over_a_clustering": 2,
    "back_over_a_clean": 2, "partition_comes_back": 2, "insert_overwrite": 2, "rescale": 2, "exchange": 2,
    "lose_local": 2, "cut_local": 2, "old_local": 3,
    "keep_checkpoint": 4, "other_writes": 3, "other_dies": 6, "other_clusters": 2, "other_in_a_batch": 3,
    "service_in_a_batch": 4, "service_process": 4, "old_checkpoint": 4, "new_checkpoint": 2, "clock": 3,
}  # fmt: skip
