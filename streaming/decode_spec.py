"""How records are read, as a small value that goes to every task; the decoder itself is built there once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from state.layout import OrderingKind
from streaming.decode.key_decoder import KeyDecoder
from streaming.options import Options
from table.keys import KeyGenerator
from table.schema import avro_to_arrow
from table.table_config import TableConfig

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class DecodeSpec:
    """The table's key rules and the record schema. ``files``: records are lines of files, not Kafka messages."""

    avro_json: str
    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    key_generator: str
    hive_style: bool
    url_encode: bool
    ordering_field: str | None
    global_index: bool
    files: bool

    @classmethod
    def for_table(cls, config: TableConfig, avro_json: str, options: Options) -> DecodeSpec:
        """The spec of a table; ConfigError when the ordering field's type can't order."""
        return cls(
            avro_json=avro_json,
            record_key_fields=config.record_key_fields,
            partition_fields=config.partition_fields,
            key_generator=config.key_generator,
            hive_style=config.hive_style,
            url_encode=config.url_encode,
            ordering_field=config.ordering_field,
            global_index=options.index_global_enabled,
            files=options.source_class == "dfs",
        )
