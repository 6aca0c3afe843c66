"""Delete records: read from real bytes, written as real Hudi writes them."""

from __future__ import annotations

import io
import json
from decimal import Context, Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.fields import tuples
from tagstream.table.file_group import delete_block, ordering_wrapper
from tagstream.table.file_group.delete_block import decode, delete_blocks, encode_content
from tagstream.table.file_group.log_format import I32, decode_header, prefixed, zigzag, zigzags
from tests.support import paths

VECTORS: dict[str, Any] = json.loads((paths.VECTORS / "log-blocks.json").read_text())["files"]
INSTANT = "20250101000000002"


def content_of(name: str) -> bytes:
    return content_of_block(bytes.fromhex(VECTORS[name]["hex"]))


def content_of_block(block: bytes) -> bytes:
    """Bytes behind the header: magic, size, version, type and header before, their length in front."""
    start = decode_header(block, 22)[1]
    return block[start + 8 : start + 8 + int.from_bytes(block[start : start + 8], "big")]


def test_wrappers_of_a_mixed_block() -> None:
    with pytest.raises(UnsupportedTableError, match="mixes ordering types"):
        decode(content_of("delete"), "a vector")
    records = decode(content_of("delete"), "a vector", pa.int64())
    assert records.keys.to_pylist() == [f"k{i}" for i in range(9)]
    assert records.partition_paths.to_pylist() == ["p=1", "p=1", "", "", "", "", "", "", ""]
    assert records.orderings is not None and records.orderings.to_pylist()[:4] == [7, None, 5, None]
    assert records.natural.to_pylist() == [False, True, False, True, True, True, True, True, True]
    assert len(records) == 9


@pytest.mark.parametrize(
    ("arrow", "row", "value"),
    [
        (pa.float64(), 3, 1.5),
        (pa.string(), 4, "zz"),
        (pa.timestamp("us", tz="UTC"), 5, 1704164645000006),
        (pa.date32(), 6, 19724),
        (pa.decimal128(12, 2), 7, Decimal("12.34")),
        (pa.float32(), 8, 1.5),
    ],
)
def test_every_wrapper_is_read_in_the_columns_type(arrow: pa.DataType, row: int, value: Any) -> None:
    orderings = decode(content_of("delete"), "a vector", arrow).orderings
    assert orderings is not None and orderings.type == arrow
    assert orderings[row] == pa.scalar(value, arrow)


def test_natural_deletes_of_a_real_table() -> None:
    data = bytes.fromhex(VECTORS["real_v6_delete_sql"]["hex"])
    expected = VECTORS["real_v6_delete_sql"]["records"]
    schema = VECTORS["real_v6_delete_sql"]["header"]["SCHEMA"]
    keys = pa.array([record["recordKey"] for record in expected])
    (block,) = delete_blocks(
        keys, expected[0]["partitionPath"], None, VECTORS["real_v6_delete_sql"]["header"]["INSTANT_TIME"], schema
    )
    assert block == data
    records = decode(content_of("real_v6_delete_sql"), "a vector")
    assert records.keys.to_pylist() == keys.to_pylist()
    assert records.orderings is None and records.natural.to_pylist() == [True] * len(keys)


ORDERINGS: list[tuple[pa.Array, str]] = [
    (pa.array([7], pa.int64()), "060e"),
    (pa.array([5], pa.int32()), "040a"),
    (pa.array([1.5], pa.float64()), "0a000000000000f83f"),
    (pa.array(["zz"]), "0e047a7a"),
    (pa.array([19724], pa.date32()), "1098b402"),
    (pa.array([Decimal("12.34")], pa.decimal128(10, 2)), "120e2bd72a24874000"),
    (pa.array([1.5], pa.float32()), "080000c03f"),
    (pa.array([True]), "0201"),
    (pa.array([b"\x01"], pa.binary()), "0c0201"),
    # timestamps are the plain numbers Avro holds
    (pa.array([1704164645000006], pa.timestamp("us", tz="UTC")), "068ccdee84b8fb8606"),
]


@pytest.mark.parametrize(("orderings", "expected"), ORDERINGS, ids=lambda v: str(getattr(v, "type", v)))
def test_ordering_values_are_written_as_hudi_does(orderings: pa.Array, expected: str) -> None:
    branch, values = ordering_wrapper.encode(orderings)
    content = encode_content(pa.array(["k0"]), "p=1", branch, values)
    body = bytes.fromhex("02" + "02046b30" + "0206703d31" + expected + "00")
    assert content == I32.pack(3) + I32.pack(len(body)) + body
    if len(expected) < 20 and not pa.types.is_timestamp(orderings.type):
        assert bytes.fromhex(expected) in content_of("delete") or branch in (1, 6)
    back = decode(content, "a test", orderings.type)
    assert back.orderings is not None and back.orderings.equals(orderings) and back.natural.to_pylist() == [False]


