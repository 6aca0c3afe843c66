"""What the JSON decoder takes, what it refuses and in which words, and that it takes the fast path."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tagstream.streaming.source.decode import json_decoder
from tagstream.streaming.source.decode.json_decoder import JsonDecoder
from tagstream.streaming.source.decode.record_format import Facts

LONG = "12345678901234567890.123456789012345678"
UTC_US = pa.timestamp("us", tz="UTC")


def decode_one(kind: pa.DataType, text: str, nullable: bool = True) -> tuple[Any, str | None]:
    """(value, error) of ``{"c": text}`` in a column of ``kind``."""
    schema = pa.schema([pa.field("c", kind, nullable=nullable)])
    rows, errors = JsonDecoder(schema).decode(pa.array([f'{{"c":{text}}}'.encode()]))
    return rows["c"][0].as_py(), errors[0].as_py()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int32(), "2147483647", 2147483647),
        (pa.int64(), '"12"', 12),
        (pa.int64(), "7.0", 7),
        (pa.int64(), "1e3", 1000),
        (pa.float64(), "0.1", 0.1),
        (pa.float64(), '"1.5"', 1.5),
        (pa.float64(), "9007199254740992", 2.0**53),
        (pa.float32(), "0.5", 0.5),
        (pa.string(), "1.50", "1.50"),
        (pa.string(), "true", "true"),
        (pa.string(), '"\\u00e9\\n"', "é\n"),
        (pa.bool_(), '"true"', True),
        (pa.decimal128(10, 2), "1.50", Decimal("1.50")),
        (pa.decimal128(10, 2), '"1.500"', Decimal("1.50")),
        (pa.decimal128(38, 18), LONG, Decimal(LONG)),
        (pa.date32(), "19724", dt.date(2024, 1, 2)),
        (pa.date32(), '"2024-01-02"', dt.date(2024, 1, 2)),
        (UTC_US, "1704164645000006", dt.datetime(2024, 1, 2, 3, 4, 5, 6, dt.UTC)),
        (UTC_US, '"2024-01-02T03:04:05.000006+01:00"', dt.datetime(2024, 1, 2, 2, 4, 5, 6, dt.UTC)),
        (UTC_US, '"2024-01-02 03:04:05"', dt.datetime(2024, 1, 2, 3, 4, 5, 0, dt.UTC)),
        (UTC_US, '"2024-01-02"', dt.datetime(2024, 1, 2, tzinfo=dt.UTC)),
        (pa.timestamp("ms"), '"2024-01-02T03:04:05.006"', dt.datetime(2024, 1, 2, 3, 4, 5, 6000)),
        (pa.time64("us"), '"03:04:05.5"', dt.time(3, 4, 5, 500000)),
        (pa.binary(), '"é"', "é".encode()),
        (pa.binary(3), '"abc"', b"abc"),
        (pa.list_(pa.int32()), "[1,null]", [1, None]),
        (pa.map_(pa.string(), pa.int32()), '{"a":1,"b":null}', [("a", 1), ("b", None)]),
        (pa.struct([("x", pa.int32()), ("y", UTC_US)]), '{"x":1,"other":[1]}', {"x": 1, "y": None}),
    ],
)  # fmt: skip
def test_takes_what_loses_nothing(kind: pa.DataType, text: str, value: Any) -> None:
    assert decode_one(kind, text) == (value, None)


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (pa.int32(), "2147483648", "does not fit 32 bits"),
        (pa.int64(), "9223372036854775808", "does not fit 64 bits"),
        (pa.int64(), "1e999999999", "does not fit 64 bits"),
        (pa.int64(), "1.5", "not a whole number"),
        (pa.int64(), "1.00000000000000000001", "not a whole number"),
        (pa.int64(), "true", "true or false where a whole number"),
        (pa.int64(), '"abc"', "'abc' is not a number"),
        (pa.float64(), "9007199254740993", "would lose digits in a double"),
        (pa.float64(), "0.123456789012345678", "would lose digits in a double"),
        (pa.float64(), "1e400", "out of a double's range"),
        (pa.float64(), "1e-400", "would lose digits"),
        (pa.float64(), "NaN", "not JSON"),
        (pa.float32(), "16777217", "would lose digits in a float"),
        (pa.float32(), "0.1234567891", "would lose digits in a float"),
        (pa.float32(), "1e39", "out of a float's range"),
        (pa.decimal128(10, 2), "1.234", "more than 2 digits after the point"),
        (pa.decimal128(10, 2), "123456789.00", "does not fit decimal(10,2)"),
        # digits that Arrow's own decimal reader reads from beside its table of powers
        (pa.decimal128(38, 18), "1e-211", "does not fit decimal(38,18)"),
        (pa.decimal128(38, 18), "11111111111111111111111111111111111111", "does not fit decimal(38,18)"),
        (pa.string(), '{"x":1}', "an object where a text"),
        (pa.string(), "[1]", "an array where a text"),
        (pa.string(), '"\\ud800"', "half of a surrogate pair"),
        (pa.date32(), '"2024-02-30"', "not a date"),
        (pa.date32(), '"2024-01-02T00:00:00"', "neither an ISO date"),
        (UTC_US, '"2024-01-02T03:04:05.1234567"', "more digits than us"),
        (UTC_US, "1704164645.5", "neither an ISO timestamp"),
        (pa.timestamp("us"), '"2024-01-02T03:04:05Z"', "has a zone"),
        (pa.time32("ms"), "86400000", "not within a day"),
        (pa.binary(3), '"abcd"', "4 bytes where 3"),
        (pa.list_(pa.field("element", pa.int32(), nullable=False)), "[1,null]", "null in an array"),
        (pa.list_(pa.int32()), "{}", "an object where an array"),
        (pa.struct([pa.field("x", pa.int32(), nullable=False)]), "{}", "field c: field x is missing"),
        (pa.map_(pa.string(), pa.int32()), '{"a":1,"a":2}', "key a is given twice"),
    ],
)
def test_refuses_what_would_change(kind: pa.DataType, text: str, reason: str) -> None:
    value, error = decode_one(kind, text)
    assert value is None
    assert error is not None
    assert reason in error


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "the value is empty"),
        (b" \n", "the value is empty"),
        (b"null", "not a JSON object"),  # on its own line it would end the process in Arrow's reader
        (b"[1]", "not a JSON object"),
        (b'{"a":1', "not JSON"),
        (b'{"a":01}', "not JSON"),
        (b"{'a':1}", "not JSON"),
        (b'{"a":1,}', "not JSON"),
        (b'{"a":1} x', "trailing content"),
        (b'{"a":1}{"a":2}', "trailing content"),
        (b'{"a":1} null {"a":2}', "trailing content"),
        (b'{"a":1}\n{"a":2}', "trailing content"),
        (b'{"a":1},', "trailing content"),
        (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
        (b'{"a":1,"b":"\xff"}', "not UTF-8: byte 12 is 0xff"),
        (b'{"zz":"\xff","a":1}', "not UTF-8"),
        (b'{"a":1,"a":2}', "field a is given twice"),
        (b'{"a":1,"\\u0061":2}', "field a is given twice"),
        (b'{"a":1,"zz":Infinity}', "not JSON"),
        (b'{"a":1,"b":"x\ty"}', "not JSON"),
        (b'{"b":"x"}', "field a is missing"),
        (b'{"a":null}', "field a is null"),
        (None, "the value is null"),
    ],
)
def test_says_what_is_wrong_with_a_record(record: bytes | None, reason: str) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
    good = [b'{"a":%d}' % i for i in range(5)]
    rows, errors = JsonDecoder(schema).decode(pa.array([*good, record, *good], pa.binary()))
    assert reason in errors[5].as_py()
    assert errors.null_count == 10
    assert rows["a"].to_pylist() == [0, 1, 2, 3, 4, None, 0, 1, 2, 3, 4]


def test_takes_pretty_printed_and_crlf_records() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    rows, errors = JsonDecoder(schema).decode(
        pa.array([b'{\n  "a": 1,\n  "b": "x } y"\n}', b'{"a":2}\r', b'\t{"a":3}\n', b'{"a":4,"zz":{"q":[{}]}}'])
    )
    assert errors.null_count == 4
    assert rows["a"].to_pylist() == [1, 2, 3, 4]


def test_a_default_fills_a_missing_field_but_not_a_null() -> None:
    schema = pa.schema([pa.field("a", pa.string(), nullable=False), pa.field("b", pa.int32())])
    decoder = JsonDecoder(schema, {"a": Facts("dflt"), "b": Facts(7)})
    records = [b'{"a":"x","b":1}', b'{"b":2}', b'{"a":"y"}', b'{"a":null}', b'{"a":"z","b":null}']
    rows, errors = decoder.decode(pa.array(records))
    assert rows["a"].to_pylist() == ["x", "dflt", "y", None, "z"]
    assert rows["b"].to_pylist() == [1, 2, 7, None, None]
    assert [e is None for e in errors.to_pylist()] == [True, True, True, False, True]


def test_deep_nesting_in_a_field_nobody_reads_is_no_danger() -> None:
    schema = pa.schema([("a", pa.int64())])
    deep = b'{"a":1,"zz":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    rows, errors = JsonDecoder(schema).decode(pa.array([deep, deep + b"x"]))
    assert rows["a"].to_pylist() == [1, None]
    assert errors[1].as_py() is not None


@pytest.mark.parametrize(
    "form", ['{"id":"k%d","n":%d,"t":1704164645000000,"d":0.5}', '{"id":"k%d","n":%d.0,"t":"2024-01-02T03:04:05Z","d":1}',
             '{"id":"k%d","n":"%d","t":"2024-01-02","d":"1"}']
)  # fmt: skip
def test_a_steady_stream_takes_the_fast_path(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever form a stream writes numbers and times in (but numbers in quotes for a double)."""
    schema = pa.schema([("id", pa.string()), ("n", pa.int32()), ("t", UTC_US)])
    strict: list[int] = []
    original = JsonDecoder._strictly

    def spy(self: JsonDecoder, texts: pa.Array, rows: json_decoder.Rows, outcome: json_decoder._Outcome) -> None:
        strict.extend(rows.tolist())
        original(self, texts, rows, outcome)

    monkeypatch.setattr(JsonDecoder, "_strictly", spy)
    rows, errors = JsonDecoder(schema).decode(pa.array([(form % (i, i)).encode() for i in range(1000)]))
    assert errors.null_count == 1000
    assert rows["n"].to_pylist() == list(range(1000))
    assert strict == []


def test_one_bad_record_sends_few_others_to_the_strict_path(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("n", pa.int32())])
    strict: list[int] = []
    original = JsonDecoder._strictly

    def spy(self: JsonDecoder, texts: pa.Array, rows: json_decoder.Rows, outcome: json_decoder._Outcome) -> None:
        strict.extend(rows.tolist())
        original(self, texts, rows, outcome)

    monkeypatch.setattr(JsonDecoder, "_strictly", spy)
    records = [b'{"n":%d}' % i for i in range(10_000)]
    records[7_777] = b'{"n":x}'
    rows, errors = JsonDecoder(schema).decode(pa.array(records))
    assert errors.null_count == 9_999
    assert rows["n"].to_pylist() == [i if i != 7_777 else None for i in range(10_000)]
    assert len(strict) <= 32
