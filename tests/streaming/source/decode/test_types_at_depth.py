"""Every type that a format can name, at the top and inside arrays, records and maps: the value that its source meant."""

from __future__ import annotations

import base64
import io
import json
import struct
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from tagstream.streaming.source.decode.make_format import FormatRules
from tagstream.streaming.source.decode.record_format import DecodeRules
from tagstream.streaming.source.decode.schema_registry import RegistryPlace
from tests.streaming.source.decode.decoding import decoder
from tests.support import cdc, schema_registry

Wrap = Callable[[Any], Any]
MOMENT = datetime(2024, 1, 2, 10, 0, 0, 123_000, UTC)
MILLIS, MICROS = int(MOMENT.timestamp() * 1000), int(MOMENT.timestamp() * 1_000_000)
UUID = uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")
TS_MS = {"type": "long", "logicalType": "timestamp-millis"}
TS_US = {"type": "long", "logicalType": "timestamp-micros"}
DEC = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}
FIXED = {"type": "fixed", "name": "f", "size": 7, "logicalType": "decimal", "precision": 12, "scale": 2}
# (what the writer has, the raw value that it writes, the table's type, the value that is meant)
AVRO: dict[str, tuple[Any, Any, Any, Any]] = {
    "decimal of bytes": ({**DEC, "scale": 2}, (-1234).to_bytes(2, "big", signed=True), DEC, Decimal("-12.340")),
    "decimal of a fixed": (FIXED, (1234).to_bytes(7, "big", signed=True), DEC, Decimal("12.340")),
    "millis into micros": (TS_MS, MILLIS, TS_US, MOMENT),
    "micros into millis": (TS_US, MICROS, TS_MS, MOMENT),
    "micros into micros": (TS_US, MICROS + 7, TS_US, MOMENT.replace(microsecond=123_007)),
    "nanos into micros": ({"type": "long", "logicalType": "timestamp-nanos"}, MICROS * 1000, TS_US, MOMENT),
    "local millis": (
        {"type": "long", "logicalType": "local-timestamp-millis"}, MILLIS,
        {"type": "long", "logicalType": "local-timestamp-micros"}, MOMENT.replace(tzinfo=None),
    ),
    "millis before 1970": (TS_MS, -1, TS_US, datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
    "a date": ({"type": "int", "logicalType": "date"}, 19_724, {"type": "int", "logicalType": "date"}, date(2024, 1, 2)),
    "a time of day as a number": ({"type": "int", "logicalType": "time-millis"}, 5, "long", 5),
    "uuid of a fixed": ({"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}, UUID.bytes, "string", str(UUID)),
    "uuid of a text": ({"type": "string", "logicalType": "uuid"}, str(UUID), "string", str(UUID)),
    "duration": (
        {"type": "fixed", "name": "d", "size": 12, "logicalType": "duration"}, struct.pack("<III", 1, 2, 3), "bytes",
        struct.pack("<III", 1, 2, 3),
    ),
    "an int into a long": ("int", 7, "long", 7),
    "a float into a double": ("float", 0.5, "double", 0.5),
    "a double into a float": ("double", 0.5, "float", 0.5),
    "bytes": ("bytes", b"\0\xff", "bytes", b"\0\xff"),
    "a text": ("string", "x", "string", "x"),
}  # fmt: skip


def record(name: str, of: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "p", "type": ["null", of], "default": None}]}


# (the type, its value) around another one
DEPTHS: dict[str, tuple[Wrap, Wrap]] = {
    "top": (lambda t: t, lambda v: v),
    "record": (lambda t: record("n", t), lambda v: {"p": v}),
    "array": (lambda t: {"type": "array", "items": ["null", t]}, lambda v: [v, None, v]),
    "map": (lambda t: {"type": "map", "values": t}, lambda v: {"k": v}),
    "array of records": (lambda t: {"type": "array", "items": record("n", t)}, lambda v: [{"p": v}, {"p": None}]),
    "record of arrays": (lambda t: record("n", {"type": "array", "items": t}), lambda v: {"p": [v, v]}),
    "empty array": (lambda t: {"type": "array", "items": t}, lambda _: []),
}


def row_schema(of: Any) -> dict[str, Any]:
    fields = [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", of], "default": None}]
    return {"type": "record", "name": "r", "fields": fields}


def plain(avro: Any) -> Any:
    if isinstance(avro, list):
        return [plain(branch) for branch in avro]
    if isinstance(avro, dict):
        return {k: plain(v) for k, v in avro.items() if k != "logicalType"}
    return avro


def message(writer: dict[str, Any], row: dict[str, Any]) -> cdc.Message:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain(writer)), row)
    return cdc.Message(0, row["id"], None, b"\0\0\0\0\1" + out.getvalue(), {})


