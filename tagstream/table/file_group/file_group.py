"""File slices: a base file and the log files over it, as found in a partition's folder."""

from __future__ import annotations

from dataclasses import dataclass

from tagstream.table.file_group.partition_metadata import join


@dataclass(frozen=True)
class BaseFile:
    """A Parquet base file; ``size`` in bytes."""

    name: str
    file_id: str
    instant: str
    size: int


@dataclass(frozen=True)
class LogFile:
    """A log file; ``time`` is the base instant of its slice up to version 7, its own delta commit from 8 on."""

    name: str
    file_id: str
    time: str
    version: int
    token: str | None
    size: int

    @property
    def order(self) -> tuple[str, int, bool, str]:
        """Sort key: time, version as a number, files without a write token first."""
        return (self.time, self.version, self.token is not None, self.token or "")


@dataclass(frozen=True)
class FileSlice:
    """One version of a file group. ``base_instant`` is where new log files of the group belong (up to version 7).

    ``next_log_version`` is free in the folder, counting also files of failed writes.
    """

    partition_path: str
    file_id: str
    base_instant: str
    base_file: BaseFile | None
    log_files: tuple[LogFile, ...] = ()
    next_log_version: int = 1

    @property
    def base_path(self) -> str | None:
        """The base file relative to the table's base path."""
        return join(self.partition_path, self.base_file.name) if self.base_file else None

    @property
    def log_paths(self) -> tuple[str, ...]:
        """The log files relative to the table's base path, in reading order."""
        return tuple(join(self.partition_path, log.name) for log in self.log_files)

    @property
    def size(self) -> int:
        """Bytes of the base file and the log files together."""
        return (self.base_file.size if self.base_file else 0) + sum(log.size for log in self.log_files)
