"""The metadata table of a table, for readers: a merge-on-read table of HFiles in ``.hoodie/metadata``.

It is committed before the data. So its entries are valid only for instants that are completed on the data's timeline,
and for its own instants: the initial ones, and (up to version 7) data instants with a suffix of three digits.

``MetadataListing`` lists a table's files from the partition ``files``, without listing folders of the table. It does
not have files of unfinished and failed writes. The metadata table's own folders are listed, one for each of its
partitions that is read. ``bloom_filters`` returns base files' filters, so that their footers need not be read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import pyarrow as pa

from tagstream.table.errors import (
    CorruptFileError,
    MetadataTableMismatchError,
    TableNotFoundError,
    UnsupportedTableError,
)
from tagstream.table.file_group.bloom import BloomFilter
from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.file_group.log_file import LogBlock, scan_log_file, with_block
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.history.lsm import History
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import read_properties
from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.metadata.hfile import HFile
from tagstream.table.metadata.index_definitions import has_partitioned_index
from tagstream.table.metadata.records import (
    BLOOM_FILTER,
    FILES,
    Record,
    decode,
    file_id,
    merged,
    partition_id,
    partition_name,
)
from tagstream.table.storage.storage import META_FOLDER, Storage
from tagstream.table.timeline.timeline import Timeline

FOLDER: Final = f"{META_FOLDER}/metadata"
FILES_PARTITION, COLUMN_STATS_PARTITION, RECORD_INDEX_PARTITION = "files", "column_stats", "record_index"
BLOOM_FILTERS_PARTITION, PARTITION_STATS_PARTITION = "bloom_filters", "partition_stats"
ALL_PARTITIONS: Final = "__all_partitions__"

_INITIAL: Final = "0" * 14  # prefix of the instants that build the table
_INSTANT_LENGTH: Final = 17


@dataclass(frozen=True)
class Entries:
    """Keys of one file or block of a slice, sorted (binary), with their values. A null value is a deletion."""

    keys: pa.Array
    values: pa.Array
    avro_json: str
    where: str


@dataclass(frozen=True)
class MetadataTable:
    """The metadata table as of a timeline of the data.

    ``partitions``: its partitions that readers may use (``hoodie.table.metadata.partitions``). ``timezone_utc``:
    whether the table's instants are in UTC. ``table_storage``: the data table's.
    """

    storage: Storage
    config: TableConfig
    timeline: Timeline
    data_timeline: Timeline
    partitions: frozenset[str]
    timezone_utc: bool
    table_storage: Storage
    _listed: dict[str, list[FileSlice]] = field(default_factory=dict, compare=False, repr=False)
    _walked: dict[tuple[str, ...], list[LogBlock]] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def open(table: HoodieTable, timeline: Timeline) -> MetadataTable | None:
        """The table's metadata table; None when it has none that readers may use."""
        listed = table.config.raw.get("hoodie.table.metadata.partitions", "")
        partitions = frozenset(name.strip() for name in listed.split(",") if name.strip())
        if not partitions or not table.config.metadata_partitions:
            return None
        storage = table.storage.below(FOLDER)
        config = open_config(table, storage)
        return MetadataTable(
            storage,
            config,
            Timeline.load(storage, config.timeline_folder),
            timeline,
            partitions,
            table.config.timezone_utc,
            table.storage,
        )

    def slices(self, partition: str) -> list[FileSlice]:
        """The newest slices of one of its partitions, one for each shard. The folder is listed once."""
        if partition not in self.partitions:
            raise UnsupportedTableError(
                f"the metadata table at {self.storage.root} has no partition {partition}; it has "
                f"{', '.join(sorted(self.partitions))}"
            )
        if partition not in self._listed:
            archived = History(self.storage, self.config.history_folder) if self.config.has_completion_times else None
            as_of = self.timeline.newest_completed
            view = FileSystemView(self.storage, self.timeline, as_of, self.config.version, archived)
            self._listed[partition] = view.latest_merged_slices(partition)
        return self._listed[partition]

    def partition_paths(self) -> list[str]:
        """All partitions of the data, sorted."""
        record = self.lookup(FILES_PARTITION, [ALL_PARTITIONS]).get(ALL_PARTITIONS)
        names = (record or {}).get(FILES) or {}
        return sorted("" if name == partition_name("") else name for name in names)

    def files(self, partition_path: str) -> dict[str, int]:
        """Sizes in bytes of the data files of a partition, by name. Files of unwritten commits may be included."""
        return self.files_of([partition_path])[partition_path]

    def files_of(self, partition_paths: Collection[str]) -> dict[str, dict[str, int]]:
        """As :meth:`files`, for several partitions, by partition path."""
        keys = {path: partition_name(path) for path in partition_paths}
        found = self.lookup(FILES_PARTITION, list(keys.values()))
        listed = {path: (found.get(key) or {}).get(FILES) or {} for path, key in keys.items()}
        return {path: {name: info["size"] for name, info in sorted(names.items())} for path, names in listed.items()}

    def lookup(self, partition: str, keys: Sequence[str]) -> dict[str, Record]:
        """Merged records of some keys, from all shards."""
        wanted = pa.array(sorted({key.encode() for key in keys}), pa.binary())
        found: dict[str, Record] = {}
        for file_slice in self.slices(partition):
            found.update(self._merged(self.entries(file_slice, wanted)))
        return found

    def scan(self, partition: str) -> dict[str, Record]:
        """All merged records of one of its partitions."""
        found: dict[str, Record] = {}
        for file_slice in self.slices(partition):
            found.update(self._merged(self.entries(file_slice)))
        return found

    def entries(self, file_slice: FileSlice, keys: pa.Array | None = None) -> Iterator[Entries]:
        """Entries of a slice for the keys (binary, sorted; None: all keys), oldest first."""
        yield from self.base_entries(file_slice, keys)
        yield from self.log_entries(file_slice, keys)

    def base_entries(self, file_slice: FileSlice, keys: pa.Array | None = None) -> Iterator[Entries]:
        """Entries of a slice's base file, in ascending order of keys; ``keys`` as in :meth:`entries`."""
        if file_slice.base_path is not None:
            file = HFile.open(self.storage, file_slice.base_path)
            yield from _of_hfile(file, keys, None, self.storage.where(file_slice.base_path))

    def log_entries(self, file_slice: FileSlice, keys: pa.Array | None = None) -> Iterator[Entries]:
        """Entries of a slice's log files; ``keys`` as in :meth:`entries`."""
        for block in self.log_blocks(file_slice):
            if block.type is BlockType.DELETE:
                gone = block.deletes().keys.cast(pa.binary()).sort()
                yield Entries(gone, pa.nulls(len(gone), pa.binary()), "", block.where)
            else:
                yield from _of_hfile(HFile.of_block(block), keys, block.avro_schema, block.where)

    def _merged(self, parts: Iterator[Entries]) -> dict[str, Record]:
        # A loop over records, because the merge decodes them. The record index, which is large, does not use this
        # method.
        found: dict[str, Record] = {}
        for part in parts:
            kept = part.keys.filter(part.values.is_valid())
            for gone in part.keys.filter(part.values.is_null()).to_pylist():
                found.pop(_text(gone, part.where), None)
            records = decode(part.values.drop_null().to_pylist(), part.avro_json, part.where) if len(kept) else []
            for key, record in zip(kept.to_pylist(), records, strict=True):
                name = _text(key, part.where)
                result = merged(found.get(name), record)
                if result is None:
                    found.pop(name, None)
                else:
                    found[name] = result
        return found

    def log_blocks(self, file_slice: FileSlice) -> list[LogBlock]:
        """The valid blocks of a slice, in order: committed on both timelines, not rolled back. Files are scanned once."""
        if file_slice.log_paths not in self._walked:
            self._walked[file_slice.log_paths] = self._walk(file_slice)
        return self._walked[file_slice.log_paths]

    def _walk(self, file_slice: FileSlice) -> list[LogBlock]:
        queued: list[LogBlock] = []
        for rel in file_slice.log_paths:
            for block in scan_log_file(self.storage, rel):
                if block.type is BlockType.COMMAND:
                    queued = with_block(queued, block)
                elif block.type is not BlockType.CORRUPT and block.instant is not None and self.counts(block.instant):
                    _check(block)
                    queued = with_block(queued, block)
        return queued

    def counts(self, instant: str) -> bool:
        """Whether readers may use the entries that an instant wrote to the metadata table."""
        own = instant.startswith(_INITIAL) or len(instant) > _INSTANT_LENGTH
        return self.timeline.is_valid(instant) and (own or self._is_done(instant))

    def _is_done(self, instant: str) -> bool:
        """Whether the action of the data with this instant, of any kind, is completed or archived."""
        start = self.data_timeline.start
        return instant in self._done or (start is not None and instant < start)

    @cached_property
    def has_partitioned_index(self) -> bool:
        """Whether the record index has file groups for each partition of the data."""
        return has_partitioned_index(self.table_storage)

    @cached_property
    def _done(self) -> frozenset[str]:
        return frozenset(i.time for i in self.data_timeline.instants if i.is_completed)


