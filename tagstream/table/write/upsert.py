"""Copy-on-write: write the next base file of a file group by merging the previous one batch by batch.

The state index has decided before which upserts and deletes win. So the merge looks up keys and does not compare rows,
except if the index has no ordering values (``WriterOptions.compare_ordering``).
Memory: one batch of old rows, one row group of new rows, and the incoming rows.

Rows of data files have the five meta columns before the user columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tagstream.table import chunks
from tagstream.table.errors import CorruptFileError, MissingSliceError, UnsupportedTableError
from tagstream.table.fields import greater, ordering_column
from tagstream.table.file_group.base_file import BaseFileWriter, BloomBefore, open_base_file
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.names import base_file_name, join, seqnos
from tagstream.table.file_group.repeated_texts import encoded, repeated_texts, with_dictionaries
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.column_ranges import ranges_of_footer, ranges_to_json
from tagstream.table.schema.conform import conform, from_file
from tagstream.table.schema.schema import FILE_NAME, META_COLUMNS, OPERATION, RECORD_KEY
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import NO_PREVIOUS, FileKind, WriteStat, WriteStatus
from tagstream.table.write.change_log import ChangeLog, change_log
from tagstream.table.write.markers import begin_data_file
from tagstream.table.write.write_context import WriteContext

IS_INSERT = "_is_insert"
ORDERING = "_ordering"


def new_rows(ctx: WriteContext, upserts: pa.Table, partition_path: str, file_name: str, first_row: int) -> pa.Table:
    """Incoming rows with the meta columns of this commit; ``first_row`` is the number of rows the task wrote before."""
    count, schema = upserts.num_rows, ctx.file_schema
    user = conform(
        upserts.drop_columns([name for name in (*META_COLUMNS, IS_INSERT) if name in upserts.column_names]),
        pa.schema([field for field in schema if field.name not in META_COLUMNS]),
        f"the rows for {partition_path or 'the table'}",
    )
    meta = [
        _constant(ctx.instant, count),
        seqnos(ctx.instant, ctx.task_partition, first_row, count),
        upserts.column(RECORD_KEY),
        _constant(partition_path, count),
        _constant(file_name, count),
    ]
    return pa.Table.from_arrays([*meta, *user.columns], schema=schema)


def copied_rows(rows: pa.Table, file_name: str) -> pa.Table:
    """Rows of an older file for its next version: all meta columns are kept except the file name."""
    index = rows.schema.get_field_index(FILE_NAME)
    field, count = rows.schema.field(index), rows.num_rows
    if pa.types.is_dictionary(field.type):
        name: pa.Array = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([file_name]))
    else:
        name = _constant(file_name, count)
    return rows.set_column(index, field, name)


def split_inserts(upserts: pa.Table) -> tuple[int, int]:
    """(number of inserts, number of updates) in the rows, according to the index."""
    inserts = int(pc.sum(upserts.column(IS_INSERT)).as_py() or 0)
    return inserts, upserts.num_rows - inserts


def _constant(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)


BATCH_ROWS = 65_536
_MOST_ROWS = 4 * BATCH_ROWS


@dataclass
class MergeCounts:
    """Number of rows by the result of the merge."""

    copied: int = 0
    updated: int = 0
    inserted: int = 0
    deleted: int = 0
    late: int = 0


def write_base_file(
    table: HoodieTable,
    ctx: WriteContext,
    partition_path: str,
    file_id: str,
    file_slice: FileSlice | None,
    upserts: pa.Table,
    deletes: pa.Table,
    first_row: int,
) -> WriteStatus:
    """Stage the file group's base file of this instant: a first one, or the slice's base file merged with the rows."""
    storage, options = table.storage, ctx.options
    old_path = file_slice.base_path if file_slice else None
    kind = FileKind.MERGE if old_path else FileKind.CREATE
    name = base_file_name(file_id, ctx.write_token, ctx.instant)
    path = join(partition_path, name)
    staged = begin_data_file(table, ctx, partition_path, name)
    incoming = new_rows(ctx, upserts, partition_path, name, first_row)
    counts, config = MergeCounts(), table.config
    with ExitStack() as stack:
        old: Iterator[pa.Table] = iter(())
        bloom_before = None
        schema = ctx.file_schema
        if old_path:
            unlike = (RECORD_KEY, *config.deciding_fields)
            before, names = stack.enter_context(_old_file(storage, old_path, schema, unlike))
            bloom_before = BloomBefore.of(before.metadata, options.bloom, deletes.num_rows)
            schema = with_dictionaries(schema, names)
            old = _rows_of(before, storage.where(old_path), schema, options.drops_columns, config.dropped_fields)
        out = stack.enter_context(storage.open_output(staged))
        writer = stack.enter_context(
            BaseFileWriter(
                out,
                storage.where(staged),
                schema,
                ctx.file_avro_json,
                codec=options.codec,
                bloom=options.bloom,
                row_group_bytes=options.row_group_bytes,
                before=bloom_before,
            )
        )
        ordering = config.deciding_fields if options.compare_ordering else ()
        merge = (
            appended_batches if options.keeps_duplicates else partial(merge_batches, deletes=deletes, ordering=ordering)
        )
        changes = stack.enter_context(change_log(table, ctx, partition_path, file_id)) if old_path else None
        for batch in merge(old, encoded(incoming, schema), file_name=name, counts=counts, changes=changes):
            writer.append(batch, known=not counts.inserted)  # inserted rows are all in the last batch
        result = writer.close(counts.deleted)
        if changes is not None:
            changes.close()
    stat = WriteStat(
        file_id=file_id,
        path=path,
        partition_path=partition_path,
        prev_commit=file_slice.base_instant if file_slice and old_path else NO_PREVIOUS,
        num_writes=counts.copied + counts.updated + counts.inserted,
        num_inserts=counts.inserted,
        num_updates=counts.updated,
        num_deletes=counts.deleted,
        file_size=result.bytes,
        total_write_bytes=result.bytes,
        prev_base_file=file_slice.base_file.name if file_slice and file_slice.base_file else None,
        change_files={changes.path: changes.size} if changes is not None else {},
    )
    columns = options.range_columns
    ranges = ranges_to_json(ranges_of_footer(result.footer, columns)) if columns else None
    bloom = result.bloom if options.returns_bloom else None
    return WriteStatus(stat, kind, kind is FileKind.CREATE, ranges, bloom)


def appended_batches(
    old: Iterator[pa.Table],
    incoming: pa.Table,
    file_name: str,
    counts: MergeCounts,
    changes: ChangeLog | None = None,
) -> Iterator[pa.Table]:
    """Old rows, then the incoming rows, without a comparison of their keys. ``changes`` receives what was added."""
    for batch in old:
        counts.copied += batch.num_rows
        yield copied_rows(batch, file_name)
    counts.inserted += incoming.num_rows
    if changes is not None:
        changes.inserted(incoming)
    yield incoming


def merge_batches(
    old: Iterator[pa.Table],
    incoming: pa.Table,
    deletes: pa.Table,
    file_name: str,
    counts: MergeCounts,
    ordering: Sequence[str] = (),
    changes: ChangeLog | None = None,
) -> Iterator[pa.Table]:
    """Old rows with updates in their place and without deleted ones, then the incoming rows that no old row matches.

    ``deletes``: record keys and, with ``ordering`` (the ordering fields), ordering values: then an old row that is
    newer than the incoming one is kept. ``changes`` receives what changed. CorruptFileError for an old row without a
    record key.
    """
    upsert_keys = _flat(incoming.column(RECORD_KEY))
    delete_keys = _flat(deletes.column(RECORD_KEY))
    placed, written = (np.zeros(incoming.num_rows, dtype=np.bool_) for _ in range(2))
    new_order = ordering_column(incoming, ordering)
    for batch in old:
        keys = _flat(batch.column(RECORD_KEY))
        if keys.null_count:
            raise CorruptFileError(f"a row of the file before {file_name} has no record key: the table needs repair")
        matches = pc.index_in(keys, value_set=upsert_keys)
        gone = pc.index_in(keys, value_set=delete_keys) if len(delete_keys) else None
        old_order = ordering_column(batch, ordering)
        if old_order is not None and new_order is not None:
            matches, late = _timely(old_order, matches, new_order)
            placed[late] = True  # late rows are not inserted either
            counts.late += len(late)
            if gone is not None:
                gone, late = _timely(old_order, gone, deletes[ORDERING].combine_chunks())
                counts.late += len(late)
        dropped = gone.is_valid() if gone is not None else None
        yield _merge_batch(copied_rows(batch, file_name), incoming, matches, dropped, placed, written, counts, changes)
    rest = np.flatnonzero(~placed)
    counts.inserted += len(rest)
    new = incoming if len(rest) == incoming.num_rows else chunks.take(incoming, rest)
    if changes is not None:
        changes.inserted(new)
    yield new


def _timely(old: pa.Array, matches: pa.Array, incoming: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """(``matches`` without rows of ``incoming`` that are older than the old row, the removed rows).

    A null ordering value on either side does not remove a row. For equal values the later write wins.
    """
    late = pc.fill_null(greater(old, incoming.take(matches).cast(old.type)), False)
    gone = matches.filter(late).to_numpy().astype(np.int64)
    return pc.if_else(late, pa.scalar(None, matches.type), matches), gone


def _merge_batch(
    rows: pa.Table,
    incoming: pa.Table,
    matches: pa.Array,
    dropped: pa.Array | None,
    placed: npt.NDArray[np.bool_],
    written: npt.NDArray[np.bool_],
    counts: MergeCounts,
    changes: ChangeLog | None,
) -> pa.Table:
    updated = matches.is_valid().to_numpy(zero_copy_only=False)
    at = np.flatnonzero(updated)
    keep = np.ones(rows.num_rows, dtype=np.bool_)
    if dropped is not None:
        # A key that is deleted and upserted in this batch has come back: the new row is kept.
        keep = ~(dropped.to_numpy(zero_copy_only=False) & ~updated)
    source = matches.drop_null().to_numpy().astype(np.int64)
    gone = np.flatnonzero(~keep)
    keep[at[_again(source, written)]] = False
    counts.deleted += rows.num_rows - int(keep.sum())
    at, source = at[keep[at]], source[keep[at]]
    counts.updated += len(at)
    counts.copied += int(keep.sum()) - len(at)
    new = chunks.take(incoming, source) if len(at) else incoming.slice(0, 0)
    if changes is not None:
        changes.merged(rows, gone, at, new)
    if not len(at):
        return rows if keep.all() else rows.filter(pa.array(keep))
    placed[source] = True
    order = np.arange(rows.num_rows, dtype=np.int64)
    order[at] = rows.num_rows + np.arange(len(at))
    return chunks.take(chunks.combined([rows, new]), order[keep])


def _again(source: npt.NDArray[np.int64], written: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Which matches get the same new row again: another writer has written the key twice into the file."""
    before = np.count_nonzero(written)
    had = written[source]
    written[source] = True
    if np.count_nonzero(written) - before == len(source):
        return np.zeros(0, np.int64)
    first = np.zeros(len(source), np.bool_)
    first[np.unique(source, return_index=True)[1]] = True
    return np.flatnonzero(had | ~first)


