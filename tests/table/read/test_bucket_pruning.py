"""A filter that fixes the hash fields opens one bucket a value, and reads the same rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.table.keys.bucket_hash import BucketHash
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.data_skipping import SkipReport, bucket_pruner
from tagstream.table.read.filters import Comparison, Op, bind
from tagstream.table.read.snapshot import read_snapshot
from tests.table.reference import unpack

ID = BucketHash(4, ("id",), ("id",))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> HoodieTable:
    return HoodieTable.open(str(unpack("mor_v6_bucket", tmp_path_factory.mktemp("bucketed"))))


def test_one_key_is_read_from_one_bucket_of_each_partition(table: HoodieTable) -> None:
    rows = read_snapshot(table)
    partitions = len(set(rows["_hoodie_partition_path"].to_pylist()))
    slices = sum(len(table.view().latest_merged_slices(p)) for p in table.view().partitions())
    assert slices > partitions
    for key in rows["id"].to_pylist()[:20]:
        report = SkipReport()
        found = read_snapshot(table, filters=[Comparison("id", Op.EQ, key)], report=report, buckets=ID)
        assert found.equals(rows.filter(pc.equal(rows["id"], key)))
        assert report.skipped_by["buckets"] > 0
        left = read_snapshot(table, filters=[Comparison("id", Op.EQ, key)], buckets=ID, columns=["_hoodie_file_name"])
        assert {name[:8] for name in left["_hoodie_file_name"].to_pylist()} == {f"{ID.buckets(pa.array([key]))[0]:08d}"}


@pytest.mark.extended("longer random histories")
@settings(max_examples=30)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=5))
def test_some_keys(table: HoodieTable, numbers: list[int]) -> None:
    known = sorted(read_snapshot(table, columns=["id"])["id"].to_pylist())
    keys = [known[n] if n < len(known) else f"no-{n}" for n in numbers]
    rows = read_snapshot(table, filters=[Comparison("id", Op.IN, keys)])
    assert rows.num_rows == len({key for key in keys if key in known})
    assert read_snapshot(table, filters=[Comparison("id", Op.IN, keys)], buckets=ID).equals(rows)


def test_what_does_not_prune() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("t", pa.timestamp("us"))])
    both = BucketHash(8, ("a", "b"), ("a", "b"))
    one = bind([Comparison("a", Op.EQ, "x")], schema)
    two = bind([Comparison("a", Op.EQ, "x"), Comparison("b", Op.EQ, 7)], schema)
    assert bucket_pruner(both, one) is None
    assert bucket_pruner(both, two) is not None
    assert bucket_pruner(BucketHash(8, ("a", "b"), ("a",)), one) is not None
    assert bucket_pruner(both, bind([Comparison("a", Op.EQ, "x:y"), Comparison("b", Op.EQ, 7)], schema)) is None
    assert bucket_pruner(both, bind([Comparison("a", Op.GT, "x"), Comparison("b", Op.EQ, 7)], schema)) is None
