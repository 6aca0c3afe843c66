"""Events of other tables in the topic: passed over where the options name the stream's tables, bad and named else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import pytest

from tagstream.streaming.source.decode.debezium import DebeziumRules
from tagstream.streaming.source.decode.key_decoder import FLAG_BAD, FLAG_SKIPPED
from tagstream.streaming.source.decode.make_format import FormatRules
from tagstream.streaming.source.decode.row_messages import SourceTables, seen_table, seen_text
from tagstream.streaming.source.decode.schema_registry import RegistryPlace
from tests.streaming.source.decode.decoding import DEBEZIUM_JSON, Model, decoder
from tests.support import cdc, schema_registry

ORDERS, STOCK = "postgres.shop.orders", "postgres.shop.stock"
RENAMED = ["(3,).colour: 'None' for 'blue'", "(11,).colour: 'None' for 'red'"]


@pytest.fixture(scope="module")
def registry() -> Iterator[schema_registry.Registry]:
    with schema_registry.captured() as found:
        yield found


def rules_of(folder: str, registry: schema_registry.Registry, tables: SourceTables) -> FormatRules:
    rules = replace(DEBEZIUM_JSON, debezium=DebeziumRules(truncate="ignore"), tables=tables)
    return replace(rules, name="debezium-avro", registry=RegistryPlace(registry.url)) if folder == "avro" else rules


def mixed(*streams: Sequence[cdc.Message]) -> list[cdc.Message]:
    """The messages of several tables in one partition of a topic."""
    return [replace(message, partition=0, offset=offset) for offset, message in enumerate(cdc.in_turns(*streams))]


def outcome(decode: Any, messages: Sequence[cdc.Message]) -> tuple[int, list[str]]:
    """(how many are skipped, the reasons of the bad ones)."""
    found = decode.keys(cdc.raw_batch(messages))
    flags = found.column("flags").to_numpy()
    reasons = [r for r in found.column("reason").to_pylist() if r is not None]
    assert len(reasons) == int((flags & FLAG_BAD != 0).sum())
    return int(((flags & FLAG_SKIPPED != 0) & (flags & FLAG_BAD == 0)).sum()), reasons


@pytest.mark.parametrize("folder", ["json", "jsonschema", "avro"])
@pytest.mark.parametrize("pattern", [r"postgres\.shop\.orders", r"shop\.orders", r".*\.orders"])
def test_events_of_others_are_passed_over(folder: str, pattern: str, registry: schema_registry.Registry) -> None:
    """Phase by phase, so that the decoder meets them again and again; the rows are the source's own."""
    decode = decoder(cdc.schema_by_id(6), ["id"], ["day"], rules_of(folder, registry, SourceTables((pattern,))))
    others = [messages for _, messages in cdc.phases(folder, "shop.stock")]
    model, out = Model(), []
    for (phase, mine), foreign in zip_longest(cdc.phases(folder, "shop.orders"), others, fillvalue=()):
        model.apply(decode, mixed(mine, list(foreign)))
        out += cdc.differences(list(model.rows.values()), cdc.truth("shop.orders", phase), ["id"], ["span"])
    assert not model.bad, model.bad[:3]
    assert sorted(set(out)) in ([], sorted(RENAMED))


@pytest.mark.parametrize("folder", ["json", "jsonschema", "avro"])
def test_events_of_others_are_bad_where_the_stream_has_a_table(folder: str, registry: schema_registry.Registry) -> None:
    decode = decoder(cdc.schema_by_id(6), ["id"], ["day"], rules_of(folder, registry, SourceTables(pinned=ORDERS)))
    mine, others = (
        [m for m in cdc.messages(folder, f"shop.{table}") if m.value is not None][:20] for table in ("orders", "stock")
    )
    _, reasons = outcome(decode, mixed(mine, others))
    assert reasons == [f"an event of table {STOCK}, but the stream reads {ORDERS} (tagstream.source.tables)"] * 20


