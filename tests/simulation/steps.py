"""What can happen in a world, step by step. Each step has a seed of its own, so the others stay as they are when one is left
out; one that cannot happen now does nothing.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from tagstream.admin.command.main import main as tagstream
from tests.simulation.settings import MERGE_ON_READ, Settings
from tests.simulation.values import ADDED
from tests.simulation.world import World

Action = Callable[[World], None]
ACTIONS: dict[str, Action] = {}
_LONGEST_RUN = 400  # storage calls of a run of the stream, about
_MOST_TRIES = 4


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
    if kind == "kill":
        return {"kill_at": at, "after": random.random() < 0.5}
    return {f"{kind}_at": at}


def _run(world: World, plan: dict[str, Any]) -> None:
    """Run the stream until it has taken all, as whoever is woken by it would."""
    random = world.random
    waiting = sum(len(mine) for mine in world.sent) - sum(world.model.now.offsets.values())
    limit, retried = max(random.choice((3, 10, 1000)), waiting // 4), random.choice((0.0, 0.0, 0.3))
    ended = world.run(limit, retried, plan)
    if ended.startswith("refused: IndexCoverageError") and not world.model.log:
        new_checkpoint(world)  # as it says: all writes were taken back
        ended = world.run(limit, retried, {})
    if "carry that out first" in ended:
        carry_out(world)
        ended = world.run(limit, retried, {})
    for _ in range(_MOST_TRIES):
        if ended == "done":
            break
        if ended == "killed" and random.random() < 0.4:
            world.lose_local()
        if ended.startswith("refused") and not plan:
            world.problems.append(f"the stream does not start: {ended}")
            return
        plan = {}
        ended = world.run(limit, retried, plan)
    world.index_is_whole = (
        ended == "done" and not world.faults
    )  # what failed at the very end is caught up by the next start
    if ended == "done" and not world.all_taken():
        world.problems.append(f"the stream has ended at {world.model.now.offsets}, the topic has more")


@action
def batches(world: World) -> None:
    """New events, and the stream takes them, dying in between or not."""
    world.send(world.random.choice((1, 3, 10, 30)))
    _run(world, _plan(world, world.random.choice((60, 150, _LONGEST_RUN)), 0.3, pauses=True))


@action
def restart(world: World) -> None:
    """The stream starts and finds nothing new."""
    if world.has_table:
        _run(world, {})


def _operate(world: World, *argv: str, calls: int = 60) -> str:
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


def _table(world: World, command: str, *more: str) -> tuple[str, ...]:
    return ("table", command, "--target-base-path", str(world.path), *more, "--yes")


@action
def clean(world: World) -> None:
    """A person cleans."""
    random = world.random
    if random.random() < 0.7:
        more = ("--policy", "KEEP_LATEST_COMMITS", "--commits", str(random.choice((1, 2, 4))))
    else:
        more = ("--policy", "KEEP_LATEST_FILE_VERSIONS", "--file-versions", str(random.choice((1, 2))))
        world.past_is_lost = True
    if world.model.log:
        _operate(world, *_table(world, "clean", *more))


@action
def archive(world: World) -> None:
    """A person archives."""
    least = world.random.choice((1, 2, 4))
    if world.model.log:
        _operate(world, *_table(world, "archive", "--min-commits", str(least), "--max-commits", str(least + 1)))


@action
def cluster(world: World) -> None:
    """A person clusters; the stream learns of it at its next start."""
    random = world.random
    if not world.model.log:
        return
    more = ["--small-file-limit", random.choice(("1000000000", "3000"))]
    more += ["--target-file-bytes", random.choice(("2000", "1000000000"))]
    if random.random() < 0.5:
        more += ["--sort-columns", random.choice(world.columns) if "nest" not in world.columns else "id"]
    world.index_is_whole = False
    _operate(world, *_table(world, "cluster", *more), calls=100)


@action
def cluster_plan(world: World) -> None:
    """A clustering is planned and waits."""
    if world.model.log:
        _operate(world, *_table(world, "cluster", "--schedule", "--small-file-limit", "1000000000"))


@action
def compact(world: World) -> None:
    """A person compacts."""
    if world.model.log:
        _operate(world, *_table(world, "compact"), calls=100)


@action
def carry_out(world: World) -> None:
    """A person carries out what is planned."""
    if not world.has_table:
        return
    timeline = world.table().timeline()
    for instant in sorted(set(timeline.pending_clusterings.values())):
        _operate(world, *_table(world, "cluster", "--execute", instant))
    for instant in [i.time for i in timeline.pending if i.action == "compaction"]:
        _operate(world, *_table(world, "compact", "--execute", instant))


@action
def compact_plan(world: World) -> None:
    """A compaction is planned and waits."""
    if world.model.log:
        _operate(world, *_table(world, "compact", "--schedule"))


@action
def savepoint(world: World) -> None:
    """A person keeps the table as it is."""
    if world.model.log:
        _operate(world, *_table(world, "savepoint"))


@action
def savepoint_delete(world: World) -> None:
    """The oldest savepoint goes."""
    found = _savepoints(world)
    if found:
        _operate(world, *_table(world, "savepoint", "--delete", "--instant", found[0]))


@action
def restore(world: World) -> None:
    """Back to the newest savepoint; what the stream has read since is read again."""
    found = _savepoints(world)
    if not found:
        return
    ended = _operate(world, *_table(world, "restore", "--savepoint", found[-1]), calls=120)
    if ended == "done":
        world.model.back_to(found[-1])
        world.index_is_whole = False
    else:
        _after_refused(world, ended)


@action
def rollback(world: World) -> None:
    """The newest write is taken back."""
    if not world.model.log:
        return
    table = world.table()
    newest = max(table.timeline().completed_writes, key=lambda i: i.completion_time or i.time, default=None)
    if newest is None:
        return
    ended = _operate(world, *_table(world, "rollback", "--instant", newest.time), calls=120)
    found = world.table().timeline().find(newest.time)  # a clustering's plan stays
    if found is None or not found.is_completed:
        world.model.forget(newest.time)
        world.index_is_whole = False
    elif ended == "done":
        world.problems.append(f"rollback of {newest.time} is done, and it is there still")
    else:
        _after_refused(world, ended)


def _after_refused(world: World, ended: str) -> None:
    """A command that was killed once may have begun what only the same command ends."""
    world.say(f"  left as it is: {ended[:80]}")


@action
def delete_partition(world: World) -> None:
    """All rows of a partition go."""
    if not world.model.log:
        return
    part = f"p{world.random.randrange(world.settings.partitions)}"
    world.index_is_whole = False
    world.copies.clear()  # what an old checkpoint would read again would come back, as in life
    _operate(world, *_table(world, "delete-partition", "--partition", part), calls=80)


@action
def insert_overwrite(world: World) -> None:
    """A person replaces the rows of a partition by those of a file: keys that only this partition has, or none had."""
    if not world.model.log or world.settings.partial:
        return
    part = f"p{world.random.randrange(world.settings.partitions)}"
    rows = world.events.rows_for(world.random, world.columns, part, world.random.choice((0, 1, 5)))
    file = world.folder / "overwrite.json"
    file.write_text("".join(json.dumps(event.row) + "\n" for event in rows), "utf-8")
    argv = world.settings.arguments(world.folder, world.folder / "event.avsc")
    conf = [word for key, value in pairwise(argv) if key == "--hoodie-conf" for word in (key, value)]
    world.index_is_whole = False
    world.copies.clear()
    world.overwritten = {part: rows}
    _operate(world, *_table(world, "insert-overwrite", "--from", str(file), "--partition", part, *conf), calls=80)


@action
def rescale(world: World) -> None:
    """The index gets another number of key groups, by a new checkpoint that takes the place of the old one."""
    to = world.folder / "rescaled"
    shutil.rmtree(to, ignore_errors=True)
    groups = world.random.choice((1, 2, 5))
    argv = ("rescale", *_places(world), "--to-checkpoint-dir", str(to), "--key-groups", str(groups))
    if world.has_state_index and _operate(world, *argv) == "done":
        _take(world, to, groups)


@action
def exchange(world: World) -> None:
    """The index is exported, and imported into a new checkpoint."""
    if not world.has_state_index:
        return
    file, to = world.folder / "index.parquet", world.folder / "imported"
    file.unlink(missing_ok=True)
    shutil.rmtree(to, ignore_errors=True)
    checkpoint = ("--checkpoint-dir", str(world.checkpoint))
    if _operate(world, "index", "export", *checkpoint, "--out", str(file), "--all") != "done":
        return
    table = ("--target-base-path", str(world.path))
    argv = ("index", "import", "--from", str(file), "--to-checkpoint-dir", str(to), *table)
    if _operate(world, *argv) == "done":
        _take(world, to, None)


def _places(world: World) -> tuple[str, ...]:
    return ("--checkpoint-dir", str(world.checkpoint), "--target-base-path", str(world.path))


def _take(world: World, checkpoint: Path, groups: int | None) -> None:
    """A new checkpoint takes the place of the old one."""
    shutil.rmtree(world.checkpoint)
    checkpoint.rename(world.checkpoint)
    if groups is not None:
        world.settings = replace(world.settings, key_groups=groups)
    world.copies.clear()
    world.index_is_whole = False


@action
def change_version(world: World) -> None:
    """Upgrade or downgrade."""
    if not world.model.log:
        return
    to, now = world.random.choice((6, 8, 9)), world.table().config.version
    if to == now:
        return
    command = "upgrade" if to > now else "downgrade"
    world.index_is_whole = False
    _operate(world, "table", command, "--target-base-path", str(world.path), "--to", str(to), "--yes", calls=150)
    if world.settings.table_type == MERGE_ON_READ and to < 8:
        world.past_is_lost = True  # documented: its logs are compacted


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
    if "old_checkpoint" in world.copies and world.put_back("checkpoint", "old_checkpoint"):
        world.index_is_whole = False


@action
def new_checkpoint(world: World) -> None:
    """The checkpoint is lost; the stream begins with an empty one."""
    if world.checkpoint.exists():
        shutil.rmtree(world.checkpoint)
        world.index_is_whole = False


@action
def clock(world: World) -> None:
    """The clock is set forward, or back."""
    world.now_ms += world.random.choice((-3_600_000, -5_000, 60_000, 40 * 86_400_000))


def _savepoints(world: World) -> list[str]:
    if not world.has_table:
        return []
    out = io.StringIO()
    tagstream(["table", "savepoints", "--target-base-path", str(world.path), "--json"], out)
    return sorted(str(row["instant"]) for row in json.loads(out.getvalue()).get("savepoints", []))


_CHANCES = {
    "batches": 50, "restart": 4, "clean": 7, "archive": 7, "cluster": 5, "cluster_plan": 3, "compact": 5,
    "compact_plan": 4, "savepoint": 8, "savepoint_delete": 3, "restore": 8, "rollback": 6, "delete_partition": 3,
    "change_version": 4, "add_column": 3, "carry_out": 2, "insert_overwrite": 2, "rescale": 2, "exchange": 2,
    "lose_local": 2, "cut_local": 2, "old_local": 3, "keep_checkpoint": 4, "old_checkpoint": 4, "new_checkpoint": 2,
    "clock": 3,
}  # fmt: skip
