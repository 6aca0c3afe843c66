"""The metadata table is told of an action of the data: a delta commit of the same instant, before the action completes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.metadata.encode.record_schema import commit_avro_json
from tagstream.table.metadata.write.changes import Changes, entries
from tagstream.table.metadata.write.layout import group_name
from tagstream.table.metadata.write.log_files import delta_log_file
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, Times
from tagstream.table.metadata.write.rollback import recover, roll_back
from tagstream.table.timeline.commit_metadata import SCHEMA_KEY, CommitMetadata
from tagstream.table.timeline.instant import DELTA_COMMIT, Instant
from tagstream.table.timeline.write_status import WriteStat

_THREADS: Final = 16


def delta_commit(
    writer: MetadataWriter,
    instant: str,
    changes: Changes,
    times: Times,
    reach: Callable[[str], None] = lambda _: None,
) -> Instant:
    """Tell all partitions of an action of the data; returns the completed instant of the metadata table.

    ``instant`` is the action's, of whatever kind. One that is there from an attempt before is taken back first. From version
    8 on the data's action must be completed later than the returned instant's ``completion_time``. ValueError where
    ``changes`` lack what a partition needs; nothing is written then. ``reach`` is told of the steps ``metadata_begun`` and
    ``metadata_files``.
    """
    recover(writer, times)
    if any(i.time == instant and i.action == DELTA_COMMIT for i in writer.timeline().instants):
        roll_back(writer, instant, times(), times)
    view = writer.view(writer.timeline())
    wanted = [
        (slices[found.number], found)
        for partition in writer.partitions
        for slices in [_slices(view, partition)]
        for found in entries(changes, partition, len(slices), instant, writer.version)
    ]
    writer.begin(instant, DELTA_COMMIT)
    reach("metadata_begun")
    with ThreadPoolExecutor(
        _THREADS
    ) as threads:  # a record index may have thousands of groups, each a request to the store
        stats = list(threads.map(lambda each: delta_log_file(writer, each[0], instant, each[1]), wanted))
    reach("metadata_files")
    content = delta_content(stats, writer.version, "UPSERT_PREPPED")
    return writer.complete(instant, DELTA_COMMIT, content, times)


def delta_content(stats: list[WriteStat], version: int, operation: str, compacted: bool = False) -> bytes:
    """The content of a completed commit of the metadata table."""
    by_partition: dict[str, list[WriteStat]] = {}
    for stat in stats:
        by_partition.setdefault(stat.partition_path, []).append(stat)
    metadata = CommitMetadata(
        stats={partition: tuple(found) for partition, found in by_partition.items()},
        extra={SCHEMA_KEY: commit_avro_json(version)},
        operation=operation,
        compacted=compacted,
    )
    return metadata.to_bytes(version)


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
