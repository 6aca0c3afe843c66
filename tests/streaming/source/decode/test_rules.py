"""The decoder's options, on both of its paths, against oracles of the standard library and of fastavro."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import struct
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.streaming.source.decode import json_decoder
from tagstream.streaming.source.decode.arrow_columns import latin1_bytes
from tagstream.streaming.source.decode.json_decoder import JsonDecoder
from tagstream.streaming.source.decode.record_format import ITEM, DecodeRules, Facts, avro_facts
from tagstream.table.schema.schema import avro_to_arrow

ROUND = DecodeRules(round_numbers=True)
TRUNCATE = DecodeRules(truncate_times=True)
COUNT = 64  # records together, so that they go the path of whole blocks


def decode(kind: pa.DataType, texts: list[str], rules: DecodeRules, facts: Facts | None = None) -> list[Any]:
    """Values, an error's text as a ValueError; each record decoded alone and together with others, with one outcome."""
    decoder = JsonDecoder(pa.schema([("c", kind)]), {"c": facts} if facts else {}, rules)
    records = [f'{{"c":{text}}}'.encode() for text in texts]
    rows, errors = decoder.decode(pa.array(records * (COUNT // len(records) + 1)))
    combined = outcome(rows, errors)[: len(texts)]
    alone = [outcome(*decoder.decode(pa.array([record])))[0] for record in records]
    assert [str(a) for a in combined] == [str(a) for a in alone]
    return combined


def outcome(rows: pa.Table, errors: pa.Array) -> list[Any]:
    return [v if e is None else ValueError(e) for v, e in zip(rows["c"].to_pylist(), errors.to_pylist(), strict=True)]


numbers = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, places=25, min_value=-(10**12), max_value=10**12).map(str),
    st.integers(-(10**40), 10**40).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.tuples(st.integers(-(10**20), 10**20), st.integers(-330, 330)).map(lambda x: f"{x[0]}e{x[1]}"),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=8))
def test_doubles_are_rounded_to_the_nearest(texts: list[str]) -> None:
    for text, value in zip(texts, decode(pa.float64(), texts, ROUND), strict=True):
        wanted = json.loads(text)
        wanted = float(text) if isinstance(wanted, int) else wanted
        if math.isinf(wanted):
            assert isinstance(value, ValueError)
        else:
            assert value == wanted, text


@settings(max_examples=200, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=8))
def test_floats_are_rounded(texts: list[str]) -> None:
    for text, value in zip(texts, decode(pa.float32(), texts, ROUND), strict=True):
        try:
            wanted = struct.unpack("<f", struct.pack("<f", float(text)))[0]
        except OverflowError:
            wanted = math.inf
        assert isinstance(value, ValueError) if math.isinf(wanted) else value == wanted, text


