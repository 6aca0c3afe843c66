"""Tables whose files leave out the partition columns (``hoodie.datasource.write.drop.partition.columns``).

As Hudi does it: key and partition path come from the whole record, then the partition columns are taken out of it, and the
schema in the commits lacks them. Readers put them behind the other columns, as texts, with what the path says.
"""

from __future__ import annotations

import json
from collections.abc import Collection

import pyarrow as pa

from tagstream.table.meta_client.table_config import DROP_KEY, TableConfig


def drop_problem(config: TableConfig) -> str | None:
    """Why a table that leaves out its partition columns cannot be written; None where it can, or leaves out none."""
    if not config.drops_partition_columns:
        return None
    told = f"{DROP_KEY}=true"
    if not config.partition_fields:
        return f"{told}, and it has no partition field: remove the option"
    inside = [name for name in config.partition_fields if "." in name]
    if inside:
        return f"{told}, and its partition field {inside[0]} is inside a struct: give a column, or remove the option"
    if config.time_fields:
        return (
            f"{told}, and the partition paths of {', '.join(config.time_fields)} are made of times: the values cannot be "
            "read back from them. Add a column with the text of the path (docs/transformations.md), or remove the option"
        )
    if config.is_merge_on_read and not config.table_version.drops_columns_of_logs:
        return (
            f"{told}, and it is a merge-on-read table of version {config.version}, whose readers (Hudi 0.x) give nulls for "
            "the partition columns of rows in logs: take hoodie.write.table.version=8 or 9, or COPY_ON_WRITE, or remove "
            "the option"
        )
    for role, names in (("record key", config.record_key_fields), ("ordering", config.ordering_fields)):
        lost = [name for name in names if name.split(".")[0] in config.partition_fields]
        if lost:
            return (
                f"{told}, and its {role} field {lost[0]} is a partition column, which no row would hold: give another "
                f"{role} field, or remove the option"
            )
    return None


def without_fields(avro_json: str, names: Collection[str]) -> str:
    """An Avro record schema without these fields."""
    if not names:
        return avro_json
    record = json.loads(avro_json)
    kept = [field for field in record["fields"] if field["name"] not in names]
    if len(kept) == len(record["fields"]):
        return avro_json
    return json.dumps({**record, "fields": kept})


def with_dropped(schema: pa.Schema, config: TableConfig) -> pa.Schema:
    """A schema of stored rows with the columns that readers add: texts, behind the others, as Hudi has them."""
    stored = [field for field in schema if field.name not in config.dropped_fields]
    return pa.schema([*stored, *(pa.field(name, pa.string()) for name in config.dropped_fields)])
