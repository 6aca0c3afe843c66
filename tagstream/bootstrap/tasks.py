"""The two kinds of tasks of a bootstrap: scan slices into pieces by key group, and load one key group from them.

Each task writes its result durably under its own name, and does nothing when the result exists.

A load takes from the index used before (the former index) what only an index has:

- The ordering values of deleted keys. A table has them only in its logs, until these are compacted. Without them an
  event that is older than the delete brings the row back.
- The ordering values of rows, where the table has no ordering field: a change stream orders events by their position in
  the source's log (Debezium). Without them a TRUNCATE that is read late deletes rows that are newer than it.

So each key group reads the group of the same label in the former index, as of the time when the table had its present
state (`state.index_view.heads_as_of`).
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.bootstrap import deleted_keys
from tagstream.bootstrap.errors import BootstrapError
from tagstream.bootstrap.plan import BootstrapPlan
from tagstream.bootstrap.scan import SliceKeys, damaged_blocks, scan_slice
from tagstream.bootstrap.spill import (
    ScanDone,
    SliceDone,
    SpillWriter,
    read_ahead,
    read_done,
    read_pieces,
    spill_schema,
    whole_done,
)
from tagstream.state import codec
from tagstream.state.bulk_load import DuplicateKey, KeyRun, LoadPlaces, bulk_load
from tagstream.state.codec import ORDERING_UNKNOWN, TOMBSTONE, instant_number, sort_keys
from tagstream.state.index_loads import GroupStart, read_start
from tagstream.state.index_view import IndexHeads, open_view
from tagstream.state.key_crc import crc_of_keys
from tagstream.state.layout import StateLayout, has_bytes
from tagstream.state.ordering import ordering_codes
from tagstream.state.rocks_store import RocksStore
from tagstream.state.scratch import scratch_folder
from tagstream.state.store_entries import records_of
from tagstream.state.tag_batch import GLOBAL_KEY, PARTITIONED_KEY
from tagstream.table.errors import CorruptFileError, TagstreamError
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.storage.opening import unsynced
from tagstream.table.storage.storage import Storage, create, each


def with_known_order(runs: Iterator[KeyRun], former: IndexHeads, label: int) -> Iterator[KeyRun]:
    """The rows of a key group in their key ranges, with the ordering values and the deleted keys of the former index.

    Its newest TRUNCATE is one of the deleted keys. All deleted keys have location 0, which must exist. `label`: of the key
    group. IndexDamagedError when a file of the former index is missing or damaged.
    """
    with scratch_folder("tagstream-former-") as scratch:
        layout = replace(former.layout, local_dir=scratch, local_root="", lock_wait_s=0.0)
        with open_view(layout, label, former.pointers[label], former.catch_up) as store:
            yield from _merged((_filled(run, layout, store) for run in runs), _deleted(layout, store))


def _deleted(layout: StateLayout, store: RocksStore) -> Iterator[KeyRun]:
    """The deleted keys with a known ordering value, in key order and in bounded pieces."""
    for keys, records in records_of(store, layout):
        at = np.flatnonzero((records.flags & (TOMBSTONE | ORDERING_UNKNOWN)) == TOMBSTONE)
        if len(at):
            skeys = np.empty(len(at), object)
            skeys[:] = [keys[i] for i in at.tolist()]
            yield KeyRun(skeys, np.zeros(len(at), np.int32), records.ordering[at], records.flags[at])


def _merged(runs: Iterator[KeyRun], deleted: Iterator[KeyRun]) -> Iterator[KeyRun]:
    """Rows and deletes in common key ranges, none greater than a run and a piece. A key that is in both comes twice:
    `bulk_load` takes a row before a delete, and the later one of two deletes.
    """
    piece = next(deleted, None)
    for run in runs:
        if piece is None:
            yield run
            continue
        rest = _some(run, sort_keys(run.skeys)[0])
        while piece is not None and len(rest.skeys):
            cut = bisect_right(rest.skeys, piece.skeys[-1])
            end = len(piece.skeys) if cut < len(rest.skeys) else bisect_right(piece.skeys, rest.skeys[-1])
            yield _joined(_some(rest, slice(0, cut)), _some(piece, slice(0, end)))
            rest = _some(rest, slice(cut, None))
            piece = _some(piece, slice(end, None)) if end < len(piece.skeys) else next(deleted, None)
        if len(rest.skeys):
            yield rest
    while piece is not None:
        yield piece
        piece = next(deleted, None)


def _some(run: KeyRun, which: Any) -> KeyRun:
    return KeyRun(run.skeys[which], run.place[which], run.ordering[which], run.flags[which])


def _joined(rows: KeyRun, deletes: KeyRun) -> KeyRun:
    pairs = zip(_columns(rows), _columns(deletes), strict=True)
    return KeyRun(*(np.concatenate(pair) for pair in pairs))


def _columns(run: KeyRun) -> tuple[Any, ...]:
    return run.skeys, run.place, run.ordering, run.flags


def _filled(run: KeyRun, layout: StateLayout, store: RocksStore) -> KeyRun:
    """A run with the ordering values of rows that the table lacks."""
    unknown = np.flatnonzero((run.flags & ORDERING_UNKNOWN) != 0)
    if not len(unknown):
        return run
    kind = layout.ordering
    found, records = codec.decode_some(store.get(run.skeys[unknown].tolist()), kind)
    # When the former index has a row as deleted, and the row is back, the index knows only the order of the delete.
    known = found & ((records.flags & (ORDERING_UNKNOWN | TOMBSTONE)) == 0)
    ordering = run.ordering.astype(object if has_bytes(kind) else np.int64)
    flags = run.flags.copy()
    at = unknown[known]
    ordering[at] = records.ordering[known]
    flags[at] &= np.uint8(~ORDERING_UNKNOWN & 0xFF)
    return KeyRun(run.skeys, run.place, ordering, flags)


CorruptPolicy = Literal["fail", "skip"]
RUN_ROWS = 2_000_000  # 250 bytes each while they are sorted
_SAMPLE = 10_000
_SLICES_AT_ONCE = 4  # of a task on a remote store: each file takes three reads, one after another
TWICE_SUFFIX = ".twice.jsonl"
SCAN = "scan"


@dataclass(frozen=True)
class BootstrapSpec:
    """The input of every task. `tasks`: numbers of the plan's slices. `minutes`: time of the load, in minutes since 1970.

    `index_load`: number of the index load. `catch_up`: number of the catch-up, 0 for a load of the whole table. `former`: an
    index with ordering values that the table lacks. `deletes`: files of other streams' deleted keys
    (`bootstrap.deleted_keys`).
    """

    plan: BootstrapPlan
    reader: SliceReader | None
    layout: StateLayout
    labels: tuple[int, ...]
    index_load: int
    first_batch: int
    minutes: int
    corrupt: CorruptPolicy
    tasks: tuple[tuple[int, ...], ...]
    catch_up: int = 0
    former: IndexHeads | None = None
    deletes: tuple[str, ...] = ()

    @property
    def scans(self) -> int:
        """Number of scan tasks. The last one reads the deleted keys of other streams, if there are any."""
        return len(self.tasks) + bool(self.deletes)

    @property
    def places(self) -> LoadPlaces:
        """The slices, and after them a place that stands for none, which deleted keys have."""
        slices = [s.file_slice for s in self.plan.slices]
        return LoadPlaces(
            [*((s.partition_path, s.file_id) for s in slices), ("", "")],
            np.array([*(instant_number(s.base_instant) for s in slices), 0], np.int64),
        )

    @property
    def folder(self) -> str:
        """Folder of the load or catch-up, in the durable folder."""
        layout = self.layout
        return (
            layout.catch_up_dir(self.index_load, self.catch_up)
            if self.catch_up
            else layout.index_load_dir(self.index_load)
        )

    @property
    def spills(self) -> Storage:
        """Folder of scanned keys until they are loaded."""
        return unsynced(self.layout.durable.below(f"{self.folder}/{SCAN}"))

    def all_done(self) -> list[ScanDone]:
        """Every scan task's result; BootstrapError when one is not done."""
        spills = self.spills

        def of(task: int) -> ScanDone:
            done = read_done(spills, task)
            if done is None:
                raise BootstrapError(f"scan task {task} of {spills.root} is not done; run the bootstrap again")
            return done

        return each(of, range(self.scans))


