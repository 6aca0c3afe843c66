"""Key generators against results of the real classes; partition paths; keys of tombstones."""

from __future__ import annotations

import json
import re
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.errors import ConfigError, InvalidKeyError
from tagstream.table.keys.generators import KeyKind
from tagstream.table.keys.keys import KeyGenerator, check_partition_path, url_encode
from tagstream.table.keys.record_key import java_double, record_key_from_message, to_strings
from tagstream.table.keys.time_partition import TimePartition
from tests.support.paths import VECTORS

CASES = json.loads((VECTORS / "keys.json").read_text())["cases"]
TYPES = {
    "id": pa.string(),
    "name": pa.string(),
    "p": pa.string(),
    "n": pa.int64(),
    "d": pa.date32(),
    "ts": pa.timestamp("us", tz="UTC"),
    "b": pa.bool_(),
    "f": pa.float64(),
}


def generator(case: dict[str, Any], **more: Any) -> KeyGenerator:
    consistent = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled" in case["extra"]
    times = TimePartition.from_properties(case["extra"]) if case["generator"].startswith("Timestamp") else None
    return KeyGenerator.create(
        "org.apache.hudi.keygen." + case["generator"],
        case["recordkey_field"].split(","),
        case["partitionpath_field"].split(","),
        case["hive_style"],
        case["url_encode"],
        consistent_timestamps=consistent,
        times=times,
        **more,
    )


def rows(values: dict[str, Any]) -> pa.Table:
    return pa.table({name: pa.array([value], TYPES[name]) for name, value in values.items()})


def case_id(case: dict[str, Any]) -> str:
    return f"{case['generator']}-{case['values']}"


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_keys_are_those_of_hudi(case: dict[str, Any]) -> None:
    keygen, table = generator(case), rows(case["values"])
    keygen.check(table.schema)
    assert keygen.record_keys(table).to_pylist() == [case["record_key"]]
    assert keygen.partition_paths(table).to_pylist() == [case["partition_path"]]
    (error,) = keygen.key_errors(table).to_pylist()
    assert (error is None) == (case["error"] is None)


@pytest.mark.parametrize("case", [case for case in CASES if "in_1.2.0" in case], ids=case_id)
def test_newer_hudi_names_a_single_complex_key(case: dict[str, Any]) -> None:
    keygen, table = generator(case, name_single_key=True), rows(case["values"])
    assert keygen.record_keys(table).to_pylist() == [case["in_1.2.0"]["record_key"]]
    assert keygen.partition_paths(table).to_pylist() == [case["in_1.2.0"]["partition_path"]]


def test_whole_columns_with_good_and_bad_rows() -> None:
    table = pa.table({"a": ["x", None, "", "y"], "b": pa.array([1, None, None, None], pa.int32())})
    keygen = KeyGenerator.create("COMPLEX", ["a", "b"], ["a"], hive_style=True)
    assert keygen.record_keys(table).to_pylist() == ["a:x,b:1", None, None, "a:y,b:__null__"]
    assert [error is None for error in keygen.key_errors(table).to_pylist()] == [True, False, False, True]
    assert keygen.partition_paths(table).to_pylist() == [
        "a=x",
        "a=__HIVE_DEFAULT_PARTITION__",
        "a=__HIVE_DEFAULT_PARTITION__",
        "a=y",
    ]
    simple = KeyGenerator.create(None, ["a"], ["b"])
    assert simple.record_keys(table).to_pylist() == ["x", None, None, "y"]
    assert simple.key_errors(table).to_pylist() == [
        None,
        "record key field 'a' is null",
        "record key field 'a' is empty",
        None,
    ]


