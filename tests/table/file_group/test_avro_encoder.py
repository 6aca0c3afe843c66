"""Rows encoded by column are byte for byte what the Avro library writes row by row."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.file_group.avro_encoder import encode_records
from tagstream.table.file_group.log_file import decode, encode
from tagstream.table.file_group.log_format import unscaled_bytes
from tagstream.table.schema.schema import arrow_to_avro, avro_to_arrow
from tests.table.file_group.avro_rows import SCHEMA, random_rows


def by_library(rows: pa.Table, avro: dict[str, Any]) -> list[bytes]:
    parsed, found = fastavro.parse_schema(avro), []
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        found.append(out.getvalue())
    return found


def by_column(rows: pa.Table, avro: dict[str, Any]) -> list[bytes]:
    return [record for part in encode_records(rows, avro) for record in part.to_pylist()]


def test_random_rows_of_every_kind_of_type() -> None:
    rows = random_rows(500, seed=1)
    avro = arrow_to_avro(SCHEMA, "t")
    for part in (rows, rows.slice(7, 100), pa.concat_tables([rows.slice(0, 3), rows.slice(3, 9)]), rows.slice(0, 0)):
        assert by_column(part, avro) == by_library(part, avro)


def test_logical_types_and_enums() -> None:
    fields: list[tuple[str, Any]] = [
        ("day", {"type": "int", "logicalType": "date"}),
        ("at", {"type": "long", "logicalType": "timestamp-micros"}),
        ("time", {"type": "long", "logicalType": "time-micros"}),
        ("kind", {"type": "enum", "name": "kind", "symbols": ["A", "B"]}),
        ("other", ["kind", "null"]),
    ]
    avro = {"type": "record", "name": "r", "namespace": "n", "fields": [{"name": n, "type": t} for n, t in fields]}
    rows = pa.Table.from_pylist(
        [
            {
                "day": dt.date(1969, 12, 31 - n), "at": dt.datetime(2026, 1, 1, n, tzinfo=dt.UTC), "time": dt.time(n),
                "kind": "AB"[n % 2], "other": ["A", None][n % 2],
            }
            for n in range(15)
        ],
        schema=avro_to_arrow(avro),
    )  # fmt: skip
    assert by_column(rows, avro) == by_library(rows, avro)
    text = json.dumps(avro)
    assert decode(encode(rows, text), text, "here").equals(rows)


def test_decimals_in_bytes_are_as_short_as_in_java() -> None:
    """The Avro library writes some with a superfluous byte."""
    unscaled = [0, 1, -1, 127, 128, -128, -129, 2**63, -(2**63), 10**38 - 1, -(10**38 - 1), 255, 256, -256, -257]
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    avro = {"type": "record", "name": "r", "fields": [{"name": "v", "type": kind}]}
    exact = decimal.Context(prec=38)
    values = [decimal.Decimal(number).scaleb(-2, exact) for number in unscaled]
    found = by_column(pa.table({"v": pa.array(values, pa.decimal128(38, 2))}), avro)
    assert found == [bytes([2 * len(unscaled_bytes(n))]) + unscaled_bytes(n) for n in unscaled]


@pytest.mark.parametrize(
    ("kind", "found", "words"),
    [
        ("long", pa.array([1, None]), "a null, and its schema allows none"),
        (["null", "long", "string"], pa.array([1]), "a union of 3 types"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.array(["A", "C"]), "'C', which is not one of its enum's"),
        ({"type": "fixed", "name": "f", "size": 3}, pa.array([b"ab"], pa.binary(2)), "for a fixed of 3 bytes"),
        ("no.such", pa.array([1]), "which its schema does not define"),
        ("string", pa.array([1]), "for the Avro type string"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_named(kind: Any, found: pa.Array, words: str) -> None:
    avro = {"type": "record", "name": "r", "fields": [{"name": "v", "type": kind}]}
    with pytest.raises(UnsupportedTableError, match="column 'v'") as e:
        by_column(pa.table({"v": found}), avro)
    assert words in str(e.value)
