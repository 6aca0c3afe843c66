"""Rows that a batch made or changed and then deleted, because their key changed: no file of the table ever has them so.

The record of the new key may come in a later batch, and lack values that had not changed. It then finds them here.

The files (``left_files``) are for the job's user alone: ``@key`` (record key), ``@lost`` (some of the row's values are
nowhere), and the row's columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.write.borrowed import BORROWED
from tagstream.streaming.write.left_files import forget_files, newest_first
from tagstream.table.storage.storage import Storage

KEY, LOST = "@key", "@lost"


def read_left(folder: Storage, keys: set[str], before: str) -> Iterator[tuple[str, pa.Table]]:
    """(instant, rows) of the newest batches that have left rows of ``keys``, of each key once; those before an instant."""
    left = set(keys)
    for instant, rows in newest_first(folder, before):
        found = rows.filter(pc.is_in(rows.column(KEY), value_set=pa.array(sorted(left), pa.string())))
        if found.num_rows:
            left -= set(found.column(KEY).to_pylist())
            yield instant, found
        if not left:
            return


def forget_left(folder: Storage, before_ms: int) -> int:
    """Remove the files, and the notes of ``borrowed``, that were written before a time (epoch milliseconds); how many."""
    return sum(forget_files(place, before_ms) for place in (folder, folder.below(BORROWED)))


def left_table(keys: pa.Array, lost: Any, rows: pa.StructArray) -> pa.Table:
    """The file of one task (``left_files.write_file``); ``lost``: a mask."""
    names = [KEY, LOST, *(field.name for field in rows.type)]
    table = pa.Table.from_arrays([keys, pa.array(lost, pa.bool_()), *rows.flatten()], names=names)
    last = {key: i for i, key in enumerate(keys.to_pylist())}  # a loop: changed keys are few
    return table.take(pa.array([*last.values()], pa.int64()))
