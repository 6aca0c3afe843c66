"""The file slices of a table at an instant, from listed partitions or from a given listing.

A slice is a base file and its log files. Up to table version 7 the name of a log file has the base instant of its
slice. From version 8 on it has the instant of its own delta commit, and the file belongs to the newest slice that began
before that commit was completed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tagstream.table.file_group.names import join, list_partitions, parse_base_file_name, parse_log_file_name
from tagstream.table.storage.storage import FileEntry, Storage
from tagstream.table.table_version import TableVersion
from tagstream.table.timeline.timeline import Timeline


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
    """One version of a file group. Up to version 7 new log files of the group use ``base_instant``.

    ``next_log_version`` is the next free log version, after all files in the folder, including those of failed writes.
    ``change_files``: those of the base file; only :meth:`FileSystemView.all_slices` finds them.
    """

    partition_path: str
    file_id: str
    base_instant: str
    base_file: BaseFile | None
    log_files: tuple[LogFile, ...] = ()
    next_log_version: int = 1
    change_files: tuple[LogFile, ...] = ()

    @property
    def base_path(self) -> str | None:
        """The base file relative to the table's base path; None without one."""
        return join(self.partition_path, self.base_file.name) if self.base_file else None

    @property
    def log_paths(self) -> tuple[str, ...]:
        """The log files relative to the table's base path, in reading order."""
        return tuple(join(self.partition_path, log.name) for log in self.log_files)

    @property
    def size(self) -> int:
        """Total bytes of the base file and the log files."""
        return (self.base_file.size if self.base_file else 0) + sum(log.size for log in self.log_files)


_PREFIXES = 32


@dataclass
class _Group:
    """All files of one file group, committed or not."""

    file_id: str
    bases: list[BaseFile]
    logs: list[LogFile]
    changes: list[LogFile] = field(default_factory=list)


class ArchivedTimes(Protocol):
    """Completion times of actions that are no longer on the active timeline."""

    def completion_time(self, time: str) -> str | None:
        """The completion time of an archived instant; None when it is not in the archive."""
        ...


class Listing(Protocol):
    """The files of a table, from a source other than its folders, such as the metadata table."""

    def partitions(self) -> list[str]:
        """All partition paths, sorted."""
        ...

    def look_up(self, partition_paths: Collection[str]) -> None:
        """Load several partitions at once, before :meth:`files` is called for each."""
        ...

    def files(self, partition_path: str) -> Mapping[str, int]:
        """Sizes in bytes of the files of a partition, by name."""
        ...


