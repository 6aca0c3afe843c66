"""Which schemas of records have what the table's schema lacks: seen where records are decoded, taken up by the driver.

A task judges each schema once by the same function as the driver (``table.schema.evolve``): one that would change the
table's schema, or is refused, is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tagstream.streaming.source.decode.events import Noticed
from tagstream.streaming.source.decode.schemas.row_schema import connect_row, row_schema
from tagstream.table.errors import SchemaRefusedError, UnsupportedTableError
from tagstream.table.schema.evolve import EvolutionRules, evolve


class SchemaWatch:
    """Judges the schemas of records against the table's ``schema``."""

    def __init__(self, schema: pa.Schema, rules: EvolutionRules) -> None:
        self._schema = schema
        self._rules = rules
        self._judged: dict[Hashable, Noticed | None] = {}
        self._found: dict[Hashable, Noticed] = {}

    def saw_avro(self, number: int, schema: Mapping[str, Any]) -> None:
        """Records of the registry's schema of this id were decoded."""
        self._saw(number, number, f"schema {number} of the registry", lambda: json.dumps(schema))

    def saw_connect(self, key: bytes, fields: Mapping[str, Mapping[str, Any]]) -> None:
        """Records were decoded that have their schema with them: of a row with these Kafka Connect fields."""
        self._saw(key, 0, "the schema that records have with them", lambda: connect_row(fields))

    def _saw(self, key: Hashable, rank: int, source: str, avro_json: Callable[[], str]) -> None:
        """The schema is asked for and judged the first time alone."""
        if key not in self._judged:
            noticed = Noticed(rank, source, avro_json())
            self._judged[key] = noticed if self._is_news(noticed.avro_json, source) else None
        found = self._judged[key]
        if found is not None:
            self._found[key] = found

    def take(self) -> list[Noticed]:
        """What was noticed since the last call."""
        found = list(self._found.values())
        self._found.clear()
        return found

    def _is_news(self, text: str, source: str) -> bool:
        try:
            incoming = row_schema(text, self._schema.names, self._rules.aliases)
            return bool(evolve(self._schema, incoming, self._rules, source).changes)
        except (SchemaRefusedError, UnsupportedTableError):
            return True


def notes_to_json(noticed: Sequence[Noticed]) -> bytes:
    """What a task leaves for the driver."""
    return json.dumps([[item.rank, item.source, item.avro_json] for item in noticed]).encode()


def notes_from_json(data: bytes) -> list[Noticed]:
    """The inverse of :func:`notes_to_json`."""
    return [Noticed(*item) for item in json.loads(data)]


def in_order(noticed: Sequence[Noticed]) -> list[Noticed]:
    """Without doubles, older schemas first; the same for every order in which tasks came upon them."""
    return sorted(set(noticed), key=lambda item: (item.rank, item.source, item.avro_json))
