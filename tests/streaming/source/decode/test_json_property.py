"""The decoder against a second implementation, over batches that mix good, odd and broken records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.streaming.source.decode import json_decoder
from tagstream.streaming.source.decode.json_decoder import JsonDecoder
from tests.streaming import json_oracle

# date32 and timestamps are compared as numbers: Python's own dates end at the year 9999.
UTC_US = pa.timestamp("us", tz="UTC")
TYPES = [
    pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.decimal128(10, 2), pa.decimal128(38, 18),
    UTC_US, pa.timestamp("ms"), pa.date32(), pa.list_(pa.int32()), pa.list_(pa.field("element", pa.string(), False)),
    pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.string(), nullable=False)]),
]  # fmt: skip

TEXTS = st.sampled_from([
    "2024-01-02", "2024-01-02T03:04:05", "2024-01-02 03:04:05.123456Z", "2024-02-30", "0000-01-01", "2024-01-02T24:00",
    "9999-12-31T23:59:59.999999+14:00", "2024-01-02T03:04:05.1200000", "2024-01-02T03:04:05.1234567",
    "2024-01-02T03:04+25:00", "2024-01-02T23:59:60Z", "2024-01-02T03:04:05.5-05:30", "true", "", "abc", "é日本", "NaN",
    "x } y", "} null {", '\\"', "\\u0000", "\\ud800", "\\ud83d\\ude00", "\\n", "\t", "12", "-1.50", "007", "1e3", " 1",
    "-Infinity",
])  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.integers(-100, 100).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-(10**10), 10**10, places=3).map(str),
    st.sampled_from([
        "1.0", "-0", "0e5", "1e22", "1e23", "1e400", "1e-400", "5e-324", "1e-310", "9007199254740993", "1e-211",
        "9007199254740992", "2147483648", "0.10000000000000000001", "1.00000000000000000001", "01", "1.", ".5", "+1",
        "NaN", "Infinity", "-Infinity", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e999999",
    ]),
)  # fmt: skip


def fitting(kind: pa.DataType) -> st.SearchStrategy[str]:
    """JSON text that a column of this type takes, so that batches get through to Arrow's reader."""
    t = pa.types
    if t.is_struct(kind):
        return st.builds('{{"x":{},"y":"{}"}}'.format, st.integers(-9, 9), st.sampled_from("abc"))
    if t.is_list(kind):
        return st.lists(fitting(kind.value_type), max_size=3).map(lambda items: f"[{','.join(items)}]")
    if t.is_boolean(kind):
        return st.sampled_from(["true", "false"])
    if t.is_string(kind):
        return st.sampled_from(['"a"', '"b }"', '"é"', '""'])
    if t.is_floating(kind):
        return st.floats(-1e9, 1e9).map(repr)
    if t.is_decimal(kind):
        return st.decimals(-1000, 1000, places=2).map(str)
    whole = st.integers(-(10**6), 10**6)
    return st.one_of(whole.map(str), whole.map(str), whole.map("{}.0".format), whole.map('"{}"'.format))


@st.composite
def records(draw: Any, schema: pa.Schema, broken: bool) -> bytes | None:
    """One record; when ``broken``, odd values and broken text are as likely as good ones."""
    parts = []
    for field in schema:
        odd = st.one_of(NUMBERS, TEXTS.map('"{}"'.format), st.sampled_from(["null", "[]", "{}", "[1,null]", "true"]))
        parts.append(f'"{field.name}":{draw(st.one_of(fitting(field.type), odd) if broken else fitting(field.type))}')
    if broken and draw(st.booleans()):
        extras = ['"zz":NaN', '"zz":{"a":[1,{}]}', '"zz":1,"zz":2', '"\\u0061":1', '"b":null', '"zz":"\\ud800"']
        parts.append(draw(st.sampled_from(extras)))
    text = "{" + ",".join(parts) + "}"
    if not broken or draw(st.booleans()):
        return text.encode("utf-8", "surrogatepass")
    at = draw(st.integers(0, len(text)))
    return draw(st.sampled_from([
        None, b"", b"null", b"[]", b"1", b"\n", b"\xff", text[:at].encode(), (text[:at] + text[at + 1 :]).encode(),
        (text + text).encode(), (text + " null " + text).encode(), (text + "\n" + text).encode(), (text + ",").encode(),
        (" " + text + "\r\n").encode(), ("\ufeff" + text).encode(), (text[:at] + "\n" + text[at:]).encode(),
        (text[:-1] + "}} ").encode(), text.encode().replace(b'"', b"\xff", 1), (text[:at] + "\x00" + text[at:]).encode(),
    ]))  # fmt: skip


@st.composite
def batches(draw: Any) -> tuple[pa.Schema, list[bytes | None]]:
    """A schema and a batch for it."""
    kinds = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
    names = "abcd"
    schema = pa.schema([pa.field(names[i], kind, nullable=draw(st.booleans())) for i, kind in enumerate(kinds)])
    good = st.lists(records(schema, broken=False), max_size=12)
    return schema, draw(st.permutations(draw(good) + draw(st.lists(records(schema, broken=True), max_size=4))))


def plain(value: Any) -> Any:
    """A decoded value in the oracle's form."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return repr(value) if isinstance(value, float) else value


def columns(table: pa.Table) -> dict[str, list[Any]]:
    """Columns as Python values; dates, times and decimals as the whole numbers they are stored as."""
    out = {}
    for field in table.schema:
        column = table.column(field.name).combine_chunks()
        if pa.types.is_timestamp(field.type):
            column = column.cast(pa.int64())
        elif pa.types.is_date32(field.type):
            column = column.cast(pa.int32())
        values = column.to_pylist()
        if pa.types.is_decimal(field.type):
            values = [None if v is None else int(v.scaleb(field.type.scale)) for v in values]
        out[field.name] = values
    return out


@settings(max_examples=150, deadline=None)
@given(batches())
def test_decodes_as_a_second_implementation_does(case: tuple[pa.Schema, list[bytes | None]]) -> None:
    schema, batch = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_decoder, "_SMALL", 1)  # small batches are halved too
        table, errors = JsonDecoder(schema).decode(pa.array(batch, pa.binary()))
    table.validate(full=True)
    found = columns(table)
    for i, raw in enumerate(batch):
        expected = json_oracle.decode(raw, schema)
        reason = errors[i].as_py()
        if expected == json_oracle.BAD:
            assert reason, (raw, "was taken")
            assert all(found[name][i] is None for name in schema.names)
        else:
            assert reason is None, (raw, reason)
            assert {name: plain(found[name][i]) for name in schema.names} == plain(expected), raw


@settings(max_examples=30, deadline=None)
@given(batches(), batches())
def test_a_records_outcome_does_not_depend_on_its_neighbours(
    case: tuple[pa.Schema, list[bytes | None]], other: tuple[pa.Schema, list[bytes | None]]
) -> None:
    schema, batch = case
    combined, errors = JsonDecoder(schema).decode(pa.array(batch + other[1], pa.binary()))
    for i, raw in enumerate(batch):
        alone, error = JsonDecoder(schema).decode(pa.array([raw], pa.binary()))
        assert error[0].as_py() == errors[i].as_py()
        assert repr(columns(alone)) == repr(columns(combined.slice(i, 1)))
