"""Keys of a batch within a file's range: by bisection and by comparing each, as a plain loop finds them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tagstream.index.base import RECORD_SCHEMA
from tagstream.index.lookup import BatchKeys, KeyRanges, collect_keys

texts = st.text(alphabet="aébZ\x7f😀\ue001", max_size=4)


@given(st.sets(texts, max_size=30), texts, texts, st.booleans())
def test_keys_between_two(keys: set[str], one: str, other: str, tree: bool) -> None:
    ordered = sorted(keys, key=str.encode)
    low, high = sorted((one, other), key=str.encode)
    ranges = KeyRanges(BatchKeys(pa.array(ordered, pa.string()), {}), tree=tree)
    first, last = ranges.between(low, high, 0, len(ordered))
    assert ordered[first:last] == [k for k in ordered if low.encode() <= k.encode() <= high.encode()]


@pytest.mark.spark
def test_collected_keys_are_distinct_and_sorted_within_their_partition(spark: SparkSession) -> None:
    rows = [("b", "p2"), ("a", "p2"), ("a", "p1"), ("é", "p2"), ("z", "p2"), ("a", "p2")]
    records = spark.createDataFrame(rows, RECORD_SCHEMA)
    found = collect_keys(records, is_global=False)
    assert {p: found.keys.slice(a, b - a).to_pylist() for p, (a, b) in found.ranges.items()} == {
        "p1": ["a"],
        "p2": ["a", "b", "z", "é"],
    }
    assert collect_keys(records, is_global=True).keys.to_pylist() == ["a", "b", "z", "é"]
    assert collect_keys(records.limit(0), is_global=False).ranges == {}
    assert collect_keys(records.limit(0), is_global=True).ranges == {}
