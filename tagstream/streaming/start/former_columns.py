"""A column that the table had before must not come again in a type that its older files do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from tagstream.table.errors import SchemaRefusedError, UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.schema.evolve import avro_type
from tagstream.table.schema.former import clash
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.timeline.commit_metadata import SCHEMA_KEY, CommitMetadata


def check_former(table: HoodieTable, own: pa.Schema, made: pa.Schema, source: str) -> None:
    """SchemaRefusedError where ``made`` has a column that ``own``, the table's schema, lacks and had before in another type.

    ``source``: what brings the column. Only then is anything read: the schemas of all commits, archived ones too.
    """
    found = clash(own, made, former_schemas(table))
    if found is not None:
        was, now = (avro_type(pa.field("c", kind)) for kind in (found.was, found.now))
        raise SchemaRefusedError(
            f"{source}: the new column {found.name!r} is {now}, and the table had a column of this name that was {was}, "
            "until it was dropped: older files have its values yet, and readers would take them for the new column's; give "
            "the new column another name"
        )


def former_schemas(table: HoodieTable) -> Iterator[pa.Schema]:
    """Every schema that the table's commits were written with, newest first, each once."""
    seen: set[str] = set()
    for text in _texts(table):
        if text and text not in seen:
            seen.add(text)
            with suppress(UnsupportedTableError):  # its files cannot be read here in any case
                yield avro_to_arrow(text)


def _texts(table: HoodieTable) -> Iterator[str | None]:
    timeline = table.timeline()
    for instant in reversed(timeline.completed_writes):
        yield timeline.metadata(table.storage, instant).extra.get(SCHEMA_KEY)
    for action in table.archived_writes():
        if action.metadata:
            yield CommitMetadata.from_bytes(action.metadata, f"archived instant {action.time}").extra.get(SCHEMA_KEY)
    yield table.config.create_schema
