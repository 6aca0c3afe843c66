"""Avro records: the registry's answers, broken bodies, and values equal to another decoder's."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace

import fastavro
import pyarrow as pa
import pytest

from tagstream.state.tag_batch import FLAG_DELETE, FLAG_NO_ORDERING
from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.decode.confluent_avro import Datums
from tagstream.streaming.source.decode.make_format import FormatRules
from tagstream.streaming.source.decode.schema_registry import (
    USER_INFO_ENV,
    RegistryPlace,
    SchemaRegistry,
    UnknownSchemaError,
)
from tests.streaming.source.decode.decoding import Model, decoder
from tests.support import cdc, schema_registry


@pytest.fixture
def registry() -> Iterator[schema_registry.Registry]:
    with schema_registry.captured() as found:
        yield found


def test_a_schema_is_asked_for_once(registry: schema_registry.Registry) -> None:
    asked = SchemaRegistry(RegistryPlace(registry.url), {})
    assert asked.by_id(6) == asked.by_id(6) == cdc.schema_by_id(6)
    assert json.loads(asked.latest("avro.shop.items-value")) == cdc.schema_by_id(21)
    assert registry.asked == ["/schemas/ids/6", "/subjects/avro.shop.items-value/versions/latest"]


def test_a_registry_that_fails_is_asked_again_and_then_named(registry: schema_registry.Registry) -> None:
    waits: list[float] = []
    asked = SchemaRegistry(RegistryPlace(registry.url), {}, waits.append)
    registry.failing = 3
    assert asked.by_id(6)["name"] == "Envelope"
    assert waits == [0.5, 1.0, 2.0]
    registry.failing = 4
    with pytest.raises(SourceError, match=r"schemas/ids/8: it answered 503 .*the batch is not lost"):
        asked.by_id(8)
    with pytest.raises(UnknownSchemaError, match="no schema with id 99"):
        asked.by_id(99)
    with pytest.raises(SourceError, match="has no subject nobody"):
        asked.latest("nobody")


def test_name_and_password_come_from_the_environment(registry: schema_registry.Registry) -> None:
    registry.user_info = "me:secret"
    assert SchemaRegistry(RegistryPlace(registry.url), {USER_INFO_ENV: "me:secret"}).by_id(5)
    with pytest.raises(SourceError, match="401") as e:
        SchemaRegistry(RegistryPlace(registry.url), {USER_INFO_ENV: "me:wrong"}).by_id(5)
    assert "wrong" not in str(e.value)


@pytest.mark.parametrize(("topic", "number"), [("shop.orders", 6), ("shop.stock", 8), ("shop.odd", 13)])
def test_values_are_those_of_fastavro(topic: str, number: int) -> None:
    schema = cdc.schema_by_id(number)
    bodies = [m.value[5:] for m in cdc.messages("avro", topic) if m.value is not None and m.value[4] == number]
    found, reason = Datums(schema).decode(pa.array(bodies, pa.binary()))
    assert reason.null_count == len(bodies)
    for field in ("before", "after"):
        for body, record in zip(bodies, found.to_pylist(), strict=True):
            wanted = fastavro.schemaless_reader(io.BytesIO(body), fastavro.parse_schema(_without_logic(schema)), None)[
                field
            ]
            assert repr(record[field]) == repr(wanted)


def test_the_text_of_a_key_deletes_a_row_that_is_no_event(registry: schema_registry.Registry) -> None:
    """Rows in Avro may have keys of Kafka's serializer of strings. Debezium's keys are records."""
    keys = (b"7", b'{"id":7}', b"x")
    for name, bad in (("avro", [False, False, True]), ("debezium-avro", [True, False, True])):
        rules = FormatRules(name, registry=RegistryPlace(registry.url))
        decode = decoder(cdc.schema_by_id(6), ["id"], ["day"], rules)
        events = decode.keys(
            cdc.raw_batch([cdc.Message(0, n, key, None, {}) for n, key in enumerate(keys)])
        ).to_pylist()
        assert [event["reason"] is not None for event in events] == bad
        assert [event["row"]["id"] for event in events if event["reason"] is None] == [7] * bad.count(False)


def test_broken_records_are_bad_and_their_neighbours_good(registry: schema_registry.Registry) -> None:
    rules = FormatRules("debezium-avro", registry=RegistryPlace(registry.url))
    messages = [m for m in cdc.messages("avro", "shop.orders") if m.value is not None][:20]
    body = messages[0].value
    assert body is not None
    wrong = {3: body[:40], 5: body + b"x", 7: b"\0\0\0\0\x63" + body[5:], 9: b"{}", 11: b"\1" + body[1:], 13: b"\0\0"}
    mixed = [replace(m, value=wrong.get(i, m.value)) for i, m in enumerate(messages)]
    decode = decoder(cdc.schema_by_id(6), ["id"], ["day"], rules)
    reasons = decode.keys(cdc.raw_batch(mixed)).column("reason").to_pylist()
    assert [i for i, reason in enumerate(reasons) if reason is not None] == sorted(wrong)
    assert "not an Avro datum" in reasons[3]
    assert "1 bytes follow the Avro datum" in reasons[5]
    assert "no schema with id 99" in reasons[7]
    assert all("wire format" in reasons[i] for i in (9, 11, 13))


@pytest.mark.parametrize("records", [1, 2, 40])
def test_bytes_behind_a_datum_are_a_bad_record(records: int) -> None:
    """A reader that reads to the end of all datums would never return."""
    schema: dict[str, object] = {"type": "record", "name": "r", "fields": [{"name": "v", "type": "int"}]}
    bodies = [_wire(1, schema, {"v": n})[5:] for n in range(records)]
    for extra in (b"\0", b"\0" * 3, b"\2" * 8, b"\0" * 9, b"\0" * 20, b"\xff" * 40):
        at = records // 2
        found, reason = Datums(schema).decode(
            pa.array([*bodies[:at], bodies[at] + extra, *bodies[at + 1 :]], pa.binary())
        )
        assert found.field("v").to_pylist()[:at] == list(range(at))
        assert reason.to_pylist() == [
            f"{len(extra)} bytes follow the Avro datum" if n == at else None for n in range(records)
        ]


def test_records_of_a_schema_without_columns_are_bad(capfd: pytest.CaptureFixture[str]) -> None:
    """A union of several types, and a type that contains itself, in a writer's schema. Other schemas' records are good."""
    good = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}]}
    of_one = {**good, "fields": [{"name": "id", "type": ["string"]}, {"name": "n", "type": ["null", "int"]}]}
    several = {**good, "fields": [*good["fields"], {"name": "u", "type": ["null", "int", "string"]}]}
    nested = {**good, "fields": [*good["fields"], {"name": "next", "type": ["null", "r"]}]}
    schemas = {"1": good, "2": of_one, "3": several, "4": nested}
    names = {number: {"schema": json.dumps(schema)} for number, schema in schemas.items()}
    rows = {"1": {}, "2": {}, "3": {"u": "x"}, "4": {"next": None}}
    with schema_registry.running(schema_registry.Registry(names, {})) as registry:
        decode = decoder(good, ["id"], (), FormatRules("avro", registry=RegistryPlace(registry.url)))
        values = [_wire(int(k), schemas[k], {"id": k, "n": 1, **more}) for k, more in rows.items()]
        found = decode.keys(cdc.raw_batch([cdc.Message(0, n, None, value, {}) for n, value in enumerate(values)]))
    reasons = found.column("reason").to_pylist()
    assert reasons[:2] == [None, None]
    assert "its Avro schema 3 cannot be read: field r.u is a union of several types" in reasons[2]
    assert "its Avro schema 4 cannot be read: the Avro schema's type r contains itself" in reasons[3]
    assert capfd.readouterr().err == ""


def test_keys_may_be_json_where_values_are_avro(registry: schema_registry.Registry) -> None:
    rules = FormatRules("debezium-avro", registry=RegistryPlace(registry.url))
    decode, plain, model = decoder(cdc.schema_by_id(2), ["id"], (), rules), {}, Model()
    for m in cdc.messages("avro", "shop.carts"):
        if m.key is not None:
            number = fastavro.schemaless_reader(io.BytesIO(m.key[5:]), fastavro.parse_schema(cdc.schema_by_id(1)), None)
            plain[m.partition, m.offset] = replace(m, key=json.dumps(number).encode())
    model.apply(decode, plain.values())
    assert not model.bad
    assert len(model.rows) > 0


def _wire(number: int, schema: dict[str, object], datum: object) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), datum)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


@pytest.mark.parametrize("json_keys", [False, True], ids=["keys in Avro", "keys in JSON"])
def test_keys_and_partitions_inside_structs(json_keys: bool) -> None:
    """As Hudi's key generators take them; a tombstone names its row by the same path in the message's key."""
    fields: list[dict[str, object]] = [{"name": "id", "type": "string"}, {"name": "sub", "type": ["null", "long"]}]
    meta = {"type": "record", "name": "m", "fields": [*fields, {"name": "city", "type": ["null", "string"]}]}
    value = {"type": "record", "name": "v", "fields": [{"name": "n", "type": "int"}, {"name": "meta", "type": meta}]}
    key = {"type": "record", "name": "k", "fields": [
        {"name": "meta", "type": {"type": "record", "name": "km", "fields": fields}}
    ]}  # fmt: skip
    datum = {"n": 1, "meta": {"id": "a", "sub": 7, "city": "Bern"}}
    named = {"meta": {"id": "a", "sub": 7}}
    names = {"1": {"schema": json.dumps(value)}, "2": {"schema": json.dumps(key)}}
    with schema_registry.running(schema_registry.Registry(names, {})) as registry:
        rules = FormatRules("avro", registry=RegistryPlace(registry.url))
        decode = decoder(value, ["meta.id", "meta.sub"], ["meta.city"], rules)
        keys = [json.dumps(named).encode() if json_keys else _wire(2, key, named), None]
        keys.append(json.dumps({"meta": {"id": "a"}}).encode())
        messages = [
            cdc.Message(0, n, key, value, {})
            for n, (key, value) in enumerate([(None, _wire(1, value, datum)), (keys[0], None), (keys[2], None)])
        ]
        found = decode.keys(cdc.raw_batch(messages)).to_pylist()
    first, gone, lacking = found
    assert (first["flags"] & ~FLAG_NO_ORDERING, gone["flags"] & FLAG_DELETE) == (0, FLAG_DELETE)
    assert first["skey"] == gone["skey"]
    assert first["skey"].endswith(b"meta.id:a,meta.sub:7")
    assert first["part"] == "Bern"
    assert lacking["reason"] == "the key of this delete has no column meta.sub"


def _without_logic(avro: object) -> object:
    if isinstance(avro, list):
        return [_without_logic(branch) for branch in avro]
    if isinstance(avro, dict):
        return {k: _without_logic(v) for k, v in avro.items() if k != "logicalType"}
    return avro
