"""The bucket index: where keys go with rings and with rules by partition, and which tables a start refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.index.base import OrderingCode, TableAsOf
from tagstream.index.bucket import BucketIndex, BucketPlaces
from tagstream.index.consistent_bucket import ConsistentBucketIndex, RingPlaces
from tagstream.index.registry import IndexOptions, make_index
from tagstream.table.buckets.hashing_metadata import HASHING_FOLDER
from tagstream.table.buckets.partition_rules import RULES_FOLDER, BucketRules
from tagstream.table.errors import ConfigError, ForeignCommitError, TableConfigMismatchError, UnsupportedTableError
from tagstream.table.file_group.names import bucket_of
from tagstream.table.keys.bucket_hash import BucketHash
from tagstream.table.keys.hash_fields import HashFields
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tests.support import rings
from tests.table.buckets.case import hudis_table
from tests.table.buckets.ring_writer import RingWriter
from tests.table.writer import Writer, row

KEYS = [f"k{n}" for n in range(500)]


def look_at(table: HoodieTable) -> TableAsOf:
    """Without Spark, which these indexes do not need."""
    timeline = table.timeline()
    code = OrderingCode(pa.int64(), lambda column: column)
    return TableAsOf(cast(SparkSession, None), table, timeline, timeline.newest_completed, code)


def index_of(buckets: int = 4, fields: tuple[str, ...] = ("id",)) -> ConsistentBucketIndex:
    return ConsistentBucketIndex(HashFields(fields, fields), buckets)


def test_every_key_goes_where_the_ring_says(tmp_path: Path) -> None:
    table = hudis_table(tmp_path)
    index = index_of()
    index.start(look_at(table))
    partitions = pa.array([f"p{n % 3}" for n in range(len(KEYS))])  # p2 is new
    file_ids, exists = index.places(look_at(table), "1").locate(pa.array(KEYS), partitions)
    now = rings.rings(Path(table.base_path))
    for key, partition, file_id, there in zip(KEYS, partitions.to_pylist(), file_ids.to_pylist(), exists, strict=True):
        assert there == (partition != "p2")
        if partition in now:
            assert file_id == f"{now[partition].prefix(key)}-0"
    index.before_commit(table, {"p0", "p2"})
    new = rings.rings(Path(table.base_path))["p2"]
    assert [f for f, p in zip(file_ids.to_pylist(), partitions.to_pylist(), strict=True) if p == "p2"] == [
        f"{new.prefix(key)}-0" for key, p in zip(KEYS, partitions.to_pylist(), strict=True) if p == "p2"
    ]


def test_another_writers_ring_of_a_new_partition(tmp_path: Path) -> None:
    table = hudis_table(tmp_path)
    first, second = index_of(4), index_of(5)
    for index in (first, second):
        index.start(look_at(table))
    first.before_commit(table, {"p9"})
    with pytest.raises(ForeignCommitError, match="the batch is processed again"):
        second.before_commit(table, {"p9"})
    second.start(look_at(table))
    places = second.places(look_at(table), "1")
    assert len(set(places.locate(pa.array(KEYS), pa.array(["p9"] * len(KEYS)))[0].to_pylist())) == 4


def test_nothing_is_located_of_no_keys() -> None:
    none = pa.array([], pa.string())
    for places in (
        RingPlaces(HashFields(("id",), ("id",)), 2, {}, {}),
        BucketPlaces(BucketHash(2, ("id",), ("id",)), BucketRules((), 2), {}, ("t",)),
    ):
        file_ids, exists = places.locate(none, none)
        assert len(file_ids) == len(exists) == 0


def test_tables_that_a_start_refuses(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTableError, match="merge-on-read"):
        index_of().start(look_at(Writer.create(tmp_path / "cow", COPY_ON_WRITE).table))
    other = Writer.create(tmp_path / "other", MERGE_ON_READ)
    other.write([row(1, "p0", 1)])
    with pytest.raises(TableConfigMismatchError, match="is not a bucket of the partition's ring of 4 nodes"):
        index_of().start(look_at(other.table))


def test_other_hash_fields_are_refused(tmp_path: Path) -> None:
    table = hudis_table(tmp_path)
    with pytest.raises(TableConfigMismatchError, match="which belongs to bucket .* by x"):
        ConsistentBucketIndex(_Shifted(("x",), ("x",)), 4).start(look_at(table))


class _Shifted(HashFields):
    """Hashes another text than that of the key."""

    def values(self, keys: pa.Array) -> Iterator[tuple[npt.NDArray[np.int64], list[pa.Array]]]:
        for rows, columns in super().values(keys):
            yield rows, [pa.array([f"{text}!" for text in column.to_pylist()]) for column in columns]


def test_replaced_buckets_are_refused(tmp_path: Path) -> None:
    writer = RingWriter.of(tmp_path).fill()
    index = index_of(2)
    index.start(look_at(writer.table))
    look = look_at(writer.table)
    ring = rings.rings(writer.path)["p0"]
    object.__setattr__(look.timeline, "replaced", {("p0", f"{ring.nodes[0][1]}-0"): "20260101000000900"})
    with pytest.raises(UnsupportedTableError, match="was replaced by 20260101000000900"):
        index.start(look)


def test_a_lost_ring_of_known_file_groups_is_made_again(tmp_path: Path) -> None:
    """A writer died between its commit and the ring's file; or the folder was not copied: the file ids fit."""
    writer = RingWriter.of(tmp_path)
    writer.write([row(key, "p0", 1) for key in range(9)])
    path = writer.path / HASHING_FOLDER / "p0/00000000000000.hashing_meta"
    before = path.read_bytes()
    path.unlink()
    index = index_of(2)
    index.start(look_at(writer.table))
    index.before_commit(writer.table, {"p0"})
    assert path.read_bytes() == before