def test_batches_chunks_slices_and_no_rows() -> None:
    keygen = KeyGenerator.create(None, ["a"], ["p"])
    batch = pa.record_batch({"a": ["1", "2", "3"], "p": ["x", "y", "z"]})
    assert keygen.record_keys(batch.slice(1)).to_pylist() == ["2", "3"]
    chunked = pa.Table.from_batches([batch, batch]).slice(2, 2)
    assert keygen.record_keys(chunked).to_pylist() == ["3", "1"]
    assert keygen.partition_paths(chunked).to_pylist() == ["z", "x"]
    empty = batch.slice(0, 0)
    for made in (keygen.record_keys(empty), keygen.partition_paths(empty), keygen.key_errors(empty)):
        assert made.type == pa.string() and len(made) == 0


def test_nested_fields() -> None:
    table = pa.table({"a": pa.array([{"id": 7}, None], pa.struct([("id", pa.int32())])), "p": ["x", "y"]})
    keygen = KeyGenerator.create(None, ["a.id"], ["p"])
    assert keygen.record_keys(table).to_pylist() == ["7", None]
    with pytest.raises(ConfigError, match=r"'a\.no'"):
        KeyGenerator.create(None, ["a.no"], ["p"]).check(table.schema)


@pytest.mark.parametrize(
    ("kind", "keys", "partitions", "message"),
    [
        ("GlobalDeleteKeyGenerator", ["a"], ["p"], "GlobalDeleteKeyGenerator"),
        ("org.apache.hudi.keygen.GlobalDeleteKeyGenerator", ["a"], [], "GlobalDelete"),
        ("SIMPLE", ["a", "b"], ["p"], "SIMPLE"),
        ("SIMPLE", ["a"], [], "SIMPLE"),
        ("NON_PARTITION", ["a"], ["p"], "does not fit"),
        ("COMPLEX", ["a"], [], "does not fit"),
        (None, [], ["p"], "names no field"),
        (None, [" "], ["p"], "names no field"),
    ],
)
def test_what_does_not_fit_is_refused(kind: str | None, keys: list[str], partitions: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        KeyGenerator.create(kind, keys, partitions)


def test_kind_is_inferred_as_hudi_does() -> None:
    assert KeyGenerator.create(None, ["a"], ["p"]).kind is KeyKind.SIMPLE
    assert KeyGenerator.create("", ["a"], []).kind is KeyKind.NON_PARTITION
    assert KeyGenerator.create(None, ["a"], ["p", "q"]).kind is KeyKind.COMPLEX


def test_fields_are_checked_against_the_schema() -> None:
    keygen = KeyGenerator.create(None, ["a"], ["p"])
    with pytest.raises(ConfigError, match="'p' is not in the schema"):
        keygen.check(pa.schema([("a", pa.string())]))
    for arrow in (
        pa.binary(),
        pa.list_(pa.int32()),
        pa.struct([("x", pa.int32())]),
        pa.dictionary(pa.int8(), pa.binary()),
    ):
        with pytest.raises(ConfigError, match="'a' is"):
            keygen.check(pa.schema([("a", arrow), ("p", pa.string())]))


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pa.array([1, None], pa.int16()), ["1", None]),
        (pa.array(["a"], pa.large_string()), ["a"]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (pa.array([Decimal("1.50"), Decimal("0.000")], pa.decimal128(10, 3)), ["1.500", "0.000"]),
        # BigDecimal.toString turns to exponents below 10^-6
        (pa.array([Decimal("0.0000001")], pa.decimal128(10, 7)), ["1E-7"]),
        (pa.array([1], pa.timestamp("ms")), ["1"]),
        (pa.array([1], pa.time32("ms")), ["1"]),
        (pa.array([-1], pa.date32()), ["1969-12-31"]),
        (pa.nulls(2), [None, None]),
        (pa.array([1.0, None, float("nan")], pa.float32()), ["1.0", None, "NaN"]),
    ],
)
def test_values_as_text(values: pa.Array, texts: list[str | None]) -> None:
    out = to_strings("x", values)
    assert out.type == pa.string() and out.to_pylist() == texts


