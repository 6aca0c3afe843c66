"""Live rows of a table as of an instant, as Arrow: all, those that match filters, those of some writes or keys.

The incremental query returns the rows of the writes that were completed after a time. As in Hudi, the time of a write
is its completion time from table version 8 on, and its instant time up to version 7. A row has the instant time of its
write in ``_hoodie_commit_time``, which compaction and clustering keep. Deleted rows are not in the result.

A lookup of keys in a file slice returns the keys with a live row in its base file or logs, and their ordering values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import FileGoneError, UnsupportedTableError
from tagstream.table.fields import columns_of, with_type
from tagstream.table.file_group.base_file import open_base_file
from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.file_group.names import join
from tagstream.table.keys.bucket_hash import BucketHash
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import with_dropped
from tagstream.table.read.data_skipping import DataSkipping, Pruner, SkipReport, bucket_pruner
from tagstream.table.read.filters import Comparison, Filter, Op
from tagstream.table.read.merge import merge_base
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.schema.schema import COMMIT_TIME, META_COLUMNS, RECORD_KEY, avro_to_arrow, user_schema, with_meta
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.timeline import FileGroupId, Timeline


@dataclass(frozen=True)
class Changed:
    """``times``: instants of the writes, as in the rows.

    ``groups``: (partition path, file id) of groups that they changed.
    """

    times: frozenset[str]
    groups: frozenset[FileGroupId]

    def partitions(self, paths: Iterable[str]) -> list[str]:
        """The partition paths that have one of the groups, in their order."""
        mine = {partition for partition, _ in self.groups}
        return [path for path in paths if path in mine]

    def filter(self, schema: pa.Schema) -> Filter:
        """A filter for the rows of these writes; ``schema`` is that of the table, with its meta columns."""
        field = schema.field(COMMIT_TIME)
        return Filter(field, Op.IN, pa.array(sorted(self.times), field.type))

    def pruner(self) -> Pruner:
        """A pruner that excludes the slices of groups that none of the writes changed."""

        def may_hold(slices: Sequence[FileSlice]) -> list[bool]:
            return [(found.partition_path, found.file_id) in self.groups for found in slices]

        return Pruner("commits", may_hold)


def changed_since(table: HoodieTable, timeline: Timeline, since: str, as_of: str | None = None) -> Changed:
    """The writes after ``since`` and up to ``as_of`` (instant times, 17 digits), including archived ones."""
    times, groups = set[str](), set[FileGroupId]()
    for time, metadata in _writes(table, timeline, since):
        if as_of is not None and time > as_of:
            continue
        times.add(time)
        groups.update((stat.partition_path, stat.file_id) for stat in metadata.all_stats())
    return Changed(frozenset(times), frozenset(groups))


def _writes(table: HoodieTable, timeline: Timeline, since: str) -> Iterator[tuple[str, CommitMetadata]]:
    """(instant time, content) of each write that was completed after a time."""
    active = {instant.time for instant in timeline.completed_writes}
    for instant in timeline.completed_writes:
        if (instant.completion_time or instant.time) > since:
            yield instant.time, timeline.metadata(table.storage, instant)
    if not table.config.has_completion_times and timeline.start is not None and since >= timeline.start:
        return  # archived writes are older
    for action in table.archived_after(since):
        if action.time not in active and action.metadata is not None:
            where = f"the archived {action.action} {action.time} of {table.base_path}"
            yield action.time, CommitMetadata.from_bytes(action.metadata, where)


_ASKED_TOGETHER = 64  # partitions in one lookup of the metadata table


def read_snapshot(
    table: HoodieTable,
    columns: Sequence[str] | None = None,
    partitions: Sequence[str] | None = None,
    as_of: str | None = None,
    filters: Sequence[Comparison] = (),
    report: SkipReport | None = None,
    buckets: BucketHash | None = None,
    since: str | None = None,
) -> pa.Table:
    """All live rows in one Arrow table. ``columns``: by default the meta columns and all user columns.

    ``partitions``: partition paths to read, by default all. ``as_of``: an instant time, by default the newest.
    ``filters``: comparisons that must all be true. Partitions and files that cannot have such rows are skipped, and
    counted in ``report``. ``buckets``: the table's bucket hash, which no table property has; if the filters fix the
    hash fields, only their buckets are read. ``since``: an instant time; only rows of writes that were completed after
    it (:func:`changed_since`). ValueError for unknown columns.
    """
    schema, batches = scan_snapshot(table, columns, partitions, as_of, filters, report, buckets, since)
    return pa.concat_tables([schema.empty_table(), *batches])


def scan_snapshot(
    table: HoodieTable,
    columns: Sequence[str] | None = None,
    partitions: Sequence[str] | None = None,
    as_of: str | None = None,
    filters: Sequence[Comparison] = (),
    report: SkipReport | None = None,
    buckets: BucketHash | None = None,
    since: str | None = None,
) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """The schema and the live rows in bounded batches, with the arguments of ``read_snapshot``."""
    timeline = table.timeline()
    view = table.view(timeline, as_of)
    full = snapshot_schema(table, timeline, view)
    wanted = tuple(columns) if columns is not None else tuple(full.names)
    unknown = [name for name in wanted if name not in full.names]
    if unknown:
        raise ValueError(
            f"table {table.config.name} has no column {', '.join(unknown)}; it has {', '.join(full.names)}"
        )
    schema = pa.schema([full.field(name) for name in wanted])
    skipping = DataSkipping.plan(table, timeline, full, filters, report)
    pruner = bucket_pruner(buckets, skipping.filters) if buckets is not None else None
    if pruner is not None:
        skipping = skipping.asking_first(pruner)
    if view.as_of is None:
        return schema, iter(())
    chosen = view.partitions() if partitions is None else partitions
    if since is not None:
        changed = changed_since(table, timeline, since, as_of)
        if not changed.times:
            return schema, iter(())
        skipping = skipping.asking_first(changed.pruner()).with_filter(changed.filter(full))
        chosen = changed.partitions(chosen)
    reader = SliceReader(table, timeline, view.as_of, full, tuple(dict.fromkeys((*wanted, *skipping.columns))))
    found = read_slices(reader, view, chosen, skipping)
    return schema, (batch.select(wanted) for batch in found)


def read_slices(
    reader: SliceReader, view: FileSystemView, partitions: Iterable[str], skipping: DataSkipping
) -> Iterator[pa.Table]:
    """Rows of the partitions' slices that match the filters; the reader's columns must include those of the filters."""
    wanted = skipping.partitions(partitions)
    # Many partitions need one lookup in the metadata table. Without filters there is none.
    size = _ASKED_TOGETHER if skipping.filters else 1
    for start in range(0, len(wanted), size):
        listed = [found for partition in wanted[start : start + size] for found in view.latest_merged_slices(partition)]
        for file_slice in skipping.slices(listed):
            for batch in reader.read(file_slice):
                yield skipping.rows(batch)


def snapshot_schema(table: HoodieTable, timeline: Timeline, view: FileSystemView) -> pa.Schema:
    """Meta columns and user columns: of the newest commit's schema, else of the properties, else of a base file.

    Partition columns that the files lack are at the end.
    """
    return with_dropped(stored_schema(table, timeline, view), table.config)


def stored_schema(table: HoodieTable, timeline: Timeline, view: FileSystemView) -> pa.Schema:
    """As :func:`snapshot_schema`, for the stored rows: without partition columns if the table drops them."""
    avro = table.schema_json(timeline, view.as_of)
    if avro is not None:
        return with_meta(avro_to_arrow(avro))
    for partition in view.partitions():
        for base in view.latest_base_files(partition):
            with open_base_file(table.storage, join(partition, base.name)) as file:
                own = [f for f in user_schema(file.schema_arrow) if f.name not in table.config.dropped_fields]
                return with_meta(pa.schema(own))
    if view.as_of is None:
        return with_meta(pa.schema([]))
    raise UnsupportedTableError(
        f"table {table.config.name} at {table.base_path} has no schema (neither in a commit, nor in its properties, nor "
        f"in a base file); only its meta columns {', '.join(META_COLUMNS)} are known"
    )


def key_reader(table: HoodieTable, timeline: Timeline, as_of: str, ordering_type: pa.DataType | None) -> SliceReader:
    """A reader of the record key and, with ``ordering_type``, of the ordering columns in that type (or its members)."""
    schema = snapshot_schema(table, timeline, table.view(timeline, as_of))
    fields = table.config.deciding_fields if ordering_type is not None else ()
    kinds = [ordering_type] if len(fields) == 1 else [member.type for member in ordering_type or ()]
    for name, kind in zip(fields, kinds, strict=True):
        schema = with_type(schema, name, kind)
    columns = (RECORD_KEY, *columns_of(fields, schema.names))
    return SliceReader(table, timeline, as_of, schema, columns, keep_orderings=bool(fields))


def lookup_slice(
    reader: SliceReader, file_slice: FileSlice, keys: pa.Array, in_base: pa.Array
) -> tuple[pa.Array, pa.Array | None]:
    """(keys with a live row in the slice, their ordering values or None if the reader has no ordering column).

    ``keys``: distinct strings to look up. ``in_base``: the keys that the base file may have; without any it is not
    opened. CorruptFileError names a file that is missing or cannot be read.
    """
    try:
        return _lookup(reader, file_slice, keys, in_base)
    except FileNotFoundError as e:
        raise FileGoneError(
            f"{e.filename} is part of the table as of {reader.as_of} and is missing; restore it, or start again if a "
            "clean has just removed it"
        ) from e


def _lookup(
    reader: SliceReader, file_slice: FileSlice, keys: pa.Array, in_base: pa.Array
) -> tuple[pa.Array, pa.Array | None]:
    log = reader.merged_log(file_slice) if file_slice.log_files else None
    lost = np.zeros(len(log.keys) if log is not None else 0, dtype=np.bool_)
    found: list[tuple[pa.Array, pa.Array | None]] = []
    for batch in reader.base_batches(file_slice, reader.columns) if len(in_base) else ():
        rows = batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=in_base))
        if not rows.num_rows:
            continue
        here = rows.column(RECORD_KEY).combine_chunks()
        ordering = reader.ordering(rows) if len(reader.columns) > 1 else None
        if log is not None:
            keep, lost = merge_base(here, ordering if reader.event_time else None, log, lost)
            chosen = pa.array(keep)
            here, ordering = here.filter(chosen), ordering.filter(chosen) if ordering is not None else None
        found.append((here, ordering))
    if log is not None:
        wanted = pc.is_in(log.keys, value_set=keys).to_numpy(zero_copy_only=False)
        chosen = pa.array(wanted & (log.row >= 0) & ~lost)
        ordering = log.winner_orderings
        found.append((log.keys.filter(chosen), ordering.filter(chosen) if ordering is not None else None))
    return _concat(reader, found)


def _concat(reader: SliceReader, found: list[tuple[pa.Array, pa.Array | None]]) -> tuple[pa.Array, pa.Array | None]:
    keys = pa.concat_arrays([k.cast(pa.string()) for k, _ in found]) if found else pa.array([], pa.string())
    kind = reader.ordering_type if len(reader.columns) > 1 else None
    if kind is None:
        return keys, None
    # Logs without a record that has an ordering value have no such column: their values are null.
    orderings = [o.cast(kind) if o is not None else pa.nulls(len(k), kind) for k, o in found]
    return keys, pa.concat_arrays(orderings) if orderings else pa.array([], kind)
