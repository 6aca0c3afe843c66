"""Rows that the status page and the page of a table at rest have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tagstream.streaming.batch.commit_record import parse
from tagstream.streaming.status.snapshot import CommitLine, PartitionLine
from tagstream.table.services.file_sizes import FileSizes
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import Instant

_SERVICES = {
    "COMPACT": "compaction",
    "LOG_COMPACT": "compaction",
    "CLUSTER": "clustering",
}  # by Hudi's names of operations


def commit_line(instant: Instant, metadata: CommitMetadata) -> CommitLine:
    """A completed write in one row."""
    stats = metadata.all_stats()
    record = parse(metadata.extra)
    return CommitLine(
        instant.time,
        instant.action,
        record.stream_id if record else None,
        record.batch_id if record else None,
        sum(s.num_inserts for s in stats),
        sum(s.num_updates for s in stats),
        sum(s.num_deletes for s in stats),
        len(stats),
        sum(s.total_write_bytes for s in stats),
        _SERVICES.get(metadata.operation, "compaction" if metadata.compacted else ""),
    )


def largest(sizes: Mapping[str, FileSizes], count: int) -> tuple[PartitionLine, ...]:
    """The partitions with the most bytes, and each one's share of the first's."""
    rows = [PartitionLine(partition, found) for partition, found in sizes.items()]
    rows.sort(key=lambda row: (-row.sizes.bytes, row.partition_path))
    top = rows[0].sizes.bytes if rows else 0
    return tuple(replace(row, share=row.sizes.bytes / top if top else 0.0) for row in rows[:count])
