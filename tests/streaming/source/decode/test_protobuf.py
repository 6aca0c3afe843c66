"""Protobuf messages: decoded columns equal what Google's own runtime reads from the same bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tagstream.state.tag_batch import FLAG_DELETE, FLAG_NO_ORDERING, FLAG_NO_PARTITION, GLOBAL_KEY
from tagstream.streaming.source.decode.make_format import FormatRules
from tagstream.streaming.source.decode.proto_rules import ProtoRules, message_schema
from tagstream.streaming.source.decode.proto_schema import proto_message
from tagstream.streaming.source.decode.protobuf import ProtoBody
from tagstream.streaming.source.decode.record_format import STRICT, DecodeRules, avro_facts
from tagstream.table.errors import ConfigError
from tagstream.table.schema.schema import avro_to_arrow
from tests.streaming.source.decode.decoding import decoder
from tests.support import cdc

FOLDER = Path(__file__).parents[3] / "fixtures" / "protobuf"
SHOP, LEGACY = (FOLDER / "shop.desc").read_bytes(), (FOLDER / "legacy.desc").read_bytes()
ORDER = ProtoRules("acme.shop.Order", SHOP, max_depth=2)
ITEM = ProtoRules("acme.legacy.Item", LEGACY)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STATUS = {0: "NEW", 1: "PAID", 7: "SENT"}


def runtime(rules: ProtoRules) -> Any:
    """The message's class of Google's runtime."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(rules.descriptors or b"").file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(rules.name))


def body(rules: ProtoRules, decode: DecodeRules = STRICT) -> ProtoBody:
    text = message_schema(rules)[1]
    schema = avro_to_arrow(text)
    return ProtoBody(schema, {name: name for name in schema.names}, avro_facts(text), rules, decode)


def decoded(rules: ProtoRules, values: list[bytes | None], decode: DecodeRules = STRICT) -> tuple[list[Any], list[Any]]:
    rows, reasons = body(rules, decode).decode(pa.array(values, pa.binary()))
    return rows.to_pylist(), reasons.to_pylist()


