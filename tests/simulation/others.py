"""Other writers of the table, between the stream's runs and in the middle of its batches; services in other processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tagstream.cli.services_run import ProcessOptions
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import FILE_NAME, PARTITION_PATH, RECORD_KEY
from tagstream.table.services.options import ArchiveOptions, CleanOptions, CompactionOptions
from tests.simulation import checks
from tests.simulation.model import Event
from tests.simulation.settings import MERGE_ON_READ, Settings
from tests.simulation.steps import ACTIONS, Action, action, run_stream
from tests.simulation.values import BY_NAME, as_values
from tests.simulation.world import World
from tests.support.foreign_writer import ForeignWriter


@dataclass(frozen=True)
class Row:
    """A row as :class:`ForeignWriter` takes it."""

    key: str
    partition: str
    deleted: bool
    values: dict[str, Any]
    ordering: None = None

    def row(self) -> dict[str, Any]:
        """Its columns."""
        return self.values


@action
def other_writes(world: World) -> None:
    """Another writer upserts and deletes some rows."""
    if can_write(world):
        world.copies.clear()  # what an old checkpoint would read again would come back
        write(world)
        world.index_is_whole = False


@action
def other_dies(world: World) -> None:
    """Another writer dies before its commit, a third one writes since; then the stream finds what the first has left."""
    if can_write(world) and world.settings.streams == 1:  # with a lock, nobody waits for a young write
        world.copies.clear()
        found = _prepared(world)
        if found is not None:
            writer, rows, _ = found
            with world.elsewhere():
                world.say(f"  another writer has begun {writer.hold_upsert(rows).instant} and dies")
        write(world)
        world.problems += [f"while a write is pending: {problem}" for problem in checks.quick(world)]
        run_stream(world, {})


@action
def other_clusters(world: World) -> None:
    """Another writer rewrites a partition into one new file group."""
    if can_write(world):
        cluster(world)
        world.index_is_whole = False


@action
def other_in_a_batch(world: World) -> None:
    """Another writer commits while the stream is in the middle of a batch. Not beside a metadata table: two writers of one
    need a lock, as in Hudi."""
    if can_write(world) and not world.settings.metadata and world.settings.streams == 1:  # it takes no lock
        world.copies.clear()
        # Two clusterings of the same file groups, one of a writer without locks, double rows:
        # docs/operations/concurrency.md.
        clusters = any(key.startswith("hoodie.clustering.") for key, _ in world.settings.services)
        doing = world.random.choice((write, write, write if clusters else cluster))
        world.send(world.random.choice((3, 10, 30)))
        run_stream(world, {"pause_at": world.random.randint(1, 60), "on_pause": lambda: doing(world)})


@action
def service_in_a_batch(world: World) -> None:
    """Somebody gives a command for a service while the stream is in the middle of a batch."""
    kinds = ["clean", "archive", "cluster", "cluster_plan", "savepoint", "savepoint_delete", "carry_out"]
    if world.settings.table_type == MERGE_ON_READ:
        kinds += ["compact", "compact_plan"]
    doing = ACTIONS[world.random.choice(kinds)]
    if not world.model.log:
        return
    world.send(world.random.choice((3, 10, 30)))
    run_stream(world, {"pause_at": world.random.randint(1, 100), "on_pause": lambda: _beside(world, doing)})


@action
def service_process(world: World) -> None:
    """A service process runs beside the stream. It outlives the stream, or is killed while that runs."""
    if not world.model.log:
        return
    random = world.random
    kept = random.choice((1, 2, 4))
    clean = None if world.settings.toast else CleanOptions(commits=kept)
    archive = ArchiveOptions(min_commits=kept + 1, max_commits=kept + 2) if random.random() < 0.5 else None
    compaction = CompactionOptions(max_delta_commits=random.choice((1, 2)))
    options = ProcessOptions(f"worker {world.now_ms}", 1, compaction, clean=clean, archive=archive)

    def beside() -> None:
        world.service_round(options, {"kill_at": random.randint(1, 20)} if random.random() < 0.1 else None)

    world.index_is_whole = False
    world.send(random.choice((3, 10, 30)))
    run_stream(world, {"pause_at": random.randint(1, 40), "pause_every": random.randint(5, 30), "on_pause": beside})
    for _ in range(random.randint(0, 2)):
        world.service_round(options)
    world.take_in()


def _beside(world: World, doing: Action) -> None:
    world.say(f"  meanwhile: {doing.__name__}")
    doing(world)


def can_write(world: World) -> bool:
    """Whether the other writer can: there is a table, and it keeps no record index, knows no buckets, and takes keys to be
    the table's."""
    told = world.settings
    return bool(world.model.log) and not (
        told.index == "BUCKET" or told.by_partition or told.changes or "record_index" in told.metadata
    )


