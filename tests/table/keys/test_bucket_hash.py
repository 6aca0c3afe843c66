"""Buckets of record keys: those that the real classes of Hudi 0.15.0 and 1.2.0 computed, and those of a real table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.keys.bucket_hash import BucketHash
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tests.support import paths
from tests.table.reference import unpack

VECTORS = json.loads((paths.VECTORS / "hashes.json").read_text("utf-8"))


def fields_of(vector: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(record key fields, hash fields): the key names its fields where it has several."""
    hashed = tuple(vector["index_key_fields"].split(","))
    named = [part.split(":")[0] for part in vector["record_key"].split(",") if ":" in part]
    return (tuple(named) if len(named) > 1 and set(hashed) <= set(named) else hashed), hashed


@pytest.mark.parametrize("release", ["0.15.0", "1.2.0"])
def test_vectors_of_the_real_classes(release: str) -> None:
    vectors = VECTORS[f"bucket_{release}"]
    assert len(vectors) == 16
    for vector in vectors:
        keys, hashed = fields_of(vector)
        for count, bucket in vector["bucket_by_num"].items():
            hashing = BucketHash(int(count), keys, hashed, "0.x" if release == "0.15.0" else "1.x")
            assert hashing.buckets(pa.array([vector["record_key"]])).tolist() == [bucket], vector


def test_a_table_that_real_hudi_bucketed(tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack("mor_v6_bucket", tmp_path)))
    rows = read_snapshot(table)
    assert rows.num_rows > 100
    hashing = BucketHash(4, table.config.record_key_fields, table.config.record_key_fields)
    numbers = set(rows["_hoodie_file_name"].to_pylist())
    assert numbers
    found = hashing.buckets(rows["_hoodie_record_key"].combine_chunks()).tolist()
    assert found == [int(name[:8]) for name in rows["_hoodie_file_name"].to_pylist()]


@given(st.lists(st.tuples(st.text(alphabet="ab:, é", max_size=6), st.text(alphabet="xy:,", max_size=6)), min_size=1))
def test_a_column_is_hashed_like_each_key_alone(values: list[tuple[str, str]]) -> None:
    keys = [f"a:{a or '__empty__'},b:{b or '__empty__'}" for a, b in values]
    for release in ("0.x", "1.x"):
        for hashed in (("a",), ("b",), ("a", "b")):
            hashing = BucketHash(7, ("a", "b"), hashed, release)
            alone = [hashing.buckets(pa.array([key])).tolist()[0] for key in keys]
            assert hashing.buckets(pa.array(keys)).tolist() == alone


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="must be among the record key fields id"):
        BucketHash(4, ("id",), ("name",))
    with pytest.raises(ValueError, match="at least one bucket"):
        BucketHash(0, ("id",), ("id",))