@pytest.fixture
def registry() -> Iterator[schema_registry.Registry]:
    with schema_registry.running(schema_registry.Registry({}, {})) as found:
        yield found


def decoded(
    registry: schema_registry.Registry, writer: Any, table: Any, values: list[Any], rules: DecodeRules | None = None
) -> list[Any]:
    """The values as the table has them, or why they are bad."""
    registry.schemas = {"1": {"schema": json.dumps(writer)}}  # type: ignore[misc]
    told = FormatRules("avro", registry=RegistryPlace(registry.url))
    decode = decoder(row_schema(table), ["id"], (), told, decode=rules or DecodeRules())
    found = decode.keys(cdc.raw_batch([message(writer, {"id": n, "v": v}) for n, v in enumerate(values)]))
    rows, reasons = found.column("row").to_pylist(), found.column("reason").to_pylist()
    return [row["v"] if why is None else why for row, why in zip(rows, reasons, strict=True)]


def same(found: Any) -> Any:
    """Arrow gives maps as pairs."""
    if isinstance(found, list) and found and isinstance(found[0], tuple):
        return {key: same(value) for key, value in found}
    return found


@pytest.mark.extended("more variants of one rule", first=("-top",))
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("kind", AVRO)
def test_avro_as_its_specification_says(registry: schema_registry.Registry, kind: str, depth: str) -> None:
    writer, raw, table, meant = AVRO[kind]
    around, value = DEPTHS[depth]
    found = decoded(registry, row_schema(around(writer)), around(table), [value(raw), None, value(raw)])
    assert [same(one) for one in found] == [value(meant), None, value(meant)]


@pytest.mark.parametrize("depth", DEPTHS)
def test_what_does_not_fit_is_bad_and_its_neighbours_good(registry: schema_registry.Registry, depth: str) -> None:
    around, value = DEPTHS[depth]
    if depth == "empty array":
        return
    ends = [value(0.5), value(1e300), value(-0.5)]
    found = decoded(registry, row_schema(around("double")), around("float"), ends)
    assert "field v" in found[1] and "does not fit float" in found[1]
    assert [same(found[0]), same(found[2])] == [value(0.5), value(-0.5)]
    found = decoded(registry, row_schema(around(TS_US)), around(TS_MS), [value(1000), value(1001), value(2000)])
    assert "field v" in found[1] and not isinstance(found[0], str) and not isinstance(found[2], str)


@pytest.mark.extended("more variants of one rule", first=("1999-1",))
@pytest.mark.parametrize("depth", ["top", "record", "array"])
@pytest.mark.parametrize(("micros", "millis"), [(1999, 1), (-1, -1), (-1000, -1), (-1001, -2)])
def test_times_are_cut_off_where_asked(
    registry: schema_registry.Registry, depth: str, micros: int, millis: int
) -> None:
    around, value = DEPTHS[depth]
    rules = DecodeRules(truncate_times=True)
    moment = datetime.fromtimestamp(0, UTC).replace(microsecond=0)
    meant = datetime.fromtimestamp(moment.timestamp() + millis / 1000, UTC)
    (found,) = decoded(registry, row_schema(around(TS_US)), around(TS_MS), [value(micros)], rules)
    assert found == value(meant)


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def connect(name: str | None, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, **({"name": name} if name else {}), **more}


NANOS = "io.debezium.time.NanoTimestamp"
SCALE = {"parameters": {"scale": "2"}}
CONNECT: dict[str, tuple[dict[str, Any], Any, Any, Any]] = {
    "bytes": (connect(None, "bytes"), b64(b"\0\xff"), "bytes", b"\0\xff"),
    "decimal": (
        connect("org.apache.kafka.connect.data.Decimal", "bytes", **SCALE), b64(bytes.fromhex("d76df8")), DEC,
        Decimal("-26588.240"),
    ),
    "decimal of any scale": (
        connect("io.debezium.data.VariableScaleDecimal", "struct", fields=[
            {"field": "scale", "type": "int32", "optional": False}, {"field": "value", "type": "bytes", "optional": False},
        ]),
        {"scale": 1, "value": b64(b"\x7b")}, "string", "12.3",
    ),
    "a date": (connect("io.debezium.time.Date", "int32"), 19_724, {"type": "int", "logicalType": "date"}, date(2024, 1, 2)),
    "millis": (connect("io.debezium.time.Timestamp", "int64"), MILLIS, TS_US, MOMENT),
    "micros": (connect("io.debezium.time.MicroTimestamp", "int64"), MICROS, TS_US, MOMENT),
    "nanos": (connect(NANOS, "int64"), MICROS * 1000, TS_US, MOMENT),
    "a text with a zone": (connect("io.debezium.time.ZonedTimestamp", "string"), "2024-01-02T10:00:00.123Z", TS_US, MOMENT),
    "json": (connect("io.debezium.data.Json", "string"), '{"a": 1}', "string", '{"a": 1}'),
    "uuid": (connect("io.debezium.data.Uuid", "string"), str(UUID), "string", str(UUID)),
    "an int": (connect(None, "int32"), 7, "long", 7),
}  # fmt: skip


