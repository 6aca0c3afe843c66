"""Which file slices of an earlier state of the table are no longer on disk: told by the writes that came after it.

A slice can only be deleted once a later write has taken its place, and that write says which slice it found. So no clean's
record is asked. Where it does not say so, the newest file that an earlier write put into the group must be there: a
savepoint may keep an older slice alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.file_group.names import parse_log_file_name
from tagstream.table.retention.needed import names_of
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.timeline import FileGroupId
from tagstream.table.timeline.write_status import NO_PREVIOUS


@dataclass(frozen=True)
class Later:
    """A write that came after a state. ``read``: names of the files that its plan reads, if it has one, by file group."""

    time: str
    metadata: CommitMetadata
    read: Mapping[FileGroupId, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Missing:
    """A slice that is gone. ``base_instant`` None: of a file group of which nothing is left, or not its newest file."""

    partition_path: str
    file_id: str
    base_instant: str | None
    newest_file: str | None = None

    def __str__(self) -> str:
        slice_ = f"slice {self.base_instant}" if self.base_instant else "every slice"
        if self.newest_file is not None:
            slice_ = f"the slice with {self.newest_file}"
        return f"{slice_} of file group {self.file_id} in partition {self.partition_path!r}"


def superseded(later: Iterable[Later]) -> dict[FileGroupId, str | None]:
    """The slices that writes have taken the place of, by file group: the base instants that were the newest before.

    ``later``: what was written after a state of the table, oldest first. The first base file of a group tells which slice
    there was before; a group that is newer than the state is left out. None: any slice; a replace commit names none, nor do
    Hudi's compactions of a slice that has log files alone.
    """
    found: dict[FileGroupId, str | None] = {}
    made: set[FileGroupId] = set()
    times: set[str] = set()
    for each in later:
        times.add(each.time)
        for stat in each.metadata.all_stats():
            group = stat.partition_path, stat.file_id
            if stat.log_version is not None or group in found or group in made:
                continue  # a log file takes nobody's place
            if stat.prev_commit in (NO_PREVIOUS, "") or stat.prev_commit in times:  # or begun by a log file since
                if any(not _is_of(name, times) for name in each.read.get(group, ())):
                    found[group] = None
                else:
                    made.add(group)
            else:
                found[group] = stat.prev_commit
        for partition, ids in each.metadata.replaced.items():
            for file_id in ids:
                group = partition, file_id
                if group not in found and group not in made:
                    found[group] = None
    return found


def _is_of(name: str, times: set[str]) -> bool:
    """Whether a log file was begun by one of these writes."""
    log = parse_log_file_name(name)
    return log is not None and log.base_instant in times


def newest_files(wanted: Mapping[FileGroupId, str | None], before: Iterable[CommitMetadata]) -> dict[FileGroupId, str]:
    """The names of the files that were written last into those groups of ``wanted`` of which any slice would do.

    ``before``: the writes of the state and up to it, the one that was completed last first; they are read as far as it
    takes. A group that none of them wrote to is left out: its slices are older than all savepoints, and are deleted at once.
    """
    found: dict[FileGroupId, str] = {}
    asked = {group for group, instant in wanted.items() if instant is None}
    if asked:
        for metadata in before:
            for stat in metadata.all_stats():
                group = stat.partition_path, stat.file_id
                if group in asked:
                    found.setdefault(group, stat.file_name)
            if asked <= found.keys():
                break
    return found


def missing(
    view: FileSystemView, wanted: Mapping[FileGroupId, str | None], newest: Mapping[FileGroupId, str]
) -> Missing | None:
    """The first of these slices that ``view``, which is as of the state before, does not have; None: all are there.

    ``newest``: :func:`newest_files`.
    """
    for partition in sorted({partition for partition, _ in wanted}):
        slices = view.all_slices(partition)
        for group, before in sorted(wanted.items(), key=lambda item: item[0]):
            if group[0] != partition:
                continue
            there = slices.get(group[1], ())
            if not _is_there(there, before):
                return Missing(*group, before)
            file = newest.get(group)
            if file is not None and not any(file in names_of(each) for each in there):
                return Missing(*group, None, file)
    return None


def _is_there(slices: Iterable[FileSlice], before: str | None) -> bool:
    times = {found.base_instant for found in slices}
    return before in times if before is not None else bool(times)
