"""Check the consistency of a table: files, commits, sizes, footers and keys must agree.

``doubled_partitions`` names the partitions with a key that is live more than once, which another writer may insert
without an index lookup (SQL INSERT, bulk insert).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import TableError
from tagstream.table.file_group.base_file import read_footer, read_keys
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.file_group.log_file import LogBlock, scan_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.file_group.names import METAFILE_NAMES, join, parse_base_file_name, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.duplicate_keys import DuplicateKeys, key_hashes, repeated
from tagstream.table.read.slice_reader import RECORD_BLOCKS
from tagstream.table.services.replaced_partitions import keys_of
from tagstream.table.storage.storage import META_FOLDER, Storage
from tagstream.table.timeline.commit_metadata import WriteStat
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.markers import TEMP_FOLDER

# Hudi 0.15.0 puts the markers of consistent hashing's rings into the partitions.
_RING_MARKER = re.compile(r"\d{14,17}\.commit")
_Stats = Mapping[str, WriteStat]
_Hashes = npt.NDArray[np.uint64]


def validate(table: HoodieTable) -> list[str]:
    """The problems, each one sentence; empty for a sound table. Reads every key and every log header."""
    return list(Validation(table).problems())


class Validation:
    """One check of a table, partition by partition; the counters say what was checked.

    ``global_keys``: a record key may be in only one partition. ``on_partition`` is called with the partition that is
    checked. Memory: the commits' write stats, one file's keys and 8 bytes for each live row (of the whole table with
    ``global_keys``, otherwise of one partition).
    """

    def __init__(
        self, table: HoodieTable, *, global_keys: bool = False, on_partition: Callable[[str], None] = lambda _: None
    ) -> None:
        self._table = table
        self._on_partition = on_partition
        self._global_keys = global_keys
        self.partitions = 0
        self.files = 0
        self.file_bytes = 0
        self.keys = 0

    def problems(self) -> Iterator[str]:
        """The problems as they are found, each one sentence."""
        table = self._table
        timeline = table.timeline()
        view = table.view(timeline)
        stats = _newest_stats(table, timeline)
        by_partition: dict[str, list[WriteStat]] = {}
        for stat in stats.values():
            by_partition.setdefault(stat.partition_path, []).append(stat)
        # A pending compaction or clustering is a plan, not a problem.
        unfinished = (*timeline.pending_writes, *timeline.pending_rollbacks)
        yield from (f"unfinished {i.action} {i.time} ({i.state})" for i in unfinished)
        yield from _stale_markers(table.storage, timeline)
        partitions = view.partitions()
        yield from _invisible_folders(table.storage, set(partitions))
        keys = DuplicateKeys(view, table, global_keys=self._global_keys)
        for partition in partitions:
            self.partitions += 1
            self._on_partition(partition)
            yield from self._files(timeline, partition, stats)
            present = {join(partition, e.name) for e in table.storage.list(partition) if not e.is_dir}
            yield from _missing_files(view, partition, by_partition.get(partition, ()), present)
            yield from _change_files(timeline, by_partition.get(partition, ()), present)
            yield from keys.check(partition)
            self.keys = keys.rows
        yield from keys.check_between()

    def _files(self, timeline: Timeline, partition: str, stats: _Stats) -> Iterator[str]:
        table = self._table
        files: list[str] = []
        for entry in table.storage.list(partition):
            if entry.is_dir:
                continue
            rel = join(partition, entry.name)
            files.append(rel)
            self.files += 1
            self.file_bytes += entry.size
            stat = stats.get(rel)
            if stat is not None and stat.file_size and stat.file_size != entry.size:
                yield f"{rel} has {entry.size} bytes, its commit says {stat.file_size}"
            if not _is_hudis(entry.name):
                yield f"{rel} is not a file of a Hudi table"
        yield from _check_bases(table, timeline, stats, files)
        yield from _check_logs(table, timeline, stats, files)


def _is_hudis(name: str) -> bool:
    known = name in METAFILE_NAMES or _RING_MARKER.fullmatch(name)
    return bool(known or parse_base_file_name(name) or parse_log_file_name(name))


def _newest_stats(table: HoodieTable, timeline: Timeline) -> dict[str, WriteStat]:
    """The write stats of the active commits by file; for a file that was appended to, the newest."""
    stats: dict[str, WriteStat] = {}
    for instant in timeline.completed_writes:
        stats.update({stat.path: stat for stat in timeline.metadata(table.storage, instant).all_stats()})
    return stats


def _stale_markers(storage: Storage, timeline: Timeline) -> list[str]:
    pending = {instant.time for instant in timeline.pending}
    names = [e.name for e in storage.list(TEMP_FOLDER) if e.is_dir and e.name not in pending]
    # MinIO keeps listing the folder of an interrupted put, which is empty.
    left = [name for name in names if next(iter(storage.walk_files(f"{TEMP_FOLDER}/{name}")), None) is not None]
    return [f"there are markers of {name}, which is not a pending instant" for name in left]


def _invisible_folders(storage: Storage, partitions: set[str]) -> Iterator[str]:
    """Folders with data files that readers skip, because they have no partition metafile."""
    folders = [""]
    while folders:
        folder = folders.pop()
        entries = storage.list(folder)
        folders += [join(folder, e.name) for e in entries if e.is_dir and e.name != META_FOLDER]
        data = [e.name for e in entries if parse_base_file_name(e.name) or parse_log_file_name(e.name)]
        if data and folder not in partitions:
            yield f"{folder or 'the base path'} has {len(data)} data files and no partition metafile: readers skip it"


def _check_bases(table: HoodieTable, timeline: Timeline, stats: _Stats, files: Iterable[str]) -> Iterator[str]:
    for rel in files:
        base = parse_base_file_name(rel.rsplit("/", 1)[-1])
        if base is None or _is_pending(timeline, base.instant):
            continue
        try:
            yield from _check_base(table, timeline, stats.get(rel), rel, base.instant)
        except TableError as error:
            yield str(error)


def _check_base(table: HoodieTable, timeline: Timeline, stat: WriteStat | None, rel: str, time: str) -> Iterator[str]:
    if not timeline.is_valid(time):
        yield f"{rel} belongs to {time}, which is not a completed instant"
        return
    # Of archived commits only their completion is known.
    if stat is None and timeline.find(time) is not None:
        yield f"{rel} is named by no commit"
    footer = read_footer(table.storage, rel)
    if stat is not None and stat.num_writes != footer.rows:
        yield f"{rel} has {footer.rows} rows, its commit says {stat.num_writes}"
    if not table.config.populate_meta_fields or footer.rows == 0:
        return
    keys = read_keys(table.storage, rel)
    limits = pc.min_max(keys)
    low, high = limits["min"].as_py(), limits["max"].as_py()
    if footer.min_key is not None and (footer.min_key, footer.max_key) != (low, high):
        yield f"{rel} has keys from {low!r} to {high!r}, its footer says {footer.min_key!r} to {footer.max_key!r}"
    if footer.bloom is not None and not _all_in(footer.bloom.might_contain(keys.combine_chunks())):
        yield f"{rel} has keys that its bloom filter does not contain"


def _check_logs(table: HoodieTable, timeline: Timeline, stats: _Stats, files: Iterable[str]) -> Iterator[str]:
    blocks: dict[str, list[LogBlock]] = {}
    for rel in files:
        log = parse_log_file_name(rel.rsplit("/", 1)[-1])
        if log is None or log.is_cdc:
            continue
        try:
            blocks[rel] = list(scan_log_file(table.storage, rel))
        except TableError as error:
            yield str(error)
    rolled_back = {block.target_instant for found in blocks.values() for block in found}
    for rel, found in blocks.items():
        yield from (f"{rel} has a corrupt block at byte {b.offset}" for b in found if b.type is BlockType.CORRUPT)
        times = {b.instant for b in found if b.type in RECORD_BLOCKS and b.instant is not None} - rolled_back
        settled = sorted(time for time in times if not _is_pending(timeline, time))
        for time in settled:
            if not timeline.is_valid(time):
                yield f"{rel} has a block of {time}, which is not a completed instant"
        if rel not in stats and any(timeline.find(time) is not None for time in settled):
            yield f"{rel} is named by no commit"


def _is_pending(timeline: Timeline, time: str) -> bool:
    """Whether an instant is unfinished. It is reported itself, so its files are not."""
    return any(instant.time == time for instant in timeline.pending)


def _missing_files(
    view: FileSystemView, partition: str, stats: Sequence[WriteStat], present: set[str]
) -> Iterator[str]:
    """Missing files of the newest slices that a commit has written. ``stats`` are the partition's, oldest first."""
    logs: dict[str, list[WriteStat]] = {}
    newest_base: dict[str, WriteStat] = {}
    for stat in stats:
        if parse_log_file_name(stat.file_name) is not None:
            logs.setdefault(stat.file_id, []).append(stat)
        if stat.log_version is None:
            newest_base[stat.file_id] = stat
    for file_slice in view.latest_merged_slices(partition):
        for stat in logs.get(file_slice.file_id, ()):
            log = parse_log_file_name(stat.file_name)
            if stat.path in present or log is None:
                continue
            if view.timeline.completion_time(log.base_instant) >= file_slice.base_instant:
                yield f"{stat.path} is missing, and the newest slice of its file group needs it"
    for file_id, stat in newest_base.items():
        if stat.path not in present and (partition, file_id) not in view.timeline.replaced:
            yield f"{stat.path} is missing, the newest base file of its file group"


