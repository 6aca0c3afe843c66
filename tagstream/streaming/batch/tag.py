"""The function for ``applyInPandasWithState``: one call per key group and batch.

The output carries all that later steps need: located rows for the writer, bad rows for the quarantine, and one status
per key group with the name of its delta and its counts for the driver. Records are packed in both directions
(``streaming.source.packed``), so pandas and Spark see only a few values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.streaming.state import GroupState

from tagstream.bootstrap import deleted_keys
from tagstream.state.layout import OrderingKind, StateLayout, has_bytes
from tagstream.state.tag_batch import FLAG_DELETE, OP_DELETE, ImageWanted, PartialRows, TagBatch, TagResult
from tagstream.state.tag_group import tag_key_group
from tagstream.streaming.batch import added_keys
from tagstream.streaming.batch.completed import completed, images_of, lacking, refused
from tagstream.streaming.batch.located import (
    ADDED_KEYS,
    DELETED_KEYS,
    OP_DELETE_NATURAL,
    WriteTasks,
    bad_records,
    located_schema,
    located_table,
    packed_columns,
)
from tagstream.streaming.copy_print import this_copy
from tagstream.streaming.errors import CheckpointError
from tagstream.streaming.process import CrashPlan
from tagstream.streaming.source.decode.key_decoder import FLAG_BAD, FLAG_IMAGE, FLAG_SKIPPED, FLAG_TRUNCATE, record_keys
from tagstream.streaming.source.packed import unpack
from tagstream.streaming.source.task_files import TaskFile, TaskFiles, task_file
from tagstream.table import chunks
from tagstream.table.errors import InstantConflictError
from tagstream.table.steps import Step
from tagstream.table.storage.storage import Storage
from tagstream.table.write.markers import check_seen, is_inflight
from tagstream.table.write.write_context import WriteProfile

STATE_SCHEMA = "pointer binary"
_FRAME_ROWS = 64
_newest: dict[tuple[str, str], WriteProfile] = {}


@dataclass(frozen=True)
class TagSpec:
    """Constants of all tag tasks. Pickled into the plan once, when the query starts.

    ``run_owner`` identifies this run, also among runs with the same number of an earlier checkpoint. ``write_tasks``: number
    of write tasks. ``storage``: the table's. ``timeline_folder`` and ``action``: of the batches' instants. ``partial``:
    set where records may lack fields of their rows. ``exchange``: where packed rows stay; None: they go through the
    shuffle.
    """

    layout: StateLayout
    profiles: Storage
    run: int
    run_owner: str
    crash: CrashPlan
    write_tasks: int
    storage: Storage
    timeline_folder: str
    action: str
    partial: PartialRows | None = None
    exchange: TaskFiles | None = None

    def check_pending(self, profile: WriteProfile) -> None:
        """Raise InstantConflictError when the batch's instant is not pending any more.

        Then this driver was paused and another one has rolled back the instant. Spark's state files may belong to the
        other driver.
        """
        if profile.mode == "process" and not is_inflight(
            self.storage, self.timeline_folder, profile.instant, self.action
        ):
            check_seen(self.storage)
            raise InstantConflictError(
                f"another process rolled back instant {profile.instant} of {self.storage.root} while batch "
                f"{profile.batch_id} was tagged; the batch's state was discarded: let only one writer write to the table"
            )


def profile_name(batch_id: int, run: int) -> str:
    """File name of the write profile that one run wrote for one batch."""
    return f"{batch_id:020d}.{run}.json"


class ProfilePlace(Protocol):
    """Where a run writes its profiles, and which run it is."""

    @property
    def profiles(self) -> Storage: ...
    @property
    def run(self) -> int: ...
    @property
    def run_owner(self) -> str: ...


def read_profile(spec: ProfilePlace, batch_id: int) -> WriteProfile:
    """Read the write profile of a batch. CheckpointError where the file does not exist.

    A process reads it once and uses it for several key groups: a profile never changes.
    """
    where = spec.profiles.where(profile_name(batch_id, spec.run))
    key = (where, spec.run_owner)
    profile = _newest.get(key)
    if profile is None:
        try:
            text = spec.profiles.read(profile_name(batch_id, spec.run)).decode()
            profile = WriteProfile.from_json(text, where, spec.profiles)
        except FileNotFoundError:
            raise CheckpointError(
                f"a task cannot find the write profile {where}: put the checkpoint where all hosts of Spark can read it "
                "under the same path, or on a store (S3, HDFS, ...)"
            ) from None
        _newest.clear()
        _newest[key] = profile
    return profile


def make_tag_function(spec: TagSpec) -> Callable[[Any, Iterable[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    """Make the stateful function of this query."""
    driver = this_copy()

    def tag(key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        driver.check_here()
        context = TaskContext.get()
        assert context is not None
        batch_id = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        profile = read_profile(spec, batch_id)
        label = int(key[0])
        pointer = bytes(state.get[0]) if state.exists else None
        records = unpack(value for frame in frames for value in frame["rows"])
        rows, result = tag_records(label, pointer, records, profile, spec.layout, spec.partial)
        if result.delta is not None:
            spec.crash.reach(Step.DELTA_DURABLE, batch_id)
        if result.pointer is not None and result.pointer != pointer:
            spec.check_pending(profile)
            state.update((result.pointer,))
        write_tasks = WriteTasks(spec.write_tasks, profile.write_tasks)
        with task_file(spec.exchange, f"tag-{label}") as file:
            yield from packed_result(label, rows, result, write_tasks, file)

    return tag


def tag_records(
    label: int,
    pointer: bytes | None,
    records: pa.Table,
    profile: WriteProfile,
    layout: StateLayout,
    partial: PartialRows | None = None,
) -> tuple[pa.Table, TagResult]:
    """Tag the keyed records of one key group.

    ``label``: number of the key group. ``pointer``: value of Spark's state, None where it has none. Returns the located
    records, the bad ones included, and the result of the tag step.
    """
    good, bad, skipped = sorted_out(records)
    batch = tag_batch(good, layout.ordering, images_of(records, layout.ordering), partial)
    batch = replace(batch, truncates=truncates_of(records, layout.ordering))
    result = tag_key_group(label, pointer, batch, profile, layout)
    result.stats["skipped"] = skipped
    if result.buried is not None:
        result.stats[DELETED_KEYS] = deleted_keys.encode(*result.buried, layout.ordering)
    if result.added is not None:
        result.stats[ADDED_KEYS] = added_keys.encode(
            added_keys.hashes_of(record_keys(pa.array(result.added, pa.binary())))
        )
    rows = completed(located(result, good, layout.ordering), good, result)
    bad = pa.concat_tables([bad, refused(good, result, partial)])
    return (pa.concat_tables([rows, bad_records(label, bad, rows.schema)]) if bad.num_rows else rows), result


def sorted_out(rows: pa.Table) -> tuple[pa.Table, pa.Table, int]:
    """Split keyed records (``KeyDecoder.keys``) into those to tag, the bad ones, and the number of skipped ones."""
    flags = rows.column("flags").to_numpy()
    aside = (flags & (FLAG_BAD | FLAG_SKIPPED | FLAG_IMAGE | FLAG_TRUNCATE)) != 0
    if not aside.any():
        return rows, rows.slice(0, 0), 0
    bad = (flags & FLAG_BAD) != 0
    return rows.filter(pa.array(~aside)), rows.filter(pa.array(bad)), int(((flags & FLAG_SKIPPED) != 0).sum())


def truncates_of(rows: pa.Table, ordering: OrderingKind) -> tuple[Any, Any, int, int] | None:
    """The newest of the events that truncated the table (``TagBatch.truncates``); None where there is none."""
    found = rows.filter(pa.array((rows.column("flags").to_numpy() & FLAG_TRUNCATE) != 0))
    if ordering == "none" or not found.num_rows:
        return None
    events = found.select(["ord", "src", "pos_hi", "pos_lo"]).to_pylist()  # a handful
    newest = max(events, key=lambda event: event["ord"])
    return newest["ord"], newest["src"], newest["pos_hi"], newest["pos_lo"]


def tag_batch(
    rows: pa.Table,
    ordering: OrderingKind,
    images: Sequence[ImageWanted] = (),
    partial: PartialRows | None = None,
) -> TagBatch:
    """Keyed records in the form that the tag step takes. ``images``: rows that other records need; ``partial``: set
    where records may lack fields.
    """

    def column(name: str) -> Any:
        return rows.column(name).to_numpy()

    return TagBatch(
        skeys=column("skey"),
        partitions=column("part"),
        ordering=None if ordering == "none" else column("ord"),
        flags=column("flags").astype(np.uint8),
        source=column("src"),
        pos_hi=column("pos_hi"),
        pos_lo=column("pos_lo"),
        absent=lacking(rows) if images or _some(rows, "absent") else None,
        in_other_row=_in_other_row(rows) if _some(rows, "old") else None,
        images=images,
        partial=partial,
    )


def _in_other_row(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Mask of the records whose values are in another row. A delete has its own values (``source.pack_by_group``)."""
    deleted = (rows.column("flags").to_numpy() & FLAG_DELETE) != 0
    found: npt.NDArray[np.bool_] = rows.column("old").is_valid().to_numpy() & ~deleted
    return found


