"""Statistics and bloom filters of a metadata table against the files that they are of.

Wrong are ends that some value lies outside of: readers that filter by the column leave the file, or the partition, out and
miss rows. Wider ones are allowed.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from tagstream.table.file_group.bloom import kind_of
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.encode.column_ranges import ColumnRange, is_unknown, merged_ranges
from tagstream.table.metadata.metadata_table import (
    BLOOM_FILTERS_PARTITION,
    COLUMN_STATS_PARTITION,
    PARTITION_STATS_PARTITION,
    MetadataTable,
)
from tagstream.table.metadata.name_hash import column_id, column_stats_key, file_id, partition_id
from tagstream.table.metadata.records import BLOOM_FILTER, COLUMN_STATS, Record
from tagstream.table.metadata.write.file_looks import look_at_file
from tagstream.table.read.snapshot import stored_schema
from tagstream.table.schema.schema import META_COLUMNS
from tagstream.table.timeline.timeline import Timeline

_ANEW: Final = "readers that filter by it miss rows; hoodie.metadata.enable=false at one start drops the metadata table"

# Bytes have no order that Hudi keeps to: in its statistics of log files they are signed, in footers they are not.
_ORDERED_IN_TWO_WAYS: Final = ("bytes", "fixed")
_WRAPPED_SCALE: Final = 15  # of every decimal up to table version 8
_EXACT: Final = decimal.Context(prec=80)
_CHECKED: Final = (COLUMN_STATS_PARTITION, PARTITION_STATS_PARTITION, BLOOM_FILTERS_PARTITION)

Scan = Mapping[str, Record]


def statistics_problems(table: HoodieTable, timeline: Timeline, metadata: MetadataTable) -> Iterator[str]:
    """What is wrong, a sentence each. Of the newest file slices: the footers of base files and the rows of logs are read."""
    kept = [name for name in _CHECKED if name in metadata.partitions]
    view = table.view(timeline)
    if not kept or view.as_of is None:
        return
    scans = {name: metadata.scan(name) for name in kept}
    columns = {record[COLUMN_STATS]["columnName"] for name in kept for record in _stats(scans[name])}
    schema = stored_schema(table, timeline, view)
    for partition in view.partitions():
        found: dict[str, list[ColumnRange]] = {}
        for rel in _files(view.latest_merged_slices(partition)):
            ranges, bloom = look_at_file(table.storage, join(partition, rel), columns, schema)
            for column, each in ranges.items():
                found.setdefault(column, []).append(each)
            if COLUMN_STATS_PARTITION in scans:
                yield from _of_file(scans[COLUMN_STATS_PARTITION], partition, rel, ranges)
            if BLOOM_FILTERS_PARTITION in scans and bloom is not None:
                yield from _of_bloom(scans[BLOOM_FILTERS_PARTITION], partition, rel, bloom)
        if PARTITION_STATS_PARTITION in scans:
            yield from _of_partition(scans[PARTITION_STATS_PARTITION], partition, found)


def _stats(scan: Scan) -> Iterable[Record]:
    return (record for record in scan.values() if record.get(COLUMN_STATS) is not None)


def _files(slices: Iterable[FileSlice]) -> Iterator[str]:
    for found in slices:
        for rel in ((found.base_path,) if found.base_path else ()) + tuple(found.log_paths):
            yield rel.rpartition("/")[2]


def _of_file(scan: Scan, partition: str, name: str, ranges: Mapping[str, ColumnRange]) -> Iterator[str]:
    records = {column: scan.get(column_stats_key(column, partition, name)) for column in ranges}
    if not any(records.values()):
        return  # readers keep a file that they find nothing of
    for column, found in ranges.items():
        # Both lines of Hudi write version 6, of which 0.x tells of all meta columns and 1.x of three.
        if records[column] is None and column in META_COLUMNS:
            continue
        why = _what_is_wrong(records[column], found)
        if why:
            yield f"column_stats of {column} in {partition}/{name}: {why}; {_ANEW}"


def _of_partition(scan: Scan, partition: str, found: Mapping[str, list[ColumnRange]]) -> Iterator[str]:
    records = {column: scan.get(column_id(column) + partition_id(partition)) for column in found}
    if not any(records.values()):
        return
    for column, parts in found.items():
        if records[column] is not None and not any(is_unknown(part) for part in parts):
            why = _what_is_wrong(records[column], merged_ranges(parts))
            if why:
                yield f"partition_stats of {column} in partition {partition!r}: {why}; {_ANEW}"


def _of_bloom(scan: Scan, partition: str, name: str, text: bytes) -> Iterator[str]:
    member = (scan.get(partition_id(partition) + file_id(name)) or {}).get(BLOOM_FILTER)
    if member is not None and member["bloomFilter"] != text:
        yield f"bloom_filters has another filter of {partition}/{name} than its footer; {_ANEW}"
    elif member is not None and member["type"] != (kind := kind_of(text)):
        yield f"bloom_filters calls the filter of {partition}/{name} {member['type']}, and it is {kind}; {_ANEW}"


def _what_is_wrong(record: Record | None, found: ColumnRange) -> str | None:
    """None: every value that was found is between the ends that are told."""
    if found.rows == 0 or is_unknown(found):
        return None
    if record is None:
        return "is missing"
    told = record[COLUMN_STATS]
    if found.nulls and told["nullCount"] == 0:
        return f"tells of no null, there are {found.nulls:,}"
    if found.low is None or found.kind in _ORDERED_IN_TWO_WAYS:
        return None
    if told["minValue"] is None or told["maxValue"] is None:
        return f"tells no ends, the values are {found.low!r} to {found.high!r}"
    low, high = (_plain(told[end], told, found) for end in ("minValue", "maxValue"))
    try:
        covered = _order(low, found) <= _order(found.low, found) and _order(found.high, found) <= _order(high, found)
    except TypeError:
        return f"tells ends of another type, {low!r} to {high!r}, the values are {found.low!r} to {found.high!r}"
    return None if covered else f"tells {low!r} to {high!r}, the values are {found.low!r} to {found.high!r}"


def _plain(end: tuple[str, dict[str, Any]], told: Record, found: ColumnRange) -> Any:
    value = end[1]["value"]
    if not found.kind.startswith("decimal"):
        return value
    if isinstance(value, bytes):
        value = int.from_bytes(value, "big", signed=True)
        if told.get("valueType"):  # from table version 9 on: with the column's own scale
            return value
        value = decimal.Decimal(value).scaleb(-_WRAPPED_SCALE, _EXACT)  # Hudi 0.15's of log files and of compactions
    if isinstance(value, decimal.Decimal):
        return value.scaleb(int(found.kind.rpartition(",")[2].rstrip(")")), _EXACT)
    return value


def _order(value: Any, found: ColumnRange) -> tuple[bool, Any]:
    """Not-a-number is greater than all numbers; a float that was widened is held against its shortest digits."""
    if isinstance(value, float):
        if math.isnan(value):
            return True, 0.0
        return False, float(np.float32(value)) if found.kind == "float" else value
    return False, value
