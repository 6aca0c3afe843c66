"""The write step of one task: it takes located records, writes files of the table and returns one write status per
file.

An index that stores locations gets the new location of each record key from the tasks.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from tagstream.index.base import WRITTEN_SCHEMA, HoodieIndex
from tagstream.state.tag_batch import OP_DELETE, OP_INSERT, OP_UPDATE
from tagstream.streaming.batch.located import OP_BAD, OP_DELETE_NATURAL
from tagstream.streaming.batch.missing_values import ExistingRows
from tagstream.streaming.batch.pull_tag import MOVED
from tagstream.streaming.batch.quarantine import write_quarantine
from tagstream.streaming.copy_print import this_copy
from tagstream.streaming.process import CrashPlan
from tagstream.streaming.source.decode.columns import with_values
from tagstream.streaming.source.decode.key_decoder import record_keys
from tagstream.streaming.source.decode_spec import DecodeSpec
from tagstream.streaming.source.packed import file_group_codes, unpack
from tagstream.table import chunks
from tagstream.table.fields import ordering_column, pieces_of
from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.file_group.names import write_token
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.schema.conform import as_schema
from tagstream.table.steps import Step
from tagstream.table.storage.storage import Storage, at_once
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.write_context import WriteContext, WriterOptions

ReturnedRows = Literal["nothing", "deleted", "places", "all"]


def returned_rows(index: HoodieIndex | None, *, wants_places: bool) -> ReturnedRows:
    """Which written rows the tasks return to the driver.

    All of them for an index that the driver updates; the deleted keys where tasks update a remote index.
    ``wants_places``: the metadata table has a record index, which needs new, moved and deleted keys.
    """
    if index is None or index.is_implicit_with_storage:
        return "places" if wants_places else "nothing"
    if not index.update_in_tasks:
        return "all"
    return "places" if wants_places else "deleted"


def written_rows(rows: pa.Table, keys: pa.Array, *, with_moves: bool = False) -> pa.Table:
    """The rows of ``index.base.WRITTEN_SCHEMA`` for a task's located rows. ``keys``: their record keys.

    A move deletes the row at the old location. Unless ``with_moves``, that delete is left out: another task returns the
    key with its new location.
    """
    op = rows.column("op").to_numpy()
    gone = (op == OP_DELETE) | (op == OP_DELETE_NATURAL)
    if not with_moves:
        gone &= ~pc.equal(rows.column("note"), MOVED).fill_null(False).to_numpy()
    kept = (op == OP_INSERT) | (op == OP_UPDATE)
    chosen = np.flatnonzero(kept | gone)
    part, file_id = (rows.column(name).combine_chunks().take(pa.array(chosen)) for name in ("dest_part", "dest_file"))
    none = pa.scalar(None, pa.string())
    live = pa.array(kept[chosen])
    columns = [
        keys.take(pa.array(chosen)),
        part,
        pc.if_else(live, file_id, none),
        pa.array(op[chosen] == OP_INSERT),
    ]
    return pa.Table.from_arrays(columns, schema=WRITTEN_SCHEMA)


def pack_rows(rows: pa.Table) -> str:
    """Rows as a compressed Arrow stream in base64."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    return base64.b64encode(sink.getvalue()).decode("ascii")


def unpack_rows(texts: Iterable[str]) -> pa.Table:
    """All rows that the tasks packed, as one table of ``WRITTEN_SCHEMA``."""
    tables = [pa.ipc.open_stream(base64.b64decode(text)).read_all() for text in texts]
    return pa.concat_tables([WRITTEN_SCHEMA.empty_table(), *tables])


RESULT_SCHEMA = "kind string, payload string"
_AT_ONCE = 4  # log files that a task writes in parallel to a remote store; only 2 base files, which need more memory
WRITE_STATUS, TAG_STATUS, QUARANTINE_STATUS, INDEX_STATUS = "write", "tag", "quarantine", "index"


@dataclass(frozen=True)
class WriteSpec:
    """One batch's constants for the write tasks.

    ``table`` and ``timeline``: as the driver read them at the start of the batch. The tasks write on top of the slices
    of the newest completed instant of this timeline. No task reads the timeline itself: with writes of other writers in
    it, the files of one batch could follow different slices. ``changed_keys``: folder for rows of changed keys. ``index``: a
    pull-type index that the tasks keep up to date. ``returned_rows``: which written rows the tasks return for it.
    ``returns_moves``: include the old locations of moved rows.
    """

    table: HoodieTable
    timeline: Timeline
    instant: str
    action: str
    batch_id: int
    run: int
    avro_json: str
    options: WriterOptions
    decode: DecodeSpec
    quarantine: Storage
    changed_keys: Storage
    topic: str
    crash: CrashPlan
    replay: bool = False
    index: HoodieIndex | None = None
    returned_rows: ReturnedRows = "nothing"
    returns_moves: bool = False


