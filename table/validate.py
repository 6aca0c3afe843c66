"""Check a table against itself: files, commits, sizes, footers and keys must agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from table.base_file import read_footer, read_keys
from table.errors import TableError
from table.fs_view import FileSystemView
from table.hoodie_table import HoodieTable
from table.log.block import LogBlock
from table.log.format import BlockType
from table.log.reader import scan_log_file
from table.markers import TEMP_FOLDER
from table.names import parse_base_file_name, parse_log_file_name
from table.partition_metadata import join
from table.schema import PARTITION_PATH, RECORD_KEY
from table.slice_reader import RECORD_BLOCKS
from table.snapshot import scan_snapshot
from table.storage import META_FOLDER, Storage
from table.timeline import Timeline
from table.write_status import WriteStat

_Stats = Mapping[str, WriteStat]


def validate(table: HoodieTable) -> list[str]:
    """Problems found, each one sentence; empty for a sound table. Reads every key and every log header."""
    timeline = table.timeline()
    view = table.view(timeline)
    stats = _newest_stats(table, timeline)
    # A pending compaction or clustering is a plan, not a fault.
    unfinished = (*timeline.pending_writes, *timeline.pending_rollbacks)
    problems = [f"unfinished {i.action} {i.time} ({i.state})" for i in unfinished]
    problems += _stale_markers(table.storage, timeline)
    problems += _invisible_folders(table.storage, set(view.partitions()))
    for partition in view.partitions():
        names = [(e.name, e.size) for e in table.storage.list(partition) if not e.is_dir]
        files = [(join(partition, name), size) for name, size in names]
        for rel, size in files:
            stat = stats.get(rel)
            if stat is not None and stat.file_size and stat.file_size != size:
                problems.append(f"{rel} has {size} bytes, its commit says {stat.file_size}")
        problems += _check_bases(table, timeline, stats, [rel for rel, _ in files])
        problems += _check_logs(table, timeline, stats, [rel for rel, _ in files])
        problems += _missing_files(view, partition, stats, {rel for rel, _ in files})
    problems += _keys_twice(table)
    return problems


def _newest_stats(table: HoodieTable, timeline: Timeline) -> dict[str, WriteStat]:
    """What the active commits say about each file; of a file appended to, what the newest says."""
    stats: dict[str, WriteStat] = {}
    for instant in timeline.completed_writes:
        stats.update({stat.path: stat for stat in timeline.metadata(table.storage, instant).all_stats()})
    return stats


def _stale_markers(storage: Storage, timeline: Timeline) -> list[str]:
    pending = {instant.time for instant in timeline.pending}
    folders = (e.name for e in storage.list(TEMP_FOLDER) if e.is_dir)
    return [f"markers of {name} are left, which is no pending instant" for name in folders if name not in pending]


def _invisible_folders(storage: Storage, partitions: set[str]) -> Iterator[str]:
    """Folders with data files that readers pass over, as they have no partition metafile."""
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
    # Of archived commits nothing is known any more but that they were completed.
    if stat is None and timeline.find(time) is not None:
        yield f"{rel} is named by no commit"
    path = table.storage.path(rel)
    footer = read_footer(path)
    if stat is not None and stat.num_writes != footer.rows:
        yield f"{rel} has {footer.rows} rows, its commit says {stat.num_writes}"
    if not table.config.populate_meta_fields or footer.rows == 0:
        return
    keys = read_keys(path)
    limits = pc.min_max(keys)
    low, high = limits["min"].as_py(), limits["max"].as_py()
    if footer.min_key is not None and (footer.min_key, footer.max_key) != (low, high):
        yield f"{rel} has keys from {low!r} to {high!r}, its footer says {footer.min_key!r} to {footer.max_key!r}"
    if footer.bloom is not None and not _all_in(footer.bloom.might_contain(keys.combine_chunks())):
        yield f"{rel} has keys that its bloom filter does not know"


def _check_logs(table: HoodieTable, timeline: Timeline, stats: _Stats, files: Iterable[str]) -> Iterator[str]:
    blocks: dict[str, list[LogBlock]] = {}
    for rel in files:
        log = parse_log_file_name(rel.rsplit("/", 1)[-1])
        if log is None or log.is_cdc:
            continue
        try:
            blocks[rel] = list(scan_log_file(table.storage.path(rel)))
        except TableError as error:
            yield str(error)
    taken_back = {block.target_instant for found in blocks.values() for block in found}
    for rel, found in blocks.items():
        yield from (f"{rel} has a corrupt block at byte {b.offset}" for b in found if b.type is BlockType.CORRUPT)
        times = {b.instant for b in found if b.type in RECORD_BLOCKS and b.instant is not None} - taken_back
        settled = sorted(time for time in times if not _is_pending(timeline, time))
        for time in settled:
            if not timeline.is_valid(time):
                yield f"{rel} has a block of {time}, which is not a completed instant"
        if rel not in stats and any(timeline.find(time) is not None for time in settled):
            yield f"{rel} is named by no commit"


def _is_pending(timeline: Timeline, time: str) -> bool:
    """Files of an unfinished instant are not listed one by one: the instant is."""
    return any(instant.time == time for instant in timeline.pending)


def _missing_files(view: FileSystemView, partition: str, stats: _Stats, present: set[str]) -> Iterator[str]:
    """Files of the newest slices that a commit wrote and that are gone."""
    for file_slice in view.latest_merged_slices(partition):
        newest = file_slice.base_instant
        for path, stat in stats.items():
            if stat.partition_path != partition or stat.file_id != file_slice.file_id or path in present:
                continue
            log = parse_log_file_name(stat.file_name)
            if log is not None and log.base_instant >= newest:
                yield f"{path} is gone, and the newest slice of its file group needs it"
    newest_base: dict[str, WriteStat] = {}
    for stat in stats.values():
        if stat.partition_path == partition and stat.log_version is None:
            newest_base[stat.file_id] = stat
    for file_id, stat in newest_base.items():
        if stat.path not in present and (partition, file_id) not in view.timeline.replaced:
            yield f"{stat.path} is gone, the newest base file of its file group"


def _keys_twice(table: HoodieTable) -> Iterator[str]:
    if not table.config.populate_meta_fields:
        return
    try:
        schema, batches = scan_snapshot(table, [RECORD_KEY, PARTITION_PATH])
        rows = pa.concat_tables([schema.empty_table(), *batches])
    except TableError as error:
        yield str(error)
        return
    counts = rows.group_by([RECORD_KEY, PARTITION_PATH]).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts.column("count_all"), 1))
    for row in twice.slice(0, 20).to_pylist():
        yield f"key {row[RECORD_KEY]!r} of partition {row[PARTITION_PATH]!r} is there {row['count_all']} times"
    if twice.num_rows > 20:
        yield f"{twice.num_rows - 20} more keys are there several times"


def _all_in(found: object) -> bool:
    return bool(pc.all(pa.array(found)).as_py())