@dataclass(frozen=True)
class FileSystemView:
    """The committed slices as of ``as_of`` (an instant time; None: nothing is committed).

    ``archived``: completion times of archived commits, which assign log files to slices from version 8 on. ``listing``: the
    source of the files; None: the folders are listed.
    """

    storage: Storage
    timeline: Timeline
    as_of: str | None
    version: int
    archived: ArchivedTimes | None = None
    listing: Listing | None = None

    def partitions(self) -> list[str]:
        """All partition paths, sorted."""
        return list_partitions(self.storage) if self.listing is None else self.listing.partitions()

    def look_up(self, partition_paths: Collection[str]) -> None:
        """Announce partitions that are needed next: a listing loads them at once. Folders are listed later, one by one."""
        if self.listing is not None:
            self.listing.look_up(partition_paths)

    def latest_merged_slices(self, partition_path: str) -> list[FileSlice]:
        """The newest slice of every file group that is not replaced, sorted by file id.

        The slice of a pending compaction is merged with the one before it: both together are the group's content.
        """
        groups = self._groups(partition_path)
        found = (self._latest(partition_path, group) for _, group in sorted(groups.items()))
        return [file_slice for file_slice in found if file_slice is not None]

    def latest_slice(self, partition_path: str, file_id: str) -> FileSlice | None:
        """The newest merged slice of one file group; None when the group has no committed slice."""
        return self.latest_slices(partition_path, [file_id]).get(file_id)

    def latest_slices(self, partition_path: str, file_ids: Collection[str]) -> dict[str, FileSlice]:
        """The newest merged slices of some file groups by file id, without groups that have no committed slice.

        The partition is listed once.
        """
        groups = self._groups(partition_path, frozenset(file_ids))
        found = {file_id: self._latest(partition_path, group) for file_id, group in groups.items()}
        return {file_id: file_slice for file_id, file_slice in found.items() if file_slice is not None}

    def latest_base_files(self, partition_path: str) -> list[BaseFile]:
        """The newest committed base file of every file group that is not replaced (read-optimized query)."""
        groups = self._groups(partition_path)
        found = (self._newest_base(g) for _, g in sorted(groups.items()) if not self._replaced(partition_path, g))
        return [base for base in found if base is not None]

    def all_slices(self, partition_path: str) -> dict[str, tuple[FileSlice, ...]]:
        """Every committed slice of each file group, oldest first, by file id, including replaced groups.

        A slice that a pending compaction has begun (up to version 7) is separate here. Two base files of one instant
        are two slices: one of them is a leftover. A group without a committed slice is left out.
        """
        by_time = (
            self._slices_by_completion if TableVersion.of(self.version).has_completion_times else self._slices_by_name
        )
        found = {
            file_id: by_time(partition_path, group) for file_id, group in sorted(self._groups(partition_path).items())
        }
        return {file_id: slices for file_id, slices in found.items() if slices}

    def _slices_by_name(self, partition_path: str, group: _Group) -> tuple[FileSlice, ...]:
        pending = self.timeline.pending_compactions.get((partition_path, group.file_id))
        logs: dict[str, list[LogFile]] = {}
        for log in sorted(group.logs, key=lambda log: log.order):
            if self._committed(log.time) or log.time == pending:
                logs.setdefault(log.time, []).append(log)
        return _slices(partition_path, group, [b for b in group.bases if self._committed(b.instant)], logs)

    def _slices_by_completion(self, partition_path: str, group: _Group) -> tuple[FileSlice, ...]:
        bases = [b for b in group.bases if self._committed(b.instant)]
        own = sorted((log for log in group.logs if self._committed(log.time)), key=lambda log: log.order)
        begins = sorted({b.instant for b in bases})
        logs: dict[str, list[LogFile]] = {}
        before_all = min((log.time for log in own), default="")
        for log in own:
            at = bisect_right(begins, self._completed_at(log.time))
            logs.setdefault(begins[at - 1] if at else before_all, []).append(log)
        return _slices(partition_path, group, bases, logs)

    def _groups(self, partition_path: str, only: frozenset[str] | None = None) -> dict[str, _Group]:
        groups: dict[str, _Group] = {}
        for name, size in self._files(partition_path, only):
            base = parse_base_file_name(name)
            if base is not None and (only is None or base.file_id in only):
                group = groups.setdefault(base.file_id, _Group(base.file_id, [], []))
                group.bases.append(BaseFile(name, base.file_id, base.instant, size))
                continue
            log = parse_log_file_name(name)
            if log is not None and (only is None or log.file_id in only):
                group = groups.setdefault(log.file_id, _Group(log.file_id, [], []))
                file = LogFile(name, log.file_id, log.base_instant, log.version, log.write_token, size)
                (group.changes if log.is_cdc else group.logs).append(file)
        return groups

    def _files(self, partition_path: str, only: frozenset[str] | None) -> Iterator[tuple[str, int]]:
        """Names and sizes of the files of a partition; at least all files of the file ids."""
        prefixes: tuple[str, ...] = ("",)
        if (
            only is not None and len(only) <= _PREFIXES
        ):  # with more prefixes, comparing each name with all costs more than reading all entries
            prefixes = tuple(f"{dot}{file_id}_" for file_id in only for dot in ("", "."))
        if self.listing is not None:
            listed = self.listing.files(partition_path).items()
            yield from listed if prefixes == ("",) else (found for found in listed if found[0].startswith(prefixes))
            return
        for entry in self.storage.list(partition_path, prefixes):
            if not entry.is_dir:
                yield entry.name, entry.size

    def _replaced(self, partition_path: str, group: _Group) -> bool:
        at = self.timeline.replaced.get((partition_path, group.file_id))
        return at is not None and self.as_of is not None and self.as_of >= at

    def _committed(self, instant: str) -> bool:
        return self.as_of is not None and instant <= self.as_of and self.timeline.is_valid(instant)

    def _completed_at(self, time: str) -> str:
        known, start = self.timeline.completion_time(time), self.timeline.start
        if known == time and self.archived is not None and start is not None and time < start:
            # As in Hudi, a commit that the archive lacks has its instant time.
            return self.archived.completion_time(time) or time
        return known

    def _newest_base(self, group: _Group, before: str | None = None) -> BaseFile | None:
        bases = [b for b in group.bases if self._committed(b.instant) and (before is None or b.instant < before)]
        return max(bases, key=lambda b: (b.instant, b.name), default=None)

    def _latest(self, partition_path: str, group: _Group) -> FileSlice | None:
        if self._replaced(partition_path, group):
            return None
        pending = self.timeline.pending_compactions.get((partition_path, group.file_id))
        logs = sorted(group.logs, key=lambda log: log.order)
        if TableVersion.of(self.version).has_completion_times:
            found = self._latest_by_completion(partition_path, group, logs)
        else:
            found = self._latest_by_name(partition_path, group, logs, pending)
        if found is None:
            return None
        versions = [log.version for log in logs if log.time == found.base_instant]
        return replace(found, next_log_version=max(versions, default=0) + 1)

    def _latest_by_name(
        self, partition_path: str, group: _Group, logs: list[LogFile], pending: str | None
    ) -> FileSlice | None:
        """The newest slice for table versions up to 7."""
        times = {base.instant for base in group.bases} | {log.time for log in logs}
        committed = [time for time in times if self._committed(time) and time != pending]
        # A paused driver wrote this plan: the group has a later slice, and no writer has used the plan.
        if pending is not None and any(time > pending for time in committed):
            pending = None
        base_instant = max(committed, default=None)
        if base_instant is None and pending is None:
            return None
        instants = [time for time in (base_instant, pending) if time is not None]
        base = next((b for b in [self._newest_base(group)] if b is not None and b.instant == base_instant), None)
        own = tuple(log for log in logs if log.time in instants)
        return FileSlice(partition_path, group.file_id, instants[-1], base, own)

    def _latest_by_completion(self, partition_path: str, group: _Group, logs: list[LogFile]) -> FileSlice | None:
        """The newest slice for table versions from 8 on. A pending compaction changes nothing: it keeps the base file."""
        base = self._newest_base(group)
        own = [log for log in logs if self._committed(log.time)]
        if base is not None:
            own = [log for log in own if self._completed_at(log.time) >= base.instant]
        elif not own:
            return None
        base_instant = base.instant if base is not None else min(log.time for log in own)
        return FileSlice(partition_path, group.file_id, base_instant, base, tuple(own))


