"""What keeps partition columns from being left out of a table's files: their values have to come back from the path."""

from __future__ import annotations

import pyarrow as pa

from tagstream.streaming.options.options import Options
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.table_config import DROP_KEY, TableConfig


def check_dropped(schema: pa.Schema, config: TableConfig, options: Options) -> None:
    """ConfigError where the values of partition columns that the files leave out could not be read back as they were."""
    if not config.dropped_fields:
        return
    timed = [name for name in config.dropped_fields if name in schema.names and _is_time(schema.field(name).type)]
    if timed:
        raise ConfigError(
            f"{DROP_KEY}=true, and partition column {timed[0]!r} is {schema.field(timed[0]).type}, of which engines make "
            "different paths: give a column of texts, dates or numbers (docs/transformations.md), or remove the option"
        )
    if options.global_index and not options.index.moves:
        raise ConfigError(
            f"{DROP_KEY}=true, and moved records are to stay in their old partition "
            f"({_stays(options)}=false): they would be read with its values. Remove one of the two options"
        )


def _stays(options: Options) -> str:
    return next((key for key in options.explicit if key.endswith(".update.partition.path")), "update.partition.path")


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_time(kind))
