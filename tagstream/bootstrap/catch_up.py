"""Catch the index up with commits of other writers, as an epoch of its generation.

Only the file groups that those commits wrote to or replaced are read, as they are now. Each key group finds in
its own store which keys the index has in them and they do not hold any more (state/catch_up.py), so slices that a
cleaner has removed since are not missed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from tagstream.bootstrap.plan import BootstrapPlan, check_labels, plan_bootstrap
from tagstream.bootstrap.run import check_ordering, run_tasks
from tagstream.bootstrap.scan import key_reader
from tagstream.bootstrap.spill import ScanDone, read_pieces
from tagstream.bootstrap.tasks import SCAN, TWICE_SUFFIX, BootstrapSpec, scan_task
from tagstream.state.bulk_load import KeyRun, LoadPlaces, Twice, resolve_run
from tagstream.state.codec import instant_number, minutes_of
from tagstream.state.index_loads import EpochMarker, SideRows, Touched, complete_epoch, find_epoch_marker, write_side
from tagstream.state.layout import OrderingKind, StateLayout
from tagstream.table.errors import CorruptFileError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.storage import create
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.timeline import FileGroupId, Timeline

# Operations that only add keys to the file groups they touch. A compaction changes no key at all and is passed over.
_ONLY_ADD = frozenset({"INSERT", "INSERT_PREPPED", "BULK_INSERT", "BULK_INSERT_PREPPED"})
_COMPACTIONS = frozenset({"COMPACT", "LOG_COMPACT"})
GROUP_BYTES = 128 << 20  # of touched files per key group: one call holds them in memory, so more is a full load


@dataclass(frozen=True)
class CatchUpPlan:
    """`instants`: the commits to catch up with; `touched`: their file groups; `plan`: the newest slices of these."""

    instants: tuple[str, ...]
    touched: tuple[Touched, ...]
    removals: bool
    plan: BootstrapPlan

    def too_big(self, key_groups: int, ordering: OrderingKind) -> bool:
        """True where loading the whole index anew is the better way. ``ordering``: how the index keeps ordering values.

        Never where the index alone knows the order of the events: a load from the table would forget it.
        """
        return not knows_order_alone(self.plan.table, ordering) and self.plan.size > key_groups * GROUP_BYTES


def knows_order_alone(table: HoodieTable, ordering: OrderingKind) -> bool:
    """Whether the ordering values of an index are in no column of its table: positions in the source's log (Debezium)."""
    return ordering != "none" and not table.config.deciding_fields


@dataclass(frozen=True)
class CatchUpReport:
    """`keys`: live ones in the touched file groups; `twice`: those found in two of them."""

    instants: int
    file_groups: int
    files: int
    bytes: int
    keys: int
    tombstones: int
    twice: int
    seconds: float


def plan_catch_up(table: HoodieTable, instants: Sequence[str], partition_regex: str = ".*") -> CatchUpPlan:
    """What the completed writes `instants`, archived ones among them, touched, as of the newest completed instant.

    CorruptFileError when one of them is on neither timeline.
    """
    timeline = table.timeline()
    groups: set[FileGroupId] = set()
    removals = False
    for metadata in _metadata_of(table, timeline, instants):
        if metadata.operation in _COMPACTIONS or metadata.compacted:
            continue
        removals = removals or metadata.operation not in _ONLY_ADD or bool(metadata.replaced)
        groups.update((stat.partition_path, stat.file_id) for stat in metadata.all_stats())
        groups.update((partition, file_id) for partition, ids in metadata.replaced.items() for file_id in ids)
    plan = plan_bootstrap(table, partition_regex, groups)
    newest = {(s.file_slice.partition_path, s.file_slice.file_id): s.file_slice.base_instant for s in plan.slices}
    touched = tuple(Touched(*group, newest.get(group, "0")) for group in sorted(groups))
    return CatchUpPlan(tuple(instants), touched, removals, plan)


def _metadata_of(table: HoodieTable, timeline: Timeline, instants: Sequence[str]) -> Iterator[CommitMetadata]:
    wanted = set(instants)
    for instant in timeline.completed_writes:
        if instant.time in wanted:
            wanted.discard(instant.time)
            yield timeline.metadata(table.storage, instant)
    for action in table.archived_writes() if wanted else ():
        if action.time in wanted:
            wanted.discard(action.time)
            yield CommitMetadata.from_bytes(action.metadata or b"", f"archived instant {action.time}")
        if not wanted:
            return
    if wanted:
        raise CorruptFileError(
            f"instant {min(wanted)} of table {table.base_path} is neither on its timeline nor in its archive: restore "
            f"{table.config.history_folder}, or start with a new checkpoint"
        )


