"""``tagstream rescale`` and ``tagstream index import``: a new checkpoint that continues a stream.

The new checkpoint is written to its final folder and becomes valid with its last file (``state.checkpoint``). The command
holds the table's writer lease, so no job runs on the table. The first start on the new checkpoint reads the takeover record:
the index covers exactly the table's commits, and a topic is read from the offsets of the newest commit of its stream.
`rescale` continues files where the old checkpoint stopped. `index import` reads all files again, because an exported file
does not have their positions.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

from tagstream.bootstrap.plan import plan_bootstrap
from tagstream.cli.command import Clock, Command, add_checkpoint, add_new_checkpoint, add_table, size
from tagstream.cli.exclusive import holding_lease
from tagstream.cli.index_export import ExportInfo, imported_entries, read_info
from tagstream.cli.index_load import GroupLoader, RecordSpiller, complete
from tagstream.cli.index_processes import GroupReader, load_groups, processes_for, read_groups
from tagstream.cli.index_reader import existing_checkpoint, open_index
from tagstream.cli.index_verify import KINDS, Comparison, committed_manifests
from tagstream.cli.output import AdminError, Fact, Output
from tagstream.state.checkpoint import (
    INDEX,
    BoundTo,
    CheckpointMeta,
    begin_building,
    clear_unfinished,
    current_query_folder,
    finish_building,
    new_meta,
    read_meta,
)
from tagstream.state.index_loads import GroupStart, IndexLoadMarker
from tagstream.state.layout import StateLayout
from tagstream.state.scratch import scratch_folder
from tagstream.streaming.batch.commit_record import CommitRecord, parse
from tagstream.streaming.batch.spark_checkpoint import carry_plans
from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.streaming.recovery.cover_plan import next_step
from tagstream.streaming.recovery.coverage import RETAINED_BATCHES, CheckpointState, IndexPlace
from tagstream.streaming.recovery.same_table import check_table
from tagstream.streaming.recovery.takeover import QueryIndexLoad, read_query_index_load, write_query_index_load
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.timeline import Timeline


def newest_offsets(table: HoodieTable, timeline: Timeline, stream_id: str) -> str | None:
    """The end offsets of the stream's newest commit, as Spark's starting offsets; None for files, or without a commit."""
    for instant in reversed(timeline.completed_writes):
        record = parse(timeline.metadata(table.storage, instant).extra)
        if record is not None and record.stream_id == stream_id:
            return starting_offsets_of(record)
    return None


def starting_offsets_of(record: CommitRecord) -> str | None:
    """A commit's end offsets as Spark's starting offsets; None for files: a new query reads all of them again."""
    offsets = record.end_offsets
    return json.dumps(offsets) if all(isinstance(parts, dict) for parts in offsets.values()) else None


def refuse_rows(record: CommitRecord, checkpoint: Storage) -> None:
    """AdminError for a stream from a DataFrame: only the code that made it can continue at a commit's offsets."""
    if "sources" in record.end_offsets:
        raise AdminError(
            f"the stream of checkpoint {checkpoint.root} is a DataFrame, and only the code that made it can continue at its "
            "offsets. Start it with a new checkpoint and the number of key groups that you want (index.key.groups); the "
            "index is then loaded from the table"
        )