def connect_record(of: dict[str, Any]) -> dict[str, Any]:
    return connect(None, "struct", fields=[{**of, "field": "p"}])


CONNECT_DEPTHS: dict[str, tuple[Wrap, Wrap, Wrap]] = {
    "top": (lambda c: c, *DEPTHS["top"]),
    "record": (connect_record, *DEPTHS["record"]),
    "array": (lambda c: connect(None, "array", items=c), *DEPTHS["array"]),
    "map": (lambda c: connect(None, "map", keys=connect(None, "string"), values=c), *DEPTHS["map"]),
    "array of records": (lambda c: connect(None, "array", items=connect_record(c)), *DEPTHS["array of records"]),
}


def envelope(of: dict[str, Any], number: int, value: Any) -> bytes:
    fields = [{"type": "int64", "optional": False, "field": "id"}, {**of, "field": "v"}]
    row = {"type": "struct", "optional": True, "fields": fields}
    schema = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}]}
    payload = {"before": None, "after": {"id": number, "v": value}, "op": "c", "source": {"lsn": number}}
    return json.dumps({"schema": schema, "payload": payload}).encode()


@pytest.mark.parametrize("depth", CONNECT_DEPTHS)
@pytest.mark.parametrize("kind", CONNECT)
def test_debezium_s_json_with_its_schema(kind: str, depth: str) -> None:
    writer, raw, table, meant = CONNECT[kind]
    written, around, value = CONNECT_DEPTHS[depth]
    decode = decoder(row_schema(around(table)), ["id"], (), FormatRules("debezium-json"))
    messages = [
        cdc.Message(0, n, json.dumps({"id": n}).encode(), envelope(written(writer), n, one), {})
        for n, one in enumerate([value(raw), None])
    ]
    found = decode.keys(cdc.raw_batch(messages))
    assert found.column("reason").to_pylist() == [None, None]
    assert [same(row["v"]) for row in found.column("row").to_pylist()] == [value(meant), None]


@pytest.mark.parametrize(("cut", "meant"), [(True, MOMENT), (False, None)])
def test_nanos_obey_the_option_for_times(cut: bool, meant: Any) -> None:
    decode = decoder(
        row_schema(TS_US), ["id"], (), FormatRules("debezium-json"), decode=DecodeRules(truncate_times=cut)
    )
    value = envelope(connect(NANOS, "int64"), 1, MICROS * 1000 + 100)
    found = decode.keys(cdc.raw_batch([cdc.Message(0, 1, b'{"id": 1}', value, {})]))
    assert (found.column("row").to_pylist()[0]["v"] == meant) and ((found.column("reason")[0].as_py() is None) == cut)


def written(form: str, doc: dict[str, Any]) -> bytes:
    if form == "payload first":
        return json.dumps({"payload": doc["payload"], "schema": doc["schema"]}, separators=(",", ":")).encode()
    if form == "payload first, blanks":
        return b"  " + json.dumps({"payload": doc["payload"], "schema": doc["schema"]}, indent=1).encode() + b" \n"
    if form == "blanks":
        return json.dumps(doc, indent=2).encode() + b"\n"
    if form == "no schema":
        return json.dumps({"schema": None, "payload": doc["payload"]}).encode()
    return json.dumps(doc, separators=(",", ":")).encode()


FORMS = ("schema first", "blanks", "payload first", "payload first, blanks", "no schema")


def test_order_of_names_and_blanks_have_no_meaning() -> None:
    """All forms, in one batch and again in the next; a text that looks like the end of an envelope is a value."""
    decode = decoder(row_schema("string"), ["id"], (), FormatRules("debezium-json"))
    texts = ["x", '","schema":null}', "}", "{", '\\"', "ä"]
    docs = [json.loads(envelope(connect(None, "string"), n, text)) for n, text in enumerate(texts)]
    values = [written(form, doc) for doc in docs for form in FORMS]
    for _ in range(2):
        messages = [cdc.Message(0, n, b'{"id": 1}', value, {}) for n, value in enumerate(values)]
        found = decode.keys(cdc.raw_batch(messages))
        assert found.column("reason").to_pylist() == [None] * len(values)
        assert [row["v"] for row in found.column("row").to_pylist()] == [text for text in texts for _ in FORMS]