def make_write_function(spec: WriteSpec) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the ``mapInArrow`` function of the write step. A replayed batch has no located rows and writes no table
    file.
    """
    driver = this_copy()

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        driver.check_here()
        context = TaskContext.get()
        assert context is not None
        packed: list[pa.Buffer] = []
        statuses: list[str] = []
        for batch in batches:
            packed += [value.as_buffer() for value in batch.column("rows").drop_null()]
            statuses += batch.column("status").drop_null().to_pylist()
        out = write_packed(spec, packed, statuses, context.partitionId(), context.taskAttemptId())
        if out:
            yield pa.RecordBatch.from_pydict({"kind": [k for k, _ in out], "payload": [p for _, p in out]})

    return write


def write_packed(
    spec: WriteSpec, packed: Sequence[bytes | pa.Buffer], statuses: Sequence[str], partition: int, attempt: int
) -> list[tuple[str, str]]:
    """Write the packed rows that one task gets. ``statuses``: of the key groups that it also gets. Returns the (kind,
    JSON) pairs for the driver. ``partition`` and ``attempt``: see ``write_files``.
    """
    spec.crash.reach(Step.STATE_COMMITTED, spec.batch_id)
    out = [(TAG_STATUS, text) for text in statuses]
    return out + _write_rows(spec, unpack(packed), partition, attempt) if packed else out


def _write_rows(spec: WriteSpec, rows: pa.Table, partition: int, attempt: int) -> list[tuple[str, str]]:
    out = []
    is_bad = rows["op"].to_numpy() == OP_BAD
    if is_bad.any():
        bad, rows = rows.filter(pa.array(is_bad)), rows.filter(pa.array(~is_bad))
        out.append(quarantined(spec, bad, partition))
    if rows.num_rows and not spec.replay:
        out += write_files(spec, rows, partition, attempt)
    return out


def quarantined(spec: WriteSpec, bad: pa.Table, partition: int) -> tuple[str, str]:
    """Write located bad records to the quarantine. Returns the pair for the driver. ``partition``: of the task."""
    path = write_quarantine(spec.quarantine, spec.batch_id, partition, _bad_rows(bad, spec.topic))
    return QUARANTINE_STATUS, json.dumps({"path": path, "records": bad.num_rows})


def write_files(spec: WriteSpec, rows: pa.Table, partition: int, attempt: int) -> list[tuple[str, str]]:
    """Write the located records of one task, one file group after the other. Returns (kind, JSON) pairs for the driver.

    ``partition`` and ``attempt``: numbers of the Spark task, which make its file names unique. Memory: the rows, and
    one more copy of the rows of the file groups that are written together (``table.chunks.CHUNK_BYTES``), or of one
    larger file group.
    """
    table = spec.table
    existing = ExistingRows(
        table, spec.timeline, spec.decode.schema, spec.changed_keys, spec.instant, partition, spec.decode.null_if_lost
    )
    rows = existing.fill(rows)
    if not rows.num_rows:  # all rows were images for other tasks
        return []
    op = rows["op"].to_numpy()
    code, groups = file_group_codes(rows["dest_part"], rows["dest_file"])
    keep = _by_code(np.flatnonzero((op == OP_INSERT) | (op == OP_UPDATE)), code)
    gone = _by_code(np.flatnonzero((op == OP_DELETE) | (op == OP_DELETE_NATURAL)), code)
    keys = record_keys(rows["skey"].combine_chunks())
    deletes = _deletes(spec.decode, rows, keys, gone, op)
    write = write_context(spec, partition, attempt)
    out: list[tuple[str, str]] = []
    written = 0  # keeps the commit's sequence numbers unique within the task
    up, down = _bounds(code[keep], len(groups)), _bounds(code[gone], len(groups))
    slices = slices_of(table.view(spec.timeline), groups)
    for first, end in _together(up, rows.nbytes / rows.num_rows):
        upserts = stored_rows(spec.decode, rows, keys, keep[up[first] : up[end]], op)
        calls = []
        for i in range(first, end):
            mine = upserts.slice(up[i] - up[first], up[i + 1] - up[i])
            mine_del = deletes.slice(down[i], down[i + 1] - down[i])
            group = (table, write, *groups[i], slices.get(groups[i]), mine, mine_del, written)
            calls.append(partial(write_file_group, *group))
            written += mine.num_rows
        statuses = at_once(table.storage, *calls, threads=_AT_ONCE if table.config.is_merge_on_read else 2)
        out += [(WRITE_STATUS, s.to_json()) for each in statuses for s in each]
    return out + _returned_entries(spec, rows, keys)


def write_context(spec: WriteSpec, partition: int, attempt: int) -> WriteContext:
    """The write of one task. ``partition`` and ``attempt``: see ``write_files``."""
    return WriteContext(
        instant=spec.instant,
        action=spec.action,
        task_partition=partition,
        write_token=write_token(partition, spec.run, attempt),
        schema=spec.decode.stored,
        avro_json=spec.avro_json,
        as_of=spec.timeline.newest_completed,
        timeline=spec.timeline,
        options=spec.options,
    )


def slices_of(view: FileSystemView, groups: Iterable[tuple[str, str]]) -> dict[tuple[str, str], FileSlice]:
    """The newest slices of the file groups that a task writes to. Each partition is listed once."""
    wanted: dict[str, list[str]] = {}
    for part, file_id in groups:
        wanted.setdefault(part, []).append(file_id)
    view.look_up(wanted)
    found = at_once(view.storage, *(partial(view.latest_slices, part, ids) for part, ids in wanted.items()))
    parts = zip(wanted, found, strict=True)
    return {(part, file_id): file_slice for part, slices in parts for file_id, file_slice in slices.items()}


def _by_code(rows: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Row numbers by file group, in row order within each group. Rows that are taken in this order can be sliced
    without a copy.
    """
    return rows[np.argsort(code[rows], kind="stable")]