def test_consistent_timestamps() -> None:
    values = pa.array([1704164645123456, 1704164645120000, None], pa.timestamp("us", tz="UTC"))
    assert to_strings("x", values, consistent_timestamps=True).to_pylist() == [
        "2024-01-02 03:04:05.123",
        "2024-01-02 03:04:05.12",
        None,
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-12345678.9, "-1.23456789E7"),
        (123.456, "123.456"),
        (100.0, "100.0"),
        (5e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"),
        (np.float32(0.1), "0.1"),
        (np.float32(3.4028235e38), "3.4028235E38"),
        (np.float32(1e-45), "1.4E-45"),
    ],
)
def test_doubles_as_java_prints_them(value: float, text: str) -> None:
    assert java_double(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_read_back_equal(value: float) -> None:
    text = java_double(value)
    assert struct.pack("d", float(text)) == struct.pack("d", value)
    assert re.fullmatch(r"-?\d+\.\d+(E-?\d+)?", text)


@given(st.text())
def test_url_encoding_is_undone_by_decoding(text: str) -> None:
    (encoded,) = url_encode(pa.array([text])).to_pylist()
    assert unquote(encoded, errors="strict") == text
    assert "/" not in encoded


@pytest.mark.parametrize("path", ["", "p=1", "2024/01/02", "a b", "é", "x" * 255, "...", ".git", "a.hoodie", "p=.."])
def test_good_partition_paths(path: str) -> None:
    assert check_partition_path(pa.array([path])).to_pylist() == [None]


@pytest.mark.parametrize(
    "path",
    [
        "/etc",
        "/",
        "a//b",
        "a/",
        "..",
        "a/../../b",
        "./a",
        "a/.",
        ".hoodie",
        ".hoodie/x",
        "a/.hoodie_partition_metadata",
        "a\\b",
        "a\x00b",
        "a\nb",
        "\x7f",
        "é" * 128,
        "/".join(["x" * 250] * 5),
    ],
)
def test_bad_partition_paths(path: str) -> None:
    (reason,) = check_partition_path(pa.array([path])).to_pylist()
    assert reason is not None and reason.startswith("partition path")


@pytest.mark.parametrize(
    ("path", "depth", "fields", "good"),
    [
        ("a", 1, 1, True),
        ("a/b", 1, 1, False),
        ("a/b", None, 1, True),
        ("2026/01/05", 3, 1, True),
        ("2026/01", 3, 1, False),
        ("__HIVE_DEFAULT_PARTITION__", 3, 1, True),  # a null value, where the others have slashes
        ("day=__HIVE_DEFAULT_PARTITION__", 3, 1, True),
        ("__HIVE_DEFAULT_PARTITION__/x", 3, 1, False),
        ("__HIVE_DEFAULT_PARTITION__/eu", 4, 2, True),
        ("", 0, 0, True),
    ],
)
def test_the_depth_of_partition_paths(path: str, depth: int | None, fields: int, good: bool) -> None:
    (reason,) = check_partition_path(pa.array([path]), depth, fields).to_pylist()
    assert (reason is None) == good
    assert good or "a partition inside another" in reason


def test_whether_values_can_make_folders() -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.date32()), ("n", pa.int64()), ("s", pa.string())])

    def depth(*fields: str, url_encode: bool = False) -> int | None:
        return KeyGenerator.create(None, ["id"], fields, url_encode=url_encode).depth(schema)

    assert (depth("day"), depth("day", "n"), depth()) == (1, 2, 0)
    assert (depth("s"), depth("n", "s")) == (None, None)
    assert depth("n", "s", url_encode=True) == 2


@given(st.lists(st.text(), max_size=5))
def test_a_good_path_stays_inside_the_table(paths: list[str]) -> None:
    for path, reason in zip(paths, check_partition_path(pa.array(paths, pa.string())).to_pylist(), strict=True):
        if reason is None and path:
            inside = Path("/table").joinpath(path)
            assert inside.is_relative_to("/table") and ".." not in inside.parts
            assert inside.as_posix() == f"/table/{path}"


