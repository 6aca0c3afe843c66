"""The metadata table of a table: a merge-on-read table of its own in ``.hoodie/metadata``, with HFiles for base files.

It is committed before the data is. So what it says counts only for instants that are completed on the data's timeline,
and for those of its own: the initial ones, and (up to version 7) data instants with a suffix of three digits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import pyarrow as pa

from tagstream.table.errors import CorruptFileError, MetadataTableMismatchError, UnsupportedTableError
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.file_group.log.block import LogBlock
from tagstream.table.file_group.log.counting import with_block
from tagstream.table.file_group.log.format import BlockType
from tagstream.table.file_group.log.reader import scan_log_file
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import read_properties
from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.metadata.hfile import HFile
from tagstream.table.metadata.index_definitions import has_partitioned_index
from tagstream.table.metadata.name_hash import partition_name
from tagstream.table.metadata.records import FILES, Record, decode, merged
from tagstream.table.storage.storage import META_FOLDER, Storage
from tagstream.table.timeline.history.lsm import History
from tagstream.table.timeline.timeline import Timeline

FOLDER: Final = f"{META_FOLDER}/metadata"
FILES_PARTITION, COLUMN_STATS_PARTITION, RECORD_INDEX_PARTITION = "files", "column_stats", "record_index"
BLOOM_FILTERS_PARTITION, PARTITION_STATS_PARTITION = "bloom_filters", "partition_stats"
ALL_PARTITIONS: Final = "__all_partitions__"

_INITIAL: Final = "0" * 14  # instants that build the table begin so
_INSTANT_LENGTH: Final = 17


@dataclass(frozen=True)
class Entries:
    """Keys of one file or block of a slice, sorted (binary), with their values; a null value is a deletion."""

    keys: pa.Array
    values: pa.Array
    avro_json: str
    where: str


@dataclass(frozen=True)
class MetadataTable:
    """A look at the metadata table, as of the same look at the data's timeline.

    ``partitions``: its own partitions that readers may trust (``hoodie.table.metadata.partitions``). ``timezone_utc``:
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
        """The table's metadata table; None when it has none that may be trusted."""
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
        """The newest slices of one of its partitions, one a shard; the folder is listed once."""
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
        """Sizes in bytes of the data files of a partition, by name; those of unfinished writes may be among them."""
        return self.files_of([partition_path])[partition_path]

    def files_of(self, partition_paths: Collection[str]) -> dict[str, dict[str, int]]:
        """The same of several partitions, by partition path."""
        keys = {path: partition_name(path) for path in partition_paths}
        found = self.lookup(FILES_PARTITION, list(keys.values()))
        listed = {path: (found.get(key) or {}).get(FILES) or {} for path, key in keys.items()}
        return {path: {name: info["size"] for name, info in sorted(names.items())} for path, names in listed.items()}

    def lookup(self, partition: str, keys: Sequence[str]) -> dict[str, Record]:
        """Merged records of some keys; all shards are asked."""
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
        """What a slice has of the keys (binary, sorted; None: of all), oldest first."""
        yield from self.base_entries(file_slice, keys)
        yield from self.log_entries(file_slice, keys)

    def base_entries(self, file_slice: FileSlice, keys: pa.Array | None = None) -> Iterator[Entries]:
        """The part of ``entries`` that is in the base file: ascending over all of it."""
        if file_slice.base_path is not None:
            file = HFile.open(self.storage, file_slice.base_path)
            yield from _of_hfile(file, keys, None, self.storage.where(file_slice.base_path))

    def log_entries(self, file_slice: FileSlice, keys: pa.Array | None = None) -> Iterator[Entries]:
        """The part of ``entries`` that is in the log files."""
        for block in self.log_blocks(file_slice):
            if block.type is BlockType.DELETE:
                gone = block.deletes().keys.cast(pa.binary()).sort()
                yield Entries(gone, pa.nulls(len(gone), pa.binary()), "", block.where)
            else:
                yield from _of_hfile(HFile.of_block(block), keys, block.avro_schema, block.where)

    def _merged(self, parts: Iterator[Entries]) -> dict[str, Record]:
        # A loop over records, for merging looks into them; the record index, which is large, does not come this way.
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
        """The blocks of a slice that count, in order: committed on both timelines, not rolled back; walked once."""
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
        """Whether what an instant wrote to the metadata table may be read."""
        own = instant.startswith(_INITIAL) or len(instant) > _INSTANT_LENGTH
        return self.timeline.is_valid(instant) and (own or self._is_done(instant))

    def _is_done(self, instant: str) -> bool:
        """Every action of the data, a clean or rollback too, has an instant of the same time here."""
        start = self.data_timeline.start
        return instant in self._done or (start is not None and instant < start)

    @cached_property
    def has_partitioned_index(self) -> bool:
        """Whether its record index has file groups for each partition of the data."""
        return has_partitioned_index(self.table_storage)

    @cached_property
    def _done(self) -> frozenset[str]:
        return frozenset(i.time for i in self.data_timeline.instants if i.is_completed)


def open_config(table: HoodieTable, storage: Storage) -> TableConfig:
    """The settings of the metadata table in its own storage; MetadataTableMismatchError when it does not fit its table."""
    config = TableConfig.from_properties(read_properties(storage))
    if config.version != table.config.version or config.base_file_format != "HFILE":
        raise MetadataTableMismatchError(
            f"the metadata table at {storage.root} has version {config.version} and {config.base_file_format} files, "
            f"its table version {table.config.version}; HFILE of one version can be read: let Hudi build it anew"
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
        raise CorruptFileError(f"{block.where} does not belong into a metadata table; let Hudi build it anew")


def _text(key: bytes, where: str) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{where} has a key that is no UTF-8 text ({error}); restore the file") from None
