"""The metadata table beside a clustering: it is told of the new files, and where the keys are now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from tagstream.table.file_group.base_file import read_keys
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.encode.locations import PLACES, instant_ms
from tagstream.table.metadata.metadata_table import RECORD_INDEX_PARTITION
from tagstream.table.metadata.write.changes import Changes, written_by
from tagstream.table.metadata.write.delta import delta_commit
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.services.metadata_rollback import range_columns
from tagstream.table.timeline.write_status import WriteStatus


def tell_metadata(
    table: HoodieTable,
    instant: str,
    statuses: Sequence[WriteStatus],
    clock_ms: Callable[[], int],
    check: Callable[[], None],
    reach: Callable[[str], None],
) -> str | None:
    """Tell it of the new files, which are published, and of the places of their keys. The old files go with their clean.

    Returns the time that the completion of the data's action must be later than; None where there is no metadata table, and
    up to table version 7.
    """
    writer = MetadataWriter.open(table)
    if writer is None:
        return None
    check()
    places = list(_places(table, instant, statuses)) if RECORD_INDEX_PARTITION in writer.partitions else []
    changes = Changes(partitions=written_by(statuses), places=places, columns=range_columns(writer))
    completed = delta_commit(writer, instant, changes, fresh_times(table, writer, clock_ms), reach)
    reach("metadata_completed")
    return completed.completion_time


def _places(table: HoodieTable, instant: str, statuses: Sequence[WriteStatus]) -> Iterator[pa.Table]:
    """Where the keys of the new files are: one column of each file is read."""
    at = instant_ms(instant, table.config.timezone_utc)
    for status in statuses:
        stat = status.stat
        keys = read_keys(table.storage, stat.path).cast(pa.string())
        count = len(keys)
        yield pa.Table.from_arrays(
            [
                keys,
                pa.repeat(pa.scalar(stat.partition_path, pa.string()), count),
                pa.repeat(pa.scalar(stat.file_id, pa.string()), count),
                pa.repeat(pa.scalar(at, pa.int64()), count),
            ],
            schema=PLACES,
        )
