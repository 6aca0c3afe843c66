"""Every captured stream, decoded and applied in a plain loop, against the rows that the source's own SELECT gave."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.streaming.source.decode.debezium import DebeziumRules
from tagstream.streaming.source.decode.make_format import FormatRules
from tagstream.streaming.source.decode.schema_registry import RegistryPlace
from tests.streaming.source.decode.decoding import DEBEZIUM_JSON, Model, decoder
from tests.support import cdc, schema_registry

# By table: the id of its last schema, its key, its partition.
TABLES: dict[str, tuple[int, list[str], list[str]]] = {
    "shop.orders": (6, ["id"], ["day"]),
    "shop.stock": (8, ["region", "item"], ["region"]),
    "shop.items": (21, ["id"], []),
    "shop.carts": (2, ["id"], []),
}
KEEP = DebeziumRules(truncate="ignore")
PLAIN_JSON_TYPES = {"amount": "decimal", "span": "string", "at_time": "string", "rate": "string"}
# What no reader of the events can know: a renamed column's old values in rows that no event touched since.
RENAMED = ["(3,).colour: 'None' for 'blue'", "(11,).colour: 'None' for 'red'"]


@pytest.fixture(scope="module")
def registry() -> Iterator[schema_registry.Registry]:
    with schema_registry.captured() as found:
        yield found


def rules_of(folder: str, registry: schema_registry.Registry) -> FormatRules:
    rules = replace(DEBEZIUM_JSON, debezium=KEEP)
    if folder == "avro":
        return replace(rules, name="debezium-avro", registry=RegistryPlace(registry.url))
    if folder == "flat":
        return replace(rules, name="debezium-flat-json")
    return rules


def wrong_at_each_phase(folder: str, table: str, rules: FormatRules, schema: dict[str, Any] | None = None) -> list[str]:
    number, keys, partitions = TABLES[table]
    decode, model = decoder(schema or cdc.schema_by_id(number), keys, partitions, rules), Model()
    out = []
    for phase, messages in cdc.phases(folder, table):
        model.apply(decode, messages)
        found = cdc.differences(list(model.rows.values()), cdc.truth(table, phase), keys, ["span"])
        out += [f"{phase}: {text}" for text in found]
    assert not model.bad, model.bad[:3]
    return out


@pytest.mark.parametrize("folder", ["json", "jsonschema", "avro", "flat"])
@pytest.mark.parametrize("table", ["shop.orders", "shop.stock"])
def test_each_phase(folder: str, table: str, registry: schema_registry.Registry) -> None:
    assert not wrong_at_each_phase(folder, table, rules_of(folder, registry))


def test_records_with_blanks_between_names_and_values() -> None:
    """As a program leaves them that has read and written records: the schema is found all the same."""
    (message, *_) = [m for _, found in cdc.phases("jsonschema", "shop.orders") for m in found if m.value]
    assert message.value is not None
    number, keys, partitions = TABLES["shop.orders"]
    rows = []
    for options in ({"separators": (",", ":")}, {}, {"indent": 1}):
        model = Model()
        told = json.dumps(json.loads(message.value), **options).encode()
        model.apply(decoder(cdc.schema_by_id(number), keys, partitions), [replace(message, value=told)])
        assert not model.bad, model.bad
        rows.append(list(model.rows.values()))
    assert rows[0] and rows[0] == rows[1] == rows[2]


@pytest.mark.parametrize("folder", ["jsonschema", "avro"])
def test_schemas_that_change_in_mid_stream(folder: str, registry: schema_registry.Registry) -> None:
    """Old records are read into the table's last schema: columns added, widened, dropped, with their defaults."""
    found = wrong_at_each_phase(folder, "shop.items", rules_of(folder, registry))
    assert {text.partition(": ")[2] for text in found} == set(RENAMED)
    assert {text.partition(":")[0] for text in found} == {"rename_column", "resnapshot"}