def test_numbers_of_buckets_by_partition(tmp_path: Path) -> None:
    options = IndexOptions("BUCKET", num_buckets=2, partition_expressions="2026-11-1(0|1),3;.*-12,5")
    index = make_index(options, ("id",))
    assert isinstance(index, BucketIndex)
    table = Writer.create(tmp_path, MERGE_ON_READ).table
    index.start(look_at(table))
    partitions = pa.array([f"2026-11-{10 + n % 4}" for n in range(len(KEYS))])
    file_ids, _ = index.places(look_at(table), "1").locate(pa.array(KEYS), partitions)
    plain = {n: BucketHash(n, ("id",), ("id",)).buckets(pa.array(KEYS)).tolist() for n in (2, 3, 5)}
    wanted = {"2026-11-10": 3, "2026-11-11": 3, "2026-11-12": 5, "2026-11-13": 2}
    found = [bucket_of(file_id) for file_id in file_ids.to_pylist()]
    assert found == [plain[wanted[partition]][n] for n, partition in enumerate(partitions.to_pylist())]
    assert len(set(zip(partitions.to_pylist(), file_ids.to_pylist(), strict=True))) == 3 + 3 + 5 + 2
    with pytest.raises(ConfigError, match="partition.expressions"):
        make_index(IndexOptions("BUCKET", partition_expressions="a"), ("id",))


def test_rules_that_a_table_keeps(tmp_path: Path) -> None:
    table = Writer.create(tmp_path, MERGE_ON_READ).table
    kept = {"expressions": "p0,3", "defaultBucketNumber": 2, "rule": "regex", "version": 1, "instant": "0" * 14}
    table.storage.replace(f"{RULES_FOLDER}/{'0' * 14}.hashing_config", json.dumps(kept).encode())
    index = make_index(IndexOptions("BUCKET", num_buckets=2), ("id",))
    assert isinstance(index, BucketIndex)
    index.start(look_at(table))
    file_ids, _ = index.places(look_at(table), "1").locate(pa.array(KEYS), pa.array(["p0"] * len(KEYS)))
    assert {bucket_of(file_id) for file_id in file_ids.to_pylist()} == {0, 1, 2}
    other = make_index(IndexOptions("BUCKET", num_buckets=4), ("id",))
    assert other is not None
    with pytest.raises(TableConfigMismatchError, match="set hoodie.bucket.index.num.buckets=2"):
        other.start(look_at(table))
