"""Catch the index up with commits of other writers. In the code a catch-up is an epoch of an index load (generation).

Only the file groups that those commits wrote to or replaced are read, as they are now. Each key group finds in its own
store which of its keys these file groups no longer have (state/catch_up.py). So file slices that a cleaner has removed
since then are not missed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from tagstream.bootstrap import deleted_keys
from tagstream.bootstrap.plan import BootstrapPlan, check_labels, plan_bootstrap
from tagstream.bootstrap.run import check_ordering, run_tasks
from tagstream.bootstrap.scan import key_reader
from tagstream.bootstrap.spill import ScanDone, read_pieces
from tagstream.bootstrap.tasks import SCAN, TWICE_SUFFIX, BootstrapSpec, scan_task
from tagstream.state.bulk_load import DuplicateKey, KeyRun, resolve_run
from tagstream.state.codec import minutes_of
from tagstream.state.index_loads import (
    CatchUpMarker,
    CatchUpRows,
    TouchedGroup,
    complete_catch_up,
    find_catch_up_marker,
    write_side,
)
from tagstream.state.layout import OrderingKind, StateLayout
from tagstream.table.errors import CorruptFileError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.storage import create
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.operation import INSERTS
from tagstream.table.timeline.timeline import FileGroupId, Timeline

# Operations that only add keys to the file groups they touch. A compaction changes no key at all and is skipped.
GROUP_BYTES = 128 << 20  # of touched files per key group: a task has them in memory, so above this a full load is made


@dataclass(frozen=True)
class CatchUpPlan:
    """`instants`: the commits to catch up with. `touched`: their file groups. `plan`: the newest slices of these groups.

    `removals`: whether the commits may have removed keys from these groups. `deletes`: the files of their deleted keys.
    """

    instants: tuple[str, ...]
    touched: tuple[TouchedGroup, ...]
    removals: bool
    plan: BootstrapPlan
    deletes: tuple[str, ...] = ()

    def too_big(self, key_groups: int, ordering: OrderingKind) -> bool:
        """True where loading the whole index again is better. ``ordering``: how the index stores ordering values.

        Never True where only the index knows the order of events: a load from the table would lose it.
        """
        return not knows_order_alone(self.plan.table, ordering) and self.plan.size > key_groups * GROUP_BYTES


def knows_order_alone(table: HoodieTable, ordering: OrderingKind) -> bool:
    """Whether only the index has the ordering values, and no column of the table: positions in a source's log (Debezium)."""
    return ordering != "none" and not table.config.deciding_fields


@dataclass(frozen=True)
class CatchUpReport:
    """What a catch-up did. `bytes`: of the files read. `keys`: live ones in the touched file groups; `twice`: those live
    in two of them. `seconds`: duration.
    """

    instants: int
    file_groups: int
    files: int
    bytes: int
    keys: int
    tombstones: int
    twice: int
    seconds: float


def plan_catch_up(table: HoodieTable, instants: Sequence[str], partition_regex: str = ".*") -> CatchUpPlan:
    """What the completed writes `instants` touched, as of the newest completed instant. They may be archived.

    Only partitions whose whole path matches `partition_regex` count. CorruptFileError when one of the writes is on neither
    timeline.
    """
    timeline = table.timeline()
    groups: set[FileGroupId] = set()
    removals = False
    for metadata in _metadata_of(table, timeline, instants):
        if metadata.is_compaction:
            continue
        removals = removals or metadata.operation not in INSERTS or bool(metadata.replaced)
        groups.update((stat.partition_path, stat.file_id) for stat in metadata.all_stats())
        groups.update((partition, file_id) for partition, ids in metadata.replaced.items() for file_id in ids)
    plan = plan_bootstrap(table, partition_regex, groups)
    newest = {(s.file_slice.partition_path, s.file_slice.file_id): s.file_slice.base_instant for s in plan.slices}
    touched = tuple(TouchedGroup(*group, newest.get(group, "0")) for group in sorted(groups))
    deletes = deleted_keys.files_of(table.storage, timeline, instants)
    return CatchUpPlan(tuple(instants), touched, removals, plan, deletes)


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
            f"instant {min(wanted)} of table {table.base_path} is neither on its timeline nor in its archive; restore "
            f"{table.config.history_folder}, or start with a new checkpoint"
        )


