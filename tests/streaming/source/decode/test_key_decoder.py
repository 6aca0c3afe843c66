"""Keys, flags and reasons of records; every kind of bad record once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tagstream.state.ordering import encode_ordering
from tagstream.streaming.source.decode.key_decoder import KeyDecoder
from tagstream.table.errors import ConfigError
from tagstream.table.keys.keys import KeyGenerator

SCHEMA = pa.schema([
    ("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.float64()), ("_hoodie_is_deleted", pa.bool_()),
])  # fmt: skip
DELETE, NO_ORDERING, NO_PARTITION, BAD = 1, 2, 4, 8


def decoder(
    keys: tuple[str, ...] = ("id",),
    partitions: tuple[str, ...] = ("day",),
    ordering: str | None = "ts",
    global_index: bool = True,
    schema: pa.Schema = SCHEMA,
) -> KeyDecoder:
    fields = () if ordering is None else tuple(ordering.split(","))
    return KeyDecoder(schema, KeyGenerator.create(None, keys, partitions), fields, global_index)


def batch(*records: Any, keys: tuple[Any, ...] | None = None, src: str | None = None) -> pa.RecordBatch:
    """Raw records at Kafka partition 3, offsets from 100."""
    n = len(records)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys or (None,) * n, pa.binary()),
            "value": pa.array(records, pa.binary()),
            "src": pa.array([src] * n, pa.string()),
            "pos_hi": pa.array([3] * n, pa.int64()),
            "pos_lo": pa.array(range(100, 100 + n), pa.int64()),
        }
    )


def one(record: bytes | None, key: bytes | None = None, **options: Any) -> dict[str, Any]:
    return decoder(**options).keys(batch(record, keys=(key,))).to_pylist()[0]


def test_a_good_record() -> None:
    raw = b'{"id":"k1","day":"2024-01-02","ts":5,"v":1.5}'
    assert one(raw) == {
        "skey": b"\x01k1", "part": "2024-01-02", "ord": 5, "flags": 0, "src": None, "pos_hi": 3, "pos_lo": 100,
        "row": {"id": "k1", "day": "2024-01-02", "ts": 5, "v": 1.5, "_hoodie_is_deleted": None},
        "value": None, "reason": None,
    }  # fmt: skip


def test_the_columns_have_the_same_types_whatever_comes() -> None:
    schema = decoder().keys(batch(b'{"id":"k1","day":"d","ts":5}')).schema
    assert schema.field("row").type == pa.struct(list(SCHEMA))
    assert {f.name: str(f.type) for f in schema if f.name != "row"} == {
        "skey": "binary", "part": "string", "ord": "int64", "flags": "int8", "src": "string", "pos_hi": "int64",
        "pos_lo": "int64", "value": "binary", "reason": "string",
    }  # fmt: skip
    empty = decoder().keys(batch())
    assert (empty.num_rows, empty.schema) == (0, schema)


def test_state_keys_of_a_partitioned_index_and_of_complex_keys() -> None:
    assert one(b'{"id":"k1","day":"d","ts":5}', global_index=False)["skey"] == b"\x02d\x00k1"
    found = one(b'{"id":"k1","day":"d","ts":5}', keys=("id", "ts"), partitions=())
    assert (found["skey"], found["part"]) == (b"\x01id:k1,ts:5", "")


def test_ordering_values() -> None:
    texts = pa.schema([("id", pa.string()), ("o", pa.string())])
    assert one(b'{"id":"k","o":"b"}', schema=texts, partitions=(), ordering="o")["ord"] == b"b"
    doubles = pa.schema([("id", pa.string()), ("o", pa.float64())])
    assert one(b'{"id":"k","o":-1.5}', schema=doubles, partitions=(), ordering="o")["ord"] == int(
        encode_ordering(pa.array([-1.5]))[0]
    )
    assert one(b'{"id":"k","day":"d"}', ordering=None)["flags"] == 0


@pytest.mark.parametrize("refuse", [False, True])
def test_a_composite_key_that_other_values_make_too(refuse: bool) -> None:
    generator = KeyGenerator.create(None, ("id", "day"), ())
    decode = KeyDecoder(SCHEMA, generator, ("ts",), True, refuse_collisions=refuse)
    good, bad = b'{"id":"1","day":"2,day:3","ts":1}', b'{"id":"1,day:2","day":"3","ts":1}'
    tombstone = b'{"id":"1,day:2","day":"3"}'
    rows = decode.keys(batch(good, bad, None, keys=(None, None, tombstone))).to_pylist()
    assert [(row["flags"] & BAD) != 0 for row in rows] == [False, refuse, refuse]
    assert not refuse or "contains ',day:'" in rows[1]["reason"]


@pytest.mark.parametrize("longest", [None, 9])
def test_a_key_that_an_index_cannot_hold(longest: int | None) -> None:
    """As the index would see it: in bytes of UTF-8, with the names of a composite key; of deletes by message key too."""
    decode = KeyDecoder(SCHEMA, KeyGenerator.create(None, ("id",), ()), ("ts",), True, longest_key=longest)
    good, bad = '{"id":"k12345678","ts":1}', '{"id":"k1234567é","ts":1}'
    records = (good.encode(), bad.encode(), None, None)
    rows = decode.keys(batch(*records, keys=(None, b"k1234567\xc3\xa9", b"k12345678", b"k123456789"))).to_pylist()
    assert [(row["flags"] & BAD) != 0 for row in rows] == [False, longest is not None, False, longest is not None]
    assert longest is None or rows[1]["reason"] == "the record key is longer than the 9 bytes that the index can store"
    composite = KeyDecoder(SCHEMA, KeyGenerator.create(None, ("id", "day"), ()), ("ts",), True, longest_key=longest)
    found = composite.keys(batch(b'{"id":"1","day":"2","ts":1}')).to_pylist()[0]
    assert bool(found["flags"] & BAD) is (longest is not None)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b'{"id":"a\\u0000b","day":"x","v":1}', None),
        (b'{"id":"a","day":"x","v":-0.0}', None),
        (b'{"id":1,"day":"x","v":1}', None),
        (b'{"id":" ","day":"x","v":1}', None),
        (b'{"id":"' + b"k" * 100_000 + b'","day":"x","v":1}', None),
        (b'{"id":"a","day":"x","v":1,"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
        (b'{"id":"\\ud800","day":"x","v":1}', "half of a surrogate pair"),
        (b'{"id":"a","day":"x","v":NaN}', "NaN is not JSON"),
        (b'{"id":"a","day":"x","v":"NaN"}', "ordering field v is NaN, which has no order"),
        (b'{"id":"a","day":"x","v":1e999}', "out of a double's range"),
        (b'{"id":"a","day":"../x","v":1}', "has the segment '..'"),
    ],
)
def test_odd_records_are_right_or_bad(record: bytes, reason: str | None) -> None:
    rows = decoder(ordering="v").keys(batch(record, b'{"id":"next","day":"x","v":2}')).to_pylist()
    assert (rows[0]["reason"] is None) if reason is None else reason in rows[0]["reason"]
    assert (rows[1]["skey"], rows[1]["flags"]) == (b"\x01next", 0)


def test_zeros_are_in_the_order_of_java() -> None:
    rows = (
        decoder(ordering="v").keys(batch(*(b'{"id":"a","day":"x","v":%s}' % v for v in (b"0.0", b"-0.0")))).to_pylist()
    )
    assert rows[0]["ord"] > rows[1]["ord"]


def test_a_path_of_another_depth_is_bad_once_the_depth_is_known() -> None:
    records = batch(*(f'{{"id":"k","day":"{day}","ts":1}}'.encode() for day in ("a", "a/b")))
    assert decoder().keys(records).column("flags").to_pylist() == [0, 0]
    rows = decoder().keys(records, 1).to_pylist()
    assert [row["flags"] for row in rows] == [0, BAD]
    assert rows[1]["reason"].startswith("partition path 'a/b' is 2 folders deep")
    delete = batch(b'{"id":"k","_hoodie_is_deleted":true}')  # takes its partition from the index
    assert decoder().keys(delete, 3).column("flags").to_pylist() == [DELETE | NO_ORDERING | NO_PARTITION]


@pytest.mark.parametrize(
    ("digits", "scale", "good", "bad"),
    [
        (18, 0, ["999999999999999", "-999999999999999"], ["1000000000000000", "-1000000000000000"]),
        (18, 2, ["999999999999999.99"], ["1000000000000000.00"]),
        (15, 0, ["999999999999999"], []),
        (18, 3, ["999999999999999.999"], []),
        (18, 15, ["999.999999999999999"], []),
    ],
)
def test_decimals_that_no_delete_block_holds(digits: int, scale: int, good: list[str], bad: list[str]) -> None:
    schema = pa.schema([("id", pa.string()), ("o", pa.decimal128(digits, scale))])
    records = [f'{{"id":"k","o":{value}}}'.encode() for value in (*good, *bad)]
    generator = KeyGenerator.create(None, ("id",), ())
    for merge_on_read in (True, False):
        decode = KeyDecoder(schema, generator, ("o",), True, merge_on_read=merge_on_read)
        flags = decode.keys(batch(*records)).column("flags").to_pylist()
        assert flags == [0] * len(good) + [BAD if merge_on_read else 0] * len(bad)


SEVERAL = pa.schema([("id", pa.string()), ("a", pa.int64()), ("b", pa.string()), ("c", pa.decimal128(18, 0))])


def test_several_ordering_fields() -> None:
    """Codes in the order of the tuples; what lacks one, or has one that no delete block holds, is bad and says which."""
    decode = KeyDecoder(SEVERAL, KeyGenerator.create(None, ("id",), ()), ("a", "b", "c"), True, merge_on_read=True)
    records = [
        b'{"id":"k","a":-1,"b":"z","c":1}',
        b'{"id":"k","a":2,"b":"","c":9}',
        b'{"id":"k","a":2,"b":"a","c":-3}',
        b'{"id":"k","a":2,"b":"a","c":4}',
    ]
    found = decode.keys(batch(*records))
    codes = found.column("ord").to_pylist()
    assert codes == sorted(codes) and len(set(codes)) == 4
    assert found.column("flags").to_pylist() == [0, 0, 0, 0]
    bad = [b'{"id":"k","a":1,"c":1}', b'{"id":"k","b":"x","c":1}', b'{"id":"k","a":1,"b":"x","c":1000000000000000}']
    deletes = [b'{"id":"k","a":1,"_hoodie_is_deleted":true}', b'{"id":"k","_hoodie_is_deleted":true}']
    found = decode.keys(batch(*bad, *deletes))
    assert found.column("flags").to_pylist() == [BAD] * 3 + [DELETE | NO_ORDERING] * 2
    assert found.column("reason").to_pylist()[:2] == ["ordering field b is null", "ordering field a is null"]
    assert "ordering field c has more than 15 digits" in found.column("reason")[2].as_py()
    assert found.column("ord").to_pylist()[3:] == [b"", b""]
    with pytest.raises(ConfigError, match="ordering field d is not in the schema"):
        KeyDecoder(SEVERAL, KeyGenerator.create(None, ("id",), ()), ("a", "d"), True)


def test_a_delete_needs_neither_ordering_nor_partition() -> None:
    found = one(b'{"id":"k1","_hoodie_is_deleted":true}')
    assert (found["flags"], found["part"], found["reason"]) == (DELETE | NO_ORDERING | NO_PARTITION, None, None)
    found = one(b'{"id":"k1","day":"d","ts":7,"_hoodie_is_deleted":true}')
    assert (found["flags"], found["part"], found["ord"]) == (DELETE, "d", 7)
    # a row without a partition value lies in the default one when the partition is part of its identity
    found = one(b'{"id":"k1","ts":7,"_hoodie_is_deleted":true}', global_index=False)
    assert (found["flags"], found["part"]) == (DELETE, "__HIVE_DEFAULT_PARTITION__")


def test_a_delete_mark_counts_when_the_table_has_no_column_for_it() -> None:
    schema = pa.schema([f for f in SCHEMA if f.name != "_hoodie_is_deleted"])
    delete = b'{"id":"k1","day":"d","ts":7,"_hoodie_is_deleted":true}'
    found = one(delete, schema=schema)
    assert (found["flags"], list(found["row"])) == (DELETE, schema.names)


def test_a_kafka_tombstone_is_a_delete_of_its_message_key() -> None:
    found = one(None, b"k9")
    assert (found["skey"], found["flags"], found["part"]) == (b"\x01k9", DELETE | NO_ORDERING | NO_PARTITION, None)
    found = one(None, b'{"id":"k9","ts":5}', keys=("id", "ts"), partitions=())
    assert (found["skey"], found["part"], found["flags"]) == (b"\x01id:k9,ts:5", "", DELETE | NO_ORDERING)


@pytest.mark.parametrize(
    ("record", "key", "reason"),
    [
        (b"not json", None, "not JSON"),
        (b'{"id":"k","day":"d","ts":1}}', None, "trailing content"),
        (b'{"day":"d","ts":1}', None, "record key field 'id' is null"),
        (b'{"id":null,"day":"d","ts":1}', None, "record key field 'id' is null"),
        (b'{"id":"","day":"d","ts":1}', None, "record key field 'id' is empty"),
        (b'{"id":"k","day":"d"}', None, "ordering field ts is null"),
        (b'{"id":"k","day":"d","ts":null}', None, "ordering field ts is null"),
        (b'{"id":"k","day":"d","ts":1,"v":"x"}', None, "field v: 'x' is not a number"),
        (b'{"id":"k","day":"d","ts":1,"v":9007199254740993}', None, "would lose digits"),
        (b'{"id":"k","day":"../../etc","ts":1}', None, "partition path"),
        (b'{"id":"k","day":"/abs","ts":1}', None, "partition path"),
        (b'{"id":"k","day":"a/./b","ts":1}', None, "partition path"),
        (b'{"id":"k","day":".hoodie","ts":1}', None, "partition path"),
        (b'{"id":"\xff","day":"d","ts":1}', None, "not UTF-8"),
        (b'{"id":"k","day":"d","ts":1,"_hoodie_is_deleted":1}', None, "field _hoodie_is_deleted"),
        (b"", None, "the value is empty"),
        (None, None, "the message has no key"),
        (None, b"", "the message key is empty"),
        (None, b"\xff", "not UTF-8"),
    ],
)
def test_a_bad_record_has_a_flag_a_reason_and_its_bytes(record: bytes | None, key: bytes | None, reason: str) -> None:
    good = b'{"id":"k1","day":"d","ts":5}'
    rows = decoder().keys(batch(good, record, good, keys=(b"m0", key, b"m2"))).to_pylist()
    assert [row["flags"] for row in rows] == [0, BAD, 0]
    bad = rows[1]
    assert reason in bad["reason"]
    assert (bad["value"], bad["skey"], bad["part"], bad["pos_hi"], bad["pos_lo"]) == (record, key, None, 3, 101)
    assert [row["skey"] for row in (rows[0], rows[2])] == [b"\x01k1", b"\x01k1"]


def test_a_tombstone_cannot_name_a_row_of_a_partitioned_index() -> None:
    found = one(None, b"k1", global_index=False)
    assert found["flags"] == BAD
    assert "index.global.enabled=false, or an index that is not global" in found["reason"]
    assert one(None, b"k1", global_index=False, partitions=())["skey"] == b"\x02\x00k1"


def test_blank_lines_of_files_carry_nothing() -> None:
    lines = (b"", b'{"id":"k1","day":"d","ts":5}', b" \t\r", b"x")
    rows = decoder().keys(batch(*lines, src="file:///a.jsonl")).to_pylist()
    assert [(r["skey"], r["value"], r["flags"]) for r in rows] == [(b"\x01k1", None, 0), (None, b"x", BAD)]
    assert decoder().keys(batch(*lines)).num_rows == 4  # an empty Kafka message is a message


def test_rows_have_the_tables_columns_and_nulls_for_what_a_delete_does_not_say() -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("ts", pa.int64(), nullable=False)])
    found = decoder(schema=schema, partitions=()).keys(batch(b'{"id":"a","ts":1,"x":2}', None, keys=(None, b"b")))
    assert found.column("row").to_pylist() == [{"id": "a", "ts": 1}, {"id": None, "ts": None}]
    assert all(f.nullable for f in found.column("row").type)


def test_a_wrong_field_is_said_at_the_start() -> None:
    with pytest.raises(ConfigError, match="'nope' is not in the schema"):
        decoder(keys=("nope",))
    with pytest.raises(ConfigError, match="ordering field nope is not in the schema"):
        decoder(ordering="nope")
    with pytest.raises(ConfigError, match="must be boolean"):
        decoder(
            schema=pa.schema([("id", pa.string()), ("_hoodie_is_deleted", pa.string())]), partitions=(), ordering=None
        )