def guarded(task: Callable[[int], Any], number: int) -> Any:
    """Run a task, and return a TagstreamError as its result: Spark would retry it and bury its text in a stack trace.

    This is not in `run`, so that a worker need not import Spark's SQL.
    """
    try:
        return task(number)
    except TagstreamError as e:
        return e


def scan_task(spec: BootstrapSpec, task: int) -> ScanDone:
    """Scan the slices of one task. A slice with a corrupt file fails the task or is skipped, by the policy."""
    done = whole_done(spec.spills, task)
    if done is not None:
        return done
    writer = SpillWriter(spec.spills, task, spec.layout.ordering, spec.first_batch)
    if task == len(spec.tasks):
        storage, at = spec.plan.table.storage, len(spec.plan.slices)
        return deleted_keys.spill(storage, spec.deletes, writer, len(spec.labels), at)
    assert spec.reader is not None
    numbers = spec.tasks[task]
    sources = [partial(_read, spec.reader, spec.plan.slices[number].file_slice) for number in numbers]
    try:
        with closing(read_ahead(sources, _SLICES_AT_ONCE if spec.plan.table.storage.is_remote else 1)) as slices:
            found = [_scan(spec, number, read, writer) for number, read in zip(numbers, slices, strict=True)]
        return writer.close(found)
    except BaseException as e:
        writer.abandon(e)
        raise


