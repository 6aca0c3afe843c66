"""docs/guide/records.md says what the decoder does: every row of its table is decoded, and more rows of that form."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import re
from typing import Any

import pyarrow as pa
import pytest

from tagstream.streaming.options.cli import load_options
from tagstream.streaming.options.registry import REGISTRY
from tagstream.streaming.source.decode.json_decoder import JsonDecoder
from tagstream.streaming.source.decode.record_format import DecodeRules, avro_facts
from tagstream.table.schema.schema import avro_to_arrow
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "guide" / "records.md").read_text("utf-8")
# Examples that the page leaves out.
MORE = (ROOT / "tests" / "fixtures" / "json_types.txt").read_text("utf-8")


def examples() -> list[list[str]]:
    """Rows of the page's table and further ones: Avro type, JSON, what becomes of it, option."""
    table = PAGE.partition("| Avro type |")[2].partition("\n\n")[0].splitlines()[2:]
    table += MORE.splitlines()
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]


def rules(option: str) -> DecodeRules:
    """Through the command line, so that the options of the page are the job's."""
    argv = ["--target-base-path", "/t", "--checkpoint-dir", "/c", "--bootstrap-only"]
    if option:
        argv += ["--hoodie-conf", f"tagstream.decode.{option}"]
    return load_options(argv).decode


def shown(value: Any) -> str:
    """A decoded value as the page writes it."""
    match value:
        case bytes():
            return "0x" + value.hex()
        case float() if math.isnan(value) or math.isinf(value):
            return json.dumps(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case decimal.Decimal() | str():
            return str(value)
    return json.dumps(value)


@pytest.mark.parametrize("row", examples(), ids=lambda row: " ".join(row[:2] + row[3:]))
def test_every_example_is_true(row: list[str]) -> None:
    avro, text, becomes, option = row[0].strip("`"), row[1].strip("`"), row[2], row[3].strip("`")
    schema = json.dumps({"type": "record", "name": "t", "fields": [{"name": "c", "type": json.loads(avro)}]})
    decoder = JsonDecoder(avro_to_arrow(schema), avro_facts(schema), rules(option))
    plain = b'{"c": ' + text.encode() + b"}"
    for records in ([plain], [plain] * 200):  # alone it may go the strict path, together the other
        rows, errors = decoder.decode(pa.array(records))
        error = errors[-1].as_py()
        if becomes.startswith("bad: "):
            wanted = becomes.removeprefix("bad: ")
            assert error is not None and wanted in error
        else:
            assert error is None
            assert shown(rows["c"].to_pylist(maps_as_pydicts="strict")[-1]) == becomes.strip("`")


def test_the_table_is_not_lost() -> None:
    assert len(examples()) > 50


def test_every_key_on_the_page_is_one() -> None:
    for name in set(re.findall(r"`(tagstream\.[\w.]+|hoodie\.[\w.]+)", PAGE)):
        assert REGISTRY.find(name) is not None, name
