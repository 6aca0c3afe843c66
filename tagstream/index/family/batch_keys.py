"""The distinct keys of one batch, sorted, as every task of a look-up gets them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from tagstream.spark_release import to_arrow

EVERYWHERE = ""  # the one range of a global index, whose keys are looked for in all partitions


@dataclass(frozen=True)
class BatchKeys:
    """``keys``: strings in bytewise order within their partition; ``ranges``: each partition's place in them [from, to).

    A global index has one range under :data:`EVERYWHERE`.
    """

    keys: pa.Array
    ranges: Mapping[str, tuple[int, int]]

    def slice(self, start: int, stop: int) -> pa.Array:
        """The keys start..stop."""
        return self.keys.slice(start, stop - start)


def collect_keys(records: DataFrame, *, is_global: bool) -> BatchKeys:
    """Bring the distinct keys of a batch to the driver; about as many bytes as the keys have.

    ``records`` are those of ``HoodieIndex.tag_location``.
    """
    columns = ["record_key"] if is_global else ["partition_path", "record_key"]
    found = to_arrow(records.select(*columns)).combine_chunks()
    found = found.group_by(columns).aggregate([]).sort_by([(name, "ascending") for name in columns])
    keys = _flat(found.column("record_key"))
    if is_global:
        return BatchKeys(keys, {EVERYWHERE: (0, len(keys))} if len(keys) else {})
    runs = pc.run_end_encode(_flat(found.column("partition_path")))
    ends = [0, *runs.run_ends.to_pylist()]
    return BatchKeys(keys, {p: (ends[i], ends[i + 1]) for i, p in enumerate(runs.values.to_pylist())})


class KeyRanges:
    """Answers which keys of a batch lie between two keys. ``tree``: by bisection; else every key is compared."""

    def __init__(self, keys: BatchKeys, *, tree: bool) -> None:
        self._keys = keys.keys
        self._sorted = keys.keys.to_pylist() if tree else None

    def between(self, low: str, high: str, start: int, stop: int) -> tuple[int, int]:
        """First and last + 1 of the keys start..stop that are at least ``low`` and at most ``high``."""
        if self._sorted is not None:
            # Python compares strings by code point, which is the order of their UTF-8 bytes.
            first = bisect_left(self._sorted, low, start, stop)
            return first, max(first, bisect_right(self._sorted, high, start, stop))
        mine = self._keys.slice(start, stop - start)
        first = start + (pc.sum(pc.less(mine, low)).as_py() or 0)
        return first, max(first, start + (pc.sum(pc.less_equal(mine, high)).as_py() or 0))


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks().cast(pa.string())
