"""Which file groups still take inserts: listed once from the table, then kept up to date from our own commits.

Sizes follow Hudi: copy-on-write takes base files under ``hoodie.parquet.small.file.limit``; merge-on-read takes
slices whose base file plus a share of its logs (``hoodie.logfile.to.parquet.compression.ratio``) is under
``hoodie.parquet.max.file.size``. Other writers' commits stop the job, so nothing changes behind this cache.

A write profile names the file with the sizes that are known already, and holds the sizes that are new.
``sizes.<batch>.<run>.<n>`` next to the profiles is written when the changes have become many: first one file of
all partitions, then one of all that have changed since the first. When these are an eighth of the table's
partitions, all are written once more. So a batch costs what the batches since the last file have changed, and a
change is written a few times. A file serves the tasks of the run that wrote it. The next run lists the table and
begins with a file of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import FileKind, WriteStatus
from tagstream.table.write.small_groups import SizesFile, SmallFile, SmallGroups, write_sizes


class SmallFiles:
    """Estimated Parquet size in bytes of every file group under the limit, by partition path and file id."""

    def __init__(
        self,
        *,
        merge_on_read: bool,
        small_limit: int,
        max_bytes: int,
        base_only: bool,
        needs_base: bool = False,
        record_bytes: int,
        log_ratio: float,
        trust_share: float,
    ) -> None:
        """``base_only``: inserts go to base files, so a group that has logs takes none. ``needs_base``: a group without
        a base file takes none, since some readers do not see it. ``record_bytes`` holds until a commit has written more
        than ``trust_share`` of the small file limit. ``log_ratio``: Parquet bytes a log byte.
        """
        self._limit = max_bytes if merge_on_read and not base_only else small_limit
        self.max_bytes = max_bytes
        self._base_only = base_only and merge_on_read
        self._needs_base = needs_base and merge_on_read
        self._sizes: dict[str, dict[str, float]] = {}
        self._changed: set[str] | None = None
        self._log_ratio = log_ratio
        self._trusted_bytes = trust_share * small_limit
        self.record_bytes = record_bytes

    def load(self, view: FileSystemView) -> None:
        """List every partition once; what was known before is forgotten, for another writer may have replaced it."""
        self._sizes.clear()
        self._changed = None
        partitions = view.partitions()
        view.look_up(partitions)
        for partition in partitions:
            for s in view.latest_merged_slices(partition):
                self._take(view, partition, s)

    def reload(self, view: FileSystemView, groups: Iterable[tuple[str, str]]) -> None:
        """Look at some file groups again, by partition path and file id: a service of ours has rewritten them."""
        wanted: dict[str, list[str]] = {}
        for partition, file_id in groups:
            wanted.setdefault(partition, []).append(file_id)
        view.look_up(wanted)
        for partition, file_ids in wanted.items():
            known = self._sizes.get(partition, {})
            for file_id in file_ids:
                known.pop(file_id, None)
            self._note(partition)
            for s in view.latest_slices(partition, file_ids).values():
                self._take(view, partition, s)

    def apply(self, statuses: Iterable[WriteStatus]) -> None:
        """Take over what a commit wrote."""
        written = rows = 0
        for status in statuses:
            stat = status.stat
            written, rows = written + stat.total_write_bytes, rows + stat.num_writes
            if status.kind is not FileKind.APPEND:
                self._set(stat.partition_path, stat.file_id, stat.file_size)
            elif self._base_only:
                self._sizes.get(stat.partition_path, {}).pop(stat.file_id, None)
                self._note(stat.partition_path)
            elif (before := self._before(status)) is not None:
                self._set(stat.partition_path, stat.file_id, before + self._log_ratio * stat.file_size)
        if rows and written > self._trusted_bytes:  # Hudi trusts only commits of some size
            self.record_bytes = max(1, -(-written // rows))

    def _before(self, status: WriteStatus) -> float | None:
        """The size of the group that a log file was added to; None where it takes no inserts, being full for example."""
        found = self._sizes.get(status.stat.partition_path, {}).get(status.stat.file_id)
        return 0.0 if found is None and status.new_group and not self._needs_base else found

    def profile(self) -> dict[str, tuple[SmallFile, ...]]:
        """Room in records by partition, in file id order, of all partitions."""
        return SmallGroups(self.max_bytes, self.record_bytes, self._sizes).of(sorted(self._sizes))

    def partitions(self) -> Collection[str]:
        """The paths of the partitions that have, or had, such groups."""
        return self._sizes.keys()

    def groups(self, partition: str) -> Mapping[str, float]:
        """The estimated sizes of a partition's groups by file id, as they are now."""
        return dict(self._sizes.get(partition, {}))

    def take_changes(self) -> set[str] | None:
        """The partitions that have changed since the last call; None when all was listed since."""
        changed, self._changed = self._changed, set()
        return changed

    def _note(self, partition: str) -> None:
        if self._changed is not None:
            self._changed.add(partition)

    def _take(self, view: FileSystemView, partition: str, found: FileSlice) -> None:
        if (partition, found.file_id) in view.timeline.pending_clusterings:
            return  # its rows are being moved elsewhere, and new ones would be lost
        if (self._base_only and found.log_files) or (self._needs_base and found.base_file is None):
            return
        base = found.base_file.size if found.base_file else 0
        self._set(partition, found.file_id, base + self._log_ratio * sum(f.size for f in found.log_files))

    def _set(self, partition: str, file_id: str, size: float) -> None:
        groups = self._sizes.setdefault(partition, {})
        self._note(partition)
        if 0 < size < self._limit:
            groups[file_id] = size
        else:
            groups.pop(file_id, None)