def run_rescale(arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> int:
    """Make a checkpoint with another number of key groups, and return the exit code."""
    begun = clock_ms()
    table = HoodieTable.open(arguments.target_base_path)
    source = existing_checkpoint(arguments.checkpoint_dir)
    check_table(source, table.base_path)
    with holding_lease(table, clock_ms, "rescale") as lease:
        timeline = table.timeline()
        newest = _newest_covered_commit(table, timeline, source)
        names = committed_manifests(table, timeline, source)
        with (
            open_index(source, names) as index,
            _new_checkpoint(table, arguments.to_checkpoint_dir, "tagstream rescale") as new,
        ):
            if index.heads.batch_id != newest.batch_id:
                raise AdminError(
                    f"the index in {source.root} ends with batch {index.heads.batch_id}, but the newest commit of table "
                    f"{table.base_path} has batch {newest.batch_id}: a batch manifest is missing, restore the checkpoint"
                )
            meta = index.heads.meta
            new.create(meta, arguments.key_groups, arguments.shuffle_partitions or meta.shuffle_partitions)
            keys = sum(counts.live + counts.tombstones for counts in map(index.counts, index.labels))
            asked = arguments.processes
            reader = GroupReader(source, names, new.layout, len(new.labels), new.spills)
            processes = processes_for(keys, len(index.labels), asked)
            spilled = read_groups(reader, index.labels, processes, out.progress)
            loader = GroupLoader.of(new.layout, len(new.labels), new.spills, spilled)
            starts = load_groups(loader, new.labels, processes_for(keys, len(new.labels), asked), out.progress)
            loaded = new.finish(starts, timeline, index.partition_regex)
            if new.offsets is None:
                new.positions = carry_plans(current_query_folder(source).files, new.files, newest.batch_id)
            new.publish(lease, timeline)
    _report(out, new, loaded, (clock_ms() - begun) / 1000)
    return 0


def run_import(arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> int:
    """Make a checkpoint with the index of an exported file, and return the exit code."""
    begun = clock_ms()
    path = os.path.abspath(arguments.source)
    info = read_info(path)
    table = HoodieTable.open(arguments.target_base_path)
    to, what = arguments.to_checkpoint_dir, "tagstream index import"
    with holding_lease(table, clock_ms, "index import") as lease, _new_checkpoint(table, to, what) as new:
        plan = plan_bootstrap(table)
        _refuse_undone(table, plan.timeline, info.instant, path)
        groups = arguments.key_groups or info.key_groups
        new.create(info, groups, arguments.shuffle_partitions or info.shuffle_partitions)
        spiller = RecordSpiller(new.layout, len(new.labels), new.spills)
        there = {(s.file_slice.partition_path, s.file_slice.file_id) for s in plan.slices}
        out.progress(f"reading {path}")
        for entries in imported_entries(path, info, new.layout, there, begun):
            spiller.add(entries)
        loader = GroupLoader.of(new.layout, len(new.labels), new.spills, [spiller.close()])
        loaded = new.finish(load_groups(loader, new.labels, 1, out.progress), plan.timeline, ".*")
        with open_index(new.files, meta=new.meta) as index:
            comparison = Comparison(index, plan, out.progress)
            first = next(iter(list(comparison.differences(1))), None)
        if first is not None:
            counts = ", ".join(f"{n:,} {KINDS[kind]}" for kind, n in comparison.found.items() if n)
            raise AdminError(
                f"{path} does not match table {table.base_path} as of {plan.instant}: {counts} (first: record key "
                f"{first[1]!r}). Export an index that matches, or start with a new checkpoint; the index is then loaded "
                "from the table"
            )
        new.publish(lease, plan.timeline)
    _report(out, new, loaded, (clock_ms() - begun) / 1000)
    return 0


def _refuse_undone(table: HoodieTable, timeline: Timeline, instant: str | None, path: str) -> None:
    """AdminError when the newest batch of an exported index was undone: then the index has ordering values of records that
    the stream will read again, and would take them for late ones."""
    if instant is None or any(i.time == instant for i in timeline.completed_writes):
        return
    if timeline.is_archived(instant):
        written = takewhile(lambda action: action.time >= instant, table.archived_writes())  # newest first
        if any(action.time == instant for action in written):
            return
    raise AdminError(
        f"{path} has the index as of commit {instant}, which table {table.base_path} does not have: it was rolled back, or "
        "the table was restored to an earlier state. Run the stream on the old checkpoint once, which corrects its index, "
        "then export again"
    )


def _report(out: Output, new: _NewCheckpoint, loaded: IndexLoadMarker, seconds: float) -> None:
    assert new.meta is not None
    out.facts(
        [
            Fact("checkpoint", "new checkpoint", new.files.root),
            Fact("key_groups", "key groups", new.meta.key_groups, "count"),
            Fact("shuffle_partitions", "shuffle partitions", new.meta.shuffle_partitions, "count"),
            Fact("keys", "keys", loaded.live, "count"),
            Fact("tombstones", "tombstones", loaded.tombstones, "count"),
            Fact("instant", "covers the table up to", loaded.instant),
            Fact("offsets", "continues at", new.offsets, json_only=new.offsets is None),
            Fact("positions", "has the positions in files", new.positions, json_only=True),
            Fact("seconds", "seconds", round(seconds, 1)),
        ]
    )
    if new.positions:
        out.note("the files are continued from where the old checkpoint stopped")
    elif new.offsets is None:
        out.note("all files are read again; records that the table already has are late or the same")
    out.note(f"start the stream with --checkpoint-dir {new.files.root}; do not use the old checkpoint any more")


def _newest_covered_commit(table: HoodieTable, timeline: Timeline, checkpoint: Storage) -> CommitRecord:
    """The newest commit of the checkpoint's query, if its index covers the table; AdminError says why it does not."""
    where = f"table {table.base_path}"
    if not timeline.completed_writes:
        raise AdminError(f"{where} has no commit, so there is nothing to copy; start with a new checkpoint")
    query_folder = current_query_folder(checkpoint).files
    state, taken, meta = CheckpointState.read(query_folder), read_query_index_load(query_folder), read_meta(checkpoint)
    layout = StateLayout(query_folder.below(INDEX), "", ordering=meta.ordering)
    index_load = taken.index_load if taken is not None else 0
    own = [r for i in reversed(timeline.completed_writes) if (r := _record(table, timeline, i)) is not None]
    newest = next((r for r in own if r.query_id == state.query_id), None)
    if newest is None:
        writers = f" (the newest commit is of query {own[0].query_id})" if own else ""
        raise AdminError(
            f"{where} has no commit of the query of checkpoint {checkpoint.root}{writers}. Name the checkpoint that last "
            "wrote the table"
        )
    refuse_rows(newest, checkpoint)
    files = starting_offsets_of(newest) is None
    place = IndexPlace(query_folder, layout, index_load, RETAINED_BATCHES, files, newest.stream_id)
    step = next_step(place, table, timeline, state, taken)
    if step.kind != "nothing":
        raise AdminError(f"{step.why}. Run the stream on that checkpoint once, which corrects it, then rescale")
    return newest


def _record(table: HoodieTable, timeline: Timeline, instant: Instant) -> CommitRecord | None:
    return parse(timeline.metadata(table.storage, instant).extra)


@dataclass
class _NewCheckpoint:
    """A checkpoint that is not complete yet. ``scratch``: a folder on the local disk. ``whole``: it is now complete.
    ``positions``: it has the positions in the source's files.
    """

    table: HoodieTable
    files: Storage
    scratch: str
    meta: CheckpointMeta | None = None
    offsets: str | None = None
    positions: bool = False
    whole: bool = False

    @property
    def layout(self) -> StateLayout:
        """Layout of its index."""
        assert self.meta is not None
        local = os.path.join(self.scratch, "local")
        fixed = self.meta
        return StateLayout(self.files.below(INDEX), local, ordering=fixed.ordering, global_index=fixed.global_index)

    def create(self, like: CheckpointMeta | ExportInfo, key_groups: int, shuffle_partitions: int) -> None:
        """Set its fixed choices: those of ``like``, except for the sizes."""
        bound = BoundTo(self.table.config.name, self.table.base_path, self.files.root)
        self.meta = new_meta(
            key_groups, shuffle_partitions, like.stream_id, like.ordering, like.global_index, table=bound
        )

    @property
    def labels(self) -> tuple[int, ...]:
        """Labels of its key groups."""
        assert self.meta is not None
        return self.meta.labels

    @property
    def spills(self) -> str:
        """The folder of spilled records."""
        return os.path.join(self.scratch, "records")

    def finish(self, starts: Sequence[GroupStart], timeline: Timeline, partition_regex: str) -> IndexLoadMarker:
        """Record what the index covers, after the key groups are loaded."""
        assert self.meta is not None
        covered = tuple(i.time for i in timeline.completed_writes)
        loaded = complete(self.layout, starts, self.table.base_path, covered, partition_regex)
        self.offsets = newest_offsets(self.table, timeline, self.meta.stream_id)
        write_query_index_load(self.files, QueryIndexLoad(loaded.index_load))
        return loaded

    def publish(self, lease: LeaseKeeper, timeline: Timeline) -> None:
        """Make it a checkpoint, if the table has not changed."""
        assert self.meta is not None
        lease.check()
        if self.table.timeline().completed_writes != timeline.completed_writes:
            raise AdminError(f"table {self.table.base_path} was written to meanwhile; stop that writer and start again")
        self.whole = True  # from here on no file of it is removed, whatever happens
        if not finish_building(self.files, self.meta):
            raise AdminError(f"{self.files.root} was created by another process meanwhile; give another folder")


@contextmanager
def _new_checkpoint(table: HoodieTable, url: str, by: str) -> Iterator[_NewCheckpoint]:
    """A folder for a new checkpoint. It is removed again if the checkpoint does not become complete."""
    files = open_storage(url)
    clear_unfinished(files)  # of a run that was killed: the lease prevents two runs at the same time
    if files.names(""):
        raise AdminError(f"{files.root} exists; give --to-checkpoint-dir a folder that does not")
    begin_building(files, by)
    with scratch_folder("tagstream-rescale-") as scratch:
        new = _NewCheckpoint(table, files, scratch)
        try:
            yield new
        finally:
            if not new.whole:
                clear_unfinished(files)


def _add_import(out: argparse.ArgumentParser) -> None:
    out.add_argument("--from", dest="source", metavar="FILE", required=True, help="Parquet file by index export")
    add_new_checkpoint(out)
    add_table(out)
    _add_sizes(out, required=False)


def _add_rescale(out: argparse.ArgumentParser) -> None:
    add_checkpoint(out)
    add_table(out)
    add_new_checkpoint(out)
    _add_sizes(out, required=True)
    out.add_argument(
        "--processes", metavar="N", type=size, help="processes that share the work (default: one per core)"
    )


def _add_sizes(out: argparse.ArgumentParser, *, required: bool) -> None:
    before = "" if required else " (default: as exported)"
    out.add_argument("--key-groups", metavar="N", type=size, required=required, help=f"key groups{before}")
    before = " (default: as before)" if required else before
    out.add_argument("--shuffle-partitions", metavar="M", type=size, help=f"shuffle partitions{before}")


COMMANDS = (
    Command(
        "index",
        "import",
        "make a new checkpoint with the index of an exported Parquet file",
        _add_import,
        run_import,
    ),
    Command(
        "rescale",
        "",
        "make a checkpoint with another number of key groups; offsets and index are kept",
        _add_rescale,
        run_rescale,
    ),
)
