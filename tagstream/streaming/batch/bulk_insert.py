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
from tagstream.streaming.batch.append import appendable, newest_of_each_key
from tagstream.streaming.batch.bulk_ranges import places_of, unpacked
from tagstream.streaming.batch.located import bad_records, located_schema, status_text
from tagstream.streaming.batch.write import (
    INDEX_STATUS,
    TAG_STATUS,
    WRITE_STATUS,
    WriteSpec,
    as_stored,
    pack_rows,
    quarantined,
    write_context,
)
from tagstream.streaming.copy_print import this_copy
from tagstream.streaming.options.operation_options import BulkInsertSortMode
from tagstream.streaming.source.decode.key_decoder import record_keys
from tagstream.streaming.source.packed import Codes, empty_rows, pack, split, unpack
from tagstream.streaming.source.task_files import TaskFiles, task_file
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
_SAMPLED_ROWS = 131_072  # of a partition, for the bytes of a row
_AT_ONCE = 2  # base files that a task writes in parallel to a remote store
_ALPHABETICAL = (BulkInsertSortMode.GLOBAL_SORT, BulkInsertSortMode.PARTITION_SORT)
# bytes of the order in which a table's rows are sorted -> lane
Lanes = Callable[[pa.Table], Codes]


@dataclass(frozen=True)
class BulkSpec:
    """One batch's constants. ``max_file_bytes``: size up to which a base file grows. ``row_bytes``: of a row in a file, as
    the driver knows from a sample; 0: each task measures it.
    """

    write: WriteSpec
    profile: WriteProfile
    mode: BulkInsertSortMode
    max_file_bytes: int
    row_bytes: float = 0.0


def make_bulk_function(spec: BulkSpec) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the ``mapInArrow`` function that writes the packed keyed records of a task and returns (kind, JSON) pairs."""
    driver = this_copy()

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        driver.check_here()
        context = TaskContext.get()
        assert context is not None
        packed = [value.as_buffer() for batch in batches for value in batch.column("rows").drop_null()]
        if packed:
            rows = pa.concat_tables([unpack([value]) for value in packed])  # no copy: they may be in mapped files
            out = bulk_insert(spec, rows, context.partitionId(), context.taskAttemptId())
            yield pa.RecordBatch.from_pydict({"kind": [k for k, _ in out], "payload": [p for _, p in out]})

    return write


def bulk_insert(spec: BulkSpec, rows: pa.Table, task: int, attempt: int) -> list[tuple[str, str]]:
    """Write the keyed records of one task to new file groups. ``task`` and ``attempt``: numbers of the Spark task.

    Memory: the keys, and the rows of one row group of each file that is written; and ``rows``, if they are not in mapped
    files.
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
    parts = chunks.flat(good.column("part").dictionary_encode())
    names: list[str] = parts.dictionary.to_pylist()
    order = _order(spec.mode, good, names, parts.indices.to_numpy())
    code = parts.indices.to_numpy()[order]
    bounds = np.flatnonzero(np.concatenate(([True], code[1:] != code[:-1]))).tolist()
    statuses: list[WriteStatus] = []
    places: list[pa.Table] = []
    for start, end in zip(bounds, [*bounds[1:], len(order)], strict=True):
        path, mine = names[int(code[start])], order[start:end]
        files = _files(spec, good, mine, path, context)
        calls = []
        first = start
        for number, chosen in enumerate(np.array_split(mine, files)):
            file_id = new_slot_file(path, task, number, spec.profile)
            rows = partial(_file_rows, write, good, chosen, path, first, context)
            calls.append(partial(write_new_group, write.table, context, path, file_id, rows))
            first += len(chosen)
            if write.returned_rows != "nothing":
                places.append(_places(good, chosen, path, file_id))
        for some in range(0, len(calls), _AT_ONCE):
            statuses += at_once(write.table.storage, *calls[some : some + _AT_ONCE])
    return statuses, pa.concat_tables(places) if places else None


def _order(mode: BulkInsertSortMode, good: pa.Table, names: list[str], codes: Any) -> Codes:
    """Row numbers, partition after partition: sorted by key where the mode says so, else in their order."""
    rank = np.empty(len(names), np.int64)
    rank[np.argsort(np.array(names, object))] = np.arange(len(names))
    ranks = rank[codes]
    if mode not in _ALPHABETICAL:
        return np.argsort(ranks, kind="stable")
    by_key: Codes = pc.sort_indices(chunks.flat(good.column("skey"))).to_numpy().astype(np.int64)
    return by_key if len(names) == 1 else by_key[np.argsort(ranks[by_key], kind="stable")]