def open_config(table: HoodieTable, storage: Storage) -> TableConfig:
    """The settings of the metadata table; MetadataTableMismatchError when it does not fit its table."""
    config = TableConfig.from_properties(read_properties(storage))
    if config.version != table.config.version or config.base_file_format != "HFILE":
        raise MetadataTableMismatchError(
            f"the metadata table at {storage.root} has version {config.version} and {config.base_file_format} files, "
            f"its table version {table.config.version}; it must have HFILE files and the same version: let Hudi build it "
            "again"
        )
    return config


def _of_hfile(file: HFile, keys: pa.Array | None, avro_json: str | None, where: str) -> Iterator[Entries]:
    if file.entries == 0:
        return
    schema = avro_json or file.info.get("schema", b"").decode("utf-8", "replace")
    for batch in file.scan() if keys is None else file.lookup(keys):
        yield Entries(batch.column(0), batch.column(1), schema, where)


def _check(block: LogBlock) -> None:
    if block.type not in (BlockType.HFILE_DATA, BlockType.DELETE):
        raise CorruptFileError(f"{block.where} does not belong into a metadata table; let Hudi build it again")


def _text(key: bytes, where: str) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{where} has a key that is not UTF-8 text ({error}); restore the file") from None


_SEEN_TABLES = 4