def _some(rows: pa.Table, name: str) -> bool:
    """Whether the column exists and has a value."""
    return name in rows.column_names and rows.column(name).null_count < rows.num_rows


def located(result: TagResult, good: pa.Table, ordering: OrderingKind) -> pa.Table:
    """The located records of a key group. ``good``: the keyed records that ``result`` was made from."""
    schema = located_schema(ordering, good.schema.field("row").type, may_lack="absent" in good.column_names)
    op = np.where((result.op == OP_DELETE) & ~result.has_ordering, OP_DELETE_NATURAL, result.op).astype(np.int8)
    if has_bytes(ordering):
        known = pa.array(result.ordering, pa.binary())
        orderings = pc.if_else(pa.array(result.has_ordering), known, pa.scalar(None, pa.binary()))
    else:
        orderings = pa.array(np.where(result.has_ordering, result.ordering, 0), pa.int64())
    take = pa.array(result.take, mask=result.take < 0)
    columns = {
        "dest_part": pa.array(result.partition, pa.string()),
        "dest_file": pa.array(result.file_id, pa.string()),
        "op": pa.array(op),
        "skey": pa.array(result.skey, pa.binary()),
        "ord": orderings,
        "row": chunks.take(good.select(["row"]), take).column("row"),
    }
    return located_table(schema, len(result), columns)


def packed_result(
    label: int, rows: pa.Table, result: TagResult, write_tasks: WriteTasks, file: TaskFile | None = None
) -> Iterator[pd.DataFrame]:
    """What the tag step returns to Spark: located rows by write task, and the key group's status.

    The frames have few rows, because PySpark collects frames into one Arrow batch until they have ``ROWS_PER_BATCH``
    rows.
    """
    columns = packed_columns(label, rows, result.delta, result.stats, write_tasks, file)
    for start in range(0, len(columns[0]), _FRAME_ROWS):
        to, values, status = (column[start : start + _FRAME_ROWS] for column in columns)
        yield pd.DataFrame({"lane": np.array(to, np.int32), "rows": values, "status": status})
