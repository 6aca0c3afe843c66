"""Checks of single columns for a schema change: times with a corrected unit, dropped columns, and names of former
columns.

- The schema of a table may have the wrong unit for its times, and may get the right one after a check of the values.
  Milliseconds since 1970 that are read as microseconds are times of January and February 1970. Real microseconds after
  the first days of March 1973 are greater than any such number, and would become times after the year 5000.
- Partition columns may be left out of a table's files only where their values can be read back from the path.
- A column that the table had before must not come back with a type that its older files do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.options.options import Options
from tagstream.table.errors import ConfigError, SchemaRefusedError, UnsupportedTableError
from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import DROP_KEY, TableConfig
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.schema.conform import meant
from tagstream.table.schema.evolve import CORRECT_TIMES, avro_type, clash
from tagstream.table.schema.schema import avro_to_arrow, with_meta
from tagstream.table.timeline.commit_metadata import SCHEMA_KEY, CommitMetadata

_LOOKED_AT: Final = 64  # file slices to check; one wrong value in them is enough
_GREATEST_MS: Final = 10**14
_MICROS: Final = pa.timestamp("us", tz="UTC")


def check_corrected(table: HoodieTable, own: pa.Schema, made: pa.Schema) -> None:
    """SchemaRefusedError where a column changes from microseconds to milliseconds, but its values are microseconds."""
    names = [field.name for field in own if _is_corrected(field, made)]
    timeline = table.timeline()
    view = table.view(timeline)
    if not names or view.as_of is None:
        return
    reader = SliceReader(table, timeline, view.as_of, with_meta(own), tuple(names))
    for found in islice(_slices(view), _LOOKED_AT):
        for rows in reader.read(found):
            for name in names:
                great = max(_greatest(rows.column(name), made.field(name).type), default=0)
                if great >= _GREATEST_MS:
                    raise SchemaRefusedError(
                        f"column {name!r} of table {table.base_path} has values that are microseconds (up to {great} in "
                        f"file group {found.file_id} of partition {found.partition_path!r}): read as milliseconds they "
                        f"would be times after the year 5000; remove {CORRECT_TIMES}, and give the source's column the "
                        "type timestamp-micros"
                    )


def _slices(view: FileSystemView) -> Iterator[FileSlice]:
    for partition in view.partitions():
        yield from view.latest_merged_slices(partition)


def _is_corrected(own: pa.Field, made: pa.Schema) -> bool:
    at = made.get_field_index(own.name)
    return at >= 0 and not meant(own.type, made.field(at).type).equals(own.type)


def _greatest(values: pa.ChunkedArray, table: pa.DataType) -> Iterator[int]:
    for chunk in values.chunks:
        for leaf in _leaves(chunk, table):
            ends = pc.min_max(leaf.cast(pa.int64()))
            yield from (abs(end.as_py()) for end in (ends["min"], ends["max"]) if end.is_valid)


def _leaves(values: pa.Array, table: pa.DataType) -> Iterator[pa.Array]:
    """The primitive values that change from microseconds to milliseconds."""
    own, t = values.type, pa.types
    if own == _MICROS and meant(own, table) != own:
        yield values
    elif t.is_struct(own) and t.is_struct(table):
        for n, member in enumerate(own):
            at = table.get_field_index(member.name)
            if at >= 0:
                yield from _leaves(values.field(n), table.field(at).type)
    elif t.is_map(own) and t.is_map(table):
        yield from _leaves(values.items, table.item_type)
    elif (t.is_list(own) or t.is_large_list(own)) and (t.is_list(table) or t.is_large_list(table)):
        yield from _leaves(values.flatten(), table.value_type)


def check_dropped(schema: pa.Schema, config: TableConfig, options: Options) -> None:
    """ConfigError where the values of partition columns that the files leave out could not be read back unchanged."""
    if not config.dropped_fields:
        return
    timed = [name for name in config.dropped_fields if name in schema.names and _is_time(schema.field(name).type)]
    if timed:
        raise ConfigError(
            f"{DROP_KEY}=true, and partition column {timed[0]!r} is {schema.field(timed[0]).type}, for which engines make "
            "different paths: use a column of texts, dates or numbers (docs/guide/dataframes.md#transformations), or "
            "remove the option"
        )
    if options.global_index and not options.index.moves:
        raise ConfigError(
            f"{DROP_KEY}=true, and moved records must stay in their old partition "
            f"({_stays(options)}=false): they would be read with that partition's values. Remove one of the two options"
        )


def _stays(options: Options) -> str:
    return next((key for key in options.explicit if key.endswith(".update.partition.path")), "update.partition.path")


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_time(kind))


def check_former(table: HoodieTable, own: pa.Schema, made: pa.Schema, source: str) -> None:
    """SchemaRefusedError where ``made`` has a column that ``own``, the table's schema, lacks and had before with
    another type.

    ``source``: where the column comes from. The schemas of all commits, also archived ones, are read only if a column
    is new.
    """
    found = clash(own, made, former_schemas(table))
    if found is not None:
        was, now = (avro_type(pa.field("c", kind)) for kind in (found.was, found.now))
        raise SchemaRefusedError(
            f"{source}: the new column {found.name!r} is {now}, but the table had a column of this name with type {was} "
            "until it was dropped: older files still have its values, and readers would read them as the new column's; give "
            "the new column another name"
        )


def former_schemas(table: HoodieTable) -> Iterator[pa.Schema]:
    """Every schema that the table's commits were written with, newest first, each once."""
    seen: set[str] = set()
    for text in _texts(table):
        if text and text not in seen:
            seen.add(text)
            with suppress(UnsupportedTableError):  # this project cannot read its files anyway
                yield avro_to_arrow(text)


def _texts(table: HoodieTable) -> Iterator[str | None]:
    timeline = table.timeline()
    for instant in reversed(timeline.completed_writes):
        yield timeline.metadata(table.storage, instant).extra.get(SCHEMA_KEY)
    for action in table.archived_writes():
        if action.metadata:
            yield CommitMetadata.from_bytes(action.metadata, f"archived instant {action.time}").extra.get(SCHEMA_KEY)
    yield table.config.create_schema
