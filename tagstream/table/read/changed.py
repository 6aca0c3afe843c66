"""The incremental query: which writes were completed after a time, and so which rows a reader has not seen.

Hudi's rule: from table version 8 on a write counts by when it was completed, up to version 7 by its own time. A row tells
its write in ``_hoodie_commit_time``, which compaction and clustering keep. Rows that were deleted are not in the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.schema.schema import COMMIT_TIME
from tagstream.table.skipping.data_skipping import Pruner
from tagstream.table.skipping.filters import Filter, Op
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.timeline import FileGroupId, Timeline


@dataclass(frozen=True)
class Changed:
    """``times``: of the writes, as the rows tell them. ``groups``: (partition path, file id) that these writes wrote to."""

    times: frozenset[str]
    groups: frozenset[FileGroupId]

    def partitions(self, paths: Iterable[str]) -> list[str]:
        """Those of the partition paths that hold one of the groups, in their order."""
        mine = {partition for partition, _ in self.groups}
        return [path for path in paths if path in mine]

    def filter(self, schema: pa.Schema) -> Filter:
        """Lets the rows of these writes through. ``schema``: of the table, with its meta columns."""
        field = schema.field(COMMIT_TIME)
        return Filter(field, Op.IN, pa.array(sorted(self.times), field.type))

    def pruner(self) -> Pruner:
        """Rules out the slices of groups that none of the writes wrote to."""

        def may_hold(slices: Sequence[FileSlice]) -> list[bool]:
            return [(found.partition_path, found.file_id) in self.groups for found in slices]

        return Pruner("commits", may_hold)


def changed_since(table: HoodieTable, timeline: Timeline, since: str, as_of: str | None = None) -> Changed:
    """The writes after ``since``, and up to ``as_of`` (instant times, 17 digits); archived ones are found, too."""
    times, groups = set[str](), set[FileGroupId]()
    for time, metadata in _writes(table, timeline, since):
        if as_of is not None and time > as_of:
            continue
        times.add(time)
        groups.update((stat.partition_path, stat.file_id) for stat in metadata.all_stats())
    return Changed(frozenset(times), frozenset(groups))


def _writes(table: HoodieTable, timeline: Timeline, since: str) -> Iterator[tuple[str, CommitMetadata]]:
    """Time and content of each write that was completed after a time."""
    active = {instant.time for instant in timeline.completed_writes}
    for instant in timeline.completed_writes:
        if (instant.completion_time or instant.time) > since:
            yield instant.time, timeline.metadata(table.storage, instant)
    if not table.config.has_completion_times and timeline.start is not None and since >= timeline.start:
        return  # what was archived is older
    for action in table.archived_after(since):
        if action.time not in active and action.metadata is not None:
            where = f"the archived {action.action} {action.time} of {table.base_path}"
            yield action.time, CommitMetadata.from_bytes(action.metadata, where)