@settings(max_examples=300, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=8), st.sampled_from([(5, 2), (18, 0), (38, 10), (38, 38)]))
def test_decimals_are_rounded_half_up(texts: list[str], size: tuple[int, int]) -> None:
    precision, scale = size
    for text, value in zip(texts, decode(pa.decimal128(precision, scale), texts, ROUND), strict=True):
        exact = Fraction(Decimal(text)) if abs(Decimal(text).adjusted()) < 400 else Fraction(0)
        unscaled = int((abs(exact) * 10**scale * 2 + 1) // 2) * (1 if exact >= 0 else -1)
        if abs(unscaled) >= 10**precision or abs(exact) >= 10 ** (precision - scale):
            assert isinstance(value, ValueError), (text, value)
        else:
            assert value == Decimal(unscaled).scaleb(-scale), text


def test_halves_go_away_from_zero() -> None:
    texts = ["0.005", "-0.005", "0.015", "2.675", "999.994"]
    assert decode(pa.decimal128(5, 2), texts, ROUND) == [
        Decimal(t).quantize(Decimal("0.01"), ROUND_HALF_UP) for t in texts
    ]
    assert isinstance(decode(pa.decimal128(5, 2), ["999.995"], ROUND)[0], ValueError)


@settings(max_examples=200, deadline=None)
@given(
    st.datetimes(min_value=dt.datetime(1, 1, 2), max_value=dt.datetime(9999, 12, 30)),
    st.text("0123456789", min_size=1, max_size=12),
    st.sampled_from(["", "Z", "+01:30", "-11:00"]),
    st.sampled_from(["ms", "us"]),
)
def test_times_are_cut_off(moment: dt.datetime, digits: str, zone: str, unit: str) -> None:
    keep = {"ms": 3, "us": 6}[unit]
    text = f"{moment:%H:%M:%S}.{digits}{zone}"
    (value,) = decode(pa.timestamp(unit, tz="UTC"), [f'"{moment.date().isoformat()}T{text}"'], TRUNCATE)
    wanted = dt.datetime.fromisoformat(f"{moment.date().isoformat()}T{moment:%H:%M:%S}{zone or '+00:00'}")
    wanted += dt.timedelta(microseconds=int(digits[:keep].ljust(6, "0")))
    assert value == wanted


@settings(max_examples=100, deadline=None)
@given(st.dates(), st.times(), st.sampled_from(["", "Z", "+14:00"]), st.sampled_from(["T", " "]))
def test_the_time_of_a_date_is_cut_off(day: dt.date, time: dt.time, zone: str, between: str) -> None:
    text = f'"{day.isoformat()}{between}{time:%H:%M:%S}.123456789{zone}"'
    assert decode(pa.date32(), [text], TRUNCATE) == [day]
    assert isinstance(decode(pa.date32(), [text], DecodeRules())[0], ValueError)


@pytest.mark.parametrize(
    "text", ["2024-01-02T24:00", "2024-01-02T10:61", "2024-02-30T10:00", "2024-01-02x", "0000-01-01T10:00"]
)
def test_what_is_no_time_of_day_is_bad_all_the_same(text: str) -> None:
    assert isinstance(decode(pa.date32(), [f'"{text}"'], TRUNCATE)[0], ValueError)


def test_times_of_day_are_cut_off() -> None:
    assert decode(pa.time32("ms"), ['"10:00:00.1239"'], TRUNCATE) == [dt.time(10, 0, 0, 123000)]


def test_nan_and_infinities() -> None:
    quoted = ['"NaN"', '"Infinity"', '"-Infinity"']
    bare = ["NaN", "Infinity", "-Infinity"]
    for kind in (pa.float64(), pa.float32()):
        assert [str(v) for v in decode(kind, quoted, DecodeRules())] == ["nan", "inf", "-inf"]
        assert [str(v) for v in decode(kind, bare, DecodeRules(bare_nan=True))] == ["nan", "inf", "-inf"]
        assert all(isinstance(v, ValueError) for v in decode(kind, bare, DecodeRules()))
    for kind in (pa.int64(), pa.decimal128(5, 2), pa.date32()):
        assert all(isinstance(v, ValueError) for v in decode(kind, quoted + bare, DecodeRules(bare_nan=True)))
    assert isinstance(decode(pa.float64(), ['"nan"'], DecodeRules())[0], ValueError)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=20)), min_size=1, max_size=20))
def test_bytes_as_avro_writes_them(values: list[bytes | None]) -> None:
    schema = {"type": "record", "name": "t", "fields": [{"name": "c", "type": ["null", "bytes"]}]}
    out = io.StringIO()
    fastavro.json_writer(out, schema, [{"c": v} for v in values])
    records = [json.loads(line)["c"] for line in out.getvalue().splitlines()]
    texts = [json.dumps(None if r is None else r["bytes"], ensure_ascii=False) for r in records]
    assert decode(pa.binary(), texts, DecodeRules(latin1_bytes=True)) == values


def test_a_character_that_is_no_byte() -> None:
    array, doubt = latin1_bytes(pa.array(["a", "é€", "", None, "ÿ", "é"]).cast(pa.binary()))
    assert doubt is not None
    assert doubt.tolist() == [False, True, False, False, False, False]
    assert [array[i].as_py() for i in (0, 2, 3, 4, 5)] == [b"a", b"", None, b"\xff", b"\xe9"]
    (value,) = decode(pa.binary(), ['"€"'], DecodeRules(latin1_bytes=True))
    assert "character U+20AC" in str(value)


NESTED = json.dumps(
    {
        "type": "record",
        "name": "t",
        "fields": [
            {"name": "id", "type": "string"},
            {
                "name": "r",
                "type": {
                    "type": "record",
                    "name": "r",
                    "fields": [
                        {"name": "w", "type": "string"},
                        {"name": "q", "type": "int", "default": 7},
                        {"name": "n", "type": ["int", "null"], "default": 8},
                        {
                            "name": "deep",
                            "type": {
                                "type": "record",
                                "name": "d",
                                "fields": [{"name": "x", "type": "long", "default": 9}],
                            },
                            "default": {},
                        },
                    ],
                },
            },
            {"name": "l", "type": {"type": "array", "items": "r"}, "default": []},
            {"name": "m", "type": ["null", {"type": "map", "values": "d"}], "default": None},
        ],
    }
)