def _files(spec: BulkSpec, good: pa.Table, mine: Codes, path: str, context: WriteContext) -> int:
    """How many files the rows of a partition need."""
    in_memory = good.nbytes * len(mine) / good.num_rows
    if in_memory <= spec.max_file_bytes:
        return 1
    row_bytes = spec.row_bytes
    if not row_bytes:
        start = max(0, len(mine) // 2 - _SAMPLED_ROWS // 2)
        row_bytes = bytes_of_rows(spec.write, good, mine[start : start + _SAMPLED_ROWS], path, context)
    return max(1, -(-int(row_bytes * len(mine)) // spec.max_file_bytes))


def make_row_bytes(spec: BulkSpec) -> Callable[[pa.Table], float]:
    """Make the function that returns the bytes of a row in a file, from some keyed records of a task; 0 for none."""

    def row_bytes(rows: pa.Table) -> float:
        good, _, _ = appendable(rows)
        if not good.num_rows:
            return 0.0
        order = pc.sort_indices(places_of(good)).to_numpy().astype(np.int64)
        return bytes_of_rows(spec.write, good, order, good.column("part")[0].as_py(), write_context(spec.write, 0, 0))

    return row_bytes


def bytes_of_rows(write: WriteSpec, good: pa.Table, chosen: Codes, path: str, context: WriteContext) -> float:
    """Encoded bytes of one of the chosen rows in a base file of a partition."""
    (rows,) = _file_rows(write, good, chosen, path, 0, context, "0" * 80, batch_rows=len(chosen))
    return encoded_bytes(rows, write.options.codec) / len(chosen)


def _file_rows(
    write: WriteSpec,
    good: pa.Table,
    chosen: Codes,
    path: str,
    first: int,
    context: WriteContext,
    name: str,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.Table]:
    """The rows of one file with their meta columns, in batches. ``first``: number of rows the task has before them."""
    columns = good.select(["skey", "ord", "row"])
    for at in range(0, len(chosen), batch_rows):
        rows = chunks.gather(columns, chosen[at : at + batch_rows])
        keys = record_keys(chunks.flat(rows.column("skey")))
        stored = as_stored(write.decode, rows.column("row"), partial(rows.column, "ord"), keys)
        yield new_rows(context, stored, path, name, first + at)


def _places(good: pa.Table, chosen: Codes, path: str, file_id: str) -> pa.Table:
    count = len(chosen)
    keys = chunks.flat(chunks.gather(good.select(["skey"]), chosen).column("skey"))
    columns = [record_keys(keys), *(pa.repeat(pa.scalar(text), count) for text in (path, file_id))]
    return pa.Table.from_arrays([*columns, pa.repeat(pa.scalar(True), count)], schema=WRITTEN_SCHEMA)


def make_combine_function(
    spec: BulkSpec, exchange: TaskFiles | None
) -> Callable[[tuple[Any, ...], pa.Table], pa.Table]:
    """Make the function of a key group that keeps the newest record of each key (``hoodie.combine.before.insert``).

    ``exchange``: where the rows stay; None: they go through the shuffle.
    """
    ordering = spec.write.decode.ordering_kind
    schema = pa.schema([("kg", pa.int32()), ("rows", pa.binary())])

    def combine(key: tuple[Any, ...], rows: pa.Table) -> pa.Table:
        label = key[0].as_py()
        newest = newest_of_each_key(unpack(rows.column("rows").to_pylist()), ordering)
        with task_file(exchange, f"newest-{label}") as file:
            values = list(pack(newest, file))
        return pa.table({"kg": pa.repeat(label, len(values)), "rows": values}, schema=schema)

    return combine


def make_lane_function(
    lanes: Lanes, exchange: TaskFiles | None = None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the ``mapInArrow`` function that sends packed keyed records to write tasks (``LANES_SQL``).

    ``exchange``: where the rows stay; None: they go through the shuffle.
    """

    def send(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_file(exchange, "lanes") as file:
            for rows in unpacked(batches):
                packed: list[tuple[int, bytes | None]] = []
                for lane, mine in split(rows, lanes(rows)):
                    for value in pack(mine, file):
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
