"""How a command outside of a job decodes the job's records: by the table's properties, and by the few keys that add to
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tagstream.state.options import StateIndexOptions
from tagstream.streaming.options.cli import entries_of
from tagstream.streaming.options.registry import REGISTRY
from tagstream.streaming.options.resolve import resolve
from tagstream.streaming.source.decode_spec import DecodeSpec
from tagstream.table.errors import ConfigError, UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.option_fields import names_of, read, same_key
from tagstream.table.schema.record_schema import record_schema
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.write.file_sizes import FileSizeOptions

_SCHEMA_FILE = "hoodie.streamer.schemaprovider.source.schema.file"


@dataclass(frozen=True)
class RecordSettings:
    """What the job's keys say about record keys, file sizes and the schema. The other settings are in the table."""

    global_keys: bool = same_key(StateIndexOptions, "is_global")
    file_bytes: int = same_key(FileSizeOptions, "max_file_bytes")
    schema_text: str | None = None

    @classmethod
    def of(cls, props: Sequence[str], hoodie_conf: Sequence[str]) -> RecordSettings:
        """Read them from properties files and single properties. ConfigError for a wrong value of one of the keys."""
        found = resolve(REGISTRY, entries_of(props, hoodie_conf))
        if found.wrong.intersection((*names_of(cls), _SCHEMA_FILE)):
            raise ConfigError("\n".join(problem.text for problem in found.problems))
        return read(cls, found, schema_text=_schema_text(found.opt_text(_SCHEMA_FILE)))

    def decode_spec(self, table: HoodieTable) -> DecodeSpec:
        """How the stream would decode lines of JSON for this table. UnsupportedTableError where the table's properties
        are not enough.
        """
        config = table.config
        if not config.record_key_fields:
            raise UnsupportedTableError(f"table {table.base_path} names no record key (hoodie.table.recordkey.fields)")
        if not config.populate_meta_fields:
            raise UnsupportedTableError(
                f"table {table.base_path} has hoodie.populate.meta.fields=false: its rows have no record keys to search for"
            )
        text = table.schema_json() or self.schema_text
        if text is None:
            raise UnsupportedTableError(
                f"table {table.base_path} has no schema yet; set --hoodie-conf {_SCHEMA_FILE}=FILE"
            )
        given = None if self.schema_text is None else avro_to_arrow(self.schema_text)
        text = record_schema(text, config.dropped_fields, given)
        return DecodeSpec.of(table, text, self.schema_text or text, global_index=self.global_keys, files=True)

    def columns_ahead(self, table: HoodieTable, spec: DecodeSpec) -> list[str]:
        """Columns of the schema file that the table does not have yet. The next run of the job adds them."""
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
        raise ConfigError(f"schema file {path}: {e}; correct {_SCHEMA_FILE}") from e
