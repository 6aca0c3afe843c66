"""Canal sends every value of a row as a text: what each type of column makes of MySQL's texts, and of null."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from tagstream.streaming.source.decode.make_format import FormatRules
from tests.streaming.source.decode.decoding import decoder
from tests.support import cdc


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


MOMENT = datetime(2024, 2, 29, 10, 11, 12)
CASES: list[tuple[Any, str, Any]] = [
    ("int", "-12", -12), ("long", "9007199254740993", 9007199254740993), ("double", "1.5", 1.5), ("float", "-0.25", -0.25),
    ("boolean", "1", True), ("string", "ä", "ä"), ("bytes", "a\u00ff", b"a\xff"),
    (logical("bytes", "decimal", precision=12, scale=3), "-12.125", Decimal("-12.125")),
    (logical("int", "date"), "2024-02-29", date(2024, 2, 29)),
    (logical("long", "timestamp-micros"), "2024-02-29 10:11:12", MOMENT.replace(tzinfo=UTC)),
    (logical("long", "local-timestamp-millis"), "2024-02-29 10:11:12.5", MOMENT.replace(microsecond=500_000)),
    (logical("long", "time-micros"), "01:02:03.000004", time(1, 2, 3, 4)),
    (logical("int", "time-millis"), "23:59:59", time(23, 59, 59)),
]  # fmt: skip


def event(kind: Any, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    fields = [{"name": "id", "type": "int"}, {"name": "v", "type": ["null", kind], "default": None}]
    decode = decoder({"type": "record", "name": "r", "fields": fields}, ["id"], [], FormatRules("canal-json"))
    message = {"database": "d", "table": "t", "type": "INSERT", "isDdl": False, "data": rows, "old": None}
    found: list[dict[str, Any]] = decode.keys(
        cdc.raw_batch([cdc.Message(0, 1, b"1", json.dumps(message).encode(), {})])
    ).to_pylist()
    return found


@pytest.mark.parametrize(("kind", "text", "value"), CASES)
def test_a_text_of_each_type_and_null(kind: Any, text: str, value: Any) -> None:
    """A null is good in a column of every type."""
    found = event(kind, {"id": "1", "v": text}, {"id": "2", "v": None}, {"id": "3"})
    assert [e["reason"] for e in found] == [None, None, None]
    assert [e["row"]["v"] for e in found] == [value, None, None]


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (logical("long", "time-micros"), "25:00:00", "field v: '25:00:00' is not a time of day"),
        (logical("int", "date"), "0000-00-00", "field v: 0000-00-00 does not fit date32"),
        ("int", "x", "field v: x does not fit int32"),
        ({"type": "array", "items": "int"}, "[1]", "field v"),
    ],
)
def test_a_text_that_does_not_fit_is_named_and_a_null_is_not(kind: Any, text: str, words: str) -> None:
    bad, null = event(kind, {"id": "1", "v": text}, {"id": "2", "v": None})
    assert words in bad["reason"]
    assert (null["reason"], null["row"]["v"]) == (None, None)
