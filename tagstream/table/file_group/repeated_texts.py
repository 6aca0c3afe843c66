"""Text columns that stay dictionaries from the old base file to the new one.

A column with few values is a dictionary in Parquet. If it is read as one and written as one, its texts are neither copied
nor hashed again for each row. A dictionary that is written has only values that rows have: a value whose last row was
deleted must not stay in the file.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_TYPE = pa.dictionary(pa.int32(), pa.string())


def repeated_texts(file: pq.ParquetFile, schema: pa.Schema, without: Collection[str] = ()) -> frozenset[str]:
    """The columns of texts that a file has as dictionaries alone; none if its schema is not exactly ``schema``.

    ``without``: columns that are left out, since their values are compared.
    """
    if not file.num_row_groups or not file.schema_arrow.equals(schema, check_metadata=False):
        return frozenset()
    found = {field.name for field in schema if pa.types.is_string(field.type) and "." not in field.name} - {*without}
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            # A writer whose dictionary has become too large writes plain values from then on.
            if "PLAIN" in column.encodings or "PLAIN_DICTIONARY" not in column.encodings:
                found.discard(column.path_in_schema)
    return frozenset(found)


def with_dictionaries(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """The schema with these columns of texts as dictionaries."""
    return pa.schema([field.with_type(_TYPE) if field.name in names else field for field in schema])


def encoded(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with texts as rows of a schema with dictionaries."""
    columns = [
        column.combine_chunks().dictionary_encode() if pa.types.is_dictionary(field.type) else column
        for field, column in zip(schema, rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def without_unused_values(rows: pa.Table) -> pa.Table:
    """The rows with one dictionary for each column of dictionaries, which has only values of these rows."""
    if not any(map(pa.types.is_dictionary, rows.schema.types)):
        return rows
    columns = [_used(column) if pa.types.is_dictionary(column.type) else column for column in rows.columns]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _used(column: pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = [chunk for chunk in column.unify_dictionaries().chunks if len(chunk)]
    if not chunks:
        return pa.chunked_array([], column.type)
    values = chunks[0].dictionary
    used = np.zeros(len(values), np.bool_)
    for chunk in chunks:
        used[chunk.indices.drop_null().to_numpy()] = True
    if not used.all():
        numbers, values = pa.array((np.cumsum(used) - 1).astype(np.int32)), values.filter(pa.array(used))
        chunks = [pa.DictionaryArray.from_arrays(numbers.take(chunk.indices), values) for chunk in chunks]
    return pa.chunked_array(chunks, column.type)
