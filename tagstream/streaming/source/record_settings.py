"""How a command outside of a job reads the job's records: by the table's properties, and the few keys that say more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tagstream.streaming.options.cli import entries_of
from tagstream.streaming.options.keys.registry import REGISTRY
from tagstream.streaming.options.resolve import resolve
from tagstream.streaming.source.decode_spec import DecodeSpec
from tagstream.table.errors import ConfigError, UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.schema.record_schema import record_schema
from tagstream.table.schema.schema import avro_to_arrow

_GLOBAL, _FILE_BYTES = "index.global.enabled", "hoodie.parquet.max.file.size"
_SCHEMA_FILE = "hoodie.streamer.schemaprovider.source.schema.file"


@dataclass(frozen=True)
class RecordSettings:
    """What the job's keys say about keys, file sizes and the schema; the rest is in the table."""

    global_keys: bool
    file_bytes: int
    schema_text: str | None

    @classmethod
    def of(cls, props: Sequence[str], hoodie_conf: Sequence[str]) -> RecordSettings:
        """By properties files and single properties; ConfigError for a wrong value of one of the keys."""
        found = resolve(REGISTRY, entries_of(props, hoodie_conf))
        if found.wrong.intersection((_GLOBAL, _FILE_BYTES, _SCHEMA_FILE)):
            raise ConfigError("\n".join(problem.text for problem in found.problems))
        return cls(found.flag(_GLOBAL), found.number(_FILE_BYTES), _schema_text(found.opt_text(_SCHEMA_FILE)))

    def decode_spec(self, table: HoodieTable) -> DecodeSpec:
        """How the stream would decode lines of JSON for this table; an error where the table does not say enough."""
        config = table.config
        if not config.record_key_fields:
            raise UnsupportedTableError(f"table {table.base_path} names no record key (hoodie.table.recordkey.fields)")
        if not config.populate_meta_fields:
            raise UnsupportedTableError(
                f"table {table.base_path} has hoodie.populate.meta.fields=false: its rows carry no record keys to look for"
            )
        text = table.schema_json() or self.schema_text
        if text is None:
            raise UnsupportedTableError(
                f"table {table.base_path} has no schema yet; give --hoodie-conf {_SCHEMA_FILE}=FILE"
            )
        given = None if self.schema_text is None else avro_to_arrow(self.schema_text)
        text = record_schema(text, config.dropped_fields, given)
        return DecodeSpec.of(table, text, self.schema_text or text, global_index=self.global_keys, files=True)

    def columns_ahead(self, table: HoodieTable, spec: DecodeSpec) -> list[str]:
        """Columns of the schema file that the table does not have yet: a run of the job takes them up."""
        if self.schema_text is None:
            return []
        given = avro_to_arrow(self.schema_text).names
        if not set(table.config.record_key_fields) <= set(given):  # the file describes an envelope
            return []
        return [name for name in given if name not in spec.schema.names and name != spec.format.delete_field]


def _schema_text(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path.removeprefix("file://")).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"schema file {path}: {e}; check {_SCHEMA_FILE}") from e
