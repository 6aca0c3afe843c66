"""The operations of a compaction's plan, whoever made it: Hudi on Spark, Flink, or this project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tagstream.table.errors import CorruptFileError, InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.file_group import BaseFile, FileSlice, LogFile
from tagstream.table.file_group.names import parse_base_file_name, parse_log_file_name
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.instant import COMPACTION, Instant, State


@dataclass(frozen=True)
class Operation:
    """The compaction of one file group. Files are names without folders, log files in their order.

    ``base_file`` is None for a slice that has logs alone. ``io_mib``: read and written, as the plan estimates; 0 where it
    does not.
    """

    partition_path: str
    file_id: str
    base_instant: str
    base_file: str | None
    log_files: tuple[str, ...]
    io_mib: float = field(default=0.0, compare=False)

    @property
    def base_path(self) -> str | None:
        """The base file relative to the table's base path."""
        return None if self.base_file is None else join(self.partition_path, self.base_file)

    def file_slice(self, without: frozenset[str] = frozenset()) -> FileSlice:
        """What is to be merged: exactly the plan's files, but for those that are gone."""
        base = None
        if self.base_file is not None:
            parsed = parse_base_file_name(self.base_file)
            base = BaseFile(self.base_file, self.file_id, parsed.instant if parsed else self.base_instant, 0)
        logs = []
        for name in self.log_files:
            log = parse_log_file_name(name)
            if log is not None and name not in without:
                logs.append(LogFile(name, self.file_id, log.base_instant, log.version, log.write_token, 0))
        ordered = tuple(sorted(logs, key=lambda log: log.order))
        return FileSlice(self.partition_path, self.file_id, self.base_instant, base, ordered)


def read_operations(table: HoodieTable, instant: str) -> list[Operation]:
    """The operations of the plan of ``instant``, in its order.

    InstantConflictError when there is no such plan, CorruptFileError for one that names files that are none.
    """
    rel = f"{table.config.timeline_folder}/{Instant(instant, COMPACTION, State.REQUESTED).file_name()}"
    where = table.storage.where(rel)
    try:
        record = read_record(table.storage.read(rel), where)
    except FileNotFoundError:
        raise InstantConflictError(
            f"{where} is not there: no compaction was planned at {instant}; `timeline().pending` has those that are"
        ) from None
    return [_operation(each, where) for each in record.get("operations") or ()]


def _operation(found: Mapping[str, Any], where: str) -> Operation:
    if found.get("bootstrapFilePath"):
        raise UnsupportedTableError(f"{where} plans to compact a bootstrapped file: run it with Hudi")
    base = _name(found.get("dataFilePath"))
    logs = tuple(name for name in map(_name, found.get("deltaFilePaths") or ()) if name is not None)
    wrong = [name for name in logs if parse_log_file_name(name) is None]
    if base is not None and parse_base_file_name(base) is None:
        wrong.append(base)
    if wrong or not found.get("fileId"):
        raise CorruptFileError(
            f"{where} names {', '.join(wrong) or 'no file id'}, which is no data file: restore the plan"
        )
    io_mib = (found.get("metrics") or {}).get("TOTAL_IO_MB") or 0.0
    partition, instant = found.get("partitionPath") or "", found.get("baseInstantTime") or ""
    return Operation(partition, found["fileId"], instant, base, logs, io_mib)


def _name(path: str | None) -> str | None:
    """A file's name: plans of version 1 have whole paths."""
    return path.rsplit("/", 1)[-1] if path else None
