"""BULK_INSERT in the tasks: rows go to new base files of the right size, straight from the task that has them.

With the sort mode NONE that is the task that reads the records. Other modes send rows to write tasks first, each with a
number (``lane``): by ranges of partition and key (``GLOBAL_SORT``), or by partition path.

A task returns the statuses of its files, and only these are published. So a task that runs again may write other files.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from tagstream.index.base import WRITTEN_SCHEMA
from tagstream.state.tag_batch import OP_INSERT
from tagstream.streaming.batch.append import appendable, newest_of_each_key
from tagstream.streaming.batch.located import bad_records, located_schema, status_text
from tagstream.streaming.batch.write import (
    INDEX_STATUS,
    TAG_STATUS,
    WRITE_STATUS,
    WriteSpec,
    pack_rows,
    quarantined,
    stored_rows,
    write_context,
)
from tagstream.streaming.copy_print import this_copy
from tagstream.streaming.options.operation_options import BulkInsertSortMode
from tagstream.streaming.source.decode.key_decoder import record_keys
from tagstream.streaming.source.packed import Codes, empty_rows, pack, split, unpack
from tagstream.table import chunks
from tagstream.table.file_group.base_file import encoded_bytes
from tagstream.table.steps import Step
from tagstream.table.storage.storage import at_once
from tagstream.table.timeline.commit_metadata import WriteStatus
from tagstream.table.write.file_writer import write_new_group
from tagstream.table.write.upsert import BATCH_ROWS, new_rows
from tagstream.table.write.write_context import WriteContext, WriteProfile, new_slot_file

LANES_SQL = "lane int, rows binary"
KEYED_SQL = "kg int, rows binary"
SAMPLE_SQL = "place binary, weight double"
_SAMPLED_ROWS = 131_072  # of a partition, for the bytes of a row
_SAMPLED_PLACES = 2_000  # of a task, for the ranges of a global sort
_AT_ONCE = 2  # base files that a task writes in parallel to a remote store
_ALPHABETICAL = (BulkInsertSortMode.GLOBAL_SORT, BulkInsertSortMode.PARTITION_SORT)
# bytes of the order in which a table's rows are sorted -> lane
Lanes = Callable[[pa.Table], Codes]


@dataclass(frozen=True)
class BulkSpec:
    """One batch's constants. ``max_file_bytes``: size up to which a base file grows."""

    write: WriteSpec
    profile: WriteProfile
    mode: BulkInsertSortMode
    max_file_bytes: int


