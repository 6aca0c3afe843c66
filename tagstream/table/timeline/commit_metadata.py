"""The content of a commit file: write stats by partition, replaced file groups and extra metadata.

It is JSON up to table version 7 and an Avro container file from 8 on. Both are read and written. Write stats have
the member names of Hudi's commit files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tagstream.table.errors import CorruptFileError
from tagstream.table.timeline.avro_timeline import (
    COMMIT_METADATA,
    MAGIC,
    REPLACE_COMMIT_METADATA,
    parsed_schema,
    read_record,
    write_parsed,
)
from tagstream.table.timeline.operation import COMPACTIONS, WriteOperationType

# Members with values only after a compaction; readers need the numbers in every stat.
_COMPACTION_COUNTERS = (
    "totalLogReadTimeMs", "totalLogRecords", "totalLogFilesCompacted", "totalLogSizeCompacted",
    "totalUpdatedRecordsCompacted", "totalLogBlocks", "totalCorruptLogBlock", "totalRollbackBlocks",
)  # fmt: skip
NO_PREVIOUS = "null"


@dataclass(frozen=True)
class WriteStat:
    """One file of a commit. ``path`` is relative to the base path, sizes are bytes, times milliseconds.

    ``prev_commit`` is the base instant of the previous slice, or the text ``null``; from table version 8 on that of a
    log file is its own delta commit. ``prev_base_file``: the base file that this one replaces. The ``log_*`` members
    and ``base_file`` are set for log files only. ``log_files``: Hudi names all log files of the slice up to version 7,
    and only this file from 8 on. Only change data capture reads it: it needs all, and the base file, in every version.
    Without it this writer names only this file: otherwise a commit would grow with the age of the slices.
    ``change_files``: sizes by path of a base file's change files.
    """

    file_id: str
    path: str
    partition_path: str
    prev_commit: str = NO_PREVIOUS
    num_writes: int = 0
    num_inserts: int = 0
    num_updates: int = 0
    num_deletes: int = 0
    file_size: int = 0
    total_write_bytes: int = 0
    total_write_errors: int = 0
    create_ms: int = 0
    upsert_ms: int = 0
    log_version: int | None = None
    log_offset: int = 0
    base_file: str | None = None
    log_files: tuple[str, ...] = ()
    prev_base_file: str | None = field(default=None, compare=False)
    other: Mapping[str, Any] = field(default_factory=dict, compare=False)
    change_files: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all files that were written: this one and its change files."""
        return (self.path, *self.change_files)

    @property
    def file_name(self) -> str:
        """The last segment of the path."""
        return self.path.rsplit("/", 1)[-1]

    def to_json(self) -> dict[str, Any]:
        """The stat as a member of ``partitionToWriteStats``."""
        stat: dict[str, Any] = {
            "fileId": self.file_id,
            "path": self.path,
            "cdcStats": dict(self.change_files) or None,
            "prevCommit": self.prev_commit,
            "numWrites": self.num_writes,
            "numDeletes": self.num_deletes,
            "numUpdateWrites": self.num_updates,
            "numUpdates": 0,
            "numInserts": self.num_inserts,
            "totalWriteBytes": self.total_write_bytes,
            "totalWriteErrors": self.total_write_errors,
            "tempPath": None,
            "prevBaseFile": self.prev_base_file,
            "partitionPath": self.partition_path,
            **{name: self.other.get(name, 0) for name in _COMPACTION_COUNTERS},
            "fileSizeInBytes": self.file_size,
            "minEventTime": None,
            "maxEventTime": None,
            "runtimeStats": {"totalScanTime": 0, "totalUpsertTime": self.upsert_ms, "totalCreateTime": self.create_ms},
        }
        if self.log_version is not None:
            stat |= {
                "logVersion": self.log_version,
                "logOffset": self.log_offset,
                "baseFile": self.base_file or "",
                "logFiles": list(self.log_files),
                "recordsStats": {"val": None},
            }
        return stat

    @staticmethod
    def from_json(stat: Mapping[str, Any]) -> WriteStat:
        """A stat of any writer and version. The counters of a compaction are kept in ``other``."""
        runtime = stat.get("runtimeStats") or {}
        # The Avro form (version 8 on) has the log members in stats of base files, too, as null.
        is_log = stat.get("logVersion") is not None and (stat.get("path") or "").rsplit("/", 1)[-1].startswith(".")
        return WriteStat(
            file_id=stat.get("fileId") or "",
            path=stat.get("path") or "",
            partition_path=stat.get("partitionPath") or "",
            prev_commit=stat.get("prevCommit") or NO_PREVIOUS,
            num_writes=stat.get("numWrites") or 0,
            num_inserts=stat.get("numInserts") or 0,
            num_updates=stat.get("numUpdateWrites") or 0,
            num_deletes=stat.get("numDeletes") or 0,
            file_size=stat.get("fileSizeInBytes") or 0,
            total_write_bytes=stat.get("totalWriteBytes") or 0,
            total_write_errors=stat.get("totalWriteErrors") or 0,
            create_ms=runtime.get("totalCreateTime") or 0,
            upsert_ms=runtime.get("totalUpsertTime") or 0,
            log_version=stat.get("logVersion") if is_log else None,
            log_offset=(stat.get("logOffset") or 0) if is_log else 0,
            base_file=stat.get("baseFile") if is_log else None,
            log_files=tuple(stat.get("logFiles") or ()) if is_log else (),
            prev_base_file=stat.get("prevBaseFile"),
            other={name: stat[name] for name in _COMPACTION_COUNTERS if stat.get(name)},
            change_files=dict(stat.get("cdcStats") or {}),
        )