def moment(value: Any) -> datetime:
    return EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def optional(message: Any, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None


def line(message: Any) -> dict[str, Any]:
    packed = moment(message.packed_at) if message.HasField("packed_at") else None
    return {"sku": message.sku, "count": message.count, "packed_at": packed}


def order(message: Any, depth: int = 1, limit: int = 2) -> dict[str, Any]:
    """What the table has, by the runtime's own accessors. ``limit``: the greatest depth."""
    points = message.points.value if message.HasField("points") else None
    rest: Any = None
    if message.HasField("replaces"):
        rest = (
            order(message.replaces, depth + 1, limit)
            if depth < limit
            else {"descriptor_full_name": "acme.shop.Order", "proto_bytes": message.replaces.SerializeToString()}
        )
    return {
        **{name: getattr(message, name) for name in ("id", "region", "version", "pieces", "amount", "weight", "paid")},
        "serial": Decimal(message.serial),
        "digest": message.digest,
        "status": STATUS[message.status],
        "ordered_at": moment(message.ordered_at) if message.HasField("ordered_at") else None,
        "note": message.note.value if message.HasField("note") else None,
        "points": None if points is None else Decimal(points),
        "rating": optional(message, "rating"),
        "card": optional(message, "card"),
        "invoice": optional(message, "invoice"),
        "voucher": line(message.voucher) if message.HasField("voucher") else None,
        "lines": [line(each) for each in message.lines],
        "counts": [{"key": k, "value": v} for k, v in message.counts.items()],
        "gift": line(message.gift) if message.HasField("gift") else None,
        "tags": list(message.tags),
        "replaces": rest,
        "delta": message.delta,
        "hash": message.hash,
        "history": [STATUS[each] for each in message.history],
        "remarks": [each.value for each in message.remarks],
        "_hoodie_is_deleted": message._hoodie_is_deleted,
        "heaviest": {"grams": message.heaviest.grams} if message.HasField("heaviest") else None,
    }


def random_order(make: Any, rng: random.Random, depth: int = 0) -> Any:
    made = make()
    text = lambda: rng.choice(["", "a", "ä\u0000z", "x" * 200])  # noqa: E731
    fill: Mapping[str, Any] = {
        "id": text, "region": text, "note": None, "digest": lambda: rng.randbytes(rng.randrange(9)),
        "version": lambda: rng.choice([0, -1, 2**63 - 1, -(2**63)]), "pieces": lambda: rng.choice([0, 2**32 - 1]),
        "serial": lambda: rng.choice([0, 2**63, 2**64 - 1]), "amount": lambda: rng.choice([0.0, -1.5, 1e300]),
        "weight": lambda: 0.25, "paid": lambda: True, "status": lambda: rng.choice([0, 1, 7]),
        "rating": lambda: rng.choice([0, -5]), "delta": lambda: rng.choice([-(2**31), 2**31 - 1]),
        "hash": lambda: rng.choice([0, 2**63 - 1]), "_hoodie_is_deleted": lambda: True,
    }  # fmt: skip
    for name, value in fill.items():
        if value is not None and rng.random() < 0.5:
            setattr(made, name, value())
    if rng.random() < 0.5:
        made.ordered_at.seconds, made.ordered_at.nanos = rng.choice([-62135596800, -1, 0, 253402300799]), 123456000
    for name in ("note", "points"):
        if rng.random() < 0.5:
            getattr(made, name).value = text() if name == "note" else 2**64 - 1
    kind = rng.choice(["card", "invoice", "voucher", None])
    if kind == "voucher":
        made.voucher.SetInParent()
    elif kind is not None:
        setattr(made, kind, text() if kind == "card" else 0)
    for _ in range(rng.randrange(3)):
        item = made.lines.add(sku=text(), count=rng.randrange(3))
        if rng.random() < 0.5:
            item.packed_at.seconds = rng.randrange(10**9)
    for _ in range(rng.randrange(3)):
        made.tags.append(text())
        made.history.append(rng.choice([0, 1, 7]))
        made.remarks.add(value=text())
    if rng.random() < 0.5:
        made.counts["k"] = rng.randrange(5)
    if rng.random() < 0.3:
        made.gift.sku = "g"
    if rng.random() < 0.3:
        made.heaviest.grams = -7
    if depth < 4 and rng.random() < 0.5:
        made.replaces.CopyFrom(random_order(make, rng, depth + 1))
    return made


def test_random_messages_are_what_the_runtime_reads() -> None:
    make, rng = runtime(ORDER), random.Random(1)
    messages = [random_order(make, rng) for _ in range(300)]
    rows, reasons = decoded(ORDER, [m.SerializeToString() for m in messages])
    assert reasons == [None] * len(messages)
    assert rows == [order(m) for m in messages]


def test_damaged_messages_are_bad_and_the_others_are_not() -> None:
    """Bytes are cut and changed at random. What the runtime refuses is bad here; what it reads is the same here."""
    make, rng = runtime(ORDER), random.Random(2)
    good = [random_order(make, rng).SerializeToString() for _ in range(300)]
    values: list[bytes] = []
    for data in good:
        raw = bytearray(data or b"\0")
        if rng.random() < 0.5:
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        values.append(bytes(raw[: rng.randrange(len(raw) + 1)]) if rng.random() < 0.3 else bytes(raw))
    rows, reasons = decoded(replace(ORDER, max_depth=9), list(values))  # all levels are decoded
    bad = 0
    for value, row, reason in zip(values, rows, reasons, strict=True):
        message = make()
        try:
            message.ParseFromString(value)
            expected = order(message, limit=9)
        except (DecodeError, KeyError, OverflowError):
            assert reason is not None, value
            bad += 1
            continue
        if reason is None:
            assert row == expected, value
        else:
            assert "Timestamp" in reason or "nanoseconds" in reason or "field hash" in reason, (reason, value)
    assert 20 < bad < 280


@pytest.mark.parametrize("as_records", [False, True])
def test_wrappers_and_timestamps_as_hudi_reads_them(as_records: bool) -> None:
    rules = replace(ORDER, wrappers_as_records=as_records, timestamps_as_records=as_records)
    message = runtime(ORDER)(id="1")
    message.note.value, message.ordered_at.seconds, message.ordered_at.nanos = "n", -1, 1
    ((row,), (reason,)) = decoded(rules, [message.SerializeToString()], DecodeRules(truncate_times=True))
    assert reason is None
    wanted = ({"value": "n"}, {"seconds": -1, "nanos": 1}) if as_records else ("n", EPOCH - timedelta(seconds=1))
    assert (row["note"], row["ordered_at"]) == wanted


def test_nanoseconds_are_not_lost_silently() -> None:
    message = runtime(ORDER)(id="1")
    message.ordered_at.nanos = 1
    _, (reason,) = decoded(ORDER, [message.SerializeToString()])
    assert "ordered_at has nanoseconds" in reason
    assert "tagstream.decode.times=truncate" in reason


@pytest.mark.parametrize(("seconds", "nanos"), [(253402300800, 0), (-62135596801, 0), (2**62, 0), (0, -1), (0, 10**9)])
def test_a_timestamp_outside_of_the_calendar_is_bad(seconds: int, nanos: int) -> None:
    message = runtime(ORDER)(id="1")
    message.ordered_at.seconds, message.ordered_at.nanos = seconds, nanos
    _, (reason,) = decoded(ORDER, [message.SerializeToString()])
    assert "ordered_at is not a valid Timestamp" in reason


def test_numbers_that_do_not_fit_are_bad() -> None:
    make = runtime(ORDER)
    _, reasons = decoded(ORDER, [make(hash=2**63).SerializeToString(), make(status=5).SerializeToString()])
    assert "field hash" in reasons[0]
    assert reasons[1] == "field status has the number 5, which its enum does not have"


def test_proto2_has_its_defaults_and_required_fields() -> None:
    make = runtime(ITEM)
    full = make(id="1", size=0, color="c", main={"number": 3}, parts=[{"number": 1, "name": "p"}, {"number": 2}])
    partial = make(id="2")
    nested = make(id="3")
    nested.main.name = "x"
    values = [full.SerializeToString(), partial.SerializeToString(), b"", nested.SerializePartialToString()]
    rows, reasons = decoded(ITEM, list(values))
    assert reasons[:2] == [None, None]
    parts = [{"number": 1, "name": "p"}, {"number": 2, "name": "none"}]
    assert rows[0] == {"id": "1", "size": 0, "color": "c", "main": {"number": 3, "name": "none"}, "parts": parts}
    assert rows[1] == {"id": "2", "size": 42, "color": "", "main": None, "parts": []}
    assert reasons[2] == "field id is required, and the message lacks it"
    assert reasons[3] == "field main.number is required, and the message lacks it"


def test_confluents_frame_names_the_message() -> None:
    rules = replace(ORDER, framed=True)
    make = runtime(ORDER)
    own, data = proto_message(rules).index, make(id="1").SerializeToString()
    assert own == b"\2\2"  # the second message of its file
    header = b"\0\0\0\0\7"
    rows, reasons = decoded(rules, [header + own + data, header + b"\0" + data, data, header, b"", header + own])
    assert [r is None for r in reasons] == [True, False, False, False, False, True]
    assert (rows[0]["id"], rows[5]["id"]) == ("1", "")
    assert reasons[1] == "another message of its schema than acme.shop.Order"
    assert "Confluent's wire format" in reasons[2]


@pytest.mark.parametrize("place", [b"\0", b"\2\0"])
def test_the_first_message_has_two_frames(place: bytes) -> None:
    rules = ProtoRules("acme.shop.Line", SHOP, framed=True)
    ((row,), (reason,)) = decoded(rules, [b"\0\0\0\0\1" + place + b"\x0a\x01s"])
    assert (row["sku"], reason) == ("s", None)


@pytest.mark.parametrize(
    "name",
    ["acme.shop.Order", "com.acme.shop.Shop$Order", "com.acme.shop.Shop.Order"],
)
def test_a_message_by_its_name_or_its_java_class(name: str) -> None:
    assert proto_message(replace(ORDER, name=name)).full_name == "acme.shop.Order"


def test_java_classes_in_files_of_their_own() -> None:
    assert proto_message(replace(ITEM, name="com.acme.legacy.Item$Part")).full_name == "acme.legacy.Item.Part"


def test_the_schema_is_that_of_hudi() -> None:
    """The fields and types of Hudi's ProtoClassBasedSchemaProvider, by its rules."""
    fields = {f["name"]: f for f in json.loads(message_schema(replace(ORDER, max_depth=1))[1])["fields"]}
    assert fields["serial"]["type"] == {
        "type": "fixed", "name": "unsigned_long", "namespace": "org.apache.hudi.protos", "size": 9,
        "logicalType": "decimal", "precision": 21, "scale": 0,
    }  # fmt: skip
    assert fields["pieces"]["type"] == "long"
    assert fields["status"]["default"] == "NEW"
    assert fields["points"]["type"] == ["null", "org.apache.hudi.protos.unsigned_long"]
    assert fields["counts"]["type"]["items"]["namespace"] == "acme.shop.counts"
    assert fields["replaces"]["type"][1]["name"] == "recursion_overflow"
    assert fields["rating"] == {"name": "rating", "type": ["null", "int"], "default": None}


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (replace(ORDER, name="acme.shop.Missing"), "no message or Java class acme.shop.Missing"),
        (replace(ORDER, descriptors=b"\xff\xff"), "not a FileDescriptorSet"),
        (replace(ORDER, descriptors=b""), "they have no messages"),
        (replace(ORDER, max_depth=100), "lower hoodie.streamer.schemaprovider.proto.max.recursion.depth"),
    ],
)
def test_descriptors_that_cannot_be_used(rules: ProtoRules, text: str) -> None:
    if rules.max_depth == 100:
        rules = replace(rules, descriptors=bushy())
    with pytest.raises(ConfigError, match=text):
        proto_message(rules)


