"""Arrow types as Spark has them: it knows timestamps in microseconds, no time of day, no bytes of a fixed number."""

from __future__ import annotations

import pyarrow as pa

from tagstream.table.chunks import flat


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a schema in types that Spark has; all of them may be null."""
    return pa.schema([pa.field(field.name, spark_type(field.type)) for field in schema])


def as_spark_has_it(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in its Spark type; no value changes."""
    values = flat(values)
    wanted = spark_type(values.type)
    return values if values.type == wanted else values.cast(wanted)


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The type that Spark has for the values of another one. Times of day are the numbers that Avro keeps."""
    t = pa.types
    if t.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if t.is_time32(kind):
        return pa.int32()
    if t.is_time64(kind):
        return pa.int64()
    if t.is_fixed_size_binary(kind):
        return pa.binary()
    if t.is_struct(kind):
        return pa.struct([_field(child) for child in kind])
    if t.is_map(kind):
        return pa.map_(kind.key_type, _field(kind.item_field))
    return pa.list_(_field(kind.value_field)) if t.is_list(kind) else kind


def _field(child: pa.Field) -> pa.Field:
    return pa.field(child.name, spark_type(child.type))