def old_batches(
    storage: Storage,
    rel: str,
    schema: pa.Schema,
    batch_bytes: int = 0,
    *,
    drops: bool = False,
    without: Collection[str] = (),
) -> Iterator[pa.Table]:
    """The rows of a base file in the given schema, in bounded batches, row group by row group.

    A batch has ``BATCH_ROWS`` rows, or the number of rows that have about ``batch_bytes`` uncompressed if that is more,
    up to a limit. ``drops``: columns that the schema lacks are left out; otherwise they are an UnsupportedTableError.
    The column of ``hoodie.allow.operation.metadata.field`` is left out, as by a Hudi writer without that option: no
    table schema has it. ``without``: columns that only the path has are left out, too: Hudi's clustering writes them as
    nulls.
    """
    with _missing_is_named(storage, rel), open_base_file(storage, rel) as file:
        yield from _rows_of(file, storage.where(rel), schema, drops, without, batch_bytes)


@contextmanager
def _old_file(
    storage: Storage, rel: str, schema: pa.Schema, unlike: Collection[str]
) -> Iterator[tuple[pq.ParquetFile, frozenset[str]]]:
    """The base file before, and its columns of texts that are read as dictionaries, without those in ``unlike``."""
    names: frozenset[str] = frozenset()

    def repeated(file: pq.ParquetFile) -> frozenset[str]:
        nonlocal names
        names = repeated_texts(file, schema, unlike)
        return names

    with _missing_is_named(storage, rel), open_base_file(storage, rel, repeated) as file:
        yield file, names