def make_bulk_function(spec: BulkSpec) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the ``mapInArrow`` function that writes the packed keyed records of a task and returns (kind, JSON) pairs."""
    driver = this_copy()

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        driver.check_here()
        context = TaskContext.get()
        assert context is not None
        packed = [value.as_buffer() for batch in batches for value in batch.column("rows").drop_null()]
        if packed:
            out = bulk_insert(spec, unpack(packed), context.partitionId(), context.taskAttemptId())
            yield pa.RecordBatch.from_pydict({"kind": [k for k, _ in out], "payload": [p for _, p in out]})

    return write


def bulk_insert(spec: BulkSpec, rows: pa.Table, task: int, attempt: int) -> list[tuple[str, str]]:
    """Write the keyed records of one task to new file groups. ``task`` and ``attempt``: numbers of the Spark task.

    Memory: the rows, and one more copy of those of the files that are written together.
    """
    write = spec.write
    write.crash.reach(Step.STATE_COMMITTED, write.batch_id)
    good, bad, counts = appendable(rows)
    out = [(TAG_STATUS, status_text(task, None, counts))]
    if bad.num_rows:
        schema = located_schema(write.decode.ordering_kind, rows.schema.field("row").type)
        out.append(quarantined(write, bad_records(task, bad, schema), task))
    if not good.num_rows:
        return out
    statuses, written = _write_partitions(spec, good, write_context(write, task, attempt), task)
    out += [(WRITE_STATUS, status.to_json()) for status in statuses]
    return out if written is None else [*out, (INDEX_STATUS, pack_rows(written))]


def _write_partitions(
    spec: BulkSpec, good: pa.Table, context: WriteContext, task: int
) -> tuple[list[WriteStatus], pa.Table | None]:
    """Write the rows, partition by partition. Returns the statuses, and the places of keys for a record index."""
    write = spec.write
    parts = pc.dictionary_encode(good.column("part")).combine_chunks()
    names: list[str] = parts.dictionary.to_pylist()
    order = _order(spec.mode, good, names, parts.indices.to_numpy())
    code = parts.indices.to_numpy()[order]
    keys, op = record_keys(good.column("skey").combine_chunks()), np.full(good.num_rows, OP_INSERT, np.int8)
    bounds = np.flatnonzero(np.concatenate(([True], code[1:] != code[:-1]))).tolist()
    statuses: list[WriteStatus] = []
    places: list[pa.Table] = []
    for start, end in zip(bounds, [*bounds[1:], len(order)], strict=True):
        path, mine = names[int(code[start])], order[start:end]
        files = _files(spec, good, keys, mine, path, context)
        calls = []
        first = start
        for number, chosen in enumerate(np.array_split(mine, files)):
            file_id = new_slot_file(path, task, number, spec.profile)
            rows = partial(_file_rows, write, good, keys, op, chosen, path, first, context)
            calls.append(partial(write_new_group, write.table, context, path, file_id, rows))
            first += len(chosen)
            if write.returned_rows != "nothing":
                places.append(_places(keys, chosen, path, file_id))
        for some in range(0, len(calls), _AT_ONCE):
            statuses += at_once(write.table.storage, *calls[some : some + _AT_ONCE])
    return statuses, pa.concat_tables(places) if places else None


def _order(mode: BulkInsertSortMode, good: pa.Table, names: list[str], codes: Any) -> Codes:
    """Row numbers, partition after partition: sorted by key where the mode says so, else in their order."""
    if mode in _ALPHABETICAL:
        sorted_by = [("part", "ascending"), ("skey", "ascending")]
        order: Codes = pc.sort_indices(good.select(["part", "skey"]), sort_keys=sorted_by).to_numpy().astype(np.int64)
        return order
    rank = np.empty(len(names), np.int64)
    rank[np.argsort(np.array(names, object))] = np.arange(len(names))
    return np.argsort(rank[codes], kind="stable")


def _files(spec: BulkSpec, good: pa.Table, keys: pa.Array, mine: Codes, path: str, context: WriteContext) -> int:
    """How many files the rows of a partition need, by the encoded size of some of them."""
    in_memory = good.nbytes * len(mine) / good.num_rows
    if in_memory <= spec.max_file_bytes:
        return 1
    start = max(0, len(mine) // 2 - _SAMPLED_ROWS // 2)
    some = mine[start : start + _SAMPLED_ROWS]
    op = np.full(good.num_rows, OP_INSERT, np.int8)
    (rows,) = _file_rows(spec.write, good, keys, op, some, path, 0, context, "0" * 80, batch_rows=len(some))
    row_bytes = encoded_bytes(rows, spec.write.options.codec) / len(some)
    return max(1, -(-int(row_bytes * len(mine)) // spec.max_file_bytes))


def _file_rows(
    write: WriteSpec,
    good: pa.Table,
    keys: pa.Array,
    op: Any,
    chosen: Codes,
    path: str,
    first: int,
    context: WriteContext,
    name: str,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.Table]:
    """The rows of one file with their meta columns, in batches. ``first``: number of rows the task has before them."""
    for at in range(0, len(chosen), batch_rows):
        rows = stored_rows(write.decode, good, keys, chosen[at : at + batch_rows], op)
        yield new_rows(context, rows, path, name, first + at)


def _places(keys: pa.Array, chosen: Codes, path: str, file_id: str) -> pa.Table:
    count = len(chosen)
    columns = [keys.take(pa.array(chosen)), *(pa.repeat(pa.scalar(text), count) for text in (path, file_id))]
    return pa.Table.from_arrays([*columns, pa.repeat(pa.scalar(True), count)], schema=WRITTEN_SCHEMA)


def make_combine_function(spec: BulkSpec) -> Callable[[tuple[Any, ...], pa.Table], pa.Table]:
    """Make the function of a key group that keeps the newest record of each key (``hoodie.combine.before.insert``)."""
    ordering = spec.write.decode.ordering_kind
    schema = pa.schema([("kg", pa.int32()), ("rows", pa.binary())])

    def combine(key: tuple[Any, ...], rows: pa.Table) -> pa.Table:
        values = list(pack(newest_of_each_key(unpack(rows.column("rows").to_pylist()), ordering)))
        return pa.table({"kg": pa.repeat(key[0].as_py(), len(values)), "rows": values}, schema=schema)

    return combine


def make_lane_function(lanes: Lanes) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the ``mapInArrow`` function that sends packed keyed records to write tasks (``LANES_SQL``)."""

    def send(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = batch.column("rows").drop_null()
            if not len(values):
                continue
            rows = unpack(value.as_buffer() for value in values)
            packed: list[tuple[int, bytes | None]] = []
            for lane, mine in split(rows, lanes(rows)):
                for value in pack(mine):
                    packed += [(lane, value), *[(lane, None)] * empty_rows(value)]
            columns = [
                pa.array([lane for lane, _ in packed], pa.int32()),
                pa.array([v for _, v in packed], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=["lane", "rows"])

    return send


def by_partition(rows: pa.Table, count: int) -> Codes:
    """Lane of each row, the same one for all rows of a partition. Bad records have none and go to lane 0."""
    parts = pc.dictionary_encode(rows.column("part")).combine_chunks()
    lanes = np.array([zlib.crc32(path.encode()) % count for path in parts.dictionary.to_pylist()] or [0], np.int64)
    codes: Codes = pc.fill_null(parts.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.where(codes < 0, 0, lanes[codes])


def by_range(rows: pa.Table, bounds: pa.Array) -> Codes:
    """Lane of each row: how many of the sorted ``bounds`` are not after its place (:func:`places_of`)."""
    places = places_of(rows)
    both = pa.concat_arrays([bounds, chunks.flat(places)])
    order = pc.sort_indices(both, sort_keys=[("", "ascending")]).to_numpy()  # stable: of equal ones a bound is first
    passed = np.cumsum(order < len(bounds))
    lanes = np.empty(len(both), np.int64)
    lanes[order] = passed
    return lanes[len(bounds) :]


def places_of(rows: pa.Table) -> pa.Array:
    """Partition path and state key of each row as bytes, which are in the order of a global sort. Empty for bad records."""
    part = chunks.flat(rows.column("part")).cast(pa.binary())
    joined = pc.binary_join_element_wise(part, chunks.flat(rows.column("skey")), b"\0")
    return pc.fill_null(joined, b"")


def sample_places(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Some places of a task's rows at equal distances, each with the number of rows that it stands for."""
    for batch in batches:
        values = batch.column("rows").drop_null()
        if len(values):
            places = places_of(unpack(value.as_buffer() for value in values))
            step = max(1, -(-len(places) // _SAMPLED_PLACES))
            some = places.take(pa.array(np.arange(0, len(places), step)))
            yield pa.RecordBatch.from_pydict({"place": some, "weight": np.full(len(some), len(places) / len(some))})


def range_bounds(places: pa.Array, weights: Any, count: int) -> pa.Array:
    """The sorted bounds of up to ``count`` ranges with about the same number of rows."""
    order = pc.sort_indices(places).to_numpy()
    reached = np.cumsum(np.asarray(weights)[order])
    if not len(reached):
        return pa.array([], pa.binary())
    wanted = reached[-1] * np.arange(1, count) / count
    at = np.unique(np.minimum(np.searchsorted(reached, wanted), len(order) - 1))
    return pc.unique(places.take(pa.array(order[at])))
