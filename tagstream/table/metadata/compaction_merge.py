"""The merged entries of a metadata table's file slice, in the order of their keys.

The base file is streamed and merged with its logs.

The entries of the logs are in memory, sorted. Entries of the base file that no log has changed are copied unchanged,
block by block. A record is decoded only if several records of a key must be merged, which happens only for files and
their statistics, or if a file was written with another schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import fastavro.schema
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.metadata.metadata_table import RECORD_INDEX_PARTITION, Entries, MetadataTable
from tagstream.table.metadata.record_encoding import encode_records, file_avro_json
from tagstream.table.metadata.records import Record, decode, merged

Batch = tuple[pa.Array, pa.Array]  # keys and values, binary

_STREAMED: Final = 1 << 16  # entries of the base file that are merged at a time


@dataclass(frozen=True)
class _Over:
    """The entries of the logs: distinct keys, sorted; the entries of each in order, as a range of ``rows``."""

    keys: pa.Array
    starts: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    values: pa.Array
    schemas: tuple[str, ...]
    sources: npt.NDArray[np.int64]
    where: str


@dataclass
class MergeCounts:
    """Counts of a merge, complete when all batches were taken.

    ``inserts``: keys that the base file does not have. ``updates`` and ``deletes``: keys of the base file that the logs
    change or delete. ``log_entries``: entries in all ``log_blocks``. ``log_keys``: distinct keys among them.
    """

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    log_entries: int = 0
    log_keys: int = 0
    log_blocks: int = 0


def merged_entries(metadata: MetadataTable, file_slice: FileSlice, counts: MergeCounts, form: int) -> Iterator[Batch]:
    """Batches of keys and values, as records of form ``form``, in ascending order of keys, without deleted keys."""
    over = _over(list(metadata.log_entries(file_slice)))
    counts.log_entries, counts.log_keys = len(over.values), len(over.keys)
    counts.log_blocks = len(metadata.log_blocks(file_slice))
    joins = file_slice.partition_path != RECORD_INDEX_PARTITION
    done = 0
    for base in _batches(metadata.base_entries(file_slice)):
        upto = _behind(over.keys, base.keys[len(base.keys) - 1].as_py(), done)
        yield _merge(base, over, done, upto, joins, form, counts)
        done = upto
    if done < len(over.keys):
        yield _merge(None, over, done, len(over.keys), joins, form, counts)


def _behind(keys: pa.Array, last: bytes, start: int) -> int:
    """Index of the first key after ``last``, by binary search from ``start``."""
    end = len(keys)
    while start < end:
        middle = (start + end) // 2
        if keys[middle].as_py() <= last:
            start = middle + 1
        else:
            end = middle
    return start


def _batches(parts: Iterator[Entries]) -> Iterator[Entries]:
    """The base file's blocks, joined to larger batches."""
    held: list[Entries] = []
    for part in parts:
        held.append(part)
        if sum(len(each.keys) for each in held) >= _STREAMED:
            yield _joined(held)
            held = []
    if held:
        yield _joined(held)


def _joined(parts: list[Entries]) -> Entries:
    keys, values = (pa.concat_arrays(columns) for columns in ([p.keys for p in parts], [p.values for p in parts]))
    return Entries(keys, values, parts[0].avro_json, parts[0].where)


def _over(parts: list[Entries]) -> _Over:
    empty = pa.array([], pa.binary())
    keys = pa.concat_arrays([empty, *(part.keys for part in parts)])
    values = pa.concat_arrays([empty, *(part.values for part in parts)])
    sources = np.repeat(np.arange(len(parts)), [len(part.keys) for part in parts])
    table = pa.table({"key": keys, "row": np.arange(len(keys))})
    order = pc.sort_indices(table, [("key", "ascending"), ("row", "ascending")])
    ordered = keys.take(order)
    first = np.ones(len(keys), np.bool_)
    if len(keys) > 1:
        first[1:] = pc.not_equal(ordered[1:], ordered[:-1]).to_numpy(zero_copy_only=False)
    starts = np.append(np.flatnonzero(first), len(keys)).astype(np.int64)
    return _Over(
        keys=ordered.filter(pa.array(first)),
        starts=starts,
        rows=order.to_numpy().astype(np.int64),
        values=values,
        schemas=tuple(part.avro_json for part in parts),
        sources=sources,
        where=parts[0].where if parts else "",
    )


