"""The deleted keys of streams that share a table, with their ordering values: one file for each batch that has any.

A table has no row of a deleted key, and a delete of a key without a row leaves no trace in it. So another stream could not
recognise an older event of such a key as late. Each stream writes ``.hoodie/.tagstream_deletes/<instant>.arrow`` before
the batch of that instant is committed. The other streams read it when their index learns that commit. The file counts only
if the instant is completed.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.bootstrap.spill import ScanDone, SpillWriter, spill_schema
from tagstream.state.codec import TOMBSTONE
from tagstream.state.key_crc import state_key_groups
from tagstream.state.layout import OrderingKind
from tagstream.table.errors import CorruptFileError
from tagstream.table.storage.storage import META_FOLDER, Storage
from tagstream.table.timeline.timeline import Timeline

FOLDER = f"{META_FOLDER}/.tagstream_deletes"
KEPT_MS = 7 * 86_400_000  # a stream that was stopped for longer loads deletes from the table's logs only


def encode(skeys: npt.NDArray[np.object_], ordering: npt.NDArray[Any], kind: OrderingKind) -> str:
    """State keys of deleted keys with their ordering values, as text for a task's answer."""
    rows = pa.RecordBatch.from_arrays(
        [pa.array(skeys, pa.binary()), pa.array(ordering, _type(kind))],
        names=["skey", "ordering"],
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return base64.b64encode(sink.getvalue()).decode()


def write(storage: Storage, instant: str, parts: Iterable[str]) -> int:
    """Write the file of a batch from its tasks' texts (:func:`encode`). Returns the number of keys; no file for none.

    ``storage``: of the table.
    """
    tables = [pa.ipc.open_stream(base64.b64decode(part)).read_all() for part in parts]
    rows = pa.concat_tables(tables) if tables else None
    if rows is None or not rows.num_rows:
        return 0
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as file:
        file.write_table(rows)
    storage.replace(_path(instant), sink.getvalue().to_pybytes())
    return int(rows.num_rows)


def forget(storage: Storage, instant: str) -> None:
    """Remove the file of a batch that is rolled back."""
    storage.delete(_path(instant))


def forget_old(storage: Storage, now_ms: int) -> None:
    """Remove files that are older than a week."""
    old = [entry.name for entry in storage.list(FOLDER) if entry.mtime_ms < now_ms - KEPT_MS]
    storage.delete_many(f"{FOLDER}/{name}" for name in old)


def files_of(storage: Storage, timeline: Timeline, instants: Sequence[str] | None = None) -> tuple[str, ...]:
    """The files of these completed writes, or of all (None), in the order of their instants."""
    found = sorted(name.removesuffix(".arrow") for name in storage.names(FOLDER) if name.endswith(".arrow"))
    if instants is not None:
        wanted = set(instants)
        return tuple(_path(time) for time in found if time in wanted)
    done = {i.time for i in timeline.completed_writes}
    return tuple(_path(time) for time in found if time in done or timeline.is_archived(time))


def spill(storage: Storage, files: Sequence[str], writer: SpillWriter, groups: int, at: int) -> ScanDone:
    """Make the rows of these files the result of a scan task. ``at``: the number of a slice that stands for no place.

    ``groups``: number of key groups. CorruptFileError for a file that cannot be read or has another kind of ordering
    values.
    """
    kind = writer.kind
    try:
        for file in files:
            rows = _read(storage, file, kind)
            n = rows.num_rows
            columns = [
                rows["skey"].combine_chunks(),
                pa.array(np.full(n, at, np.int32)),
                rows["ordering"].combine_chunks(),
                pa.array(np.full(n, TOMBSTONE, np.uint8)),
            ]
            label = state_key_groups(rows["skey"].combine_chunks(), groups)
            writer.add(pa.RecordBatch.from_arrays(columns, schema=spill_schema(kind)), label.astype(np.int32))
        return writer.close([])
    except BaseException as e:
        writer.abandon(e)
        raise


def _read(storage: Storage, file: str, kind: OrderingKind) -> pa.Table:
    try:
        rows = pa.ipc.open_file(pa.py_buffer(storage.read(file))).read_all()
    except FileNotFoundError:
        return pa.table({"skey": pa.array([], pa.binary()), "ordering": pa.array([], _type(kind))})  # a week old
    except pa.ArrowInvalid as e:
        raise CorruptFileError(
            f"{storage.where(file)}, the deleted keys of a commit, cannot be read ({e}); remove it: an event that is older "
            "than one of these deletes may then bring its row back"
        ) from e
    if rows.schema.field("ordering").type != _type(kind):
        raise CorruptFileError(
            f"{storage.where(file)}, the deleted keys of a commit, has ordering values of type "
            f"{rows.schema.field('ordering').type}, and this stream's have type {_type(kind)}: streams that share a table "
            "must order events by the same field"
        )
    return rows


def _type(kind: OrderingKind) -> pa.DataType:
    return spill_schema(kind).field("ordering").type


def _path(instant: str) -> str:
    return f"{FOLDER}/{instant}.arrow"