class FileKind(StrEnum):
    """What a task wrote: a base file of a new group, a base file that replaces an older one, or a log file."""

    CREATE = "CREATE"
    MERGE = "MERGE"
    APPEND = "APPEND"


@dataclass(frozen=True)
class WriteStatus:
    """A task's result for one staged file: the stat for the commit, and the kind for its marker.

    ``new_group``: whether the file begins a file group, so that its partition may be new. For the metadata table, when
    it needs them: ``ranges`` of the columns (``table.metadata.column_ranges``, as JSON), and the text of a base file's
    bloom filter.
    """

    stat: WriteStat
    kind: FileKind
    new_group: bool = True
    ranges: Mapping[str, Sequence[Any]] | None = None
    bloom: str | None = None

    def to_json(self) -> str:
        """One line of JSON, to send the result from the task to the driver."""
        data = {
            "kind": self.kind.value, "new_group": self.new_group, "ranges": self.ranges, "bloom": self.bloom,
            "stat": self.stat.to_json(),
        }  # fmt: skip
        return json.dumps(data, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> WriteStatus:
        """The inverse of to_json."""
        data = json.loads(text)
        stat, kind = WriteStat.from_json(data["stat"]), FileKind(data["kind"])
        return WriteStatus(stat, kind, data["new_group"], data["ranges"], data["bloom"])


SCHEMA_KEY = "schema"
_LAYOUT_2_MEMBERS = frozenset({"numUpdates", "prevBaseFile"})
AVRO_VERSION = 8  # from this table version on commits are Avro


@dataclass(frozen=True)
class CommitMetadata:
    """What one write action did. ``extra`` is Hudi's ``extraMetadata`` (``schema``, checkpoints, this writer's keys).

    ``replaced``: ids of the file groups that the action replaces, by partition path.
    """

    stats: Mapping[str, tuple[WriteStat, ...]] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    operation: str = WriteOperationType.UPSERT
    compacted: bool = False
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def build(
        statuses: Iterable[WriteStatus],
        extra: Mapping[str, str],
        avro_json: str,
        operation: str = WriteOperationType.UPSERT,
        replaced: Mapping[str, tuple[str, ...]] | None = None,
    ) -> CommitMetadata:
        """The metadata of a commit of these files. ``avro_json`` is the table schema without meta fields.

        ``replaced``: ids of the file groups that the commit replaces, by partition path.
        """
        by_partition: dict[str, list[WriteStat]] = {}
        for status in statuses:
            by_partition.setdefault(status.stat.partition_path, []).append(status.stat)
        stats = {p: tuple(sorted(found, key=lambda s: s.path)) for p, found in sorted(by_partition.items())}
        return CommitMetadata(stats, {SCHEMA_KEY: avro_json, **extra}, operation, replaced=replaced or {})

    @property
    def is_compaction(self) -> bool:
        """Whether it is a compaction, which changes no key's file group."""
        return self.compacted or self.operation in COMPACTIONS

    def all_paths(self) -> list[str]:
        """The paths of all files that the commit has written, with change files."""
        return [path for stat in self.all_stats() for path in stat.paths]

    def all_stats(self) -> list[WriteStat]:
        """The stats of all partitions."""
        return [stat for found in self.stats.values() for stat in found]

    def to_bytes(self, version: int, *, replaces: bool = False) -> bytes:
        """The content of a commit file of this table version.

        ``replaces``: the commit is a replace commit, even if it replaces nothing.
        """
        replaces = replaces or bool(self.replaced)
        if version >= AVRO_VERSION:
            name = REPLACE_COMMIT_METADATA if replaces else COMMIT_METADATA
            content = {
                **self._content(WriteStat.to_json, replaces),
                "version": None,
            }  # Hudi writes null here, not its default
            return write_parsed(parsed_schema(name), content)
        return json.dumps(self._content(_layout_1_stat, replaces)).encode()

    def _content(self, as_json: Callable[[WriteStat], dict[str, Any]], replaces: bool) -> dict[str, Any]:
        content: dict[str, Any] = {
            "partitionToWriteStats": {p: [as_json(stat) for stat in found] for p, found in self.stats.items()},
            "compacted": self.compacted,
            "extraMetadata": dict(self.extra),
            "operationType": self.operation,
        }
        if replaces:  # even if empty: without the map Hudi 1.x cannot read the commit, and so not the table
            content["partitionToReplaceFileIds"] = {p: list(ids) for p, ids in self.replaced.items()}
        return content

    @staticmethod
    def from_bytes(data: bytes, where: str) -> CommitMetadata:
        """Metadata of any writer and version; an empty file (some pending instants) gives empty metadata."""
        if not data.strip():
            return CommitMetadata(operation=WriteOperationType.UNKNOWN)
        if data.startswith(MAGIC):
            return _from_dict(read_record(data, where))
        try:
            content = json.loads(data)
        except ValueError as error:
            raise CorruptFileError(f"{where} is not readable commit metadata ({error}): restore the file") from error
        if not isinstance(content, dict):
            raise CorruptFileError(f"{where} has no commit metadata: restore the file")
        return _from_dict(content)


def _layout_1_stat(stat: WriteStat) -> dict[str, Any]:
    """The stat without the members that Hudi 1.x added, which 0.x does not use."""
    return {name: value for name, value in stat.to_json().items() if name not in _LAYOUT_2_MEMBERS}


def _from_dict(content: Mapping[str, Any]) -> CommitMetadata:
    stats = content.get("partitionToWriteStats") or {}
    return CommitMetadata(
        stats={p: tuple(WriteStat.from_json(stat) for stat in found) for p, found in stats.items()},
        extra={k: v for k, v in (content.get("extraMetadata") or {}).items() if v is not None},
        operation=content.get("operationType") or WriteOperationType.UNKNOWN,
        compacted=bool(content.get("compacted")),
        replaced={p: tuple(ids) for p, ids in (content.get("partitionToReplaceFileIds") or {}).items()},
    )
