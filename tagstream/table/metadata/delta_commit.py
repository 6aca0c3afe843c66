"""Delta commits of the metadata table, and the files of its file groups.

An action of the data is written as a delta commit of the same instant, before the action completes: one log file for
each file group with entries. Base files are HFiles, which compactions and the instants that create partitions write
sequentially.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa

from tagstream.table.errors import CorruptFileError, LeaseLostError
from tagstream.table.file_group.delete_block import delete_blocks
from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.file_group.log_format import BlockType, HeaderKey, encode_block, write_log_file
from tagstream.table.file_group.names import join, log_file_name, write_token
from tagstream.table.metadata.changes import Changes, GroupEntries, entries, partitioned_entries
from tagstream.table.metadata.hfile_writer import HFileWriter, hfile_bytes
from tagstream.table.metadata.metadata_table import RECORD_INDEX_PARTITION
from tagstream.table.metadata.metadata_writer import TOKEN, Forms, MetadataWriter, Times, group_name, key_filter
from tagstream.table.metadata.record_encoding import commit_avro_json, file_avro_json
from tagstream.table.metadata.record_index import IndexGroups, index_group_name
from tagstream.table.metadata.rollback import recover, roll_back
from tagstream.table.steps import Step
from tagstream.table.storage.storage import each
from tagstream.table.timeline.commit_metadata import NO_PREVIOUS, SCHEMA_KEY, CommitMetadata, WriteStat
from tagstream.table.timeline.instant import DELTA_COMMIT, Instant

_BLOCK_ENTRIES: Final = 1 << 20  # of one block, which is built in memory
_NO_DELETES: Final = b"\0\0\0\3\0\0\0\1\0"  # a delete block without keys, with which Hudi begins each file group


def first_log_file(writer: MetadataWriter, partition: str, file_id: str, instant: str) -> None:
    """Write the empty log file that begins a file group, so that readers see the group before it has an entry."""
    block = encode_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: instant}, _NO_DELETES)
    write_log_file(writer.storage, join(partition, log_file_name(file_id, instant, 1, TOKEN)), [block])


def delta_log_file(writer: MetadataWriter, file_slice: FileSlice, instant: str, found: GroupEntries) -> WriteStat:
    """Write an instant's entries to a log file of a group's newest slice. InstantConflictError when the file exists."""
    partition, file_id = file_slice.partition_path, file_slice.file_id
    own = writer.has_completion_times  # then a log file's name has its own instant, and no other instant uses it
    time, version = (instant, 1) if own else (file_slice.base_instant, file_slice.next_log_version)
    name = log_file_name(file_id, time, version, TOKEN if own else _token_of(instant))
    size = _write(writer, join(partition, name), found, instant)
    base = file_slice.base_file.name if file_slice.base_file is not None and not own else ""
    return WriteStat(
        file_id=file_id,
        path=join(partition, name),
        partition_path=partition,
        prev_commit=time,
        num_writes=len(found.keys),
        num_updates=len(found.keys),
        num_deletes=len(found.deleted),
        file_size=size,
        total_write_bytes=size,
        log_version=version,
        base_file=base,
        log_files=(name,),
    )


def _write(writer: MetadataWriter, rel: str, found: GroupEntries, instant: str) -> int:
    """Write the log file; returns its size in bytes.

    A plan that is executed again uses the file names of the first execution: a driver that resumes late must not
    overwrite what its successor has completed.
    """
    blocks = _blocks(found, rel.partition("/")[0], instant, writer.forms.records)
    if len(found.keys) > _BLOCK_ENTRIES:  # too large to build in memory
        if writer.storage.exists(rel):
            raise writer.conflict(rel)
        return write_log_file(writer.storage, rel, blocks)
    data = b"".join(blocks)
    writer.create(rel, data)
    return len(data)


def _token_of(instant: str) -> str:
    """The write token if names do not have the instant: a driver that resumes late must not overwrite its successor's file.

    The successor may have written a file with the same version.
    """
    return write_token(0, zlib.crc32(instant.encode()) >> 1, 0)


def _blocks(found: GroupEntries, partition: str, instant: str, form: int) -> Iterator[bytes]:
    avro = file_avro_json(form)
    for start in range(0, len(found.keys), _BLOCK_ENTRIES):
        keys, values = (column.slice(start, _BLOCK_ENTRIES) for column in (found.keys, found.values))
        header = {HeaderKey.SCHEMA: avro, HeaderKey.INSTANT_TIME: instant}
        yield encode_block(BlockType.HFILE_DATA, header, hfile_bytes(keys, values, avro))
    if len(found.deleted):
        # In natural order: the delete wins over everything older. The metadata table has no ordering values.
        yield from delete_blocks(found.deleted.cast(pa.string()), partition, None, instant, avro)


_OPERATION: Final = "UPSERT_PREPPED"


def delta_commit(
    writer: MetadataWriter,
    instant: str,
    changes: Changes,
    times: Times,
    reach: Callable[[str], None] = lambda _: None,
    new_index_groups: int = 1,
    check: Callable[[], None] = lambda: None,
) -> Instant:
    """Write an action of the data to all partitions; returns the completed instant of the metadata table.

    ``instant`` is that of the action, of any kind. A delta commit of an earlier attempt is rolled back first. From
    version 8 on the data's action must be completed later than the returned instant's ``completion_time``. ValueError
    if ``changes`` lack what a partition needs; then nothing was written. ``reach`` is called at the steps
    ``metadata_begun`` and ``metadata_files``. ``new_index_groups``: number of file groups of a new partition in a
    record index by partition. ``check`` raises LeaseLostError if another process has taken the lease. It is called
    immediately before and after the completion, so that a completion by a driver that was paused in between is not
    valid.
    """
    recover(writer, times)
    if any(i.time == instant and i.action == DELTA_COMMIT for i in writer.timeline().instants):
        roll_back(writer, instant, times(), times)
    view = writer.view(writer.timeline())
    wanted: list[tuple[FileSlice, GroupEntries]] = []
    empty: list[str] = []
    for partition in writer.partitions:
        if partition == RECORD_INDEX_PARTITION and writer.has_partitioned_index:
            told, empty = _partitioned(view, changes, instant, writer.forms.records, new_index_groups)
            wanted += told
        else:
            slices = _slices(view, partition)
            found = entries(changes, partition, len(slices), instant, writer.forms)
            wanted += [(slices[one.number], one) for one in found]
    writer.begin(instant, DELTA_COMMIT, inflight=CommitMetadata(operation=_OPERATION).to_bytes(writer.version))
    reach(Step.METADATA_BEGUN)
    for file_id in empty:
        first_log_file(writer, RECORD_INDEX_PARTITION, file_id, instant)
    # A record index may have thousands of groups, each of which is a request to the store.
    stats = each(lambda one: delta_log_file(writer, one[0], instant, one[1]), wanted)
    reach(Step.METADATA_FILES)
    content = delta_content(stats, writer.forms, _OPERATION)
    check()
    completed = writer.complete(instant, DELTA_COMMIT, content, times)
    try:
        check()
    except LeaseLostError:
        # The file name has the completion time, so it is this process's. Everything else may belong to a successor that
        # executes the same plan again. The next ``recover`` rolls back what is pending.
        if writer.has_completion_times:
            writer.storage.delete(writer.rel(completed))
        raise
    return completed


def delta_content(stats: list[WriteStat], forms: Forms, operation: str, compacted: bool = False) -> bytes:
    """The content of a completed commit of the metadata table."""
    by_partition: dict[str, list[WriteStat]] = {}
    for stat in stats:
        by_partition.setdefault(stat.partition_path, []).append(stat)
    metadata = CommitMetadata(
        stats={partition: tuple(found) for partition, found in by_partition.items()},
        extra={SCHEMA_KEY: commit_avro_json(forms.records)},
        operation=operation,
        compacted=compacted,
    )
    return metadata.to_bytes(forms.version)


def _partitioned(
    view: FileSystemView, changes: Changes, instant: str, form: int, new_groups: int
) -> tuple[list[tuple[FileSlice, GroupEntries]], list[str]]:
    """(entries for each slice of a record index by partition, names of new groups without entries).

    The groups of a new partition begin with log files of this instant, as in Hudi.
    """
    slices = view.latest_merged_slices(RECORD_INDEX_PARTITION)
    groups = IndexGroups.of(slices, view.storage.root, is_partitioned=True)
    wanted: list[tuple[FileSlice, GroupEntries]] = []
    empty: dict[str, None] = {}
    for found in partitioned_entries(changes, groups.counts, new_groups, form):
        path = found.data_partition or ""
        own = groups.by_partition.get(path)
        if own is None:
            empty |= dict.fromkeys(index_group_name(path, number) for number in range(new_groups))
            file_id = index_group_name(path, found.number)
            wanted.append((FileSlice(RECORD_INDEX_PARTITION, file_id, instant, None, ()), found))
        else:
            wanted.append((own[found.number], found))
    filled = {file_slice.file_id for file_slice, _ in wanted}
    return wanted, [name for name in empty if name not in filled]


def _slices(view: FileSystemView, partition: str) -> list[FileSlice]:
    """The newest slices by group number. All groups must exist, because their number determines the group of a key."""
    found = {file_slice.file_id: file_slice for file_slice in view.latest_merged_slices(partition)}
    names = [group_name(partition, number) for number in range(len(found))]
    if not found or sorted(names) != sorted(found):
        raise CorruptFileError(
            f"the partition {partition} of the metadata table at {view.storage.root} has the file groups "
            f"{', '.join(sorted(found)) or '(none)'}, some are missing; drop the metadata table"
        )
    return [found[name] for name in names]


def write_base_file(
    writer: MetadataWriter,
    partition: str,
    file_id: str,
    instant: str,
    batches: Iterable[tuple[pa.Array, pa.Array]],
    prev_commit: str = NO_PREVIOUS,
    prev_base_file: str | None = None,
) -> WriteStat | None:
    """Write the base file of a slice: keys and values (binary) in batches, in ascending order of all keys.

    None, and no file, without entries, as in Hudi.
    """
    filled = (batch for batch in batches if len(batch[0]))
    first = next(filled, None)
    if first is None:
        return None
    name = f"{file_id}_{TOKEN}_{instant}.hfile"
    with writer.storage.open_output(join(partition, name)) as out:
        file = HFileWriter(out, file_avro_json(writer.forms.records), bloom=key_filter(writer.version))
        file.add(*first)
        for batch in filled:
            file.add(*batch)
        found = file.finish()
    return WriteStat(
        file_id=file_id,
        path=join(partition, name),
        partition_path=partition,
        prev_commit=prev_commit,
        num_writes=found.entries,
        num_inserts=found.entries,
        file_size=found.size,
        total_write_bytes=found.size,
        prev_base_file=prev_base_file,
    )
