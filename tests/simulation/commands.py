"""What an operator does: the commands of ``tagstream``, given as a person gives them, and again when they were killed."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from tagstream.cli.main import main as tagstream
from tests.simulation.settings import MERGE_ON_READ
from tests.simulation.steps import action, batches, operate, table_command
from tests.simulation.world import World


@action
def clean(world: World) -> None:
    """A person cleans."""
    random = world.random
    if random.random() < 0.7:
        more = ("--policy", "KEEP_LATEST_COMMITS", "--commits", str(random.choice((1, 2, 4))))
    else:
        more = ("--policy", "KEEP_LATEST_FILE_VERSIONS", "--file-versions", str(random.choice((1, 2))))
        world.past_is_lost = True
    if world.model.log and not world.settings.toast:  # a row that was renamed may be needed still
        operate(world, *table_command(world, "clean", *more))


@action
def archive(world: World) -> None:
    """A person archives."""
    kept = world.random.choice((1, 2, 4))
    told = ("--commits", str(kept), "--min-commits", str(kept + 1), "--max-commits", str(kept + 2))
    if world.model.log:
        operate(world, *table_command(world, "archive", *told))


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
    if world.settings.rings:
        more += ["--max-buckets", "8", "--min-buckets", "1", "--split-threshold", random.choice(("100", "0.000001"))]
    world.index_is_whole = False
    operate(world, *table_command(world, "cluster", *more), calls=100)


@action
def cluster_plan(world: World) -> None:
    """A clustering is planned and waits."""
    if world.model.log:
        operate(world, *table_command(world, "cluster", "--schedule", "--small-file-limit", "1000000000"))


@action
def compact(world: World) -> None:
    """A person compacts."""
    if world.model.log:
        operate(world, *table_command(world, "compact"), calls=100)


@action
def carry_out(world: World) -> None:
    """A person carries out what is planned."""
    if not world.has_table:
        return
    timeline = world.table().timeline()
    for instant in sorted(set(timeline.pending_clusterings.values())):
        world.index_is_whole = False  # the stream learns of it at its next start
        operate(world, *table_command(world, "cluster", "--execute", instant))
    for instant in [i.time for i in timeline.pending if i.action == "compaction"]:
        operate(world, *table_command(world, "compact", "--execute", instant))


@action
def compact_plan(world: World) -> None:
    """A compaction is planned and waits."""
    if world.model.log:
        operate(world, *table_command(world, "compact", "--schedule"))


@action
def savepoint(world: World) -> None:
    """A person keeps the table as it is, or as it was behind an earlier write."""
    if not world.model.log:
        return
    earlier = [entry.instant for entry in world.model.log[-4:]]
    more = ("--instant", world.random.choice(earlier)) if world.random.random() < 0.4 else ()
    operate(world, *table_command(world, "savepoint", *more))


@action
def savepoint_delete(world: World) -> None:
    """The oldest savepoint goes."""
    found = _savepoints(world)
    if found:
        operate(world, *table_command(world, "savepoint", "--delete", "--instant", found[0]))


@action
def restore(world: World) -> None:
    """Back to the newest savepoint; what the stream has read since is read again."""
    found = _savepoints(world)
    if not found:
        return
    by_time = world.table().config.version < 8
    ended = operate(world, *table_command(world, "restore", "--savepoint", found[-1]), calls=120)
    if ended == "done":
        world.model.back_to(found[-1], world.table().timeline().is_valid if by_time else None)
        world.undone()
        world.index_is_whole = False
    else:
        _after_refused(world, ended)


@action
def rollback(world: World) -> None:
    """The newest write is undone."""
    if not world.model.log:
        return
    table = world.table()
    newest = max(table.timeline().completed_writes, key=lambda i: i.completion_time or i.time, default=None)
    if newest is None:
        return
    ended = operate(world, *table_command(world, "rollback", "--instant", newest.time), calls=120)
    found = world.table().timeline().find(newest.time)  # a clustering's plan stays
    if found is None or not found.is_completed:
        world.model.forget(newest.time)
        world.undone()
        world.index_is_whole = False
    elif ended == "done":
        world.problems.append(f"rollback of {newest.time} is done, and it is there still")
    else:
        _after_refused(world, ended)


def _after_refused(world: World, ended: str) -> None:
    """A command that was killed once may have begun what only the same command ends."""
    world.say(f"  left as it is: {ended[:80]}")


@action
def back_over_a_service(world: World) -> None:
    """A service is planned, a savepoint made behind a batch, the service carried out, and the table restored."""
    first = world.random.choice(
        (cluster_plan, compact_plan if world.settings.table_type == MERGE_ON_READ else cluster_plan)
    )
    for step in (batches, first, batches, savepoint, carry_out, batches, restore):
        step(world)


@action
def savepoint_over_a_clustering(world: World) -> None:
    """A savepoint keeps files that were replaced from the cleaner; then it goes, and the table is archived."""
    for step in (batches, savepoint, cluster, batches, batches, clean, savepoint_delete, batches, archive, batches):
        step(world)


@action
def back_over_a_clean(world: World) -> None:
    """A clean dies when its plan is made; the table goes back, and a later clean finds the plan."""
    if world.settings.toast:  # a row that was renamed may be needed still
        return
    for step in (batches, savepoint, batches, batches):
        step(world)
    if world.model.log:
        told = table_command(world, "clean", "--policy", "KEEP_LATEST_COMMITS", "--commits", "1")
        at = world.random.choice((".clean.inflight", ".clean"))
        world.past_is_lost |= at == ".clean"  # its files are gone, and it may never be completed
        world.operate(*told, plan={"kill_on": at})
    for step in (world.random.choice((rollback, restore, savepoint)), clean, batches):
        step(world)


@action
def partition_comes_back(world: World) -> None:
    """A partition is emptied and its folder cleaned; later records bring it back."""
    batches(world)
    if not world.model.log or world.settings.toast:
        return
    delete_partition(world)
    world.past_is_lost = True
    operate(world, *table_command(world, "clean", "--policy", "KEEP_LATEST_FILE_VERSIONS", "--file-versions", "1"))
    batches(world)


@action
def delete_partition(world: World) -> None:
    """All rows of a partition go. Not while events wait that were sent before: rows that go without an event take their
    order with them, and a late event then brings its row, as in life."""
    if not world.model.log or world.settings.layout == "none" or world.settings.toast or not world.all_taken():
        return
    part = world.settings.place.path(world.random.randrange(world.settings.partitions))
    world.index_is_whole = False
    world.copies.clear()  # what an old checkpoint would read again would come back, as in life
    operate(world, *table_command(world, "delete-partition", "--partition", part), calls=80)


@action
def insert_overwrite(world: World) -> None:
    """A person replaces the rows of a partition by those of a file: keys that only this partition has, or none had."""
    told = world.settings
    if not world.model.log or told.partial or told.changes or told.layout == "none" or not world.all_taken():
        return
    part = world.random.randrange(world.settings.partitions)
    path = world.settings.place.path(part)
    rows = world.events.rows_for(world.random, world.columns, part, world.random.choice((0, 1, 5)))
    file = world.folder / "overwrite.json"
    file.write_text("".join(json.dumps(event.row) + "\n" for event in rows), "utf-8")
    argv = world.settings.arguments(world.folder, world.folder / "event.avsc")
    conf = [word for key, value in pairwise(argv) if key == "--hoodie-conf" for word in (key, value)]
    world.index_is_whole = False
    world.copies.clear()
    world.overwritten = {path: rows}
    operate(world, *table_command(world, "insert-overwrite", "--from", str(file), "--partition", path, *conf), calls=80)


@action
def rescale(world: World) -> None:
    """The index gets another number of key groups, by a new checkpoint that takes the place of the old one."""
    to = world.folder / "rescaled"
    shutil.rmtree(to, ignore_errors=True)
    groups = world.random.choice((1, 2, 5))
    argv = ("rescale", *_places(world), "--to-checkpoint-dir", str(to), "--key-groups", str(groups))
    if world.has_state_index and operate(world, *argv) == "done":
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
    if operate(world, "index", "export", *checkpoint, "--out", str(file), "--all") != "done":
        return
    table = ("--target-base-path", str(world.path))
    argv = ("index", "import", "--from", str(file), "--to-checkpoint-dir", str(to), *table)
    if operate(world, *argv) == "done":
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
    operate(world, "table", command, "--target-base-path", str(world.path), "--to", str(to), "--yes", calls=150)
    if world.settings.table_type == MERGE_ON_READ and to < 8:
        world.past_is_lost = True  # documented: its logs are compacted


def _savepoints(world: World) -> list[str]:
    if not world.has_table:
        return []
    out = io.StringIO()
    tagstream(["table", "savepoints", "--target-base-path", str(world.path), "--json"], out)
    return sorted(str(row["instant"]) for row in json.loads(out.getvalue()).get("savepoints", []))
