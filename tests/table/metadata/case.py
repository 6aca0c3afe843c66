"""A table of a test with a metadata table that is told of each commit, and what it then must say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.file_group.names import next_instant
from tagstream.table.metadata.changes import KEYS, Changes, PartitionChange, WrittenFile
from tagstream.table.metadata.column_ranges import (
    Ranges,
    merged_ranges,
    ranges_from_json,
    ranges_of_footer,
    ranges_of_rows,
    ranges_to_json,
)
from tagstream.table.metadata.delta_commit import delta_commit
from tagstream.table.metadata.index_definitions import default_columns
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.metadata_writer import DEFAULT_GROUPS, MetadataWriter
from tagstream.table.metadata.partitions import create_empty
from tagstream.table.metadata.record_encoding import PLACES, instant_ms
from tagstream.table.metadata.record_index import RecordIndex
from tagstream.table.metadata.records import BLOOM_FILTER, COLUMN_STATS
from tagstream.table.timeline.avro_timeline import parsed_schema, write_parsed
from tagstream.table.timeline.commit_metadata import WriteStatus
from tests.support.stored import stored
from tests.support.table_version import using
from tests.table.writer import Writer

Where = Mapping[str, tuple[str, str]]
ALL = {**DEFAULT_GROUPS, "record_index": 3}


def groups_of(version: int) -> dict[str, int]:
    """File groups of every partition that a version has."""
    return {name: count for name, count in ALL.items() if version >= 8 or name != "partition_stats"}


def gone_keys(*keys: tuple[str, str]) -> pa.Table:
    """``KEYS`` of (key, partition path)."""
    return pa.Table.from_pylist([dict(zip(KEYS.names, each, strict=True)) for each in keys], KEYS)


@dataclass
class Case:
    """``writer`` writes the data; before each of its commits completes, the metadata table is told."""

    writer: Writer
    columns: list[str]

    @staticmethod
    def create(
        folder: Path,
        table_type: str,
        version: int,
        groups: Mapping[str, int] | None = None,
        *,
        by_partition: bool = False,
        **options: Any,
    ) -> Case:
        """A new table with an empty metadata table. ``by_partition``: the form of its record index."""
        with using(version):
            writer = Writer.without_metadata(folder, table_type, **options)
        case = Case(writer, default_columns(writer.schema, version))
        writer.before_complete = case.tell
        writer.table = create_empty(
            writer.table, groups if groups is not None else groups_of(version), case.columns, case.times, writer.now_ms,
            partitioned_index=by_partition,
        )  # fmt: skip
        return case

    def times(self) -> str:
        """A fresh time: the clock goes on with each."""
        self.writer.now_ms += 10
        opened = MetadataWriter.open(self.writer.table.reload())
        known = [self.writer.table.timeline().newest, opened.timeline().newest if opened else None]
        newest = max((time[:17] for time in known if time), default=None)
        return next_instant(self.writer.now_ms, newest, self.writer.table.config.timezone_utc)

    @property
    def metadata_writer(self) -> MetadataWriter:
        found = MetadataWriter.open(self.writer.table)
        assert found is not None
        return found

    @property
    def metadata(self) -> MetadataTable:
        found = MetadataTable.open(self.writer.table, self.writer.table.timeline())
        assert found is not None
        return found

    def tell(self, instant: str, statuses: Sequence[WriteStatus], where: Where) -> None:
        """What the commit path does: files with ranges and bloom filters, keys that are new, moved or gone.

        A table whose metadata table was dropped has none to be told.
        """
        if MetadataWriter.open(self.writer.table.reload()) is None:
            return
        delta_commit(self.metadata_writer, instant, self.changes(instant, statuses, where), self.times)

    def changes(self, instant: str, statuses: Sequence[WriteStatus], where: Where) -> Changes:
        files: dict[str, list[WrittenFile]] = {}
        for status in statuses:
            path = Path(self.writer.table.base_path) / status.stat.path
            own = files.setdefault(status.stat.partition_path, [])
            own.append(written(path, self.columns))
            own += [WrittenFile(rel.rpartition("/")[2], size, {}) for rel, size in status.stat.change_files.items()]
        before = self.writer.where
        new = [(key, *where[key], instant_ms(instant, True)) for key in where if where[key] != before.get(key)]
        places = pa.Table.from_pylist([dict(zip(PLACES.names, row, strict=True)) for row in new], PLACES)
        lost = [(key, before[key][0]) for key in before if key not in where]
        if self.metadata_writer.has_partitioned_index:
            lost += [(key, old[0]) for key, old in before.items() if key in where and where[key][0] != old[0]]
        gone = gone_keys(*lost)
        partitions = {partition: PartitionChange(tuple(found)) for partition, found in files.items()}
        return Changes(partitions, places=[places], deleted_keys=[gone], columns=self.columns)

    def clean_files(self) -> int:
        """Old files go, by a clean action of the data as Hudi makes one; how many."""
        table = self.writer.table
        storage, view = table.storage, table.view()
        gone: dict[str, tuple[str, ...]] = {}
        for partition in view.partitions():
            kept = {
                rel.rpartition("/")[2]
                for s in view.latest_merged_slices(partition)
                for rel in (s.base_path, *s.log_paths)
                if rel
            }
            gone[partition] = tuple(sorted(self.metadata.files(partition).keys() - kept))
        instant, newest = self.times(), table.timeline().newest_completed or ""
        policy = "KEEP_LATEST_FILE_VERSIONS"
        paths = {
            p: [{"filePath": storage.where(f"{p}/{n}"), "isBootstrapBaseFile": False} for n in names]
            for p, names in gone.items()
        }
        plan: dict[str, Any] = {
            "earliestInstantToRetain": None, "lastCompletedCommitTimestamp": newest, "policy": policy,
            "filesToBeDeletedPerPartition": {}, "version": 2, "filePathsToBeDeletedPerPartition": paths,
            "partitionsToBeDeleted": [], "extraMetadata": {},
        }  # fmt: skip
        done = {
            "startCleanTime": instant, "timeTakenInMillis": 1, "totalFilesDeleted": sum(map(len, gone.values())),
            "earliestCommitToRetain": "", "lastCompletedCommitTimestamp": newest, "version": 2,
            "partitionMetadata": {p: {
                "partitionPath": p, "policy": policy, "deletePathPatterns": list(names), "successDeleteFiles": list(names),
                "failedDeleteFiles": [], "isPartitionDeleted": False} for p, names in gone.items()},
            "bootstrapPartitionMetadata": {}, "extraMetadata": {},
        }  # fmt: skip
        planned = write_parsed(parsed_schema("HoodieCleanerPlan"), plan)
        folder, own = table.config.timeline_folder, table.config.has_completion_times
        storage.write_new(f"{folder}/{instant}.clean.requested", planned)
        storage.write_new(f"{folder}/{instant}.clean.inflight", b"" if own else planned)
        storage.delete_many(f"{p}/{name}" for p, names in gone.items() for name in names)
        changes = Changes({p: PartitionChange(deleted=names) for p, names in gone.items()}, columns=self.columns)
        delta_commit(self.metadata_writer, instant, changes, self.times)
        name = f"{instant}_{self.times()}.clean" if own else f"{instant}.clean"
        storage.write_new(f"{folder}/{name}", write_parsed(parsed_schema("HoodieCleanMetadata"), done))
        return sum(map(len, gone.values()))

    def check(self) -> None:
        """The metadata table says what is on disk and where the keys are."""
        table, metadata = self.writer.table, self.metadata
        timeline = table.timeline()
        view = table.view(timeline)
        # a partition whose first commit was rolled back is a folder without files, of which it was told nothing
        filled = [partition for partition in view.partitions() if view.latest_merged_slices(partition)]
        assert set(filled) <= set(metadata.partition_paths()) <= set(view.partitions())
        root = Path(table.base_path)
        listed = {partition: metadata.files(partition) for partition in view.partitions()}
        for partition, files in listed.items():
            assert files == {
                e.name: e.size
                for e in table.storage.list(partition)
                if not e.is_dir and not e.name.startswith(".hoodie_p")
            }
        if "record_index" in metadata.partitions:
            self.check_record_index(metadata)
        if "column_stats" in metadata.partitions:
            found: dict[str, set[str]] = {}
            for record in metadata.scan("column_stats").values():
                found.setdefault(record[COLUMN_STATS]["fileName"], set()).add(record[COLUMN_STATS]["columnName"])
            wanted = {
                name: written(root / partition / name, self.columns).ranges
                for partition in listed
                for name in listed[partition]
            }
            assert found == {name: set(ranges) for name, ranges in wanted.items() if ranges}
        if "bloom_filters" in metadata.partitions:
            blooms = [record[BLOOM_FILTER]["bloomFilter"] for record in metadata.scan("bloom_filters").values()]
            files_with = [root / p / name for p in listed for name in listed[p] if name.endswith(".parquet")]
            assert sorted(blooms) == sorted((written(path, []).bloom or "").encode() for path in files_with)

    def check_record_index(self, metadata: MetadataTable) -> None:
        index = RecordIndex.open(metadata)
        assert index is not None
        rows = [row for part in index.scan() for row in part.to_pylist()]
        assert {row["record_key"]: (row["partition_path"], row["file_id"]) for row in rows} == self.writer.where
        assert len(rows) == len(self.writer.where)
        keys = [*list(self.writer.where)[::3], "nobody"]
        assert {row["record_key"] for row in index.lookup(pa.array(keys)).to_pylist()} == {*keys} - {"nobody"}


def written(path: Path, columns: Sequence[str]) -> WrittenFile:
    """A file as the task that wrote it tells it."""
    bloom = None
    ranges: Ranges
    if path.suffix == ".parquet":
        footer = pq.read_metadata(path)
        ranges = ranges_of_footer(footer, columns)
        bloom = (footer.metadata or {})[b"org.apache.hudi.bloomfilter"].decode()
    else:
        blocks = [
            block
            for block in scan_log_file(*stored(path))
            if block.type in (BlockType.AVRO_DATA, BlockType.PARQUET_DATA)
        ]
        parts = [ranges_of_rows(block.read_table(), columns) for block in blocks]
        ranges = {column: merged_ranges(part[column] for part in parts) for column in (parts[0] if parts else {})}
    told = ranges_from_json(json.loads(json.dumps(ranges_to_json(ranges))))
    return WrittenFile(path.name, path.stat().st_size, told, bloom)