def _rows_of(
    file: pq.ParquetFile, path: str, schema: pa.Schema, drops: bool, without: Collection[str], batch_bytes: int = 0
) -> Iterator[pa.Table]:
    lost = [name for name in file.schema_arrow.names if name not in (*schema.names, *without, OPERATION)]
    if lost and not drops:
        raise UnsupportedTableError(
            f"{path} has columns the new schema lacks ({', '.join(lost)}); rewriting it would lose them: "
            "add them to the schema"
        )
    try:
        for group in range(file.num_row_groups):  # a batch across row groups could have any size
            found = file.metadata.row_group(group)
            fitting = batch_bytes * found.num_rows // max(found.total_byte_size, 1)
            rows = min(max(BATCH_ROWS, fitting), _MOST_ROWS)  # repeated values take no space in the file
            for batch in file.iter_batches(batch_size=rows, row_groups=[group]):
                yield from_file(pa.Table.from_batches([batch]), schema, path)
    except pa.ArrowInvalid as error:
        raise CorruptFileError(f"{path} cannot be read to its end ({error}): restore it") from error


@contextmanager
def _missing_is_named(storage: Storage, rel: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise MissingSliceError(
            f"base file {storage.where(rel)} is missing, though the metadata table or a listing has it: it was lost or "
            "deleted by hand; update the index from the table first"
        ) from error


def _flat(keys: pa.ChunkedArray) -> pa.Array:
    return pc.cast(keys.combine_chunks(), pa.string())
