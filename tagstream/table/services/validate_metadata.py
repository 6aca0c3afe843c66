"""Check a metadata table against its table: its listed files, places of keys, statistics and bloom filters.

Statistics are wrong if a value is outside of their range: readers that filter by the column skip the file, or the
partition, and miss rows. Wider ranges are allowed.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.file_group.bloom import kind_of
from tagstream.table.file_group.fs_view import FileSlice, committed_entries, committed_files
from tagstream.table.file_group.names import join, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.column_ranges import ColumnRange, is_unknown, merged_ranges, read_file_stats
from tagstream.table.metadata.metadata_table import (
    BLOOM_FILTERS_PARTITION,
    COLUMN_STATS_PARTITION,
    PARTITION_STATS_PARTITION,
    MetadataTable,
)
from tagstream.table.metadata.record_index import RecordIndex
from tagstream.table.metadata.records import (
    BLOOM_FILTER,
    COLUMN_STATS,
    Record,
    column_id,
    column_stats_key,
    file_id,
    partition_id,
)
from tagstream.table.read.snapshot import key_reader, stored_schema
from tagstream.table.schema.schema import META_COLUMNS, RECORD_KEY
from tagstream.table.timeline.avro_timeline import read_record, requested_name
from tagstream.table.timeline.instant import CLEAN
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.markers import list_markers

_ANEW: Final = "readers that filter by it miss rows; hoodie.metadata.enable=false at one start drops the metadata table"

# Hudi has no consistent order of bytes: they are signed in its statistics of log files, and unsigned in footers.
_ORDERED_IN_TWO_WAYS: Final = ("bytes", "fixed")
_WRAPPED_SCALE: Final = 15  # of every decimal up to table version 8
_EXACT: Final = decimal.Context(prec=80)
_CHECKED: Final = (COLUMN_STATS_PARTITION, PARTITION_STATS_PARTITION, BLOOM_FILTERS_PARTITION)

Scan = Mapping[str, Record]
_SHOWN = 5
_PLACE = ("partition_path", "file_id")


def statistics_problems(table: HoodieTable, timeline: Timeline, metadata: MetadataTable) -> Iterator[str]:
    """The problems of statistics and bloom filters, one sentence each. Reads footers of base files and rows of logs."""
    kept = [name for name in _CHECKED if name in metadata.partitions]
    view = table.view(timeline)
    if not kept or view.as_of is None:
        return
    scans = {name: metadata.scan(name) for name in kept}
    columns = {record[COLUMN_STATS]["columnName"] for name in kept for record in _stats(scans[name])}
    schema = stored_schema(table, timeline, view)
    for partition in view.partitions():
        found: dict[str, list[ColumnRange]] = {}
        for rel in _file_names(view.latest_merged_slices(partition)):
            ranges, bloom = read_file_stats(table.storage, join(partition, rel), columns, schema)
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


def _file_names(slices: Iterable[FileSlice]) -> Iterator[str]:
    for found in slices:
        for rel in ((found.base_path,) if found.base_path else ()) + tuple(found.log_paths):
            yield rel.rpartition("/")[2]


def _of_file(scan: Scan, partition: str, name: str, ranges: Mapping[str, ColumnRange]) -> Iterator[str]:
    records = {column: scan.get(column_stats_key(column, partition, name)) for column in ranges}
    if not any(records.values()):
        return  # readers do not skip a file without statistics
    for column, found in ranges.items():
        # Hudi 0.x and 1.x both write version 6: 0.x has statistics of all meta columns and 1.x of three.
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
        yield f"bloom_filters has the type {member['type']} for {partition}/{name}, which is {kind}; {_ANEW}"


def _what_is_wrong(record: Record | None, found: ColumnRange) -> str | None:
    """Why statistics do not include all values of ``found``; None when they do."""
    if found.rows == 0 or is_unknown(found):
        return None
    if record is None:
        return "is missing"
    recorded = record[COLUMN_STATS]
    if found.nulls and recorded["nullCount"] == 0:
        return f"has no nulls, there are {found.nulls:,}"
    if found.low is None or found.kind in _ORDERED_IN_TWO_WAYS:
        return None
    if recorded["minValue"] is None or recorded["maxValue"] is None:
        return f"has no range, the values are {found.low!r} to {found.high!r}"
    low, high = (_plain(recorded[end], recorded, found) for end in ("minValue", "maxValue"))
    try:
        covered = _order(low, found) <= _order(found.low, found) and _order(found.high, found) <= _order(high, found)
    except TypeError:
        return f"has a range of another type, {low!r} to {high!r}, the values are {found.low!r} to {found.high!r}"
    return None if covered else f"has {low!r} to {high!r}, the values are {found.low!r} to {found.high!r}"


def _plain(end: tuple[str, dict[str, Any]], recorded: Record, found: ColumnRange) -> Any:
    value = end[1]["value"]
    if not found.kind.startswith("decimal"):
        return value
    if isinstance(value, bytes):
        value = int.from_bytes(value, "big", signed=True)
        if recorded.get("valueType"):  # from table version 9 on: with the column's own scale
            return value
        value = decimal.Decimal(value).scaleb(-_WRAPPED_SCALE, _EXACT)  # by Hudi 0.15, of log files and of compactions
    if isinstance(value, decimal.Decimal):
        return value.scaleb(int(found.kind.rpartition(",")[2].rstrip(")")), _EXACT)
    return value


def _order(value: Any, found: ColumnRange) -> tuple[bool, Any]:
    """Sort key in which NaN is greater than all numbers; a widened float is compared by its shortest digits."""
    if isinstance(value, float):
        if math.isnan(value):
            return True, 0.0
        return False, float(np.float32(value)) if found.kind == "float" else value
    return False, value


def validate_metadata(table: HoodieTable) -> list[str]:
    """The problems of a metadata table, as texts; empty without problems, and without a metadata table.

    The whole record index and all keys are in memory: this is for manual checks and for tests.
    """
    table, timeline, metadata = _opened(table)
    if metadata is None:
        return []
    problems = list(_listing_problems(table, timeline, metadata))
    problems += statistics_problems(table, timeline, metadata)
    index = RecordIndex.open(metadata)
    return problems if index is None else [*problems, *_place_problems(table, timeline, index)]


def validate_listing(table: HoodieTable) -> list[str]:
    """The problems of the listed files, as texts. Every folder of the table is listed once; no file is opened."""
    table, timeline, metadata = _opened(table)
    return [] if metadata is None else list(_listing_problems(table, timeline, metadata))


def _opened(table: HoodieTable) -> tuple[HoodieTable, Timeline, MetadataTable | None]:
    table = replace(table, lister=None)  # list its folders, not the metadata table
    timeline = table.timeline()
    return table, timeline, MetadataTable.open(table, timeline)


def _listing_problems(table: HoodieTable, timeline: Timeline, metadata: MetadataTable) -> Iterator[str]:
    listed, there = set(metadata.partition_paths()), set(table.view(timeline).partitions())
    writing = _being_written(table, timeline)
    there = {partition for partition in there if _committed(table, timeline, partition, writing)}
    listed = {partition for partition in listed if partition in there or metadata.files(partition)}
    for partition in sorted(listed ^ there):
        yield f"partition {partition!r} {'is listed and missing' if partition in listed else 'exists and is not listed'}"
    going = _being_cleaned(table, timeline)
    for partition in sorted(listed & there):
        found, known = _committed(table, timeline, partition, writing), metadata.files(partition)
        known = committed_files(known, timeline)
        for name in sorted((found.keys() | known.keys()) - going.get(partition, set())):
            if name in found and _stands_for_a_size(name, known.get(name)):
                continue
            if found.get(name) != known.get(name):
                yield f"{partition}/{name} has {found.get(name)} bytes, the metadata table says {known.get(name)}"


def _stands_for_a_size(name: str, recorded: int | None) -> bool:
    """Hudi 0.15 has the size 1 for a log file whose blocks its rollback undoes; readers do not use sizes of log files."""
    return recorded == 1 and parse_log_file_name(name) is not None


def _being_cleaned(table: HoodieTable, timeline: Timeline) -> dict[str, set[str]]:
    """Files by partition path that a clean is deleting: they are deleted before the metadata table is updated."""
    found: dict[str, set[str]] = {}
    for instant in timeline.pending:
        if instant.action == CLEAN:
            rel = f"{table.config.timeline_folder}/{requested_name(instant)}"
            data = table.storage.read(rel)
            plan = (
                read_record(data, table.storage.where(rel)) if data else {}
            )  # empty: its writer was killed when it made it
            for partition, files in (plan.get("filePathsToBeDeletedPerPartition") or {}).items():
                found.setdefault(partition, set()).update(file["filePath"].rsplit("/", 1)[-1] for file in files)
    return found


def _committed(table: HoodieTable, timeline: Timeline, partition: str, writing: Collection[str]) -> dict[str, int]:
    found = committed_entries(table.storage.list(partition), timeline)
    return {name: size for name, size in found.items() if join(partition, name) not in writing}


def _being_written(table: HoodieTable, timeline: Timeline) -> set[str]:
    """Files of pending writes by their markers: up to version 7 the name of a log file does not have its write."""
    if table.config.names_logs_by_commit:
        return set()
    return {marker.path for pending in timeline.pending_writes for marker in list_markers(table.storage, pending.time)}


def _place_problems(table: HoodieTable, timeline: Timeline, index: RecordIndex) -> Iterator[str]:
    view = table.view(timeline)
    parts = [
        pa.table({"record_key": pa.array([], pa.string()), **{name: pa.array([], pa.string()) for name in _PLACE}})
    ]
    if view.as_of is not None:
        reader = key_reader(table, timeline, view.as_of, None)
        for partition in view.partitions():
            for at in view.latest_merged_slices(partition):
                for rows in reader.read(at):
                    keys = rows.column(RECORD_KEY).combine_chunks().cast(pa.string())
                    places = [pa.repeat(pa.scalar(text), len(keys)) for text in (partition, at.file_id)]
                    parts.append(pa.table([keys, *places], names=["record_key", *_PLACE]))
    live = pa.concat_tables(parts)
    # In a record index by partition a key has a place in each of its partitions.
    names = ["record_key", "partition_path"] if index.is_partitioned else ["record_key"]
    known = pa.concat_tables([table.select(["record_key", *_PLACE]) for table in index.scan()] or parts[:1])
    for what, one, other in (("is not in the record index", live, known), ("is only in the record index", known, live)):
        keys = one.join(other.select(names), names, join_type="left anti").column("record_key")
        if len(keys):
            yield f"{len(keys):,} keys: each {what}, first {', '.join(map(repr, keys.slice(0, _SHOWN).to_pylist()))}"
    both = live.join(known, names, join_type="inner", right_suffix="_known")
    for name in (name for name in _PLACE if name not in names):
        wrong = both.filter(pc.not_equal(both.column(name), both.column(f"{name}_known")))
        if wrong.num_rows:
            first = wrong.slice(0, 1).to_pylist()[0]
            yield (
                f"{wrong.num_rows:,} keys have another {name} in the record index, first {first['record_key']!r}: "
                f"{first[name]!r} and {first[f'{name}_known']!r}"
            )