def _slices(
    partition_path: str, group: _Group, bases: Sequence[BaseFile], logs: Mapping[str, Sequence[LogFile]]
) -> tuple[FileSlice, ...]:
    """Slices of these base files and of these logs (by the instants of their slices), oldest first."""
    found = []
    for time in sorted({base.instant for base in bases} | logs.keys()):
        own = sorted((base for base in bases if base.instant == time), key=lambda base: base.name)
        found += [FileSlice(partition_path, group.file_id, time, base) for base in own[:-1]]
        newest = own[-1] if own else None
        changes = tuple(sorted((file for file in group.changes if file.time == time), key=lambda file: file.order))
        slice_logs = tuple(logs.get(time, ()))
        found.append(FileSlice(partition_path, group.file_id, time, newest, slice_logs, change_files=changes))
    return tuple(found)


def committed_entries(entries: Iterable[FileEntry], timeline: Timeline) -> dict[str, int]:
    """Sizes in bytes, by name, of the files of a listing that are committed, including those of older slices."""
    return committed_files({entry.name: entry.size for entry in entries if not entry.is_dir}, timeline)


def committed_files(sizes: Mapping[str, int], timeline: Timeline) -> dict[str, int]:
    """The committed files among these (sizes by name).

    Up to version 7 the name of a log file has the time of its slice, which a compaction plan may have begun.
    """
    plans = frozenset(timeline.pending_compactions.values())

    def counts(name: str) -> bool:
        base, log = parse_base_file_name(name), parse_log_file_name(name)
        if base is not None:
            return timeline.is_valid(base.instant)
        return log is not None and (timeline.is_valid(log.base_instant) or log.base_instant in plans)

    return {name: size for name, size in sizes.items() if counts(name)}
