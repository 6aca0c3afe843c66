"""The definitions of a table's indexes, which say what columns its metadata table keeps statistics of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.encode.indexed_columns import (
    default_columns,
    defined_columns,
    supported_columns,
    write_definitions,
)
from tagstream.table.metadata.index_definitions import INDEX_DEFINITIONS, statistics_form


def kept_columns(table: HoodieTable, schema: pa.Schema, asked: Sequence[str] = ()) -> list[str]:
    """The columns of a table of this schema that have statistics.

    Those that its definitions name; without definitions ``asked`` (hoodie.metadata.index.column.stats.column.list), or else
    what Hudi would choose. Columns that the schema lacks, or that cannot have any, are left out.
    """
    storage, version = table.storage, table.config.version
    defined = None
    if storage.exists(INDEX_DEFINITIONS):
        defined = defined_columns(storage.read(INDEX_DEFINITIONS), storage.where(INDEX_DEFINITIONS))
    wanted = defined if defined is not None else list(asked)
    form = statistics_form(storage, version)
    return supported_columns(wanted, schema, form) if wanted else default_columns(schema, form)


def define_indexes(
    table: HoodieTable, partitions: Iterable[str], columns: Sequence[str], partitioned_index: bool | None = None
) -> None:
    """Write the definitions of the indexes among these partitions; those of others stay. ``partitioned_index`` None: the
    record index's form stays."""
    storage = table.storage
    before = storage.read(INDEX_DEFINITIONS) if storage.exists(INDEX_DEFINITIONS) else None
    where = storage.where(INDEX_DEFINITIONS)
    version = table.config.version
    content = write_definitions(before, set(partitions), columns, version, where, partitioned_index)
    storage.replace(INDEX_DEFINITIONS, content)