def test_defaults_of_nested_fields() -> None:
    schema = avro_to_arrow(NESTED)
    decoder = JsonDecoder(schema, avro_facts(NESTED))
    full = {"w": "z", "q": 7, "n": 8, "deep": {"x": 9}}
    cases = [
        ({"r": {"w": "z"}}, {"r": full, "l": []}),
        ({"r": {"w": "z", "n": None, "q": 1}}, {"r": full | {"n": None, "q": 1}, "l": []}),
        ({"r": {"w": "z"}, "l": [{"w": "a"}, {"w": "b", "q": 2}]},
         {"r": full, "l": [full | {"w": "a"}, full | {"w": "b", "q": 2}]}),
        ({"r": full, "m": {"k": {}}}, {"r": full, "l": [], "m": [("k", {"x": 9})]}),
    ]  # fmt: skip
    records = [json.dumps({"id": "a", **given}).encode() for given, _ in cases]
    rows, errors = decoder.decode(pa.array(records * 20))
    assert errors.null_count == len(errors)
    for i, (_, wanted) in enumerate(cases):
        assert rows.slice(i, 1).to_pylist()[0] == {"id": "a", "m": None, **wanted}
    _, errors = decoder.decode(pa.array([b'{"id":"a","r":{"q":null,"w":"z"}}', b'{"id":"a","r":{}}']))
    assert errors.to_pylist() == [
        "field r: field q is null, which the schema forbids",
        "field r: field w is missing, and the schema has no default",
    ]


def test_facts_of_every_depth() -> None:
    facts = avro_facts(NESTED)
    assert facts["r"].children["q"].default == 7
    assert facts["l"].children[ITEM].children["q"].default == 7
    assert facts["m"].children[ITEM].children["x"].default == 9
    named = {"type": "enum", "name": "e", "namespace": "a.b", "symbols": ["X"]}
    two = {
        "type": "record",
        "name": "t",
        "fields": [{"name": "a", "type": named}, {"name": "b", "type": ["null", "a.b.e"]}],
    }
    assert avro_facts(json.dumps(two))["b"].symbols == ("X",)
    uuid = {"type": "string", "logicalType": "uuid"}
    assert avro_facts(json.dumps({"fields": [{"name": "u", "type": ["null", uuid]}], "type": "record", "name": "t"}))[
        "u"
    ].is_uuid


@pytest.mark.parametrize(
    ("kind", "text", "rules", "facts"),
    [
        (pa.float64(), "3.141592653589793238", ROUND, None),
        (pa.float64(), "9007199254740993", ROUND, None),
        (pa.float32(), "16777217", ROUND, None),
        (pa.decimal128(10, 2), "1.005", ROUND, None),
        (pa.timestamp("ms", tz="UTC"), '"2024-01-02T10:00:00.123456Z"', TRUNCATE, None),
        (pa.date32(), '"2024-01-02T10:00:00Z"', TRUNCATE, None),
        (pa.binary(), '"\\u00ff"', DecodeRules(latin1_bytes=True), None),
        (pa.string(), '"A"', DecodeRules(), Facts(symbols=("A", "B"))),
        (pa.string(), '"123e4567-e89b-12d3-a456-426614174000"', DecodeRules(), Facts(is_uuid=True)),
    ],
)
def test_no_record_is_looked_at_alone(
    kind: pa.DataType, text: str, rules: DecodeRules, facts: Facts | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an option allows stays on the path of whole blocks, but for the records that it learns the forms from."""
    decoder = JsonDecoder(pa.schema([("c", kind)]), {"c": facts} if facts else {}, rules)
    records = pa.array([f'{{"c":{text}}}'.encode()] * 5_000)
    decoder.decode(records)

    def strict(*_: object) -> Any:
        raise AssertionError("a record took the strict path")

    monkeypatch.setattr(json_decoder.RecordDecoder, "decode", strict)
    _, errors = decoder.decode(records)
    assert errors.null_count == 5_000
