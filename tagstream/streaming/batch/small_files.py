"""Which file groups still take inserts. The list is read from the table once, then updated from this writer's commits.

Sizes follow Hudi. Copy-on-write takes base files under ``hoodie.parquet.small.file.limit``. Merge-on-read takes slices
whose base file plus a share of its logs (``hoodie.logfile.to.parquet.compression.ratio``) is under
``hoodie.parquet.max.file.size``. File groups that other writers' commits have changed are read again before the next batch.

A write profile names files with the known sizes, and has the newest sizes itself. When there are many of these, they
are written to a file ``sizes.<batch>.<run>.<n>`` next to the profiles. The first file has all partitions. The second
file has those that have changed since the first. When these are an eighth of the table's partitions, all partitions are
written again. So a batch costs what has changed since the last file, and a change is written a few times. A file is for
the tasks of the run that wrote it. The next run lists the table and writes a file for itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import FileKind, WriteStatus
from tagstream.table.write.file_sizes import FileSizeOptions
from tagstream.table.write.small_groups import SizesFile, SmallFile, SmallGroups, write_sizes


class SmallFiles:
    """Estimated Parquet size in bytes of every file group under the limit, by partition path and file id."""

    def __init__(
        self,
        sizes: FileSizeOptions,
        *,
        merge_on_read: bool,
        base_only: bool,
        needs_base: bool = False,
        prefix: str = "",
    ) -> None:
        """``base_only``: inserts go to base files, so a group that has logs takes none. ``needs_base``: a group without
        a base file takes none, since some readers do not see it. ``prefix``: only groups whose file ids begin with it
        take inserts, those of this stream.
        """
        self.prefix = prefix
        self.sizes = sizes
        self._limit = sizes.max_file_bytes if merge_on_read and not base_only else sizes.small_file_limit
        self._base_only = base_only and merge_on_read
        self._needs_base = needs_base and merge_on_read
        self._sizes: dict[str, dict[str, float]] = {}
        self._changed: set[str] | None = None
        self._trusted_bytes = sizes.trust_share * sizes.small_file_limit
        self.record_bytes = sizes.record_bytes

    @property
    def records_per_new_file(self) -> int:
        """How many inserts a new file takes: as many as it has room for, and no more than the options say."""
        return min(self.sizes.inserts_per_file, max(1, self.sizes.max_file_bytes // self.record_bytes))

    def load(self, view: FileSystemView) -> None:
        """List every partition. Earlier values are dropped, since another writer may have replaced the files."""
        self._sizes.clear()
        self._changed = None
        partitions = view.partitions()
        view.look_up(partitions)
        for partition in partitions:
            for s in view.latest_merged_slices(partition):
                self._take(view, partition, s)

    def reload(self, view: FileSystemView, groups: Iterable[tuple[str, str]]) -> None:
        """Read some file groups again (partition path and file id), which a table service of this writer has rewritten."""
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
        """Update the sizes with the write statuses of a commit."""
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
                self._set(stat.partition_path, stat.file_id, before + self.sizes.log_ratio * stat.file_size)
        if rows and written > self._trusted_bytes:  # as Hudi: a small commit does not give a good average
            self.record_bytes = max(1, -(-written // rows))

    def _before(self, status: WriteStatus) -> float | None:
        """The size of the group that a log file was added to; None where the group takes no inserts, for example
        because it is full.
        """
        found = self._sizes.get(status.stat.partition_path, {}).get(status.stat.file_id)
        return 0.0 if found is None and status.new_group and not self._needs_base else found

    def profile(self) -> dict[str, tuple[SmallFile, ...]]:
        """How many more records each small file group can take, by partition and in file id order, of all partitions."""
        return SmallGroups(self.sizes.max_file_bytes, self.record_bytes, self._sizes).of(sorted(self._sizes))

    def partitions(self) -> Collection[str]:
        """The paths of the partitions that have, or had, small file groups."""
        return self._sizes.keys()

    def groups(self, partition: str) -> Mapping[str, float]:
        """The current estimated sizes of a partition's groups, by file id."""
        return dict(self._sizes.get(partition, {}))

    def take_changes(self) -> set[str] | None:
        """The partitions that have changed since the last call; None when :meth:`load` was called since."""
        changed, self._changed = self._changed, set()
        return changed

    def _note(self, partition: str) -> None:
        if self._changed is not None:
            self._changed.add(partition)

    def _take(self, view: FileSystemView, partition: str, found: FileSlice) -> None:
        if (partition, found.file_id) in view.timeline.pending_clusterings:
            return  # a pending clustering moves its rows to new file groups, and rows that are added now would be lost
        if (self._base_only and found.log_files) or (self._needs_base and found.base_file is None):
            return
        base = found.base_file.size if found.base_file else 0
        self._set(partition, found.file_id, base + self.sizes.log_ratio * sum(f.size for f in found.log_files))

    def _set(self, partition: str, file_id: str, size: float) -> None:
        groups = self._sizes.setdefault(partition, {})
        self._note(partition)
        if 0 < size < self._limit and file_id.startswith(self.prefix):
            groups[file_id] = size
        else:
            groups.pop(file_id, None)


PREFIX = "sizes."
# The most groups and partitions in a profile: 40 kB, which take about 2 ms to write and to read.
_IN_PROFILE = 512
_SHARE = 8


class PinnedSizes:
    """The size files of one run, and the partitions that have changed since each of them."""

    def __init__(self) -> None:
        self._files: list[SizesFile] = []  # one of all partitions, then one of those that have changed since
        self._since_all: set[str] = set()
        self._since: set[str] = set()
        self._number = 0
        # Names of files that are not used any more, and the first batch that does not use them.
        self._left: dict[str, int] = {}

    def pin(self, storage: Storage, small: SmallFiles, batch_id: int, run: int) -> SmallGroups:
        """The small file groups for the profile of a batch. ``storage``: the folder of the profiles."""
        changed = small.take_changes()
        if changed is None:  # all was listed again
            self._leave(self._files, batch_id)
            self._files, self._since_all, self._since = [], set(), set(small.partitions())
        else:
            self._since |= changed
        if len(self._since) + sum(len(small.groups(p)) for p in self._since) > _IN_PROFILE:
            self._write(storage, small, batch_id, run)
        newest = {p: small.groups(p) for p in sorted(self._since)}
        return SmallGroups(
            small.sizes.max_file_bytes, small.record_bytes, newest, tuple(reversed(self._files)), storage
        )

    def superfluous(self, names: Iterable[str], oldest: int) -> list[str]:
        """Which of the names in the folder no batch from ``oldest`` on needs."""
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
