"""The changes of an action to a table, and the resulting entries of the metadata table's file groups."""

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

KEYS = pa.schema([("record_key", pa.string()), ("partition_path", pa.string())])  # of deleted rows


@dataclass(frozen=True)
class WrittenFile:
    """A base or log file: its name and full size. ``ranges`` by column and ``bloom`` (the footer's text) if they are kept.

    ``bloom`` is for base files only.
    """

    name: str
    size: int
    ranges: Ranges | None = None
    bloom: str | None = None


@dataclass(frozen=True)
class PartitionChange:
    """Files of one partition that were written, and names of files that were deleted."""

    written: tuple[WrittenFile, ...] = ()
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Changes:
    """The changes of one action: ``partitions`` by partition path; ``deleted_partitions`` are deleted with their folders.

    ``places`` (tables of ``PLACES``): keys that were inserted or moved; if a key occurs twice the last one applies.
    ``deleted_keys`` (tables of ``KEYS``): deleted keys, with their former partition path. A key may be in only one of
    the two. In a record index by partition a key is different in each partition: a key that moves is in both.
    ``columns``: the columns with statistics, necessary if files were deleted. ``older_ranges``: by partition path the
    ranges of files of earlier commits, with which the partition's range is widened again.
    """

    partitions: Mapping[str, PartitionChange] = field(default_factory=dict)
    deleted_partitions: tuple[str, ...] = ()
    places: Sequence[pa.Table] = ()
    deleted_keys: Sequence[pa.Table] = ()
    columns: Sequence[str] = ()
    older_ranges: Mapping[str, Sequence[Ranges]] = field(default_factory=dict)


def written_by(statuses: Iterable[WriteStatus]) -> dict[str, PartitionChange]:
    """The files in write statuses, by partition path."""
    found: dict[str, list[WrittenFile]] = {}
    for status in statuses:
        stat = status.stat
        ranges = None if status.ranges is None else ranges_from_json(status.ranges)
        file = WrittenFile(stat.file_name, stat.file_size, ranges, status.bloom)
        changes = (WrittenFile(rel.rpartition("/")[2], size, {}) for rel, size in stat.change_files.items())
        found.setdefault(stat.partition_path, []).extend((file, *changes))
    return {path: PartitionChange(tuple(files)) for path, files in found.items()}


@dataclass(frozen=True)
class GroupEntries:
    """The changes of one file group: keys (binary, sorted) with their values, and keys (text) to delete.

    ``data_partition``: in a record index by partition, the partition of the group.
    """

    number: int
    keys: pa.Array
    values: pa.Array
    deleted: pa.Array
    data_partition: str | None = None

    def __len__(self) -> int:
        return len(self.keys) + len(self.deleted)


def entries(changes: Changes, partition: str, groups: int, instant: str, forms: Forms) -> Iterator[GroupEntries]:
    """The entries of one partition of the metadata table, by file group, without groups that have none.

    A record index by partition uses ``partitioned_entries``. ValueError when the changes lack what the partition needs.
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
    """As :func:`entries`, for a record index by partition.

    ``groups``: number of file groups of each partition of the data. ``new_groups``: that of a new partition.
    """
    put, gone = _by_partition(_put(changes)), _by_partition(_gone(changes))
    for path in sorted({*put, *(path for path in gone if path in groups)}):  # without groups there is no key to delete
        own = put.get(path, PLACES.empty_table()), gone.get(path, KEYS.empty_table())
        yield from _index_entries(*own, groups.get(path, new_groups), form, path)


def grouped(
    keys: pa.Array, values: pa.Array, gone: pa.Array, groups: int, data_partition: str | None = None
) -> Iterator[GroupEntries]:
    """Sorted keys (binary) with their values, and deleted keys (text), by their file groups."""
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
    """(file groups of the keys, sorted; the keys' indexes in this order). Keys of a group keep their order."""
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
    # Files of a deleted partition are deleted one by one, as in Hudi (HoodieTableMetadataUtil). hudi-rs ignores a
    # deleted key, and would find the files again if the partition were created again.
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
                raise ValueError(
                    f"the bloom filter of {file.name} in {path!r} is missing in the changes for the metadata table"
                )
        for name in (name for name in change.deleted if not name.startswith(".")):
            if TableVersion.of(version).deletes_statistics:
                gone.append(partition_id(path) + file_id(name))
            else:
                records |= [bloom_record(path, name, instant, None)]
    return records, gone


def _partition_stats(changes: Changes, _instant: str, _version: int, form: int) -> tuple[dict[str, Record], list[str]]:
    """The range of the written files, which readers merge with the range before. Deleted files do not make it smaller."""
    records: dict[str, Record] = {}
    for path in {**changes.partitions, **changes.older_ranges}:
        change = changes.partitions.get(path, PartitionChange())
        found = [*(_ranges(file, path) for file in change.written), *changes.older_ranges.get(path, ())]
        for column in dict.fromkeys(column for ranges in found for column in ranges):
            whole = merged_ranges(ranges[column] for ranges in found if column in ranges)
            records |= [partition_stats_record(path, column, whole, form)]
    return records, []


def _ranges(file: WrittenFile, path: str) -> Ranges:
    if file.ranges is None:
        raise ValueError(
            f"the column ranges of {file.name} in {path!r} are missing in the changes for the metadata table"
        )
    return file.ranges


_RECORDS = {
    FILES_PARTITION: _files,
    COLUMN_STATS_PARTITION: _column_stats,
    BLOOM_FILTERS_PARTITION: _bloom_filters,
    PARTITION_STATS_PARTITION: _partition_stats,
}