def as_text(number: int, texts: tuple[str, ...], **types: Any) -> dict[str, Any]:
    """A table's own schema for records that have no type names: these columns are texts, others of the given types."""
    schema = json.loads(json.dumps(cdc.schema_by_id(number)))["fields"][0]["type"][1]
    for field in schema["fields"]:
        kind = {"type": "string"} if field["name"] in texts else types.get(field["name"])
        if kind is not None:
            field["type"] = ["null", kind] if isinstance(field["type"], list) else kind
        elif (
            isinstance(field["type"], list)
            and isinstance(field["type"][1], dict)
            and field["type"][1]["type"] != "array"
        ):
            field["type"] = ["null", field["type"][1]["type"]]
    return schema  # type: ignore[no-any-return]


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
DATE = {"type": "int", "logicalType": "date"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def test_texts_iso_times_and_hex() -> None:
    schema = as_text(
        6, ("rate", "span", "at_time"), amount=DECIMAL, day=DATE, placed=MICROS, placed3=MILLIS, seen=MICROS
    )
    _, keys, partitions = TABLES["shop.orders"]
    decode = decoder(schema, keys, partitions, FormatRules("debezium-json", bytes_as="hex"))
    model = Model()
    for phase, messages in cdc.phases("jsonstr", "shop.orders"):
        model.apply(decode, messages)
        rows = list(model.rows.values())
        assert not cdc.differences(rows, cdc.truth("shop.orders", phase), keys, ["span", "at_time"]), phase
    assert not model.bad
    assert model.skipped == 0, "this connector sends no tombstones"


def test_doubles_and_times_in_milliseconds() -> None:
    schema = as_text(6, ("rate",), amount=DECIMAL, day=DATE, placed=MILLIS, placed3=MILLIS, seen=MICROS)
    decode, model = decoder(schema, ["id"], ["day"]), Model()
    for phase, messages in cdc.phases("jsondbl", "shop.orders"):
        model.apply(decode, messages)
        lossy = ["span", "at_time", "placed", "rate"]  # the connector has cut them
        assert not cdc.differences(list(model.rows.values()), cdc.truth("shop.orders", phase), ["id"], lossy), phase
    assert not model.bad


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_batches_cut_anywhere_decode_alike(data: st.DataObject) -> None:
    """A record's outcome does not depend on its neighbours, but for the tombstone behind its delete."""
    messages = [m for m in cdc.messages("json", "shop.orders") if m.partition == 0]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(messages)), max_size=6)))
    decode, model = decoder(cdc.schema_by_id(6), ["id"], ["day"]), Model()
    whole = Model()
    for begin, end in zip([0, *cuts], [*cuts, len(messages)], strict=True):
        model.apply(decode, messages[begin:end])
    whole.apply(decode, messages)
    assert model.rows == whole.rows


def test_values_that_no_column_can_hold_are_bad_with_their_reason(registry: schema_registry.Registry) -> None:
    for folder in ("json", "jsonschema", "avro"):
        decode, model = decoder(cdc.schema_by_id(13), ["id"], [], rules_of(folder, registry)), Model()
        model.apply(decode, cdc.messages(folder, "shop.odd"))
        good = cdc.differences(list(model.rows.values()), cdc.truth("shop.odd", "stream"), ["id"])
        assert all("is missing" in text for text in good)
        assert len(model.rows) + len(model.bad) == 6
        assert all(r.startswith(("field d: is infinite", "field z: ", "field t: is infinite")) for r in model.bad), (
            model.bad
        )


def test_a_table_without_a_key_is_refused_by_name() -> None:
    decode, model = decoder(cdc.schema_by_id(9), ["who"]), Model()
    model.apply(decode, cdc.messages("json", "shop.visits"))
    assert not model.rows
    assert all("the message has no key" in reason for reason in model.bad)


def test_truncate_is_a_choice() -> None:
    decode, model = decoder(cdc.schema_by_id(2), ["id"]), Model()
    model.apply(decode, cdc.messages("json", "shop.carts"))
    assert ["TRUNCATE" in reason for reason in model.bad] == [True]
    decode, model = decoder(cdc.schema_by_id(2), ["id"], (), replace(DEBEZIUM_JSON, debezium=KEEP)), Model()
    model.apply(decode, cdc.messages("json", "shop.carts"))
    assert not model.bad
    assert model.skipped == 1
    assert not [t for t in cdc.differences(list(model.rows.values()), cdc.truth("shop.carts", "truncate"), ["id"])
                if "is too much" not in t]  # fmt: skip


RACE = {"type": "record", "name": "t", "fields": [
    {"name": "id", "type": "int"}, {"name": "v", "type": ["null", "int"], "default": None},
]}  # fmt: skip


def test_an_incremental_snapshot_that_is_older_than_a_later_change_with_a_smaller_position() -> None:
    decode, model = decoder(RACE, ["id"]), Model()
    for phase, messages in cdc.phases("race/json", "x.t"):
        model.apply(decode, messages)
        names = ("snapshot", "go")
        assert not cdc.differences(list(model.rows.values()), cdc.truth("x.t", phase, names, "race/truth"), ["id"]), (
            phase
        )


CRATES = {"type": "record", "name": "crates", "fields": [
    {"name": "id", "type": "int"},
    *({"name": name, "type": ["null", kind], "default": None} for name, kind in (
        ("site", "string"), ("qty", "long"), ("t", MICROS), ("color", "string"),
        ("price", {**DECIMAL, "precision": 10, "connect.name": "org.apache.kafka.connect.data.Decimal",
                   "connect.parameters": {"scale": "2"}}),
    )),
]}  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "rules"),
    [
        ("yard.crates", FormatRules("debezium-json", DebeziumRules("binlog"))),
        ("maxwell", FormatRules("maxwell-json")),
        ("canal", FormatRules("canal-json")),
    ],
)
def test_a_binlog_with_ties_of_position(topic: str, rules: FormatRules) -> None:
    """Keys that move up one another in one statement: 10 to 11, 9 to 10, 8 to 9."""
    expected = [json.loads(line) for line in cdc.file("mysql/truth.crates.jsonl").splitlines()]
    decode, model = decoder(CRATES, ["id"], ["site"], rules), Model()
    model.apply(decode, cdc.messages("mysql", topic))
    assert not cdc.differences(list(model.rows.values()), expected, ["id"])
    assert not model.bad
    assert model.skipped > 0
