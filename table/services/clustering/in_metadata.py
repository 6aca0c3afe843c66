"""Where the keys are after a clustering, as the metadata table's record index is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tagstream.table.file_group.base_file import read_keys
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.encode.locations import PLACES, instant_ms
from tagstream.table.timeline.write_status import WriteStatus


def new_places(table: HoodieTable, instant: str, statuses: Sequence[WriteStatus]) -> Iterator[pa.Table]:
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
