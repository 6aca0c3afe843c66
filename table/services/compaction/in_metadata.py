"""The metadata table beside a compaction: what it asks of the new base files, and how it is told of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import (
    BLOOM_FILTERS_PARTITION,
    COLUMN_STATS_PARTITION,
    PARTITION_STATS_PARTITION,
    RECORD_INDEX_PARTITION,
)
from tagstream.table.metadata.write.changes import Changes, written_by
from tagstream.table.metadata.write.delta import delta_commit
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.services.metadata_rollback import range_columns
from tagstream.table.timeline.write_status import WriteStatus
from tagstream.table.write.write_context import WriterOptions


def told_to_metadata(table: HoodieTable, files: WriterOptions) -> WriterOptions:
    """How base files are written so that their statuses tell all that the metadata table keeps, if there is one."""
    writer = MetadataWriter.open(table)
    if writer is None:
        return files
    has_ranges = COLUMN_STATS_PARTITION in writer.partitions or PARTITION_STATS_PARTITION in writer.partitions
    columns = frozenset(range_columns(writer)) if has_ranges else frozenset()
    return replace(files, range_columns=columns, tells_bloom=BLOOM_FILTERS_PARTITION in writer.partitions)


def tell_metadata(
    table: HoodieTable,
    instant: str,
    statuses: Sequence[WriteStatus],
    clock_ms: Callable[[], int],
    check: Callable[[], None],
    reach: Callable[[str], None],
    places: Callable[[], Iterable[pa.Table]] | None = None,
) -> str | None:
    """Tell it of the new files. ``places``: where keys are that have moved to other file groups (tables of ``PLACES``),
    asked only where there is a record index; a compaction moves none.

    Returns the time that the completion of the data's action must be later than; None where there is no metadata table, and
    up to table version 7.
    """
    writer = MetadataWriter.open(table)
    if writer is None:
        return None
    check()
    moved = list(places()) if places is not None and RECORD_INDEX_PARTITION in writer.partitions else []
    changes = Changes(partitions=written_by(statuses), places=moved, columns=range_columns(writer))
    completed = delta_commit(writer, instant, changes, fresh_times(table, writer, clock_ms), reach)
    reach("metadata_completed")
    return completed.completion_time