def bushy() -> bytes:
    """A message that contains itself twice."""
    file = descriptor_pb2.FileDescriptorProto(name="b.proto", package="acme.shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number in (1, 2):
        message.field.add(name=f"f{number}", number=number, label=1, type=11, type_name=".acme.shop.Order")
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def test_an_import_that_is_missing_is_named() -> None:
    files = descriptor_pb2.FileDescriptorSet.FromString(SHOP)
    del files.file[0]
    with pytest.raises(ConfigError, match=r"lack google/protobuf/.*--include_imports"):
        proto_message(replace(ORDER, descriptors=files.SerializeToString()))


def test_nothing_to_decode() -> None:
    assert decoded(ORDER, []) == ([], [])
    (_, reasons) = decoded(ORDER, [b"\xff"])
    assert reasons[0].startswith("not a message acme.shop.Order: ")


def test_a_message_without_a_value_has_no_columns() -> None:
    """A delete takes neither ordering value nor key from Protobuf's defaults: it would be late, or of another row."""
    decode = decoder(
        message_schema(ORDER)[1], ["version"], ["region"], FormatRules("protobuf", proto=ORDER), ordering="hash"
    )
    keys = (b'{"version":7}', b"7", b'{"id":"7"}', b"seven", b'"7"', b"\xff")
    events = decode.keys(cdc.raw_batch([cdc.Message(0, n, key, None, {}) for n, key in enumerate(keys)])).to_pylist()
    assert events[0]["flags"] == FLAG_DELETE | FLAG_NO_ORDERING | FLAG_NO_PARTITION
    assert [e["reason"] for e in events] == [None, None, *["the key of this delete has no column version"] * 4]
    for event in events[:2]:
        assert event["skey"] == events[0]["skey"]
        assert {name for name, value in event["row"].items() if value is not None} == {"version"}


@pytest.mark.parametrize(
    "text", ["o-1", " o 1", 'a"b\\c', "tab\tnul\0", "é\U0001f600", "7", "null", "[1]", "a{", '"{"']
)
def test_the_text_of_a_key_deletes_its_row(text: str) -> None:
    """As Kafka's serializer of strings writes it."""
    decode = decoder(message_schema(ORDER)[1], ["id"], ["region"], FormatRules("protobuf", proto=ORDER))
    keys = (text.encode(), json.dumps({"id": text}).encode(), b'{"id":')
    events = decode.keys(cdc.raw_batch([cdc.Message(0, n, key, None, {}) for n, key in enumerate(keys)])).to_pylist()
    assert [e["reason"] for e in events] == [None, None, "the key of this delete has no column id"]
    assert [e["row"]["id"] for e in events[:2]] == [text, text]
    assert events[0]["skey"] == GLOBAL_KEY + text.encode() == events[1]["skey"]