def _read(reader: SliceReader, file_slice: FileSlice) -> Iterator[tuple[int, SliceKeys | None]]:
    """The number of damaged blocks of the slice, then its keys."""
    yield damaged_blocks(reader, file_slice), None
    for batch in scan_slice(reader, file_slice):
        yield 0, batch


def _scan(
    spec: BootstrapSpec, number: int, read: Iterator[tuple[int, SliceKeys | None]], writer: SpillWriter
) -> SliceDone:
    file_slice = spec.plan.slices[number].file_slice
    rows = live = deleted = damaged = 0
    try:
        for blocks, batch in read:
            damaged += blocks
            if batch is None:
                continue
            rows += batch.read
            live += 0 if batch.deleted else len(batch.keys)
            deleted += len(batch.keys) if batch.deleted else 0
            writer.add(*_located(spec, batch, number, file_slice.partition_path))
    except CorruptFileError as e:
        if spec.corrupt == "fail":
            raise
        # The load leaves out what was already written of this slice, because it knows the skipped slices.
        return SliceDone(number, 0, 0, 0, damaged, str(e))
    return SliceDone(number, rows, live, deleted, damaged)


def _located(
    spec: BootstrapSpec, batch: SliceKeys, number: int, partition: str
) -> tuple[pa.RecordBatch, npt.NDArray[np.int32]]:
    """Rows to write, and the key group of each: `crc32` of the state key without its first byte, as in the stream."""
    layout = spec.layout
    ordering = batch.ordering
    if batch.deleted and ordering is not None and ordering.null_count:
        # A tombstone exists for its ordering value; without one it is useless.
        known = ordering.is_valid()
        batch = SliceKeys(batch.keys.filter(known), ordering.filter(known), True)
        ordering = batch.ordering
    keys = batch.keys.cast(pa.binary())
    n = len(keys)
    prefix = b"" if layout.global_index else partition.encode() + b"\x00"
    groups = (crc_of_keys(keys, zlib.crc32(prefix)) % np.uint32(len(spec.labels))).astype(np.int32)
    start = (GLOBAL_KEY if layout.global_index else PARTITIONED_KEY) + prefix
    flags = np.full(n, TOMBSTONE if batch.deleted else 0, np.uint8)
    if ordering is None or layout.ordering == "none":
        codes = (
            pa.repeat(pa.scalar(b"", pa.binary()), n) if has_bytes(layout.ordering) else pa.array(np.zeros(n, np.int64))
        )
        flags |= np.uint8(ORDERING_UNKNOWN)
    else:
        flags |= np.where(ordering.is_null().to_numpy(zero_copy_only=False), ORDERING_UNKNOWN, 0).astype(np.uint8)
        codes = ordering_codes(ordering)
    skeys = pc.binary_join_element_wise(pa.scalar(start), keys, pa.scalar(b""))
    columns = [skeys, pa.array(np.full(n, number, np.int32)), codes, pa.array(flags)]
    return pa.RecordBatch.from_arrays(columns, schema=spill_schema(layout.ordering)), groups