def _bounds(sorted_code: np.ndarray, groups: int) -> list[int]:
    """Where each file group begins, and the end of the last."""
    bounds: list[int] = np.searchsorted(sorted_code, np.arange(groups + 1)).tolist()
    return bounds


def _together(bounds: list[int], row_bytes: float) -> Iterator[tuple[int, int]]:
    """Ranges (first, end) of file groups whose rows are taken from the task's rows in one step: all groups, unless they
    are large.
    """
    first, groups = 0, len(bounds) - 1
    for end in range(1, groups + 1):
        if end == groups or (bounds[end + 1] - bounds[first]) * row_bytes > chunks.CHUNK_BYTES:
            yield first, end
            first = end


def stored_rows(decode: DecodeSpec, rows: pa.Table, keys: pa.Array, keep: np.ndarray, op: np.ndarray) -> pa.Table:
    """The rows to write in their stored schema, with ``_hoodie_record_key`` and ``_is_insert``."""
    taken = chunks.take(rows.select(["row"]), keep).column("row")
    made = as_stored(decode, taken, lambda: rows["ord"].take(pa.array(keep)), keys.take(pa.array(keep)))
    return made.append_column("_is_insert", pa.array(op[keep] == OP_INSERT))


def as_stored(
    decode: DecodeSpec, row: pa.ChunkedArray, ordering: Callable[[], pa.ChunkedArray], keys: pa.Array
) -> pa.Table:
    """Decoded rows in their stored schema, with ``_hoodie_record_key``. ``ordering``: returns their column ``ord``."""
    stored = decode.stored
    nullable = pa.schema([f.with_nullable(True) for f in decode.schema])
    parts = [pa.RecordBatch.from_arrays(part.flatten(), schema=nullable) for part in row.chunks]
    upserts = pa.Table.from_batches(parts, schema=nullable)
    upserts = as_schema(_ordered(decode, ordering, upserts).select(stored.names), stored)
    return upserts.append_column("_hoodie_record_key", keys)


def _ordered(decode: DecodeSpec, ordering: Callable[[], pa.ChunkedArray], upserts: pa.Table) -> pa.Table:
    """Fill missing ordering values: an event without one gets the value of its existing row. Readers compare these
    columns.
    """
    fields = decode.ordering_fields
    if not any(pieces_of(upserts, name).null_count for name in fields):
        return upserts
    known = decode.ordering_values(ordering().combine_chunks(), pa.repeat(False, upserts.num_rows))
    lacking = pc.is_null(ordering_column(upserts, fields))
    for name, values in zip(fields, known.flatten() if len(fields) > 1 else [known], strict=True):
        upserts = with_values(upserts, name, lacking, values)
    return upserts


def _returned_entries(spec: WriteSpec, rows: pa.Table, keys: pa.Array) -> list[tuple[str, str]]:
    """Update the index with the rows that this task has written, and return those that the driver needs."""
    if spec.returned_rows == "nothing":
        return []
    found = written_rows(rows, keys)
    if spec.index is not None:
        spec.index.update_location(found, spec.instant)
    if spec.returns_moves:
        found = written_rows(rows, keys, with_moves=True)
    if spec.returned_rows in ("deleted", "places"):
        gone = pc.is_null(found.column("file_id"))
        found = found.filter(gone if spec.returned_rows == "deleted" else pc.or_(gone, found.column("is_new")))
    return [(INDEX_STATUS, pack_rows(found))] if found.num_rows else []


def _deletes(decode: DecodeSpec, rows: pa.Table, keys: pa.Array, gone: Any, op: Any) -> pa.Table:
    ordering = pc.take(rows["ord"], pa.array(gone)).combine_chunks()
    natural = pa.array(op[gone] == OP_DELETE_NATURAL)
    return pa.table(
        {"_hoodie_record_key": keys.take(pa.array(gone)), "_ordering": decode.ordering_values(ordering, natural)}
    )


def _bad_rows(bad: pa.Table, topic: str) -> list[dict[str, Any]]:
    out = []
    for note, key, value in zip(
        bad["note"].to_pylist(), bad["skey"].to_pylist(), bad["value"].to_pylist(), strict=True
    ):
        source, high, low, reason, *headers = json.loads(note)
        place = {"path": source, "offset": low} if source else {"topic": topic, "partition": high, "offset": low}
        if headers and headers[0] is not None:
            place["headers"] = json.loads(headers[0])
        out.append({**place, "reason": reason, "key": key, "value": value})
    return out