def test_a_whole_block_is_that_of_hudi() -> None:
    """The header of the vector's block with one of its records, by hand."""
    real = bytes.fromhex(VECTORS["delete"]["hex"])
    schema = VECTORS["delete"]["header"]["SCHEMA"]
    (block,) = delete_blocks(pa.array(["k0"]), "p=1", pa.array([7]), INSTANT, schema)
    start = VECTORS["delete"]["content_offset"]
    body = bytes.fromhex("0202046b300206703d31060e00")
    content = I32.pack(3) + I32.pack(len(body)) + body
    size = VECTORS["delete"]["block_size_field"] - VECTORS["delete"]["content_length"] + len(content)
    assert block == (
        real[:6]
        + size.to_bytes(8, "big")
        + real[14 : start - 8]
        + len(content).to_bytes(8, "big")
        + content
        + bytes(4)
        + (size + 6).to_bytes(8, "big")
    )


def test_natural_and_ordered_deletes_go_into_blocks_of_their_own() -> None:
    blocks = delete_blocks(pa.array(["a", "b", "c"]), "", pa.array([None, 3, None], pa.int64()), INSTANT, "{}")
    assert len(blocks) == 2
    first, second = (decode(content_of_block(block), "a test") for block in blocks)
    assert first.keys.to_pylist() == ["a", "c"] and first.natural.to_pylist() == [True, True]
    assert second.keys.to_pylist() == ["b"] and second.natural.to_pylist() == [False]
    assert delete_blocks(pa.array([], pa.string()), "", None, INSTANT, "{}") == []
    nulls = pa.nulls(1, pa.decimal128(38, 0))
    assert len(delete_blocks(pa.array(["a"]), "", nulls, INSTANT, "{}")) == 1


@given(
    st.lists(st.tuples(st.text(max_size=200), st.integers(-(2**63), 2**63 - 1)), max_size=20),
    st.text(max_size=100),
)
def test_round_trip(rows: list[tuple[str, int]], partition: str) -> None:
    keys = pa.array([key for key, _ in rows], pa.string())
    orderings = pa.array([value for _, value in rows], pa.int64())
    branch, values = ordering_wrapper.encode(orderings)
    back = decode(encode_content(keys, partition, branch, values), "a test", pa.int64())
    assert back.keys.equals(keys)
    assert set(back.partition_paths.to_pylist()) <= {partition}
    assert back.orderings is not None and back.orderings.equals(orderings)


@given(st.integers(1 - 10**30, 10**30 - 1))
def test_decimals_round_trip(unscaled: int) -> None:
    orderings = pa.array([Context(prec=30).scaleb(Decimal(unscaled), -15)], pa.decimal128(30, 15))
    branch, values = ordering_wrapper.encode(orderings)
    back = decode(encode_content(pa.array(["k"]), "", branch, values), "a test", orderings.type)
    assert back.orderings is not None and back.orderings.equals(orderings)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_zigzags_agree_with_the_plain_form(values: list[int]) -> None:
    assert zigzags(np.array(values, np.int64)).to_pylist() == [zigzag(value) for value in values]


def test_prefixed_takes_slices() -> None:
    assert prefixed(pa.array(["x", "é", ""]).slice(1)).to_pylist() == [b"\x04\xc3\xa9", b"\x00"]


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(UnsupportedTableError, match="list"):
        ordering_wrapper.encode(pa.array([[1]]))
    with pytest.raises(UnsupportedTableError, match=r"decimal\(30,15\)"):
        ordering_wrapper.encode(pa.array([Decimal(10**20)], pa.decimal128(38, 0)))


@pytest.mark.parametrize("version", [1, 2])
def test_kryo_blocks_are_refused_by_name(version: int) -> None:
    with pytest.raises(UnsupportedTableError, match=f"file f is a delete block of version {version}"):
        decode(I32.pack(version) + I32.pack(0), "file f")


def test_garbled_content_is_named() -> None:
    good = content_of("delete")
    for bad in (b"", good[:-1], good[:8] + b"\x02\x02\x7f" + good[11:], I32.pack(3) + I32.pack(2) + b"\x02\x08"):
        with pytest.raises(CorruptFileError, match="file f"):
            decode(bad, "file f")


SEVERAL = pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])


def several(rows: list[tuple[Any, ...]], kind: pa.StructType = SEVERAL) -> pa.StructArray:
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(kind)]
    return tuples(columns, [field.name for field in kind])