@dataclass(frozen=True)
class MetadataListing:
    """A ``table.file_group.fs_view.Listing`` from the partition ``files``; each partition is read once."""

    metadata: MetadataTable
    _known: dict[str, Mapping[str, int]] = field(default_factory=dict, compare=False, repr=False)
    _partitions: list[list[str]] = field(default_factory=list, compare=False, repr=False)

    def partitions(self) -> list[str]:
        """All partition paths, sorted."""
        if not self._partitions:
            self._partitions.append(self.metadata.partition_paths())
        return list(self._partitions[0])

    def look_up(self, partition_paths: Collection[str]) -> None:
        """Read several partitions at once, which costs little more than one."""
        missing = [path for path in partition_paths if path not in self._known]
        if missing:
            self._known.update(self.metadata.files_of(missing))

    def files(self, partition_path: str) -> Mapping[str, int]:
        """Sizes in bytes of the files of a partition, by name."""
        self.look_up([partition_path])
        return self._known[partition_path]


def listed_by_metadata(table: HoodieTable) -> HoodieTable:
    """The table with views that list files from its metadata table, if it has one that readers may use."""
    return replace(table, lister=metadata_listing)


def metadata_listing(table: HoodieTable, timeline: Timeline) -> MetadataListing | None:
    """The listing of a table as of a timeline; None when it has no metadata table that readers may use.

    A table in the same state gets the same listing again, with the partitions that it has read.
    """
    try:
        metadata = MetadataTable.open(table, timeline)
    except (MetadataTableMismatchError, TableNotFoundError):
        return None  # readers do not use it; the writer drops it, with a warning
    if metadata is None or FILES_PARTITION not in metadata.partitions:
        return None
    found = next((seen for seen in _SEEN if _same(seen.metadata, metadata)), None)
    if found is None:
        found = MetadataListing(metadata)
        try:
            found.partitions()
        except UnsupportedTableError:
            return None  # its files have an unsupported form: the folders are listed instead
        _SEEN[:] = [*(seen for seen in _SEEN if seen.metadata.storage != metadata.storage), found][-_SEEN_TABLES:]
    return found


# The last listings of a few tables.
_SEEN: list[MetadataListing] = []


def _same(one: MetadataTable, other: MetadataTable) -> bool:
    return (one.storage, one.timeline, one.data_timeline) == (other.storage, other.timeline, other.data_timeline)


File = tuple[str, str]  # partition path, file name


def bloom_filters(metadata: MetadataTable, files: Sequence[File]) -> dict[File, BloomFilter]:
    """The bloom filters of those files that have a readable one. A filter has about 500 kB with Hudi's defaults."""
    keys = {partition_id(path) + file_id(name): (path, name) for path, name in files}
    found: dict[File, BloomFilter] = {}
    for key, record in metadata.lookup(BLOOM_FILTERS_PARTITION, list(keys)).items():
        member = record.get(BLOOM_FILTER) or {}
        text = member.get("bloomFilter")
        if not text or member.get("isDeleted"):
            continue
        try:
            found[keys[key]] = BloomFilter.from_base64(text, member["type"], "/".join(keys[key]))
        except (CorruptFileError, UnsupportedTableError):
            continue  # the footer is used
    return found