def load_task(spec: BootstrapSpec, group: int) -> GroupStart:
    """Load one key group from the pieces of all scan tasks, and return its start."""
    label = spec.labels[group]
    start = read_start(spec.layout, spec.index_load, label)
    if start is not None:
        return start
    done = spec.all_done()
    places = spec.places
    runs = _runs(spec, done, group)
    if spec.former is not None:
        runs = with_known_order(runs, spec.former, label)
    layout, index_load = spec.layout, spec.index_load
    listed = f"{layout.index_load_dir(index_load)}/{label}{TWICE_SUFFIX}"

    def keep_list(twice: list[DuplicateKey]) -> None:
        if twice:
            text = "".join(_line(spec, places, t) for t in twice)
            create(layout.durable, listed, text.encode())

    return bulk_load(layout, label, index_load, spec.first_batch, spec.minutes, places, runs, keep_list)


def _line(spec: BootstrapSpec, places: LoadPlaces, twice: DuplicateKey) -> str:
    where = [(*places.places[i], spec.plan.slices[i].file_slice.base_instant) for i in twice.places]
    return json.dumps({"key": twice.record_key, "kept": where[-1], "others": where[:-1]}, ensure_ascii=False) + "\n"


def _runs(spec: BootstrapSpec, done: list[ScanDone], group: int) -> Iterator[KeyRun]:
    """The group's rows in key ranges of about RUN_ROWS, so that memory does not grow with the table."""
    skipped = pa.array([s.number for d in done for s in d.slices if s.skipped is not None], pa.int32())

    def pieces() -> Iterator[pa.Table]:
        for piece in read_pieces(spec.spills, done, group):
            yield piece.filter(pc.invert(pc.is_in(piece["slice"], value_set=skipped))) if len(skipped) else piece

    total = sum(p.rows for d in done for p in d.pieces if p.group == group)
    if total <= RUN_ROWS:
        yield from _key_run(list(pieces()))
        return
    every = max(1, total // _SAMPLE)
    sample = pa.concat_arrays([_flat(p["skey"]).take(pa.array(np.arange(0, p.num_rows, every))) for p in pieces()])
    if len(sample) == 0:
        return
    ordered = sample.take(pc.sort_indices(sample))
    cuts = [ordered[int(len(ordered) * i / (total / RUN_ROWS))] for i in range(1, -(-total // RUN_ROWS))]
    for low, high in zip([None, *cuts], [*cuts, None], strict=True):
        yield from _key_run([_between(piece, low, high) for piece in pieces()])


def _between(piece: pa.Table, low: pa.Scalar | None, high: pa.Scalar | None) -> pa.Table:
    """Rows with low <= key < high."""
    keys = piece["skey"]
    if low is not None:
        piece = piece.filter(pc.greater_equal(keys, low))
        keys = piece["skey"]
    return piece if high is None else piece.filter(pc.less(keys, high))


def _key_run(tables: list[pa.Table]) -> Iterator[KeyRun]:
    if not tables:
        return
    rows = pa.concat_tables(tables)
    yield KeyRun(
        skeys=rows["skey"].to_numpy(),
        place=rows["slice"].to_numpy(),
        ordering=rows["ordering"].to_numpy(),
        flags=rows["flags"].to_numpy(),
    )


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()
