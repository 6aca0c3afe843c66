"""The record index: the places of record keys, from the metadata table's partition ``record_index``.

A global record index has the file groups ``record-index-<number>-0``. A key's group is ``abs(abs(h) % n)`` of its
Java hash, for n groups. From Hudi 1.1 on there is also an index with groups for each partition of the data,
``record-index-<partition>-<number>-0``. Each partition has its own number of groups n. In the name a partition's path
has Hive's escapes, and ``-`` and ``_`` are escaped, too, so that a name with four ``-`` has this form (seen in tables
of Hudi 1.2.0; escapes as in its ``PartitionPathEncodeUtils.escapeFileName``). Hudi does not escape a dot and then does
not find the group, because its pattern for names of log files allows none. It is escaped here, which Hudi's reader
decodes.

An entry has the partition, the file id (as a UUID in two numbers and a counter, or as text) and the instant in
milliseconds since 1970. ``AvroColumns`` decodes all entries of one schema at once into columns, in NumPy: 2 us a
record. It supports schemas of records, unions and plain values.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.log_format import read_zigzags, slices
from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.keys.bucket_hash import string_hash_codes
from tagstream.table.keys.keys import url_encode
from tagstream.table.metadata.metadata_table import RECORD_INDEX_PARTITION, Entries, MetadataTable

PREFIX: Final = "record-index"

_GLOBAL: Final = re.compile(rf"{PREFIX}-(\d+)-\d+")
_PARTITIONED: Final = re.compile(rf"{PREFIX}-([^-_]*)-(\d+)-\d+")
_MORE_ESCAPES: Final = {ord("-"): "%2D", ord("_"): "%5F", ord("."): "%2E"}
_LONGEST_NAME: Final = 200  # bytes of a file group's name: a file name also has an instant and a write token


@lru_cache(4096)
def index_group_name(data_partition: str, number: int) -> str:
    """File id of a group for one partition of the data; UnsupportedTableError when it is too long for a file name."""
    escaped = url_encode(pa.array([data_partition]))[0].as_py().translate(_MORE_ESCAPES)
    name = f"{PREFIX}-{escaped}-{number:04d}-0"
    if len(name.encode()) > _LONGEST_NAME:
        raise UnsupportedTableError(
            f"the path of partition {data_partition[:80]!r} is too long for a record index by partition, whose file names "
            "have it: use the global one (hoodie.metadata.global.record.level.index.enable), or none"
        )
    return name


@dataclass(frozen=True)
class IndexGroups:
    """The newest slices of a record index by the numbers of their groups.

    ``by_partition``: the slices of each partition of the data that has some; those of a global index are under None.
    """

    is_partitioned: bool
    by_partition: Mapping[str | None, tuple[FileSlice, ...]]

    @property
    def counts(self) -> dict[str | None, int]:
        """Number of groups of each partition of the data."""
        return {partition: len(slices) for partition, slices in self.by_partition.items()}

    @staticmethod
    def of(slices: Iterable[FileSlice], where: str, *, is_partitioned: bool) -> IndexGroups:
        """Sort slices by name. CorruptFileError if one is missing: the number of groups determines a key's group."""
        found: dict[str | None, dict[int, FileSlice]] = {} if is_partitioned else {None: {}}
        for each in slices:
            match = (_PARTITIONED if is_partitioned else _GLOBAL).fullmatch(each.file_id)
            if match is None:
                raise CorruptFileError(
                    f"the record index at {where} has the file group {each.file_id}, but by its definition "
                    f"{'one for each partition' if is_partitioned else 'a global one'} has no such name; drop the "
                    "metadata table (hoodie.metadata.enable=false) or let Hudi build it again"
                )
            partition = unquote(match[1]) if is_partitioned else None
            found.setdefault(partition, {})[int(match[2 if is_partitioned else 1])] = each
        for partition, by_number in found.items():
            if not by_number or sorted(by_number) != list(range(len(by_number))):
                raise CorruptFileError(
                    f"the record index at {where} has the shards {sorted(by_number)}"
                    f"{f' of partition {partition!r}' if partition is not None else ''}, others are missing; "
                    "drop the metadata table (hoodie.metadata.enable=false) or let Hudi build it again"
                )
        rows = {partition: tuple(own[number] for number in range(len(own))) for partition, own in found.items()}
        return IndexGroups(is_partitioned, rows)


_Int64s = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

_LONGEST_NUMBER: Final = 10  # bytes of a number
_WIDTHS: Final = {"boolean": 1, "float": 4, "double": 8}


@dataclass
class Column:
    """Values of a numeric field, or the offsets and lengths of a text; ``present``: whether the record has the field."""

    present: _Bools
    numbers: _Int64s
    lengths: _Int64s