PREFIX = "sizes."
# So many groups and partitions stand in a profile at most: 40 kB, some 2 ms to write and to read.
_IN_PROFILE = 512
_SHARE = 8


class PinnedSizes:
    """The files of one run, and what has changed since each."""

    def __init__(self) -> None:
        self._files: list[SizesFile] = []  # of all partitions, then of those changed since
        self._since_all: set[str] = set()
        self._since: set[str] = set()
        self._number = 0
        # Names that are not used any more, and the batch that was the first to do without.
        self._left: dict[str, int] = {}

    def pin(self, storage: Storage, small: SmallFiles, batch_id: int, run: int) -> SmallGroups:
        """The value for the profile of a batch. ``storage``: the folder of the profiles."""
        changed = small.take_changes()
        if changed is None:  # all was listed again
            self._leave(self._files, batch_id)
            self._files, self._since_all, self._since = [], set(), set(small.partitions())
        else:
            self._since |= changed
        if len(self._since) + sum(len(small.groups(p)) for p in self._since) > _IN_PROFILE:
            self._write(storage, small, batch_id, run)
        newest = {p: small.groups(p) for p in sorted(self._since)}
        return SmallGroups(small.max_bytes, small.record_bytes, newest, tuple(reversed(self._files)), storage)

    def superfluous(self, names: Iterable[str], oldest: int) -> list[str]:
        """Those of the names in the folder that no batch from ``oldest`` on needs."""
        kept = {file.name for file in self._files} | {name for name, batch in self._left.items() if batch > oldest}
        self._left = {name: batch for name, batch in self._left.items() if batch > oldest}
        return [name for name in names if name.startswith(PREFIX) and name not in kept and _batch(name) < oldest]

    def _write(self, storage: Storage, small: SmallFiles, batch_id: int, run: int) -> None:
        self._since_all |= self._since
        whole = not self._files or _SHARE * len(self._since_all) >= len(small.partitions())
        chosen = small.partitions() if whole else self._since_all
        sizes = ((p, groups) for p in chosen if (groups := small.groups(p)) or not whole)
        name = f"{PREFIX}{batch_id:020d}.{run}.{self._number}"
        written = write_sizes(storage, name, sizes)
        self._number += 1
        self._leave(self._files if whole else self._files[1:], batch_id)
        self._files = [written] if whole else [self._files[0], written]
        self._since = set()
        if whole:
            self._since_all = set()

    def _leave(self, files: Iterable[SizesFile], batch_id: int) -> None:
        self._left |= {file.name: batch_id for file in files}


def _batch(name: str) -> int:
    number = name.removeprefix(PREFIX).partition(".")[0]
    return int(number) if number.isdigit() else 0
