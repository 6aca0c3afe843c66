"""Rows as they were before a delete, because their key changed: the record of the new key may come in a later batch.

It may lack values that had not changed, and then finds them here. A row that the batch itself made or changed before it
deleted it is in no file of the table, so its values are left. Of another one its place is left: the file group, and the
write as of which that had it.

The files (``left_files``) are for the job's user alone: ``@key`` (record key), ``@order`` (encoded ordering value of the
row, null where it is not known; files of earlier versions lack it), ``@lost`` (some of the row's values are nowhere),
``@part``, ``@file`` and ``@as_of`` (its place, null where the values are here), and the row's columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.write.borrowed import BORROWED
from tagstream.streaming.write.left_files import forget_files, newest_first
from tagstream.table.storage.storage import Storage

KEY, ORDER, LOST = "@key", "@order", "@lost"
_PART, _FILE, _AS_OF = "@part", "@file", "@as_of"
Order = int | bytes | None


@dataclass(frozen=True)
class Left:
    """What was left of a row. ``values``: one row, None where they are lost or still at ``place`` (partition path, file id,
    as of which instant)."""

    values: pa.Table | None
    place: tuple[str, str, str] | None


def find_left(folder: Storage, asked: Sequence[tuple[str, Order]], before: str) -> dict[int, Left]:
    """For each (record key, ordering value) the newest row that was left of the key and is older than the value, by number.

    Without a value, or where that of the row is not known, it is the newest. ``before``: an instant; later batches do not
    count. What nothing was left of is not there.
    """
    found: dict[int, Left] = {}
    open_ = set(range(len(asked)))
    keys = pa.array(sorted({key for key, _ in asked}), pa.string())
    for _, rows in newest_first(folder, before):
        mine = rows.filter(pc.is_in(rows.column(KEY), value_set=keys))
        if mine.num_rows:
            names = mine.column(KEY).to_pylist()
            orders = mine.column(ORDER).to_pylist() if ORDER in mine.column_names else [None] * len(names)
            for n in sorted(open_):  # loops: changed keys are rare
                at = _newest(asked[n], names, orders)
                if at is not None:
                    found[n] = _left(mine.slice(at, 1))
            open_ -= found.keys()
        if not open_:
            break
    return found


def _newest(asked: tuple[str, Order], names: Sequence[str], orders: Sequence[Any]) -> int | None:
    """The last of the rows that fits; the rows are in the order of their deletes."""
    key, limit = asked
    for at in range(len(names) - 1, -1, -1):
        if names[at] == key and (limit is None or orders[at] is None or orders[at] < limit):
            return at
    return None


def _left(row: pa.Table) -> Left:
    values = row.to_pylist()[0]
    if values.get(_FILE) is not None:
        return Left(None, (values[_PART], values[_FILE], values[_AS_OF]))
    return Left(None if values[LOST] else row, None)


def forget_left(folder: Storage, before_ms: int) -> int:
    """Remove the files, and the notes of ``borrowed``, that were written before a time (epoch milliseconds); how many."""
    return sum(forget_files(place, before_ms) for place in (folder, folder.below(BORROWED)))


def left_table(
    keys: pa.Array, orders: pa.Array, lost: Any, places: pa.Table, as_of: str | None, rows: pa.StructArray
) -> pa.Table:
    """The file of one task (``left_files.write_file``); ``lost``: a mask. ``places``: ``from_part`` and ``from_file``, null
    where the values are in ``rows``."""
    names = [KEY, ORDER, LOST, _PART, _FILE, _AS_OF, *(field.name for field in rows.type)]
    instants = pa.array(
        [None if file is None else as_of for file in places.column("from_file").to_pylist()], pa.string()
    )
    there = [places.column("from_part"), places.column("from_file"), instants]
    return pa.Table.from_arrays([keys, orders, pa.array(lost, pa.bool_()), *there, *rows.flatten()], names=names)