def test_tombstone_keys_of_one_field_are_the_text() -> None:
    assert record_key_from_message(["id"], 'k"1') == 'k"1'
    assert record_key_from_message(["id"], "007", [pa.int64()]) == "7"
    for text, types in (("", None), ("x", [pa.int64()])):
        with pytest.raises(InvalidKeyError):
            record_key_from_message(["id"], text, types)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"a": "x", "b": 7}', "a:x,b:7"),
        ('{"b": true, "a": "", "c": 1}', "a:__empty__,b:true"),
        ('{"a": "x", "b": null}', "a:x,b:__null__"),
        ('{"a": "x"}', "a:x,b:__null__"),
        ('{"a": 1.50, "b": 1e10}', "a:1.5,b:1.0E10"),
        ('{"a": 12345678901234567890123, "b": -1}', "a:12345678901234567890123,b:-1"),
    ],
)
def test_tombstone_keys_of_several_fields(text: str, key: str) -> None:
    assert record_key_from_message(["a", "b"], text) == key


def test_tombstone_keys_have_the_text_of_rows() -> None:
    types = [pa.float64(), pa.date32()]
    assert record_key_from_message(["a", "b"], '{"a": 1, "b": "2024-01-02"}', types) == "a:1.0,b:2024-01-02"
    assert record_key_from_message(["a", "b"], '{"a": 1, "b": 19724}', types) == "a:1.0,b:2024-01-02"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        '"a"',
        '{"a": 1, "a": 2}',
        '{"a": {}}',
        '{"a": []}',
        '{"a": NaN}',
        "{}",
        '{"a": null, "b": ""}',
        '{"a": 1} x',
    ],
)
def test_message_keys_that_are_none(text: str) -> None:
    with pytest.raises(InvalidKeyError):
        record_key_from_message(["a", "b"], text)


def test_composite_keys_that_other_values_make_too() -> None:
    generator = KeyGenerator.create("COMPLEX", ["a", "b"], ["p"])
    rows = pa.table({
        "a": ["1,b:2", "1", "__null__", None, "__empty__", "", "x,a:1", "x"],
        "b": ["3", "2,b:3", "x", "x", "x", "x", "y", "__null__"],
        "p": ["p"] * 8,
    })  # fmt: skip
    keys = generator.record_keys(rows).to_pylist()  # Hudi's own: equal in pairs
    assert keys[:6] == ["a:1,b:2,b:3"] * 2 + ["a:__null__,b:x"] * 2 + ["a:__empty__,b:x"] * 2
    bad = [reason is not None for reason in generator.collisions(rows).to_pylist()]
    assert bad == [True, False, True, False, True, False, False, True]
    left = [key for key, wrong in zip(keys, bad, strict=True) if not wrong]
    assert len(set(left)) == len(left)
    single = KeyGenerator.create("COMPLEX", ["a"], ["p"], name_single_key=True)
    assert single.collisions(rows).null_count == 8


@given(st.lists(st.tuples(*[st.none() | st.text("a,b:c_1", max_size=7)] * 3), max_size=30))
def test_keys_without_collisions_are_told_apart(values: list[tuple[str | None, str | None, str | None]]) -> None:
    rows = pa.table({n: pa.array([v[i] for v in values], pa.string()) for i, n in enumerate("abc")})
    generator = KeyGenerator.create(None, ["a", "b", "c"], [])
    good = rows.filter(generator.collisions(rows).is_null())
    found: dict[str | None, object] = {}
    for key, row in zip(generator.record_keys(good).to_pylist(), good.to_pylist(), strict=True):
        assert key is None or found.setdefault(key, row) == row


def test_a_tombstone_whose_key_others_make_too() -> None:
    key = '{"a":"1,b:2","b":"3"}'
    assert record_key_from_message(["a", "b"], key) == "a:1,b:2,b:3"
    with pytest.raises(InvalidKeyError, match="contains ',b:'"):
        record_key_from_message(["a", "b"], key, refuse_collisions=True)
    assert record_key_from_message(["a", "b"], '{"a":"1","b":"2,b:3"}', refuse_collisions=True) == "a:1,b:2,b:3"