def catch_up_index(
    table: HoodieTable,
    catch_up_plan: CatchUpPlan,
    layout: StateLayout,
    labels: Sequence[int],
    index_load: int,
    catch_up: int,
    *,
    clock_ms: Callable[[], int],
    ordering_type: pa.DataType | None,
    first_batch: int = 0,
    spark: SparkSession | None = None,
) -> CatchUpReport:
    """Make catch-up number `catch_up` of index load `index_load`, and return its report.

    The caller holds the table's lease. What an interrupted run left of the catch-up is removed first: without its marker
    a catch-up does not count. `labels`: of all key groups. `ordering_type`: the stream's type of the ordering column.
    `first_batch`: the first batch that will run on the catch-up. CorruptFileError names a missing or unreadable file.
    """
    check_labels(labels)
    check_ordering(table, layout, ordering_type)
    if find_catch_up_marker(layout, index_load, catch_up) is not None:
        raise ValueError(f"catch-up {catch_up} of index load {index_load} is already complete")
    plan = catch_up_plan.plan
    if plan.missing:
        raise CorruptFileError(
            f"table {table.base_path} lacks {len(plan.missing)} files that its commits name, first "
            f"{', '.join(plan.missing[:3])}; restore them, then start again"
        )
    begun = clock_ms()
    layout.durable.delete_tree(layout.catch_up_dir(index_load, catch_up))
    spec = BootstrapSpec(
        plan=plan,
        reader=key_reader(plan, ordering_type),
        layout=layout,
        labels=tuple(labels),
        index_load=index_load,
        first_batch=first_batch,
        minutes=minutes_of(begun),
        corrupt="fail",
        tasks=plan.tasks(),
        catch_up=catch_up,
        deletes=() if layout.ordering == "none" else catch_up_plan.deletes,
    )
    scanned: list[ScanDone] = run_tasks(spark, partial(scan_task, spec), spec.scans, _nothing)
    place_of = {(t.partition, t.file_id): i for i, t in enumerate(catch_up_plan.touched)}
    places = [place_of[s.file_slice.partition_path, s.file_slice.file_id] for s in plan.slices]
    places.append(0)  # of deleted keys, which have no place
    side = partial(side_task, spec, places, scanned)
    sides: list[Side] = run_tasks(spark, side, len(labels) if scanned else 0, _nothing)
    slices = [s for done in scanned for s in done.slices]
    report = CatchUpReport(
        instants=len(catch_up_plan.instants),
        file_groups=len(catch_up_plan.touched),
        files=plan.files,
        bytes=plan.size,
        keys=sum(s.live for s in slices),
        tombstones=sum(s.deleted for s in slices),
        twice=sum(side.twice for side in sides),
        seconds=(clock_ms() - begun) / 1000,
    )
    marker = CatchUpMarker(
        index_load=index_load,
        catch_up=catch_up,
        instants=catch_up_plan.instants,
        touched=catch_up_plan.touched,
        removals=catch_up_plan.removals,
        minutes=spec.minutes,
        files={side.label: side.crc for side in sides if side.crc is not None},
        report=dict(report.__dict__),
    )
    complete_catch_up(layout, marker)
    layout.durable.delete_tree(f"{spec.folder}/{SCAN}")
    return report


@dataclass(frozen=True)
class Side:
    """One key group's part of a catch-up. `crc`: CRC-32 of its file, None without one; `twice`: keys live in two slices."""

    label: int
    crc: int | None
    twice: int


def side_task(spec: BootstrapSpec, places: Sequence[int], scanned: Sequence[ScanDone], group: int) -> Side:
    """Write one key group's rows of the catch-up. `places`: the index of its touched group for each of the spec's places."""
    label = spec.labels[group]
    pieces = list(read_pieces(spec.spills, scanned, group))
    if not pieces:
        return Side(label, None, 0)
    rows = pa.concat_tables(pieces)
    run = KeyRun(*(rows[name].to_numpy() for name in ("skey", "slice", "ordering", "flags")))
    load = spec.places
    chosen, twice = resolve_run(run, load)
    if twice:
        lines = [
            json.dumps({"key": t.record_key, "places": [load.places[i] for i in t.places]}, ensure_ascii=False)
            for t in twice
        ]
        listed = f"{spec.folder}/{label}.scan{TWICE_SUFFIX}"
        create(spec.layout.durable, listed, ("\n".join(lines) + "\n").encode())
    side = CatchUpRows(
        skeys=run.skeys[chosen],
        place=np.array(places, np.int32)[run.place[chosen]],
        ordering=run.ordering[chosen],
        flags=run.flags[chosen],
        others={t.skey: found for t in twice if (found := _others(t, places))},
    )
    return Side(label, write_side(spec.layout, spec.index_load, spec.catch_up, label, side), len(twice))


def _others(twice: DuplicateKey, places: Sequence[int]) -> tuple[int, ...]:
    """The touched file groups that a key is in, except the one that counts."""
    kept = places[twice.places[-1]]
    return tuple(sorted({places[i] for i in twice.places} - {kept}))


def _nothing() -> None:
    """Progress is not reported: a catch-up is short."""
