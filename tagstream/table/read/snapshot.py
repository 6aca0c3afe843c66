"""The snapshot query: every live row of a table as of an instant, or those that filters let through, as Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.file_group.base_file import open_base_file
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.keys.bucket_hash import BucketHash
from tagstream.table.meta_client.dropped_columns import with_dropped
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.changed import changed_since
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.schema.schema import META_COLUMNS, avro_to_arrow, user_schema, with_meta
from tagstream.table.skipping.bucket_pruning import bucket_pruner
from tagstream.table.skipping.data_skipping import DataSkipping, SkipReport
from tagstream.table.skipping.filters import Comparison
from tagstream.table.timeline.timeline import Timeline

_ASKED_TOGETHER = 64  # partitions


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

    ``partitions``: partition paths to read, all by default. ``as_of``: an instant time; the newest by default.
    ``filters``: comparisons that all must hold; partitions and files that cannot hold such rows are not read, and
    counted in ``report``. ``buckets``: how the table is bucketed, which no property of it tells; where the filters fix the
    hash fields, only their buckets are read. ``since``: an instant time; only rows of writes that were completed after it
    (changed.py).
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
    """The schema and the live rows in bounded batches; the arguments are those of ``read_snapshot``."""
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
    """Rows of the partitions' slices that the filters let through; the reader's columns hold those of the filters."""
    wanted = skipping.partitions(partitions)
    # Many partitions are one question to the metadata table; without filters there is none to ask.
    size = _ASKED_TOGETHER if skipping.filters else 1
    for start in range(0, len(wanted), size):
        listed = [found for partition in wanted[start : start + size] for found in view.latest_merged_slices(partition)]
        for file_slice in skipping.slices(listed):
            for batch in reader.read(file_slice):
                yield skipping.rows(batch)


def snapshot_schema(table: HoodieTable, timeline: Timeline, view: FileSystemView) -> pa.Schema:
    """Meta columns and user columns: of the newest commit's schema, else of the properties, else of a base file.

    Partition columns that the files leave out are behind the others.
    """
    return with_dropped(stored_schema(table, timeline, view), table.config)


def stored_schema(table: HoodieTable, timeline: Timeline, view: FileSystemView) -> pa.Schema:
    """The same of the rows as they are stored: without partition columns where the table leaves them out."""
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
        f"table {table.config.name} at {table.base_path} tells its schema nowhere (no commit, property or base file "
        f"has one); only its meta columns {', '.join(META_COLUMNS)} are known"
    )
