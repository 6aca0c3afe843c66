"""The decoder of a captured table, and a plain loop over its events: what a right consumer reaches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tagstream.state.tag_batch import FLAG_DELETE, FLAG_NO_ORDERING
from tagstream.streaming.source.decode.columns import unpack_absent
from tagstream.streaming.source.decode.key_decoder import FLAG_BAD, FLAG_SKIPPED, KeyDecoder
from tagstream.streaming.source.decode.make_format import FormatRules, TableFacts, make_format
from tagstream.streaming.source.decode.record_format import STRICT, DecodeRules, avro_facts
from tagstream.streaming.source.decode.schema_names import table_schema
from tagstream.table.keys.keys import KeyGenerator
from tagstream.table.schema.schema import avro_to_arrow
from tests.support import cdc

DEBEZIUM_JSON = FormatRules("debezium-json")


def decoder(
    avro: dict[str, Any] | str,
    keys: Sequence[str],
    partitions: Sequence[str] = (),
    rules: FormatRules = DEBEZIUM_JSON,
    *,
    ordering: str | None = None,
    decode: DecodeRules = STRICT,
    files: bool = False,
) -> KeyDecoder:
    """The decoder of a table with this schema (Debezium's own, or the table's)."""
    text = table_schema(avro if isinstance(avro, str) else json.dumps(avro))
    schema, facts = avro_to_arrow(text), avro_facts(text)
    generator = KeyGenerator.create(None, tuple(keys), tuple(partitions))
    table = TableFacts(
        schema=schema, avro_json=text, facts=facts, generator=generator, ordered=ordering is not None, global_index=True,
        files=files, rules=decode,
    )  # fmt: skip
    fields = () if ordering is None else (ordering,)
    return KeyDecoder(schema, generator, fields, True, facts, rules=decode, record_format=make_format(rules, table))


class Model:
    """The rows that events leave, one event after the other; what was not sent comes from the row that is there."""

    def __init__(self) -> None:
        self.rows: dict[bytes, dict[str, Any]] = {}
        self.gone: dict[bytes, dict[str, Any]] = {}
        self.order: dict[bytes, Any] = {}
        self.bad: list[str] = []
        self.skipped = 0

    def apply(self, decode: KeyDecoder, messages: Iterable[cdc.Message]) -> None:
        """The events of one batch, in the order of the source where they have one."""
        found = list(messages)
        if not found:
            return
        events = [{**e, "n": n} for n, e in enumerate(decode.keys(cdc.raw_batch(found)).to_pylist())]
        # a changed key's new row may be read before the old one's delete: the old image is used either way
        for e in sorted(events, key=lambda e: (e["pos_hi"], e["pos_lo"], e["n"])):
            if e["flags"] & FLAG_BAD:
                self.bad.append(e["reason"])
            elif e["flags"] & FLAG_SKIPPED:
                self.skipped += 1
            else:
                self._one(e, events)

    def _one(self, e: dict[str, Any], events: list[dict[str, Any]]) -> None:
        key, order = e["skey"], None if e["flags"] & FLAG_NO_ORDERING else e["ord"]
        held = self.order.get(key)
        if order is not None and held is not None and order < held:
            return
        self.order[key] = held if order is None else order
        if e["flags"] & FLAG_DELETE:
            if key in self.rows:
                self.gone[key] = self.rows.pop(key)
            return
        row = dict(e["row"])
        if e.get("absent") is not None:
            source = e["old"] or key
            there = self.rows.get(source) or self.gone.get(source)
            if there is None:  # in the same batch, in a partition that this loop comes to later
                there = next(x["row"] for x in reversed(events) if x["skey"] == source and not x["flags"] & FLAG_DELETE)
            missing = unpack_absent(pa.array([e["absent"]], pa.binary()), len(row))[0]
            row = {name: there[name] if gap else value for (name, value), gap in zip(row.items(), missing, strict=True)}
        self.rows[key] = row
