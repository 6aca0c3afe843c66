"""The Avro reader on container files: types, bytes behind the records, damage, and schemas in the form that it reads."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tagstream.table.errors import ConfigError
from tagstream.table.file_group.avro_reader import (
    AvroReader,
    container_block,
    container_header,
    plain_schema,
    unions_of_types,
)


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": "v", "type": kind}]}


def binary(kind: Any, values: list[Any]) -> bytes:
    out = io.BytesIO()
    for value in values:
        fastavro.schemaless_writer(out, fastavro.parse_schema(record(kind)), {"v": value})
    return out.getvalue()


@pytest.mark.parametrize(
    ("kind", "values", "arrow"),
    [
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, ["B", "A"], pa.string()),
        ({"type": "fixed", "name": "f", "size": 2}, [b"ab"], pa.binary()),
        (["string"], ["x", ""], pa.string()),
        (["null"], [None, None], pa.int32()),
        (["long", "null"], [1, None], pa.int64()),
        ({"type": "map", "values": {"type": "fixed", "name": "f", "size": 1}}, [{"a": b"1"}],
         pa.map_(pa.string(), pa.binary())),
    ],
)  # fmt: skip
def test_types_and_values(kind: Any, values: list[Any], arrow: pa.DataType) -> None:
    header = container_header(plain_schema(record(kind)))
    reader = AvroReader()
    assert reader.types(header).field("v").type == arrow
    found = reader.read([header, *container_block(binary(kind, values), len(values))], len(values))
    assert found.type.field("v").type == arrow
    expected = [list(v.items()) if isinstance(v, dict) else v for v in values]
    assert found.field("v").to_pylist() == expected


def test_bytes_behind_the_records_and_missing_ones() -> None:
    header = container_header(plain_schema(record("string")))
    content = binary("string", ["a", "bc", "def"])
    reader = AvroReader()
    found = reader.read([header, *container_block(content + b"\0" * 9, 3)], 3)
    assert found.field("v").to_pylist() == ["a", "bc", "def"]
    for data, count in ((content[:-1], 3), (content, 4), (b"", 1), (content, 0), (b"\xff" * 20, 2)):
        with pytest.raises(ValueError, match="record"):
            reader.read([header, *container_block(data, count)], count)


def test_unions_of_several_types_are_named_with_their_paths() -> None:
    inner = {"type": "record", "name": "q", "fields": [{"name": "u", "type": ["null", "int", "string"]}]}
    avro = {"type": "array", "items": ["null", {"type": "map", "values": inner}]}
    assert list(unions_of_types(plain_schema(record(avro)), "r")) == ["r.v.u"]
    assert list(unions_of_types(plain_schema(record(["null", "int"])), "r")) == []


def test_a_type_that_contains_itself() -> None:
    node = {"type": "record", "name": "n", "fields": [{"name": "next", "type": ["null", "n"]}]}
    with pytest.raises(ConfigError, match="type n contains itself"):
        plain_schema(node)
