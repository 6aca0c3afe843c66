"""The record index gives every key's place, exactly, on every table of real Hudi that has one."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tagstream.table.errors import CorruptFileError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import update_properties
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.record_index import LOCATIONS, RecordIndex, shards_of
from tests.table.metadata.hfiles import FIXTURES
from tests.table.reference import expected, expected_records, unpack

TABLES = ["cow_v9_record_index", "mor_v6_record_index_015", "mor_v8_global_record_index"]
PARTITIONED = "mor_v9_partitioned_record_index"
HASHES = json.loads((FIXTURES / "vectors/hashes.json").read_text())
VECTORS = json.loads((FIXTURES / "vectors/mdt.json").read_text())

Places = set[tuple[str, str, str]]


def opened(base_path: Path) -> RecordIndex:
    table = HoodieTable.open(str(base_path))
    index = RecordIndex.open(MetadataTable.open(table, table.timeline()))
    assert index is not None
    return index


def places(found: pa.Table) -> Places:
    assert found.schema == LOCATIONS
    rows = list(zip(*(found.column(name).to_pylist() for name in LOCATIONS.names[:3]), strict=True))
    assert len(rows) == len(set(rows))
    return set(rows)


def wanted(base_path: Path) -> Places:
    return {(key, partition, file_id) for partition, key, file_id, _ in expected_records(base_path)}


@pytest.mark.parametrize("name", TABLES)
def test_every_key_is_where_hudi_reads_it(name: str, tmp_path: Path) -> None:
    base_path = unpack(name, tmp_path)
    index, there = opened(base_path), wanted(base_path)
    keys = [key for key, _, _ in there]
    random.Random(1).shuffle(keys)
    assert places(index.lookup(pa.array(keys))) == there
    assert places(index.lookup(pa.array([*keys, None, "nobody", "", keys[0]]))) == there
    assert places(pa.concat_tables(index.scan())) == there


@pytest.mark.parametrize("name", TABLES)
def test_some_keys_one_key_and_none(name: str, tmp_path: Path) -> None:
    base_path = unpack(name, tmp_path)
    index, there = opened(base_path), wanted(base_path)
    some = sorted(there)[::7]
    assert places(index.lookup(pa.array([key for key, _, _ in some]))) == set(some)
    for place in some[:5]:
        assert places(index.lookup(pa.array([place[0]]))) == {place}
    assert index.lookup(pa.array([], pa.string())).num_rows == 0
    assert index.lookup(pa.array(["key-", "zzz", "日本"])).num_rows == 0


@pytest.mark.parametrize("name", TABLES)
def test_keys_that_were_deleted_are_not_there(name: str, tmp_path: Path) -> None:
    base_path = unpack(name, tmp_path)
    index, live = opened(base_path), {key for key, _, _ in wanted(base_path)}
    # What any file of the index ever named, read without merging.
    ever = {
        key.decode()
        for file_slice in index.metadata.slices("record_index")
        for part in index.metadata.entries(file_slice)
        for key in part.keys.to_pylist()
    }
    gone = sorted(ever - live)
    assert gone
    assert index.lookup(pa.array(gone)).num_rows == 0


@pytest.mark.parametrize("name", TABLES)
def test_instants_are_those_of_the_timeline(name: str, tmp_path: Path) -> None:
    base_path = unpack(name, tmp_path)
    # The tables say LOCAL and were written where that was UTC.
    update_properties(HoodieTable.open(str(base_path)).storage, {"hoodie.table.timeline.timezone": "UTC"}, 0)
    instants = set(pa.concat_tables(opened(base_path).scan()).column("instant").to_pylist())
    completed = {str(text).split(".")[0].split("_")[0] for text in expected(base_path)["completed_instants"]}
    assert instants
    assert instants <= completed


def test_by_partition_each_has_places_of_its_own(tmp_path: Path) -> None:
    base_path = unpack(PARTITIONED, tmp_path)
    index, there = opened(base_path), wanted(base_path)
    assert index.is_partitioned
    assert index.shard_counts == {"2024-01-01": 2, "a_b": 2, "p1": 2}
    assert places(pa.concat_tables(index.scan())) == there
    keys = pa.array(sorted({key for key, _, _ in there} | {"k005", "nobody"}))
    for partition in index.shard_counts:
        assert places(index.lookup(keys, partition)) == {place for place in there if place[1] == partition}
    assert index.lookup(keys, "p2").num_rows == 0
    with pytest.raises(ValueError, match="needs a partition"):
        index.lookup(keys)
    with pytest.raises(ValueError, match="a global index must have none"):
        opened(unpack("cow_v9_record_index", tmp_path)).lookup(keys, "p1")


@pytest.mark.parametrize(
    ("gone", "words"), [("p1-0000-0", r"shards \[1\] of partition 'p1'"), ("index.json", "no such name")]
)
def test_groups_by_partition_that_do_not_fit_are_an_error(gone: str, words: str, tmp_path: Path) -> None:
    base_path = unpack(PARTITIONED, tmp_path)
    for file in (base_path / ".hoodie").rglob(f"*{gone}*"):
        file.unlink()
    with pytest.raises(CorruptFileError, match=words):
        list(opened(base_path).scan())


def test_shards_of_the_jvm() -> None:
    for row in HASHES["strings"]:
        for count, shard in row["record_index_group"].items():
            assert shards_of(pa.array([row["s"]]), int(count)).tolist() == [shard], row
    assert "polygenelubricants" in {row["s"] for row in HASHES["strings"]}, "the hash whose magnitude is negative"
    records = VECTORS["record_index_v8"]["records"]
    files = [int(record["file"].split("-")[2]) for record in records]
    assert np.array_equal(shards_of(pa.array([record["key"] for record in records]), 2), files)


def test_a_shard_that_is_missing_is_an_error(tmp_path: Path) -> None:
    base_path = unpack("mor_v6_record_index_015", tmp_path)
    for file in (base_path / ".hoodie/metadata/record_index").glob("*record-index-0001-0*"):
        file.unlink()
    with pytest.raises(CorruptFileError, match=r"shards \[0, 2\]"):
        opened(base_path).lookup(pa.array(["a"]))


def test_a_table_without_a_record_index_has_none(tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack("mor_v9_defaults", tmp_path)))
    assert RecordIndex.open(MetadataTable.open(table, table.timeline())) is None
    assert RecordIndex.open(None) is None