def _merge(
    base: Entries | None, over: _Over, start: int, end: int, joins: bool, form: int, counts: MergeCounts
) -> Batch:
    """A part of the base file merged with the logs' keys from ``start`` to ``end``, which are not after its last key."""
    touched = over.keys.slice(start, end - start)
    if base is None:
        keys = values = pa.array([], pa.binary())
        before: dict[bytes, bytes] = {}
    else:
        stays = pc.invert(pc.is_in(base.keys, value_set=touched))
        keys, values = (
            base.keys.filter(stays),
            _recoded(base.keys.filter(stays), base.values.filter(stays), base, form),
        )
        before = {}
        if joins and len(keys) < len(base.keys):
            gone = pc.invert(stays)
            before = dict(zip(base.keys.filter(gone).to_pylist(), base.values.filter(gone).to_pylist(), strict=True))
    if joins:
        new_keys, new_values = _joined_records(base, before, over, start, end, form)
    else:
        new_keys, new_values = _last_values(over, start, end, form)
    if base is not None:
        updated = pc.sum(pc.is_in(base.keys, value_set=new_keys)).as_py() or 0
        counts.updates += updated
        counts.deletes += len(base.keys) - len(keys) - updated
        counts.inserts -= updated
    counts.inserts += len(new_keys)
    keys, values = pa.concat_arrays([keys, new_keys]), pa.concat_arrays([values, new_values])
    order = pc.sort_indices(keys)
    return keys.take(order), values.take(order)


def _last_values(over: _Over, start: int, end: int, form: int) -> Batch:
    """The last entry of each key that is not a deletion."""
    last = over.rows[over.starts[start + 1 : end + 1] - 1]
    values = over.values.take(pa.array(last))
    there = values.is_valid()
    keys, values, last = (
        over.keys.slice(start, end - start).filter(there),
        values.drop_null(),
        last[there.to_numpy(False)],
    )
    parts: list[Batch] = [(pa.array([], pa.binary()), pa.array([], pa.binary()))]
    for source in np.unique(over.sources[last]).tolist():
        mine = pa.array(over.sources[last] == source)
        part = Entries(keys.filter(mine), values.filter(mine), over.schemas[source], over.where)
        parts.append((part.keys, _recoded(part.keys, part.values, part, form)))
    return pa.concat_arrays([part[0] for part in parts]), pa.concat_arrays([part[1] for part in parts])


def _joined_records(
    base: Entries | None, before: dict[bytes, bytes], over: _Over, start: int, end: int, form: int
) -> Batch:
    # A loop over the keys that the logs change, whose records must be decoded.
    records: dict[str, Record] = {}
    for place, key in enumerate(over.keys.slice(start, end - start).to_pylist(), start):
        old = before.get(key)
        found: Record | None = decode([old], base.avro_json, base.where)[0] if base is not None and old else None
        for row in over.rows[over.starts[place] : over.starts[place + 1]].tolist():
            value = over.values[row].as_py()
            new = None if value is None else decode([value], over.schemas[over.sources[row]], over.where)[0]
            found = None if new is None else merged(found, new)
        if found is not None:
            records[key.decode()] = found
    return encode_records(records, form)


def _recoded(keys: pa.Array, values: pa.Array, source: Entries, form: int) -> pa.Array:
    """The values in the form's schema; unchanged if the source has that schema."""
    if not len(keys) or _form(source.avro_json) == _form(file_avro_json(form)):
        return values
    records = decode(values.to_pylist(), source.avro_json, source.where)
    names = [key.decode() for key in keys.to_pylist()]
    return encode_records(dict(zip(names, records, strict=True)), form)[1]


@lru_cache(64)
def _form(avro_json: str) -> str:
    """The part of a schema that determines the bytes of its records."""
    form: str = fastavro.schema.to_parsing_canonical_form(json.loads(avro_json))
    return form
