"""The write step of one task: located records in, files of the table out, one write status a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from index.base import HoodieIndex
from state.tag_batch import OP_DELETE, OP_INSERT, OP_UPDATE
from streaming.crash import CrashPlan
from streaming.decode_spec import DecodeSpec, cached_decoder
from streaming.quarantine import write_quarantine
from streaming.state_keys import record_keys
from streaming.tag import OP_BAD, OP_DELETE_NATURAL, OP_STATUS
from streaming.written import Told, pack_rows, written_rows
from table.file_writer import write_file_group
from table.hoodie_table import HoodieTable
from table.names import write_token
from table.write_context import WriteContext, WriterOptions

RESULT_SCHEMA = "kind string, payload string"
WRITE_STATUS, TAG_STATUS, QUARANTINE_STATUS, INDEX_STATUS = "write", "tag", "quarantine", "index"


@dataclass(frozen=True)
class WriteSpec:
    """One batch's constants for the write tasks. ``as_of``: newest completed instant, whose slices are written over.

    ``index``: a pull-type index that the tasks keep up to date; ``tell_written``: what the driver is told for one.
    """

    base_path: str
    instant: str
    action: str
    as_of: str | None
    batch_id: int
    run: int
    avro_json: str
    options: WriterOptions
    decode: DecodeSpec
    quarantine_dir: str
    topic: str
    crash: CrashPlan
    replay: bool = False
    index: HoodieIndex | None = None
    tell_written: Told = "nothing"


def make_write_function(spec: WriteSpec) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The ``mapInArrow`` function of the write step. A replayed batch has no located rows and writes no table file."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spec.crash.reach("state_committed", spec.batch_id)
        rows = [b for b in batches if b.num_rows]
        if rows:
            out = _write_rows(spec, pa.Table.from_batches(rows))
            yield pa.RecordBatch.from_pydict({"kind": [k for k, _ in out], "payload": [p for _, p in out]})

    return write


def _write_rows(spec: WriteSpec, rows: pa.Table) -> list[tuple[str, str]]:
    op = rows["op"].to_numpy()
    out = [(TAG_STATUS, note) for note in rows["note"].filter(pa.array(op == OP_STATUS)).to_pylist()]
    context = TaskContext.get()
    assert context is not None
    bad = rows.filter(pa.array(op == OP_BAD))
    if bad.num_rows:
        path = write_quarantine(spec.quarantine_dir, spec.batch_id, context.partitionId(), _bad_rows(bad, spec.topic))
        out.append((QUARANTINE_STATUS, json.dumps({"path": path, "records": bad.num_rows})))
    located = rows.filter(pa.array((op < OP_STATUS) | (op == OP_DELETE_NATURAL)))
    if located.num_rows and not spec.replay:
        out += _write_files(spec, located.combine_chunks(), context)
    return out


def _write_files(spec: WriteSpec, rows: pa.Table, context: TaskContext) -> list[tuple[str, str]]:
    table = HoodieTable.open(spec.base_path)
    decoder = cached_decoder(spec.decode)
    op = rows["op"].to_numpy()
    keep = np.flatnonzero((op == OP_INSERT) | (op == OP_UPDATE))
    upserts = decoder.rows(pc.take(rows["value"], pa.array(keep)).combine_chunks())
    write = WriteContext(
        instant=spec.instant,
        action=spec.action,
        task_partition=context.partitionId(),
        write_token=write_token(context.partitionId(), spec.run, context.taskAttemptId()),
        schema=upserts.schema,
        avro_json=spec.avro_json,
        as_of=spec.as_of,
        timeline=table.timeline(),
        options=spec.options,
    )
    keys = record_keys(rows["skey"].combine_chunks())
    upserts = upserts.append_column("_hoodie_record_key", keys.take(pa.array(keep)))
    upserts = upserts.append_column("_is_insert", pa.array(op[keep] == OP_INSERT))
    gone = np.flatnonzero((op == OP_DELETE) | (op == OP_DELETE_NATURAL))
    deletes = _deletes(spec.decode, rows, keys, gone, op)
    out: list[tuple[str, str]] = []
    written = 0  # keeps the commit's sequence numbers unique within the task
    for part, file_id, mine_up, mine_del in _by_file_group(rows, keep, gone):
        mine = upserts.take(mine_up)
        statuses = write_file_group(table, write, part, file_id, mine, deletes.take(mine_del), written)
        out += [(WRITE_STATUS, s.to_json()) for s in statuses]
        written += mine.num_rows
    return out + _tell(spec, rows, keys)


def _tell(spec: WriteSpec, rows: pa.Table, keys: pa.Array) -> list[tuple[str, str]]:
    """Bring an index of its own up to date with what this task has written."""
    if spec.tell_written == "nothing":
        return []
    found = written_rows(rows, keys)
    if spec.index is not None:
        spec.index.update_location(found, spec.instant)
    if spec.tell_written == "deleted":
        found = found.filter(pc.is_null(found.column("file_id")))
    return [(INDEX_STATUS, pack_rows(found))] if found.num_rows else []


def _deletes(decode: DecodeSpec, rows: pa.Table, keys: pa.Array, gone: Any, op: Any) -> pa.Table:
    ordering = pc.take(rows["ord"], pa.array(gone)).combine_chunks()
    natural = pa.array(op[gone] == OP_DELETE_NATURAL)
    return pa.table(
        {"_hoodie_record_key": keys.take(pa.array(gone)), "_ordering": decode.ordering_values(ordering, natural)}
    )


def _by_file_group(rows: pa.Table, keep: Any, gone: Any) -> Iterator[tuple[str, str, Any, Any]]:
    """(partition path, file id, indices into the upserts, indices into the deletes) of every file group of the task."""
    code = file_group_codes(rows["dest_part"], rows["dest_file"])
    n = int(code.max()) + 1
    first = np.zeros(n, dtype=np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    up = _runs(code[keep], n)
    de = _runs(code[gone], n)
    for i in range(n):
        at = int(first[i])
        yield rows["dest_part"][at].as_py(), rows["dest_file"][at].as_py(), pa.array(up[i]), pa.array(de[i])


def file_group_codes(parts: pa.ChunkedArray, files: pa.ChunkedArray) -> np.ndarray:
    """Dense int64 code 0..n-1 per (partition path, file id)."""
    p = pc.dictionary_encode(parts).combine_chunks().indices.to_numpy().astype(np.int64)
    encoded = pc.dictionary_encode(files).combine_chunks()
    code = p * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy()
    return np.unique(code, return_inverse=True)[1]


def _runs(code: np.ndarray, n: int) -> list[np.ndarray]:
    """Row indices of every code, in row order."""
    order = np.argsort(code, kind="stable")
    return np.split(order, np.cumsum(np.bincount(code, minlength=n))[:-1])


def _bad_rows(bad: pa.Table, topic: str) -> list[dict[str, Any]]:
    out = []
    for note, key, value in zip(
        bad["note"].to_pylist(), bad["skey"].to_pylist(), bad["value"].to_pylist(), strict=True
    ):
        source, high, low, reason = json.loads(note)
        place = {"path": source, "offset": low} if source else {"topic": topic, "partition": high, "offset": low}
        out.append({**place, "reason": reason, "key": key, "value": value})
    return out
