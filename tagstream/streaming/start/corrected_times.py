"""A table whose schema says the wrong unit of its times is given the right one: a look at its values before that.

Milliseconds since 1970 that are taken for microseconds are times of January and February 1970. Real microseconds after the
first days of March 1973 are greater than any such number, and would become times after the year 5000.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import SchemaRefusedError
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.schema.evolve import CORRECT_TIMES
from tagstream.table.schema.schema import with_meta
from tagstream.table.schema.stored import meant

_LOOKED_AT: Final = 64  # file slices; one wrong value in them is enough
_GREATEST_MS: Final = 10**14
_MICROS: Final = pa.timestamp("us", tz="UTC")


def check_corrected(table: HoodieTable, own: pa.Schema, made: pa.Schema) -> None:
    """SchemaRefusedError where a column goes from microseconds to milliseconds, and its values are microseconds."""
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
                        f"file group {found.file_id} of partition {found.partition_path!r}): taken for milliseconds they "
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
    """The plain values that go from microseconds to milliseconds."""
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
