"""Which file slices of an earlier state of the table are no longer on disk: told by the writes that came after it.

A slice can only be deleted once a later write has taken its place, and that write says which slice it found. So no clean's
record and no older commit is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.timeline import FileGroupId
from tagstream.table.timeline.write_status import NO_PREVIOUS


@dataclass(frozen=True)
class Missing:
    """A slice that is gone. ``base_instant`` None: of a replaced file group, of which nothing is left."""

    partition_path: str
    file_id: str
    base_instant: str | None

    def __str__(self) -> str:
        slice_ = f"slice {self.base_instant}" if self.base_instant else "every slice"
        return f"{slice_} of file group {self.file_id} in partition {self.partition_path!r}"


def superseded(later: Iterable[tuple[str, CommitMetadata]]) -> dict[FileGroupId, str | None]:
    """The slices that writes have taken the place of, by file group: the base instants that were the newest before.

    ``later``: times and contents of what was written after a state of the table, oldest first. The first base file of a
    group tells which slice there was before; a group that is newer than the state is left out. None: a replaced group, of
    which the replace commit names no slice.
    """
    found: dict[FileGroupId, str | None] = {}
    made: set[FileGroupId] = set()
    times: set[str] = set()
    for time, metadata in later:
        times.add(time)
        for stat in metadata.all_stats():
            group = stat.partition_path, stat.file_id
            if stat.log_version is not None or group in found or group in made:
                continue  # a log file takes nobody's place
            if stat.prev_commit in (NO_PREVIOUS, "") or stat.prev_commit in times:  # or begun by a log file since
                made.add(group)
            else:
                found[group] = stat.prev_commit
        for partition, ids in metadata.replaced.items():
            for file_id in ids:
                group = partition, file_id
                if group not in found and group not in made:
                    found[group] = None
    return found


def missing(view: FileSystemView, wanted: Mapping[FileGroupId, str | None]) -> Missing | None:
    """The first of these slices that ``view``, which is as of the state before, does not have; None: all are there."""
    for partition in sorted({partition for partition, _ in wanted}):
        slices = view.all_slices(partition)
        for (path, file_id), before in sorted(wanted.items(), key=lambda item: item[0]):
            if path == partition and not _is_there(slices.get(file_id, ()), before):
                return Missing(partition, file_id, before)
    return None


def _is_there(slices: Iterable[FileSlice], before: str | None) -> bool:
    times = {found.base_instant for found in slices}
    return before in times if before is not None else bool(times)