@pytest.mark.parametrize("folder", ["json", "jsonschema", "avro"])
def test_the_first_table_is_told_once(folder: str, registry: schema_registry.Registry) -> None:
    decode = decoder(cdc.schema_by_id(6), ["id"], ["day"], rules_of(folder, registry, SourceTables()))
    both = [cdc.messages(folder, f"shop.{table}")[:5] for table in ("orders", "stock")]
    decode.keys(cdc.raw_batch(mixed(*both)))
    assert (decode.first_table(), decode.first_table()) == (ORDERS, None)
    pinned = decoder(cdc.schema_by_id(6), ["id"], ["day"], rules_of(folder, registry, SourceTables(pinned=ORDERS)))
    pinned.keys(cdc.raw_batch(mixed(*both)))
    assert pinned.first_table() is None


def test_a_tombstone_names_no_table(registry: schema_registry.Registry) -> None:
    """Its delete may be that of another table, and may have been in the batch before."""
    decode = decoder(cdc.schema_by_id(6), ["id"], ["day"], rules_of("json", registry, SourceTables((".*orders",))))
    (first, *_) = cdc.messages("json", "shop.orders")
    assert outcome(decode, [replace(first, value=None)]) == (1, [])


def maxwell(database: str, table: str, kind: str = "insert", **row: Any) -> bytes:
    return json.dumps({"database": database, "table": table, "type": kind, "ts": 1, "data": row}).encode()


def canal(database: str, table: str, kind: str = "INSERT", *rows: dict[str, Any]) -> bytes:
    doc = {"database": database, "table": table, "type": kind, "isDdl": not rows, "data": [*rows] or None, "old": None}
    return json.dumps(doc).encode()


AVRO = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", "string"]}],
}
OF_FORMAT = {
    "maxwell-json": [
        maxwell("shop", "orders", id=1, v="a"),
        maxwell("shop", "customers", id=1, v="b"),
        maxwell("shop", "customers", "delete", id=1, v="b"),
        maxwell("shop", "customers", id="text", v=["no", "such", "row"]),
        maxwell("old", "orders", id=1, v="c"),
        maxwell("shop", "orders", id=2, v="d"),
    ],
    "canal-json": [
        canal("shop", "orders", "INSERT", {"id": "1", "v": "a"}),
        canal("shop", "customers", "INSERT", {"id": "1", "v": "b"}),
        canal("shop", "customers", "DELETE", {"id": "1", "v": "b"}),
        canal("shop", "customers", "INSERT", {"id": {"no": "row"}}),
        canal("old", "orders", "INSERT", {"id": "1", "v": "c"}),
        canal("shop", "orders", "INSERT", {"id": "2", "v": "d"}),
    ],
}


@pytest.mark.parametrize("name", OF_FORMAT)
def test_maxwell_and_canal(name: Any) -> None:
    messages = [cdc.Message(0, n, None, value, {}) for n, value in enumerate(OF_FORMAT[name])]
    wanted = SourceTables((r"shop\.orders",))
    decode = decoder(AVRO, ["id"], [], FormatRules(name, tables=wanted))
    for _ in range(3):  # from the second batch on the names are read first
        assert outcome(decode, messages) == (4, [])
    decode = decoder(AVRO, ["id"], [], FormatRules(name, tables=SourceTables(pinned="shop.orders")))
    skipped, reasons = outcome(decode, messages)
    assert skipped == 0
    assert [reason.split(",")[0] for reason in reasons] == [
        *["an event of table shop.customers"] * 3, "an event of table old.orders",
    ]  # fmt: skip
    decode = decoder(AVRO, ["id"], [], FormatRules(name))
    outcome(decode, messages)
    assert decode.first_table() == "shop.orders"


def test_truncates_of_others_empty_nothing(registry: schema_registry.Registry) -> None:
    truncate = json.dumps(
        {"op": "t", "source": {"db": "postgres", "schema": "shop", "table": "stock", "lsn": 9}}
    ).encode()
    rules = rules_of("json", registry, SourceTables((".*orders",)))
    decode = decoder(cdc.schema_by_id(6), ["id"], ["day"], replace(rules, debezium=DebeziumRules(truncate="delete")))
    found = decode.keys(cdc.raw_batch([cdc.Message(0, 0, None, truncate, {})]))
    assert found.column("flags").to_pylist() == [FLAG_SKIPPED]


@pytest.mark.parametrize("table", ["shop.orders", 'odd "quoted".table\\x', "döner.kebab"])
def test_what_a_task_says_is_read_by_the_driver(table: str) -> None:
    text = f"TableSeenError: {seen_text(table)}\n\tat org.apache.spark"
    assert seen_table(text) == table
    assert seen_table("something else") is None
