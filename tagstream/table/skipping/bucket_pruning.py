"""Which buckets of a bucketed table can hold a row, when filters fix every hash field to some values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pyarrow as pa

from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.names import bucket_of
from tagstream.table.keys.bucket_hash import EMPTY, BucketHash
from tagstream.table.skipping.data_skipping import Pruner
from tagstream.table.skipping.filters import Filter, Op

_MOST = 10_000  # combinations of values worth hashing


def bucket_pruner(hashing: BucketHash, filters: Sequence[Filter]) -> Pruner | None:
    """A pruner of file slices; None where the filters leave a hash field open, or the text of values in keys is not sure."""
    fixed = [_texts([f for f in filters if f.column == name and f.op in (Op.EQ, Op.IN)]) for name in hashing.fields]
    if any(values is None for values in fixed):
        return None
    choices = [sorted(values) for values in fixed if values is not None]
    if any(len(found) > _MOST for found in choices) or math.prod(map(len, choices)) > _MOST:
        return None
    keys = [_key(hashing, values) for values in itertools.product(*choices)]
    wanted = set(hashing.buckets(pa.array(keys, pa.string())).tolist())

    def may_hold(slices: Sequence[FileSlice]) -> list[bool]:
        # A group that names no bucket is not one of the bucket index; it may hold anything.
        return [(bucket := bucket_of(s.file_id)) is None or bucket in wanted for s in slices]

    return Pruner("buckets", may_hold)


def _key(hashing: BucketHash, values: Sequence[str]) -> str:
    """A record key with these values in the hash fields."""
    if len(hashing.record_key_fields) == 1:
        return values[0]
    by_name = dict(zip(hashing.fields, values, strict=True))
    return ",".join(f"{name}:{by_name.get(name, 'x') or EMPTY}" for name in hashing.record_key_fields)


def _texts(filters: Sequence[Filter]) -> set[str] | None:
    """The values that all filters of one column allow, as they stand in record keys; None: any, or not sure."""
    found: set[str] | None = None
    for one in filters:
        kind = one.values.type
        if not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
            return None
        texts = {str(value) for value in one.values.to_pylist()}
        if any("," in text or ":" in text for text in texts):
            return None
        found = texts if found is None else found & texts
    return found