def catch_up_index(
    table: HoodieTable,
    catch_up: CatchUpPlan,
    layout: StateLayout,
    labels: Sequence[int],
    generation: int,
    epoch: int,
    *,
    clock_ms: Callable[[], int],
    ordering_type: pa.DataType | None,
    first_batch: int = 0,
    spark: SparkSession | None = None,
) -> CatchUpReport:
    """Make `epoch` of `generation`. The caller holds the table's lease. CorruptFileError names a file that can't be read.

    What an interrupted run left of the epoch is removed first: an epoch without its mark does not exist.
    """
    check_labels(labels)
    check_ordering(table, layout, ordering_type)
    if find_epoch_marker(layout, generation, epoch) is not None:
        raise ValueError(f"epoch {epoch} of generation {generation} is complete already")
    plan = catch_up.plan
    if plan.missing:
        raise CorruptFileError(
            f"table {table.base_path} lacks {len(plan.missing)} files that its commits name, first "
            f"{', '.join(plan.missing[:3])}; restore them, then start again"
        )
    begun = clock_ms()
    layout.durable.delete_tree(layout.epoch_dir(generation, epoch))
    spec = BootstrapSpec(
        plan=plan,
        reader=key_reader(plan, ordering_type),
        layout=layout,
        labels=tuple(labels),
        generation=generation,
        first_batch=first_batch,
        minutes=minutes_of(begun),
        corrupt="fail",
        tasks=plan.tasks(),
        epoch=epoch,
    )
    scanned: list[ScanDone] = run_tasks(spark, partial(scan_task, spec), len(spec.tasks), _nothing)
    place_of = {(t.partition, t.file_id): i for i, t in enumerate(catch_up.touched)}
    places = [place_of[s.file_slice.partition_path, s.file_slice.file_id] for s in plan.slices]
    sides: list[Side] = run_tasks(spark, partial(side_task, spec, places), len(labels) if scanned else 0, _nothing)
    slices = [s for done in scanned for s in done.slices]
    report = CatchUpReport(
        instants=len(catch_up.instants),
        file_groups=len(catch_up.touched),
        files=plan.files,
        bytes=plan.size,
        keys=sum(s.live for s in slices),
        tombstones=sum(s.deleted for s in slices),
        twice=sum(side.twice for side in sides),
        seconds=(clock_ms() - begun) / 1000,
    )
    marker = EpochMarker(
        generation=generation,
        epoch=epoch,
        instants=catch_up.instants,
        touched=catch_up.touched,
        removals=catch_up.removals,
        minutes=spec.minutes,
        files={side.label: side.crc for side in sides if side.crc is not None},
        report=dict(report.__dict__),
    )
    complete_epoch(layout, marker)
    layout.durable.delete_tree(f"{spec.folder}/{SCAN}")
    return report


@dataclass(frozen=True)
class Side:
    """One key group's part of an epoch. `crc`: of its file, None when it has none; `twice`: keys live in two slices."""

    label: int
    crc: int | None
    twice: int


def side_task(spec: BootstrapSpec, places: Sequence[int], group: int) -> Side:
    """Write one key group's rows of the epoch. `places`: the touched file group of every slice of the plan."""
    label = spec.labels[group]
    pieces = list(read_pieces(spec.spills, spec.all_done(), group))
    if not pieces:
        return Side(label, None, 0)
    rows = pa.concat_tables(pieces)
    run = KeyRun(*(rows[name].to_numpy() for name in ("skey", "slice", "ordering", "flags")))
    slices = [s.file_slice for s in spec.plan.slices]
    load = LoadPlaces(
        [(s.partition_path, s.file_id) for s in slices],
        np.array([instant_number(s.base_instant) for s in slices], np.int64),
    )
    chosen, twice = resolve_run(run, load)
    if twice:
        lines = [
            json.dumps({"key": t.record_key, "places": [load.places[i] for i in t.places]}, ensure_ascii=False)
            for t in twice
        ]
        listed = f"{spec.folder}/{label}.scan{TWICE_SUFFIX}"
        create(spec.layout.durable, listed, ("\n".join(lines) + "\n").encode())
    side = SideRows(
        skeys=run.skeys[chosen],
        place=np.array(places, np.int32)[run.place[chosen]],
        ordering=run.ordering[chosen],
        flags=run.flags[chosen],
        others={t.skey: found for t in twice if (found := _others(t, places))},
    )
    return Side(label, write_side(spec.layout, spec.generation, spec.epoch, label, side), len(twice))


def _others(twice: Twice, places: Sequence[int]) -> tuple[int, ...]:
    """The touched file groups that a key is in beside the one that counts."""
    kept = places[twice.places[-1]]
    return tuple(sorted({places[i] for i in twice.places} - {kept}))


def _nothing() -> None:
    """Nobody waits for a catch-up long enough to watch it."""
