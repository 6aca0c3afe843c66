"""The record index: where a record key is, from the metadata table's partition ``record_index``.

A key's shard is ``abs(abs(h) % n)`` of its Java hash, over all file groups or (``index_groups``) over those of the key's
partition; an entry names partition, file id (as a UUID in two numbers and a counter, or literally) and the instant in epoch
milliseconds.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.keys.java_hash import string_hash_codes
from tagstream.table.metadata.avro_columns import AvroColumns
from tagstream.table.metadata.index_groups import IndexGroups
from tagstream.table.metadata.metadata_table import RECORD_INDEX_PARTITION, Entries, MetadataTable

LOCATIONS: Final = pa.schema([
    ("record_key", pa.string()), ("partition_path", pa.string()), ("file_id", pa.string()), ("instant", pa.string())
])  # fmt: skip

_MEMBER: Final = "recordIndexMetadata"
_UUID, _LITERAL = 0, 1  # fileIdEncoding: two numbers and a counter, or text
_INT_MIN: Final = -(2**31)


def shards_of(keys: pa.Array, count: int) -> npt.NDArray[np.int64]:
    """Number of the shard of every key; Java's ``abs`` leaves the least int as it is."""
    codes = string_hash_codes(keys).astype(np.int64)
    magnitude = np.where(codes == _INT_MIN, codes, np.abs(codes))
    return np.abs(np.fmod(magnitude, count))


@dataclass(frozen=True)
class RecordIndex:
    """Lookups in a metadata table's record index."""

    metadata: MetadataTable

    @staticmethod
    def open(metadata: MetadataTable | None) -> RecordIndex | None:
        """The index; None where the table has no metadata table, or that one no record index."""
        if metadata is None or RECORD_INDEX_PARTITION not in metadata.partitions:
            return None
        return RecordIndex(metadata)

    @property
    def is_partitioned(self) -> bool:
        """Whether it has file groups for each partition of the data: a key may have a place in each of them."""
        return self.metadata.has_partitioned_index

    @property
    def shard_counts(self) -> dict[str | None, int]:
        """Into how many shards the keys of each partition are hashed; under None of all, where it is global."""
        return self._groups().counts

    def lookup(self, keys: pa.Array, partition: str | None = None) -> pa.Table:
        """Locations of the keys that are there (``LOCATIONS``), in no order; only the keys' own shards are read.

        ``partition``: the one of the data whose keys they are; None where the index is global, and only there.
        """
        groups = self._groups()
        if (partition is not None) != groups.is_partitioned:
            raise ValueError(
                "a record index by partition is asked for one partition's keys, a global one for keys alone"
            )
        wanted = pc.unique(keys).drop_null()
        slices = groups.by_partition.get(partition, ())
        if not len(wanted) or not slices:
            return LOCATIONS.empty_table()
        shards = shards_of(wanted, len(slices))
        tables = [LOCATIONS.empty_table()]
        for number in np.unique(shards).tolist():
            own = wanted.filter(pa.array(shards == number)).cast(pa.binary()).sort()
            tables.append(self._locations(self.metadata.entries(slices[number], own), own))
        return pa.concat_tables(tables)

    def scan(self) -> Iterator[pa.Table]:
        """All locations, a table a shard."""
        for slices in self._groups().by_partition.values():
            for file_slice in slices:
                yield self._locations(self.metadata.entries(file_slice), None)

    def _groups(self) -> IndexGroups:
        found = self.metadata.slices(RECORD_INDEX_PARTITION)
        return IndexGroups.of(found, self.metadata.storage.root, is_partitioned=self.is_partitioned)

    def _locations(self, entries: Iterable[Entries], wanted: pa.Array | None) -> pa.Table:
        parts = list(entries)
        if not parts:
            return LOCATIONS.empty_table()
        keys = pa.concat_arrays([part.keys for part in parts])
        values = pa.concat_arrays([part.values for part in parts])
        sources = np.repeat(np.arange(len(parts)), [len(part.keys) for part in parts])
        # The last entry of a key counts: repeated indices of an assignment leave the last one.
        codes = pc.dictionary_encode(keys).indices.to_numpy()
        last = np.full(int(codes.max()) + 1 if len(codes) else 0, -1, np.int64)
        last[codes] = np.arange(len(codes))
        last = np.sort(last[values.is_valid().to_numpy(zero_copy_only=False)[last]])
        if wanted is not None:  # a delete block has other keys, too
            last = last[pc.is_in(keys.take(pa.array(last)), value_set=wanted).to_numpy(zero_copy_only=False)]
        tables = [LOCATIONS.empty_table()]
        for number in np.unique(sources[last]).tolist():
            rows = pa.array(last[sources[last] == number])
            tables.append(self._decoded(keys.take(rows), values.take(rows), parts[number]))
        return pa.concat_tables(tables)

    def _decoded(self, keys: pa.Array, values: pa.Array, part: Entries) -> pa.Table:
        try:
            found = AvroColumns(values, json.loads(part.avro_json))
            columns = [
                keys.cast(pa.string()),
                found.texts(f"{_MEMBER}.partitionName"),
                self._file_ids(found),
                self._instants(found.numbers(f"{_MEMBER}.instantTime")),
            ]
        except (pa.ArrowInvalid, ArithmeticError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
            raise CorruptFileError(
                f"{part.where} has no readable locations ({error}); restore the file, or drop the metadata table "
                "(hoodie.metadata.enable=false)"
            ) from error
        return pa.Table.from_arrays(columns, schema=LOCATIONS)

    def _file_ids(self, found: AvroColumns) -> pa.Array:
        encodings = found.numbers(f"{_MEMBER}.fileIdEncoding")
        if not np.isin(encodings, (_UUID, _LITERAL)).all():
            raise UnsupportedTableError(
                f"the record index at {self.metadata.storage.root} encodes file ids in a way that this version does not know"
            )
        high, low = (found.numbers(f"{_MEMBER}.{name}") for name in ("fileIdHighBits", "fileIdLowBits"))
        # A loop over file groups, of which there are few beside records.
        parts = np.stack([high, low, found.numbers(f"{_MEMBER}.fileIndex", -1)], axis=1)
        distinct, codes = np.unique(parts, axis=0, return_inverse=True)
        names = pa.array([_file_id(*row) for row in distinct.tolist()], pa.string()).take(pa.array(codes.reshape(-1)))
        return pc.if_else(pa.array(encodings == _LITERAL), found.texts(f"{_MEMBER}.fileId"), names)

    def _instants(self, times: npt.NDArray[np.int64]) -> pa.Array:
        distinct, codes = np.unique(times, return_inverse=True)
        texts = [instant_from_ms(ms, self.metadata.timezone_utc) for ms in distinct.tolist()]
        return pa.array(texts, pa.string()).take(pa.array(codes))


def _file_id(high: int, low: int, index: int) -> str:
    name = str(uuid.UUID(int=(high & (1 << 64) - 1) << 64 | low & (1 << 64) - 1))
    return name if index == -1 else f"{name}-{index}"