def _change_files(timeline: Timeline, stats: Sequence[WriteStat], present: set[str]) -> Iterator[str]:
    """Change files that are missing while their base file exists, have another size, or are named by no commit.

    ``stats``: those of the partition's files in active commits.
    """
    named = {rel: stat for stat in stats for rel in stat.change_files}
    for rel, stat in sorted(named.items()):
        if rel not in present and stat.path in present:
            yield f"{rel} is missing, the change file of {stat.path}"
    for rel in sorted(present - named.keys()):
        log = parse_log_file_name(rel.rsplit("/", 1)[-1])
        if log is None or not log.is_cdc or _is_pending(timeline, log.base_instant):
            continue
        if not timeline.is_valid(log.base_instant):
            yield f"{rel} belongs to {log.base_instant}, which is not a completed instant"
        elif timeline.find(log.base_instant) is not None:
            yield f"{rel} is named by no commit"


def _all_in(found: object) -> bool:
    return bool(pc.all(pa.array(found)).as_py())


def doubled_partitions(table: HoodieTable, *, global_keys: bool) -> tuple[str, ...]:
    """Partition paths with a key that occurs again: in the partition, or with ``global_keys`` in any partition.

    Keys are compared by 64-bit hashes: 8 bytes of memory for each row of a partition, or with ``global_keys`` of the
    table.
    """
    timeline = table.timeline()
    none: _Hashes = np.zeros(0, np.uint64)
    distinct: dict[str, _Hashes] = {}
    found: set[str] = set()
    for partition in table.view(timeline).partitions():
        hashes = np.concatenate([none, *(key_hashes(keys) for _, keys in keys_of(table, timeline, [partition]))])
        if len(repeated(hashes)):
            found.add(partition)
        if global_keys:
            distinct[partition] = np.unique(hashes)
    again = repeated(np.concatenate([none, *distinct.values()]))
    found.update(partition for partition, hashes in distinct.items() if np.isin(hashes, again).any())
    return tuple(sorted(found))
