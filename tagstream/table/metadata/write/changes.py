"""What an action did to a table, as its metadata table is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tagstream.table.metadata.encode.column_ranges import Ranges, ranges_from_json
from tagstream.table.timeline.write_status import WriteStatus

KEYS = pa.schema([("record_key", pa.string()), ("partition_path", pa.string())])  # of rows that are no more


@dataclass(frozen=True)
class WrittenFile:
    """A base or log file: its name and whole size. ``ranges`` by column and ``bloom`` (the footer's text) as far as kept.

    ``bloom`` is that of a base file; log files have none.
    """

    name: str
    size: int
    ranges: Ranges | None = None
    bloom: str | None = None


@dataclass(frozen=True)
class PartitionChange:
    """Files of one partition that were written, and names of those that were deleted."""

    written: tuple[WrittenFile, ...] = ()
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Changes:
    """What one action did. ``partitions`` by partition path; ``deleted_partitions``: gone with their folders.

    ``places`` (tables of ``PLACES``): keys that were inserted or moved, of a key that occurs twice the last counts;
    ``deleted_keys`` (tables of ``KEYS``): keys that are no more, with the partition path where they were. A key may be in
    one of the two only; in a record index by partition a key is another one in another partition: one that moves is in both.
    ``columns``: those that have statistics, needed where files were deleted.
    """

    partitions: Mapping[str, PartitionChange] = field(default_factory=dict)
    deleted_partitions: tuple[str, ...] = ()
    places: Sequence[pa.Table] = ()
    deleted_keys: Sequence[pa.Table] = ()
    columns: Sequence[str] = ()


def written_by(statuses: Iterable[WriteStatus]) -> dict[str, PartitionChange]:
    """The files that write statuses tell of, by partition path."""
    found: dict[str, list[WrittenFile]] = {}
    for status in statuses:
        stat = status.stat
        ranges = None if status.ranges is None else ranges_from_json(status.ranges)
        file = WrittenFile(stat.file_name, stat.file_size, ranges, status.bloom)
        found.setdefault(stat.partition_path, []).append(file)
    return {path: PartitionChange(tuple(files)) for path, files in found.items()}
