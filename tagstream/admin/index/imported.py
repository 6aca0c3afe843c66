"""The rows of an exported file as records of the index, each verified."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.admin.errors import AdminError
from tagstream.admin.index.entries import Entries, state_keys
from tagstream.admin.index.exchange import ExportInfo, read_rows
from tagstream.state.layout import StateLayout
from tagstream.state.store.codec import NO_LOCATION, ORDERING_UNKNOWN, TOMBSTONE, Records
from tagstream.state.store.dictionary import Place
from tagstream.state.ttl import minutes_of

_DIGITS = "^[0-9]{1,18}$"


def imported_entries(
    path: str, info: ExportInfo, layout: StateLayout, there: set[Place], now_ms: int
) -> Iterator[Entries]:
    """The file's records in bounded pieces; AdminError names the first row that cannot be one.

    ``there``: the file groups of the table. ``now_ms``: the time to live counts from it.
    """
    first = 0
    for rows in read_rows(path, info):
        _check(path, first, rows, layout)
        yield _entries(path, rows, layout, there, minutes_of(now_ms))
        first += rows.num_rows


def _check(path: str, first: int, rows: pa.RecordBatch, layout: StateLayout) -> None:
    deleted = _deleted(rows)
    placed = pc.or_(deleted, pc.and_(rows["partition_path"].is_valid(), rows["file_id"].is_valid()))
    keys = rows["record_key"]
    named: pa.Array = pc.not_equal(keys, "")
    if layout.ordering != "none":  # the record of when the table was emptied
        named = pc.or_(named, pc.and_(deleted, rows["ordering"].is_valid()))
    checks = [
        (pc.and_kleene(keys.is_valid(), named), "has no record_key"),
        (placed, "has no partition_path or no file_id"),
        (
            pc.and_kleene(rows["instant"].is_valid(), pc.match_substring_regex(rows["instant"], _DIGITS)),
            "has no instant",
        ),
    ]
    if not layout.global_index:
        checks.append((rows["partition_path"].is_valid(), "has no partition_path, and the index is not global"))
    for good, problem in checks:
        wrong = pc.index(good.fill_null(False), pa.scalar(False)).as_py()
        if wrong >= 0:
            raise AdminError(f"{path}: row {first + wrong + 1} (record key {keys[wrong].as_py()!r}) {problem}")


def _deleted(rows: pa.RecordBatch) -> pa.Array:
    if "deleted" not in rows.schema.names:
        return pa.array(np.zeros(rows.num_rows, np.bool_))
    return rows["deleted"].fill_null(False)


def _entries(path: str, rows: pa.RecordBatch, layout: StateLayout, there: set[Place], minutes: int) -> Entries:
    n = rows.num_rows
    dead = _deleted(rows).to_numpy(zero_copy_only=False)
    places, place = _places(rows, dead)
    unknown = [p for p in places if p not in there]
    if unknown:
        partition, file_id = unknown[0]
        raise AdminError(
            f"{path} names {len(unknown)} file groups that the table does not have, first {file_id} of partition "
            f"{partition!r}: the table has changed since the export, or it is another one"
        )
    flags = np.where(dead, TOMBSTONE, 0).astype(np.uint8)
    ordering, known = _ordering(rows, layout)
    flags |= np.where(known, 0, ORDERING_UNKNOWN).astype(np.uint8)
    skeys = state_keys(rows["record_key"], rows["partition_path"], layout)
    instant = rows["instant"].cast(pa.int64()).to_numpy()
    loc = np.full(n, NO_LOCATION, np.uint32)  # codes are given by the load
    return Entries(skeys, Records(loc, instant, np.full(n, minutes, np.uint32), flags, ordering), places, place)


def _places(rows: pa.RecordBatch, dead: npt.NDArray[np.bool_]) -> tuple[list[Place], npt.NDArray[np.int64]]:
    """Distinct places of the live rows, and the index of each row's, -1 for a tombstone."""
    live = pa.array(~dead)
    names = (
        pc.binary_join_element_wise(rows["partition_path"], rows["file_id"], "\x00").filter(live).dictionary_encode()
    )
    place = np.full(len(dead), -1, np.int64)
    place[~dead] = names.indices.to_numpy()
    parts = [name.split("\x00") for name in names.dictionary.to_pylist()]
    return [(partition, file_id) for partition, file_id in parts], place


def _ordering(rows: pa.RecordBatch, layout: StateLayout) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.bool_]]:
    n = rows.num_rows
    if layout.ordering == "none":
        return np.zeros(n, np.int64), np.zeros(n, np.bool_)
    values = rows["ordering"]
    known = values.is_valid().to_numpy(zero_copy_only=False)
    if layout.ordering == "int64":
        return values.fill_null(0).to_numpy(), known
    out = np.empty(n, object)
    out[:] = values.cast(pa.binary()).fill_null(b"").to_pylist()
    return out, known
