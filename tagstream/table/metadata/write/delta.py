"""The metadata table is told of an action of the data: a delta commit of the same instant, before the action completes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tagstream.table.each import each
from tagstream.table.errors import CorruptFileError, LeaseLostError
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.metadata.encode.record_schema import commit_avro_json
from tagstream.table.metadata.index_groups import IndexGroups, index_group_name
from tagstream.table.metadata.metadata_table import RECORD_INDEX_PARTITION
from tagstream.table.metadata.write.changes import Changes
from tagstream.table.metadata.write.entries import GroupEntries, entries, partitioned_entries
from tagstream.table.metadata.write.layout import Forms, group_name
from tagstream.table.metadata.write.log_files import delta_log_file, first_log_file
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, Times
from tagstream.table.metadata.write.rollback import recover, roll_back
from tagstream.table.timeline.commit_metadata import SCHEMA_KEY, CommitMetadata
from tagstream.table.timeline.instant import DELTA_COMMIT, Instant
from tagstream.table.timeline.write_status import WriteStat

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
    """Tell all partitions of an action of the data; returns the completed instant of the metadata table.

    ``instant`` is the action's, of whatever kind. One that is there from an attempt before is taken back first. From version
    8 on the data's action must be completed later than the returned instant's ``completion_time``. ValueError where
    ``changes`` lack what a partition needs; nothing is written then. ``reach`` is told of the steps ``metadata_begun`` and
    ``metadata_files``. ``new_index_groups``: how many file groups a record index by partition gets for a new partition.
    ``check`` raises LeaseLostError where another process writes the table by now. It is called right before the completion
    and right after it: what a driver completes that stood still in between is not counted.
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
    reach("metadata_begun")
    for file_id in empty:
        first_log_file(writer, RECORD_INDEX_PARTITION, file_id, instant)
    # A record index may have thousands of groups, each a request to the store.
    stats = each(lambda one: delta_log_file(writer, one[0], instant, one[1]), wanted)
    reach("metadata_files")
    content = delta_content(stats, writer.forms, _OPERATION)
    check()
    completed = writer.complete(instant, DELTA_COMMIT, content, times)
    try:
        check()
    except LeaseLostError:
        # The name has the time, so it is this process's. All else may be of a successor that executes the same plan again;
        # what is pending is rolled back by the next ``recover``.
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
    """(what goes into which slice of a record index by partition, names of groups that are made and get nothing).

    The groups of a partition that is new begin with the instant's own log files, as Hudi makes them.
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
    """The newest slices by the numbers of their groups; all must be there, for a key's group depends on how many."""
    found = {file_slice.file_id: file_slice for file_slice in view.latest_merged_slices(partition)}
    names = [group_name(partition, number) for number in range(len(found))]
    if not found or sorted(names) != sorted(found):
        raise CorruptFileError(
            f"the partition {partition} of the metadata table at {view.storage.root} has the file groups "
            f"{', '.join(sorted(found)) or '(none)'}, which is no whole row of them; drop the metadata table"
        )
    return [found[name] for name in names]
