"""What an action did to a table, and the entries of the metadata table's file groups that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.metadata.column_ranges import Ranges, merged_ranges, ranges_from_json
from tagstream.table.metadata.metadata_table import (
    ALL_PARTITIONS,
    BLOOM_FILTERS_PARTITION,
    COLUMN_STATS_PARTITION,
    FILES_PARTITION,
    PARTITION_STATS_PARTITION,
    RECORD_INDEX_PARTITION,
)
from tagstream.table.metadata.metadata_writer import Forms, groups_of_keys
from tagstream.table.metadata.record_encoding import (
    PLACES,
    bloom_record,
    encode_places,
    encode_records,
    files_record,
    partition_stats_record,
    partitions_record,
    stats_record,
)
from tagstream.table.metadata.records import Record, column_stats_key, file_id, partition_id
from tagstream.table.table_version import TableVersion
from tagstream.table.timeline.commit_metadata import WriteStatus

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


@dataclass(frozen=True)
class GroupEntries:
    """What goes into one file group: keys (binary, sorted) with their values, and keys (text) to be deleted.

    ``data_partition``: of a record index by partition, the one that the group is for.
    """

    number: int
    keys: pa.Array
    values: pa.Array
    deleted: pa.Array
    data_partition: str | None = None

    def __len__(self) -> int:
        return len(self.keys) + len(self.deleted)


def entries(changes: Changes, partition: str, groups: int, instant: str, forms: Forms) -> Iterator[GroupEntries]:
    """What one of the metadata table's partitions is told, by file group; groups that have nothing are left out.

    A record index by partition has ``partitioned_entries``. ValueError where the changes lack what the partition needs.
    """
    if partition == RECORD_INDEX_PARTITION:
        yield from _index_entries(_put(changes), _gone(changes), groups, forms.records)
        return
    records, gone = _RECORDS[partition](changes, instant, forms.version, forms.statistics)
    keys, values = encode_records(records, forms.records)
    yield from grouped(keys, values, pa.array(sorted(gone), pa.string()), groups)


def partitioned_entries(
    changes: Changes, groups: Mapping[str | None, int], new_groups: int, form: int
) -> Iterator[GroupEntries]:
    """The same of a record index by partition. ``groups``: how many each partition of the data has; ``new_groups``: how many
    one gets that has none yet.
    """
    put, gone = _by_partition(_put(changes)), _by_partition(_gone(changes))
    for path in sorted({*put, *(path for path in gone if path in groups)}):  # what has no group has no key to delete
        own = put.get(path, PLACES.empty_table()), gone.get(path, KEYS.empty_table())
        yield from _index_entries(*own, groups.get(path, new_groups), form, path)


def grouped(
    keys: pa.Array, values: pa.Array, gone: pa.Array, groups: int, data_partition: str | None = None
) -> Iterator[GroupEntries]:
    """Sorted keys (binary) with their values, and deleted keys (text), by the file groups they belong to."""
    own, order = _by_group(keys.cast(pa.string()), groups)
    deleted, gone_order = _by_group(gone, groups)
    keys, values, gone = keys.take(order), values.take(order), gone.take(gone_order)
    for number in np.union1d(own, deleted).tolist():
        start, end = np.searchsorted(own, [number, number + 1]).tolist()
        first, behind = np.searchsorted(deleted, [number, number + 1]).tolist()
        yield GroupEntries(
            number,
            keys.slice(start, end - start),
            values.slice(start, end - start),
            gone.slice(first, behind - first),
            data_partition,
        )


def _by_group(keys: pa.Array, groups: int) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """(the keys' groups, sorted; where each of the keys so ordered is). Keys of a group keep their order."""
    own = groups_of_keys(keys, groups)
    order = np.argsort(own, kind="stable")
    return own[order], pa.array(order)


def _put(changes: Changes) -> pa.Table:
    return pa.concat_tables([PLACES.empty_table(), *(table.select(PLACES.names) for table in changes.places)])


def _gone(changes: Changes) -> pa.Table:
    return pa.concat_tables(
        [KEYS.empty_table(), *(table.select(KEYS.names).cast(KEYS) for table in changes.deleted_keys)]
    )


def _by_partition(rows: pa.Table) -> dict[str, pa.Table]:
    """The rows of each partition of the data, in their order."""
    paths = rows.column("partition_path").combine_chunks().dictionary_encode()
    codes = paths.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    ends = np.append(np.searchsorted(codes[order], np.arange(len(paths.dictionary))), len(codes)).tolist()
    rows = rows.take(pa.array(order))
    names = paths.dictionary.to_pylist()
    return {path: rows.slice(ends[i], ends[i + 1] - ends[i]) for i, path in enumerate(names)}


def _index_entries(
    put: pa.Table, deleted: pa.Table, groups: int, form: int, data_partition: str | None = None
) -> Iterator[GroupEntries]:
    places = newest_places(put)
    gone = deleted.column("record_key").combine_chunks().unique().sort()
    both = pc.is_in(gone, value_set=places.column("record_key").combine_chunks())
    if pc.any(both).as_py():
        raise ValueError(f"the key {gone.filter(both)[0]} is put and deleted by one action")
    keys = places.column("record_key").combine_chunks().cast(pa.binary())
    yield from grouped(keys, encode_places(places, form), gone, groups, data_partition)


def newest_places(places: pa.Table) -> pa.Table:
    """The last place of each key, sorted by the keys' bytes."""
    keys = places.column("record_key").combine_chunks().cast(pa.large_binary())
    order = pc.sort_indices(
        pa.table({"key": keys, "row": np.arange(len(keys))}), [("key", "ascending"), ("row", "ascending")]
    )
    ordered = keys.take(order)
    last = np.ones(len(keys), np.bool_)
    if len(keys) > 1:
        last[:-1] = pc.not_equal(ordered[:-1], ordered[1:]).to_numpy(zero_copy_only=False)
    return places.take(order.filter(pa.array(last)))


def _files(changes: Changes, _instant: str, _version: int, _form: int) -> tuple[dict[str, Record], list[str]]:
    there = [path for path, change in changes.partitions.items() if change.written]
    records: dict[str, Record] = {}
    if there or changes.deleted_partitions:
        records[ALL_PARTITIONS] = partitions_record(there, changes.deleted_partitions)
    # The files of a partition that is gone are deleted one by one, as by Hudi (HoodieTableMetadataUtil). hudi-rs passes over
    # a deleted key, and would find them again when the partition comes back.
    for path, change in changes.partitions.items():
        sizes = {file.name: file.size for file in change.written}
        records |= [files_record(path, sizes, change.deleted)]
    return records, []


def _column_stats(changes: Changes, _instant: str, version: int, form: int) -> tuple[dict[str, Record], list[str]]:
    records: dict[str, Record] = {}
    gone: list[str] = []
    for path, change in changes.partitions.items():
        for file in change.written:
            for column, found in _ranges(file, path).items():
                records |= [stats_record(path, file.name, column, found, form)]
        for name in change.deleted:
            if TableVersion.of(version).deletes_statistics:
                gone += [column_stats_key(column, path, name) for column in changes.columns]
            else:
                records |= [stats_record(path, name, column, None, form) for column in changes.columns]
    return records, gone


def _bloom_filters(changes: Changes, instant: str, version: int, _form: int) -> tuple[dict[str, Record], list[str]]:
    records: dict[str, Record] = {}
    gone: list[str] = []
    for path, change in changes.partitions.items():
        for file in change.written:
            if file.bloom is not None:
                records |= [bloom_record(path, file.name, instant, file.bloom)]
            elif not file.name.startswith("."):
                raise ValueError(f"the bloom filter of {file.name} in {path!r} is not told to the metadata table")
        for name in (name for name in change.deleted if not name.startswith(".")):
            if TableVersion.of(version).deletes_statistics:
                gone.append(partition_id(path) + file_id(name))
            else:
                records |= [bloom_record(path, name, instant, None)]
    return records, gone


def _partition_stats(changes: Changes, _instant: str, _version: int, form: int) -> tuple[dict[str, Record], list[str]]:
    """The range of what was written: it joins the range before. Deleted files leave it wider than it could be."""
    records: dict[str, Record] = {}
    for path, change in changes.partitions.items():
        found = [_ranges(file, path) for file in change.written]
        for column in dict.fromkeys(column for ranges in found for column in ranges):
            whole = merged_ranges(ranges[column] for ranges in found if column in ranges)
            records |= [partition_stats_record(path, column, whole, form)]
    return records, []


def _ranges(file: WrittenFile, path: str) -> Ranges:
    if file.ranges is None:
        raise ValueError(f"the column ranges of {file.name} in {path!r} are not told to the metadata table")
    return file.ranges


_RECORDS = {
    FILES_PARTITION: _files,
    COLUMN_STATS_PARTITION: _column_stats,
    BLOOM_FILTERS_PARTITION: _bloom_filters,
    PARTITION_STATS_PARTITION: _partition_stats,
}