def write(world: World) -> None:
    """Another writer's commit."""
    found = _prepared(world)
    if found is not None:
        writer, rows, events = found
        with world.elsewhere():
            instant = writer.upsert(rows)
        world.say(f"  another writer wrote {len(events)} rows: {instant}")
        world.of_others[instant] = events
        world.take_in()


def _prepared(world: World) -> tuple[ForeignWriter, list[Row], list[Event]] | None:
    """Another writer, its upserts and deletes of rows that are newer than all others, and their events; or nothing."""
    columns = _columns(world)
    events = world.events.of_others(world.random, columns, world.random.choice((1, 3, 8)))
    known = world.model.now.state
    events = [e for e in events if not e.deleted or (e.ident in known and known[e.ident].row is not None)]
    rows = read_snapshot(world.table(), [RECORD_KEY, PARTITION_PATH, FILE_NAME]).to_pylist()
    # As by Hudi's default: an update of a file group that is being clustered is rejected.
    clustered = set(world.table().timeline().pending_clusterings)
    taken = {row[RECORD_KEY] for row in rows if (row[PARTITION_PATH], row[FILE_NAME].split("_")[0]) in clustered}
    events = [e for e in events if _key(world.settings, e, rows) not in taken]
    if _is_committing(world):  # a key may be inserted by both, which no look prevents: docs/operations/concurrency.md
        there = {row[RECORD_KEY] for row in rows}
        # Deletes without an ordering value count by the times the writes began, not by those they were completed.
        events = [e for e in events if not e.deleted and _key(world.settings, e, rows) in there]
    if not events or not rows:
        return None
    return _writer(world, columns), [_row(world.settings, event, rows) for event in events], events


def _is_committing(world: World) -> bool:
    """Whether the stream stands still between its last look at the timeline and its commit."""
    process = world.processes.current
    last = process.done[-1] if process is not None and process.done else ""
    return last.startswith("paused before publish") and last.endswith("commit")


def cluster(world: World) -> None:
    """One partition is rewritten."""
    view = world.table().view()
    full = [path for path in view.partitions() if view.latest_merged_slices(path)]
    if full:
        path = world.random.choice(full)
        writer = _writer(world, _columns(world))
        with world.elsewhere():
            instant = writer.cluster(path)
        world.say(f"  another writer clustered {path}: {instant}")
        world.take_in()


def _columns(world: World) -> tuple[str, ...]:
    """Those that the table has, as a writer finds them there."""
    there = read_snapshot(world.table()).column_names
    return tuple(name for name in BY_NAME if name in there)


def _writer(world: World, columns: tuple[str, ...]) -> ForeignWriter:
    def event_of(row: dict[str, Any]) -> Row:
        return Row(row[RECORD_KEY], row[PARTITION_PATH], False, row)

    return ForeignWriter(world.path, avro=world.settings.schema(columns), event_of=event_of)


def _key(told: Settings, event: Event, there: list[dict[str, Any]]) -> str:
    """The record key as the rows that are there have theirs: with the names of its fields, or a value alone."""
    names = ["id", *(["sub"] if told.two_keys else [])] if there and there[0][RECORD_KEY].startswith("id:") else []
    return ",".join(f"{name}:{event.row[name]}" for name in names) or str(event.row["id"])


def _row(told: Settings, event: Event, there: list[dict[str, Any]]) -> Row:
    return Row(_key(told, event, there), event.path or "", event.deleted, as_values(event.row, told.ordering))
