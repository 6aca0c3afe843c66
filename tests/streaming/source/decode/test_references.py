"""Schemas of a registry that refer to others: made whole, asked for once, and what is missing is named."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.decode.schema_registry import (
    RegistryPlace,
    SchemaRegistry,
    UnknownTypeError,
    types_in,
    whole,
)
from tests.support import schema_registry

SOURCE = {"type": "record", "name": "Source", "namespace": "io.debezium", "fields": [{"name": "lsn", "type": "long"}]}
UNIT = {"type": "enum", "name": "Unit", "symbols": ["EUR", "USD"]}
MONEY = {"type": "record", "name": "Money", "namespace": "shop", "fields": [
    {"name": "amount", "type": "long"}, {"name": "unit", "type": UNIT},
]}  # fmt: skip
PRICE = {"type": "record", "name": "shop.Price", "fields": [
    {"name": "net", "type": "Money"}, {"name": "gross", "type": "Money"},
]}  # fmt: skip
ENVELOPE = {"type": "record", "name": "Envelope", "namespace": "s.orders", "fields": [
    {"name": "after", "type": ["null", {"type": "record", "name": "Value", "fields": [
        {"name": "id", "type": "string"}, {"name": "prices", "type": {"type": "array", "items": "shop.Price"}},
        {"name": "unit", "type": ["null", "shop.Unit"]},
    ]}]},
    {"name": "before", "type": ["null", "Value"]},
    {"name": "source", "type": "io.debezium.Source"},
]}  # fmt: skip
MONEY_VALUE = {"amount": 5, "unit": "EUR"}
ROW = {
    "after": {"id": "1", "prices": [{"net": MONEY_VALUE, "gross": MONEY_VALUE}], "unit": "USD"}, "before": None,
    "source": {"lsn": 7},
}  # fmt: skip


def reference(subject: str, version: int = 1) -> dict[str, Any]:
    return {"name": subject, "subject": subject, "version": version}


@pytest.fixture
def registry() -> Iterator[schema_registry.Registry]:
    schemas = {
        "1": {"schema": json.dumps(ENVELOPE), "references": [reference("source"), reference("price")]},
        "2": {"schema": json.dumps(SOURCE)},
        "3": {"schema": json.dumps(PRICE), "references": [reference("money")]},
        "4": {"schema": json.dumps(MONEY)},
        "5": {"schema": json.dumps(ENVELOPE), "references": [reference("source")]},
        "6": {"schema": json.dumps(ENVELOPE), "references": [reference("source", 9)]},
    }
    subjects = {"orders": [1], "source": [2], "price": [3], "money": [4]}
    with schema_registry.running(schema_registry.Registry(schemas, subjects)) as found:
        yield found


def test_references_of_references_are_followed_once(registry: schema_registry.Registry) -> None:
    asked = SchemaRegistry(RegistryPlace(registry.url), {})
    found = asked.by_id(1)
    assert json.loads(asked.latest("orders")) == found == asked.by_id(1)
    others = [f"/subjects/{subject}/versions/1" for subject in ("source", "price", "money")]
    assert sorted(registry.asked) == sorted(["/schemas/ids/1", "/subjects/orders/versions/latest", *others])
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(found), ROW)
    out.seek(0)
    assert fastavro.schemaless_reader(out, fastavro.parse_schema(found), None) == ROW


def test_what_is_missing_is_named(registry: schema_registry.Registry) -> None:
    asked = SchemaRegistry(RegistryPlace(registry.url), {})
    with pytest.raises(SourceError, match=r"schema 5 .* names type shop\.Price, which neither it nor"):
        asked.by_id(5)
    with pytest.raises(SourceError, match="refers to version 9 of subject source, which does not exist"):
        asked.by_id(6)


def test_names_and_their_namespaces() -> None:
    plain = {"type": "record", "name": "P", "namespace": "a", "fields": [{"name": "x", "type": "int"}]}
    outer = {
        "type": "record",
        "name": "a.O",
        "fields": [{"name": "p", "type": "P"}, {"name": "q", "type": ["null", "P"]}],
    }
    made = whole(outer, types_in(plain))
    assert made["fields"][0]["type"]["namespace"] == "a"
    assert made["fields"][1]["type"] == ["null", "P"]
    fastavro.parse_schema(made)
    with pytest.raises(UnknownTypeError, match=r"a\.P"):
        whole(outer, {})
    itself = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    assert whole(itself, {}) == itself