class AvroColumns:
    """Decoded records. ValueError when the values are not records of the schema, or are longer."""

    def __init__(self, values: pa.Array, avro: Any) -> None:
        """``values``: binary without nulls, one record each; ``avro``: the parsed JSON of their schema."""
        values = values.cast(pa.large_binary())
        offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
        buffer = values.buffers()[2]
        body = (
            np.frombuffer(buffer, np.uint8)[offsets[0] : offsets[-1]] if buffer is not None else np.zeros(0, np.uint8)
        )
        self._data = np.concatenate([body, np.zeros(_LONGEST_NUMBER, np.uint8)])
        self._at = offsets[:-1] - offsets[0]
        self._ends = offsets[1:] - offsets[0]
        self._columns: dict[str, Column] = {}
        self._read(avro, np.arange(len(values)), "")
        if (self._at != self._ends).any():
            raise ValueError("a record does not end where its value does")

    def numbers(self, path: str, missing: int = 0) -> _Int64s:
        """A field of whole numbers, by its path (``outer.inner``); ``missing`` where a record does not have it."""
        column = self._columns.get(path)
        if column is None:
            return np.full(len(self._at), missing, np.int64)
        return np.where(column.present, column.numbers, missing)

    def texts(self, path: str) -> pa.Array:
        """A field of texts, by its path; empty where a record does not have it. ArrowInvalid for text that is not UTF-8."""
        column = self._columns.get(path)
        if column is None:
            return pa.array([""] * len(self._at), pa.string())
        lengths = np.where(column.present, column.lengths, 0)
        return slices(self._data, column.numbers, lengths).cast(pa.string())

    def _read(self, avro: Any, rows: _Int64s, path: str) -> None:
        if not len(rows):
            return
        if isinstance(avro, list):
            branches = self._longs(rows)
            for branch in np.unique(branches).tolist():
                if not 0 <= branch < len(avro):
                    raise ValueError(f"{path} has the branch {branch} of {len(avro)}")
                self._read(avro[branch], rows[branches == branch], path)
        elif isinstance(avro, dict):
            if avro.get("type") == "record":
                for field in avro["fields"]:
                    self._read(field["type"], rows, f"{path}.{field['name']}".removeprefix("."))
            else:
                self._read(avro.get("type"), rows, path)
        elif avro in ("int", "long"):
            self._keep(path, rows, self._longs(rows), None)
        elif avro in ("string", "bytes"):
            lengths = self._longs(rows)
            self._keep(path, rows, self._at[rows], lengths)
            self._advance(rows, lengths)
        elif avro in _WIDTHS:
            self._advance(rows, np.full(len(rows), _WIDTHS[avro]))
        elif avro != "null":
            raise ValueError(f"{path} is {avro!r}, which is not supported")

    def _keep(self, path: str, rows: _Int64s, numbers: _Int64s, lengths: _Int64s | None) -> None:
        column = self._columns.get(path)
        if column is None:
            size = len(self._at)
            column = Column(np.zeros(size, np.bool_), np.zeros(size, np.int64), np.zeros(size, np.int64))
            self._columns[path] = column
        column.present[rows] = True
        column.numbers[rows] = numbers
        if lengths is not None:
            column.lengths[rows] = lengths

    def _longs(self, rows: _Int64s) -> _Int64s:
        """Read one zigzag number of each row."""
        at = self._at[rows]
        numbers, ends = read_zigzags(self._data, at)
        self._advance(rows, ends - at)
        return numbers

    def _advance(self, rows: _Int64s, sizes: _Int64s) -> None:
        behind = self._at[rows] + sizes
        if (sizes < 0).any() or (behind > self._ends[rows]).any():
            raise ValueError("a record ends within a field")
        self._at[rows] = behind


LOCATIONS: Final = pa.schema([
    ("record_key", pa.string()), ("partition_path", pa.string()), ("file_id", pa.string()), ("instant", pa.string())
])  # fmt: skip

_MEMBER: Final = "recordIndexMetadata"
_UUID, _LITERAL = 0, 1  # values of fileIdEncoding: two numbers and a counter, or text
_INT_MIN: Final = -(2**31)


def shards_of(keys: pa.Array, count: int) -> npt.NDArray[np.int64]:
    """The shard number of every key. As in Java, ``abs`` does not change the least int."""
    codes = string_hash_codes(keys).astype(np.int64)
    magnitude = np.where(codes == _INT_MIN, codes, np.abs(codes))
    return np.abs(np.fmod(magnitude, count))


@dataclass(frozen=True)
class RecordIndex:
    """Lookups in a metadata table's record index."""

    metadata: MetadataTable

    @staticmethod
    def open(metadata: MetadataTable | None) -> RecordIndex | None:
        """The record index; None when the metadata table is None or has no record index."""
        if metadata is None or RECORD_INDEX_PARTITION not in metadata.partitions:
            return None
        return RecordIndex(metadata)

    @property
    def is_partitioned(self) -> bool:
        """Whether there are file groups for each partition of the data: a key may have a place in each partition."""
        return self.metadata.has_partitioned_index

    @property
    def shard_counts(self) -> dict[str | None, int]:
        """Number of shards for the keys of each partition; under None that of a global index."""
        return self._groups().counts

    def lookup(self, keys: pa.Array, partition: str | None = None) -> pa.Table:
        """Locations of the keys in the index (``LOCATIONS``), in no order. Only the shards of the keys are read.

        ``partition``: the partition of the data in which to look up the keys; None only for a global index. ValueError
        otherwise.
        """
        groups = self._groups()
        if (partition is not None) != groups.is_partitioned:
            raise ValueError(
                "a lookup in a record index by partition needs a partition, one in a global index must have none"
            )
        wanted = pc.unique(keys).drop_null()
        file_slices = groups.by_partition.get(partition, ())
        if not len(wanted) or not file_slices:
            return LOCATIONS.empty_table()
        shards = shards_of(wanted, len(file_slices))
        tables = [LOCATIONS.empty_table()]
        for number in np.unique(shards).tolist():
            own = wanted.filter(pa.array(shards == number)).cast(pa.binary()).sort()
            tables.append(self._locations(self.metadata.entries(file_slices[number], own), own))
        return pa.concat_tables(tables)

    def scan(self) -> Iterator[pa.Table]:
        """All locations, one table for each shard."""
        for file_slices in self._groups().by_partition.values():
            for file_slice in file_slices:
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
        # The last entry of a key applies: for repeated indices an assignment keeps the last value.
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
                f"the record index at {self.metadata.storage.root} encodes file ids in a way that this version cannot read"
            )
        high, low = (found.numbers(f"{_MEMBER}.{name}") for name in ("fileIdHighBits", "fileIdLowBits"))
        # A loop over file groups: there are far fewer of them than records.
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