def test_values_of_several_fields_are_written_as_hudi_does() -> None:
    """By hand from the schema of Hudi 1.2: an array in a union, each value in the wrapper of its column."""
    branch, values = ordering_wrapper.encode(several([(7, "zz", 1.5)]))
    assert branch == 12
    assert values.to_pylist() == [bytes.fromhex("02" + "06" + "060e" + "0e047a7a" + "0a000000000000f83f" + "00")]
    value = {"wrappedValues": [
        ("org.apache.hudi.avro.model.LongWrapper", {"value": 7}),
        ("org.apache.hudi.avro.model.StringWrapper", {"value": "zz"}),
        ("org.apache.hudi.avro.model.DoubleWrapper", {"value": 1.5}),
    ]}  # fmt: skip
    assert encode_content(pa.array(["k"]), "p", branch, values) == arrays_block([("k", "p", value)])


REAL: dict[str, Any] = json.loads((paths.VECTORS / "delete-blocks-1.2.0.json").read_text())["blocks"]
_MICROS = pa.timestamp("us", tz="UTC")
PAIRS = {
    "long": (pa.int64(), pa.int64()),
    "text": (pa.string(), pa.string()),
    "timestamp": (_MICROS, pa.int64()),
    "double": (pa.float64(), pa.float64()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_deletes_of_hudi_1_2_with_several_fields(name: str) -> None:
    """Read, and written again byte for byte."""
    content, records = bytes.fromhex(REAL[name]["hex"]), REAL[name]["records"]
    kind = pa.struct(list(zip(("epoch", "step"), PAIRS[name], strict=True)))
    found = decode(content, "a vector", kind)
    assert found.keys.to_pylist() == [record["recordKey"] for record in records]
    assert found.natural.to_pylist() == [False] * len(records)
    plain = [pa.array([record["orderingVal"][i][1] for record in records]).cast(PAIRS[name][i]) for i in (0, 1)]
    assert found.orderings is not None and found.orderings.equals(tuples(plain, ("epoch", "step")))
    branch, values = ordering_wrapper.encode(found.orderings)
    assert encode_content(found.keys, records[0]["partitionPath"], branch, values) == content


def arrays_block(records: list[tuple[str, str, dict[str, Any]]]) -> bytes:
    out = io.BytesIO()
    rows = [
        {"recordKey": key, "partitionPath": path, "orderingVal": (ordering_wrapper.ARRAY_NAME, value)}
        for key, path, value in records
    ]
    fastavro.schemaless_writer(out, delete_block._SCHEMA, rows)
    return I32.pack(3) + I32.pack(len(out.getvalue())) + out.getvalue()


@given(
    st.lists(
        st.one_of(
            st.none(), st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(max_size=9), st.floats(allow_nan=False))
        ),
        min_size=1,
        max_size=20,
    )
)
def test_values_of_several_fields_round_trip(rows: list[tuple[Any, ...] | None]) -> None:
    values = several([row or (None, None, None) for row in rows])
    keys = pa.array([f"k{i}" for i in range(len(rows))])
    found = {}
    for block in delete_blocks(keys, "p", values, INSTANT, "{}"):
        back = decode(content_of_block(block), "a test", SEVERAL)
        assert back.orderings is not None and back.orderings.type == SEVERAL
        found.update(zip(back.keys.to_pylist(), back.orderings.to_pylist(), strict=True))
        assert back.natural.to_pylist() == [value is None for value in back.orderings.to_pylist()]
    assert [found[key] for key in keys.to_pylist()] == values.to_pylist()


def test_values_of_several_fields_in_the_columns_own_types() -> None:
    """Numbers of dates and times come back as such; what does not compare, or lacks a member, is natural order."""
    long, text, day = (f"org.apache.hudi.avro.model.{name}Wrapper" for name in ("Long", "String", "LocalDate"))
    good = {"wrappedValues": [(long, {"value": 5}), (day, {"value": 19724})]}
    others = [
        {"wrappedValues": [(long, {"value": 5}), (text, {"value": "x"})]},
        {"wrappedValues": [(long, {"value": 5}), None]},
        {"wrappedValues": [(long, {"value": 5})]},
        {"wrappedValues": None},
    ]
    content = arrays_block([(f"k{i}", "", value) for i, value in enumerate([good, *others])])
    kind = pa.struct([("at", pa.timestamp("us", tz="UTC")), ("day", pa.date32())])
    back = decode(content, "a test", kind)
    assert back.natural.to_pylist() == [False, True, True, True, True]
    assert back.orderings is not None
    assert back.orderings[0]["at"].value == 5 and back.orderings[0]["day"].value == 19724


@pytest.mark.parametrize("wanted", [None, pa.int64()], ids=str)
def test_values_of_several_fields_in_a_table_of_one_are_refused_by_name(wanted: pa.DataType | None) -> None:
    with pytest.raises(UnsupportedTableError, match="file f has deletes with the values of several ordering fields"):
        decode(arrays_block([("k", "", {"wrappedValues": []})]), "file f", wanted)
