"""Rows that a batch made or changed and then deleted, because their key changed: no file of the table ever has them so.

The record of the new key may come in a later batch, and lack values that had not changed. It then finds them here.

Arrow files ``<instant>-<task>.arrow`` in a folder of the checkpoint, for the job's user alone: ``@key`` (record key),
``@lost`` (some of the row's values are nowhere), and the row's columns. A file appears whole or not at all; a second attempt
of a task writes the same again, and what an attempt at a batch has left that was taken back is what the next one leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.write.borrowed import BORROWED
from tagstream.table.storage.storage import Storage

KEY, LOST = "@key", "@lost"
_SUFFIX = ".arrow"


def write_left(folder: Storage, instant: str, task: int, rows: pa.Table) -> None:
    """Keep what one write task of a batch has; ``rows``: ``@key``, ``@lost`` and the columns of the rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as out:
        out.write_table(rows)
    folder.replace(f"{instant}-{task:05d}{_SUFFIX}", sink.getvalue().to_pybytes())


def read_left(folder: Storage, keys: set[str], before: str) -> Iterator[tuple[str, pa.Table]]:
    """(instant, rows) of the newest batches that have left rows of ``keys``, of each key once; those before an instant."""
    left = set(keys)
    for instant, name in sorted(_files(folder), reverse=True):
        if not left:
            return
        if instant >= before:
            continue
        rows = pa.ipc.open_file(pa.py_buffer(folder.read(name))).read_all()
        found = rows.filter(pc.is_in(rows.column(KEY), value_set=pa.array(sorted(left), pa.string())))
        if found.num_rows:
            left -= set(found.column(KEY).to_pylist())
            yield instant, found


def forget_left(folder: Storage, before_ms: int) -> int:
    """Remove the files, and the notes of ``borrowed``, that were written before a time (epoch milliseconds); how many."""
    count = 0
    for place in (folder, folder.below(BORROWED)):
        old = [entry.name for entry in place.list("") if entry.name.endswith(_SUFFIX) and entry.mtime_ms < before_ms]
        place.delete_many(old)
        count += len(old)
    return count


def left_table(keys: pa.Array, lost: Any, rows: pa.StructArray) -> pa.Table:
    """What :func:`write_left` takes; ``lost``: a mask."""
    names = [KEY, LOST, *(field.name for field in rows.type)]
    table = pa.Table.from_arrays([keys, pa.array(lost, pa.bool_()), *rows.flatten()], names=names)
    last = {key: i for i, key in enumerate(keys.to_pylist())}  # a loop: changed keys are few
    return table.take(pa.array([*last.values()], pa.int64()))


def _files(folder: Storage) -> list[tuple[str, str]]:
    return [(name.partition("-")[0], name) for name in folder.names("") if name.endswith(_SUFFIX)]
