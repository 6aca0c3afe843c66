"""Which files a clean deletes: a function of the timeline, the slices as listed and the options.

Of each file group stays what somebody needs (``table.retention``): the newest slice; with an earliest commit to retain also
the newest slice before it and all from it on; slices that a savepoint has a file of; slices that a pending plan reads.
Replaced groups go as a whole once the replace commit is older than what is retained. Files of writes that were not completed
are never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tagstream.table.each import each
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.file_group.names import parse_base_file_name, parse_log_file_name
from tagstream.table.retention.needed import Held, Past, why_needed
from tagstream.table.services.cleaning.options import CleanOptions, CleanPolicy
from tagstream.table.timeline.instant import Instant


@dataclass(frozen=True)
class OldFile:
    """A file to be deleted; ``size`` in bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class CleanPlan:
    """``earliest``: the commit that is retained; ``newest``: the newest completed write as it was planned.

    ``files`` by partition path; ``partitions``: those that go with their folders; ``looked_at``: how many were listed;
    ``extra``: what the action's extra metadata says.
    """

    policy: CleanPolicy
    earliest: Instant | None
    newest: str
    files: Mapping[str, tuple[OldFile, ...]]
    partitions: tuple[str, ...] = ()
    looked_at: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all files that go."""
        return sum(file.size for files in self.files.values() for file in files)


def old_files(
    view: FileSystemView, partitions: Sequence[str], options: CleanOptions, earliest: Instant | None, held: Held
) -> tuple[dict[str, tuple[OldFile, ...]], tuple[str, ...]]:
    """(old files by partition path, partitions that are left empty by a delete of partitions). Each is listed once or twice.

    ``earliest``: the commit to retain, None for a policy that has none.
    """
    time = earliest.time if earliest is not None else None

    def look(partition: str) -> tuple[tuple[OldFile, ...], bool]:
        return _of_partition(view, partition, options, time, held)

    view.look_up(partitions)
    found = dict(zip(partitions, each(look, partitions), strict=True))
    files = {partition: old for partition, (old, _) in found.items() if old}
    return files, tuple(partition for partition, (_, whole) in found.items() if whole)


def _of_partition(
    view: FileSystemView, partition: str, options: CleanOptions, earliest: str | None, held: Held
) -> tuple[tuple[OldFile, ...], bool]:
    by_version = options.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS
    past = Past(versions=options.file_versions) if by_version else Past(earliest)
    gone: list[OldFile] = []
    stays = False
    for file_id, slices in view.all_slices(partition).items():
        reasons = why_needed(view.timeline, (partition, file_id), slices, past, held)
        old = [found for found, reason in zip(slices, reasons, strict=True) if reason is None]
        stays |= len(old) < len(slices)
        gone += [file for file_slice in old for file in _files(file_slice)]
    whole = bool(gone) and not stays and options.whole_partitions and _is_left_empty(view, partition, earliest, gone)
    return tuple(gone), whole


def _files(file_slice: FileSlice) -> Iterator[OldFile]:
    for file in (file_slice.base_file, *file_slice.log_files):
        if file is not None:
            yield OldFile(file.name, file.size)


def _is_left_empty(view: FileSystemView, partition: str, earliest: str | None, gone: Sequence[OldFile]) -> bool:
    """Nothing else is there, not even of an unfinished write, and no replace commit since then empties it once more."""
    if not partition:
        return False
    if any(p == partition and earliest is not None and at >= earliest for (p, _), at in view.timeline.replaced.items()):
        return False
    return not data_files(view, partition) - {file.name for file in gone}


def data_files(view: FileSystemView, partition: str) -> set[str]:
    """The names of all data files in a partition's folder, committed or not; folders in it count, too."""
    return {
        entry.name
        for entry in view.storage.list(partition)
        if entry.is_dir or parse_base_file_name(entry.name) or parse_log_file_name(entry.name)
    }
