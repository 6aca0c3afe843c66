"""Find live keys that occur more than once. It compares hashes, which take 8 bytes of memory for each row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import TableError
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import snapshot_schema
from tagstream.table.schema.schema import RECORD_KEY

_Hashes = npt.NDArray[np.uint64]


class DuplicateKeys:
    """Checks the live keys of a table partition by partition; ``rows`` counts them.

    Keys with equal hashes are read again and compared as texts.
    """

    def __init__(self, view: FileSystemView, table: HoodieTable, *, global_keys: bool) -> None:
        self.rows = 0
        self._view = view
        self._global_keys = global_keys
        self._reader: SliceReader | None = None
        self._partitions: list[str] = []
        self._all: list[_Hashes] = []
        if view.as_of is not None and table.config.populate_meta_fields:
            schema = snapshot_schema(table, view.timeline, view)
            self._reader = SliceReader(table, view.timeline, view.as_of, schema, (RECORD_KEY,))

    def check(self, partition: str) -> Iterator[str]:
        """Describe the keys that occur more than once in a partition."""
        if self._reader is None:
            return
        try:
            parts = [key_hashes(keys) for keys in self._keys(self._reader, partition)]
            hashes = np.concatenate([np.zeros(0, np.uint64), *parts])
            self.rows += len(hashes)
            twice = repeated(hashes)
            if len(twice):
                suspects = _concat([k.filter(pa.array(_among(k, twice))) for k in self._keys(self._reader, partition)])
                for count in suspects.value_counts().to_pylist():
                    if count["counts"] > 1:
                        yield f"key {count['values']!r} occurs {count['counts']} times in partition {partition!r}"
        except TableError as error:
            yield str(error)
            return
        if self._global_keys:
            self._partitions.append(partition)
            self._all.append(np.unique(hashes))

    def check_between(self) -> Iterator[str]:
        """With global keys: describe the keys that occur in several of the checked partitions."""
        if self._reader is None or not self._all:
            return
        twice = repeated(np.concatenate(self._all))
        if not len(twice):
            return
        where: dict[str, list[str]] = {}
        for partition, hashes in zip(self._partitions, self._all, strict=True):
            if not np.isin(hashes, twice).any():
                continue
            for keys in self._keys(self._reader, partition):
                # A row loop, only over duplicate keys, which a sound table does not have.
                for key in pc.unique(keys.filter(pa.array(_among(keys, twice)))).to_pylist():
                    found = where.setdefault(key, [])
                    if partition not in found:
                        found.append(partition)
        for key, found in sorted(where.items()):
            if len(found) > 1:
                yield f"key {key!r} is in {len(found)} partitions: {', '.join(map(repr, found))}"

    def _keys(self, reader: SliceReader, partition: str) -> Iterator[pa.Array]:
        for file_slice in self._view.latest_merged_slices(partition):
            for batch in reader.read(file_slice):
                yield from batch.column(RECORD_KEY).chunks


def key_hashes(keys: pa.Array) -> _Hashes:
    """A hash of 64 bits for each key; equal keys have equal hashes."""
    return pd.util.hash_array(keys.to_numpy(zero_copy_only=False), categorize=False)


def _among(keys: pa.Array, hashes: _Hashes) -> npt.NDArray[np.bool_]:
    return np.isin(key_hashes(keys), hashes)


def repeated(hashes: _Hashes) -> _Hashes:
    """The values that occur more than once, each once."""
    ordered = np.sort(hashes)
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def _concat(arrays: list[pa.Array]) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.string()), *arrays])
