"""Java's hash codes against values of the JVM and against the definition, character by character."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.errors import InvalidKeyError
from tagstream.table.keys.bucket_hash import list_hash_codes, string_hash_codes
from tests.support import paths

VECTORS = json.loads((paths.VECTORS / "hashes.json").read_text())
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)


def wrapped(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def java_string(text: str | None) -> int:
    """The loop of java.lang.String."""
    h, units = 0, (text or "").encode("utf-16-be")
    for at in range(0, len(units), 2):
        h = 31 * h + int.from_bytes(units[at : at + 2], "big")
    return wrapped(h)


def java_list(texts: list[str | None]) -> int:
    """The loop of java.util.List."""
    h = 1
    for text in texts:
        h = 31 * h + java_string(text)
    return wrapped(h)


def test_strings_of_the_jvm() -> None:
    rows = VECTORS["strings"]
    texts = pa.array([row["s"] for row in rows])
    assert string_hash_codes(texts).tolist() == [row["java_hashCode"] for row in rows]
    assert list_hash_codes([texts]).tolist() == [row["list_of_one_hashCode"] for row in rows]


@pytest.mark.parametrize("version", ["bucket_0.15.0", "bucket_1.2.0"])
def test_buckets_of_the_jvm(version: str) -> None:
    checked = 0
    for row in VECTORS[version]:
        if not row["hashed_list"]:
            continue  # the hash of an empty list is 1, which needs no columns
        code = list_hash_codes([pa.array([text], pa.string()) for text in row["hashed_list"]])[0]
        for buckets, bucket in row["bucket_by_num"].items():
            assert (code & 0x7FFFFFFF) % int(buckets) == bucket, row
            checked += 1
    assert checked >= 60


@given(st.lists(st.none() | TEXTS, max_size=30), st.integers(0, 5))
def test_mixed_strings(texts: list[str | None], start: int) -> None:
    column = pa.array(texts, pa.string()).slice(start)
    assert string_hash_codes(column).tolist() == [java_string(text) for text in texts[start:]]
    assert string_hash_codes(column.cast(pa.large_string())).tolist() == [java_string(text) for text in texts[start:]]


@given(st.lists(st.tuples(st.none() | TEXTS, st.none() | TEXTS), min_size=1, max_size=10))
def test_lists_of_two(rows: list[tuple[str | None, str | None]]) -> None:
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    assert list_hash_codes(columns).tolist() == [java_list(list(row)) for row in rows]


def test_more_rows_than_are_hashed_at_once() -> None:
    texts = [f"key-{n}" + "é" * (n % 3) for n in range(140_000)]
    codes = string_hash_codes(pa.array(texts))
    assert len(codes) == len(texts)
    for at in (0, 65_535, 65_536, 131_072, 139_999):
        assert codes[at] == java_string(texts[at])


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="int64"):
        string_hash_codes(pa.array([1]))
    with pytest.raises(ValueError, match="one column"):
        list_hash_codes([])
    buffers = [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"a\xff")]
    with pytest.raises(InvalidKeyError, match="UTF-8"):
        string_hash_codes(pa.Array.from_buffers(pa.string(), 1, buffers))
