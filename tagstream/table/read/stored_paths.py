"""A few stored rows of a few partitions, with the record keys and partition paths that their writer gave them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.fields import columns_of
from tagstream.table.file_group.base_file import open_base_file
from tagstream.table.file_group.log.format import BlockType
from tagstream.table.file_group.log.reader import scan_log_file
from tagstream.table.file_group.names import parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.path_columns import path_columns, with_path_columns
from tagstream.table.schema.schema import OPERATION, PARTITION_PATH, RECORD_KEY, avro_to_arrow, with_meta
from tagstream.table.schema.stored import from_file
from tagstream.table.timeline.write_status import WriteStat

_PARTITIONS: Final = 16
_COMMITS: Final = 32  # the newest ones: their files are there, but for those that a rewrite left behind
_ROWS: Final = 16  # of a file
_DELETED: Final = "_hoodie_is_deleted"
_DATA: Final = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA)


@dataclass(frozen=True)
class StoredRows:
    """Rows of one file of a partition: the columns that were asked for and the meta columns."""

    partition: str
    path: str
    rows: pa.Table


def stored_rows(table: HoodieTable, fields: Sequence[str], *, partitions: int = _PARTITIONS) -> Iterator[StoredRows]:
    """Rows of one file in each of so many partitions, those that were written last; none of a table without a commit.

    ``fields``: columns, or fields of structs by their dotted path. Files that lack one of them are passed over.
    Columns that only partition paths hold have the path's values: made of them again it must be the same.
    """
    text = table.schema_json()
    if text is None or not table.config.populate_meta_fields:
        return
    schema = with_meta(avro_to_arrow(text))
    in_path = [name for name in fields if name in table.config.dropped_fields]
    heads = columns_of((name for name in fields if name not in in_path), schema.names)
    if not set(heads) <= set(schema.names):
        return
    wanted = pa.schema([schema.field(n) for n in dict.fromkeys((RECORD_KEY, PARTITION_PATH, *heads))])
    seen: set[str] = set()
    for stat in _stats(table):
        if stat.partition_path in seen:
            continue
        rows = _rows(table, stat, wanted)
        if rows is not None and rows.num_rows:
            seen.add(stat.partition_path)
            rows = with_path_columns(rows, path_columns(table.config, stat.partition_path, in_path))
            yield StoredRows(stat.partition_path, stat.path, rows)
            if len(seen) == partitions:
                return


def _stats(table: HoodieTable) -> Iterator[WriteStat]:
    timeline = table.timeline()
    for instant in islice(reversed(timeline.completed_writes), _COMMITS):
        for stat in timeline.metadata(table.storage, instant).all_stats():
            if stat.path and stat.num_writes > 0:
                yield stat


def _rows(table: HoodieTable, stat: WriteStat, wanted: pa.Schema) -> pa.Table | None:
    try:
        if parse_log_file_name(stat.file_name) is not None:
            return _of_log(table, stat.path, wanted)
        return _of_base(table, stat.path, wanted)
    except (FileNotFoundError, CorruptFileError, UnsupportedTableError):
        return None  # a rewrite has taken its place, or the load of the index will say what is wrong with it


def _of_base(table: HoodieTable, rel: str, wanted: pa.Schema) -> pa.Table | None:
    with open_base_file(table.storage, rel) as file:
        if not set(wanted.names) <= set(file.schema_arrow.names):
            return None
        batch = next(file.iter_batches(batch_size=_ROWS, columns=wanted.names), None)
        if batch is None:
            return None
        return from_file(pa.Table.from_batches([batch]), wanted, table.storage.where(rel))


def _of_log(table: HoodieTable, rel: str, wanted: pa.Schema) -> pa.Table | None:
    """The first rows that are no deletes: these need not have a value in partition fields."""
    marks = pa.schema([pa.field(_DELETED, pa.bool_()), pa.field(OPERATION, pa.string())])
    for block in scan_log_file(table.storage, rel):
        if block.type not in _DATA or not set(wanted.names) <= block.columns:
            continue
        rows = block.read_table(pa.schema([*wanted, *(mark for mark in marks if mark.name not in wanted.names)]))
        deleted = pc.or_(
            pc.fill_null(pc.cast(rows.column(_DELETED), pa.bool_()), False),
            pc.fill_null(pc.is_in(rows.column(OPERATION), value_set=pa.array(["D", "-U"])), False),
        )
        return rows.filter(pc.invert(deleted)).slice(0, _ROWS)
    return None
