"""Debezium's messages of no row: transactions, heartbeats, schema changes, signals. They are counted and passed over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tagstream.streaming.source.decode.key_decoder import FLAG_BAD, FLAG_SKIPPED
from tagstream.streaming.source.decode.make_format import FormatRules
from tagstream.streaming.source.decode.row_messages import SourceTables, is_of_signals, is_rowless
from tests.streaming.source.decode.decoding import decoder
from tests.support import cdc

AVRO = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", "string"]}],
}
SOURCE = {"db": "d", "schema": "s", "table": "orders", "lsn": 7}
SIGNAL = {"id": "1", "type": "execute-snapshot", "data": '{"type":"incremental"}'}
MESSAGES: dict[str, dict[str, Any]] = {
    "begin": {"status": "BEGIN", "id": "571:53195829", "ts_ms": 1, "event_count": None, "data_collections": None},
    "end": {
        "status": "END", "id": "571:53195832", "ts_ms": 2, "event_count": 2,
        "data_collections": [{"data_collection": "s.orders", "event_count": 1}],
    },
    "heartbeat": {"ts_ms": 1795337732216},
    "schema change": {
        "source": {"db": "d"}, "ts_ms": 3, "databaseName": "d", "schemaName": None, "ddl": "CREATE TABLE orders (id int)",
        "tableChanges": [],
    },
    "signal": {"before": None, "after": SIGNAL, "source": {**SOURCE, "table": "debezium_signal"}, "op": "c"},
    "signal that was deleted": {"before": SIGNAL, "after": None, "source": {**SOURCE, "table": "sig"}, "op": "d"},
}  # fmt: skip


def decoded(decode: Any, *values: dict[str, Any]) -> list[tuple[int, str | None]]:
    texts = [json.dumps(value, separators=(",", ":")).encode() for value in values]
    found = decode.keys(cdc.raw_batch([cdc.Message(0, n, b'{"id":1}', text, {}) for n, text in enumerate(texts)]))
    return list(zip(found.column("flags").to_pylist(), found.column("reason").to_pylist(), strict=True))


def connect(name: str) -> dict[str, Any]:
    """A field of the message's Connect schema."""
    if name not in ("before", "after"):
        return {"field": name, "type": "string", "optional": True}
    return {"field": name, "type": "struct", "optional": True, "fields": [connect(column) for column in SIGNAL]}


def row(number: int) -> dict[str, Any]:
    return {"before": None, "after": {"id": number, "v": "x"}, "source": SOURCE, "op": "c"}


@pytest.mark.parametrize("with_schema", [False, True])
@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("tables", [SourceTables(), SourceTables(pinned="d.s.orders"), SourceTables((".*orders",))])
def test_they_are_passed_over(kind: str, with_schema: bool, tables: SourceTables) -> None:
    message = MESSAGES[kind]
    if with_schema:
        message = {"schema": {"type": "struct", "fields": [connect(name) for name in message]}, "payload": message}
    decode = decoder(AVRO, ["id"], [], FormatRules("debezium-json", tables=tables))
    told = decoded(decode, message, row(1), message)
    assert told == [(FLAG_SKIPPED, None), (0, None), (FLAG_SKIPPED, None)]
    assert decode.first_table() == (None if tables.pinned or tables.patterns else "d.s.orders")


@pytest.mark.parametrize("kind", ["begin", "end", "heartbeat", "schema change"])
def test_among_flattened_rows(kind: str) -> None:
    decode = decoder(AVRO, ["id"], [], FormatRules("debezium-flat-json"))
    assert decoded(decode, MESSAGES[kind], {"id": 1, "v": "x", "__op": "c", "__lsn": 5}) == [
        (FLAG_SKIPPED, None), (0, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [
        {"status": "BEGIN", "id": "1"},
        {"ts_ms": 1, "more": 2},
        {"ddl": "DROP TABLE x"},
        {},
        {"after": SIGNAL, "op": "x"},
    ],
)
def test_what_only_looks_like_one_is_bad(message: dict[str, Any]) -> None:
    decode = decoder(AVRO, ["id"], [], FormatRules("debezium-json", tables=SourceTables(pinned="d.s.orders")))
    ((flags, reason),) = decoded(decode, message)
    assert flags & FLAG_BAD and reason is not None


def test_a_table_with_columns_of_a_signal_is_a_table() -> None:
    fields = [{"name": name, "type": ["null", "string"]} for name in ("id", "type", "data")]
    avro = {"type": "record", "name": "r", "fields": fields}
    decode = decoder(avro, ["id"], [], FormatRules("debezium-json", tables=SourceTables(pinned="d.s.orders")))
    assert decoded(decode, {"before": None, "after": SIGNAL, "source": SOURCE, "op": "c"}) == [(0, None)]


def test_schemas_of_avro() -> None:
    def schema(*names: str) -> dict[str, Any]:
        return {"type": "record", "name": "x", "fields": [{"name": name, "type": "string"} for name in names]}

    assert is_rowless(schema("status", "id", "event_count", "data_collections", "ts_ms"))
    assert is_rowless(schema("ts_ms"))
    assert is_rowless(schema("source", "ts_ms", "databaseName", "schemaName", "ddl", "tableChanges"))
    assert not is_rowless(schema("before", "after", "source", "op", "ts_ms"))
    assert not is_rowless(schema("id", "v"))
    assert is_of_signals(schema("id", "type", "data"))
    assert not is_of_signals(schema("id", "type", "data", "more"))
