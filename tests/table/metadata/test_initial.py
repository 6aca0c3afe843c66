"""A metadata table made of what a table has; one that is made again after a crash; partitions dropped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tagstream.table.errors import MetadataTableMismatchError, UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import read_properties, update_properties
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.metadata.changes import Changes, PartitionChange, newest_places
from tagstream.table.metadata.index_definitions import kept_columns
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.metadata_writer import (
    PARTITIONS,
    MetadataWriter,
    group_name,
    groups_of_keys,
    initial_instant,
    new_metadata_properties,
    record_index_groups,
    unkept_partitions,
)
from tagstream.table.metadata.partitions import (
    begin_partition,
    complete_partition,
    create_empty,
    create_metadata_table,
    drop_partition,
    register,
    write_index_shard,
    write_records,
)
from tagstream.table.metadata.record_encoding import PLACES, instant_ms
from tagstream.table.metadata.record_index import RecordIndex
from tagstream.table.metadata.records import BLOOM_FILTER, COLUMN_STATS, Record
from tagstream.table.schema.schema import avro_to_arrow
from tests.support.table_version import using
from tests.table.metadata.case import Case, groups_of, written
from tests.table.metadata.test_metadata_table import WITH_METADATA, opened
from tests.table.reference import BY_PARTITION
from tests.table.writer import Writer, row

VERSIONS = (6, 8, 9)
BY_015 = {"mor_v6_record_index_015", "mor_v6_services_015"}  # without definitions


def contents(table: HoodieTable, columns: list[str]) -> Changes:
    """Everything in the folders of a table, as one change."""
    partitions = {}
    for partition in table.view().partitions():
        names = [e.name for e in table.storage.list(partition) if not e.is_dir and not e.name.startswith(".hoodie_p")]
        files = [written(Path(table.base_path) / partition / name, columns) for name in names]
        partitions[partition] = PartitionChange(tuple(files))
    return Changes(partitions, columns=columns)


def make(case: Case, groups: dict[str, int], changes: Changes, places: pa.Table, *, by_partition: bool = False) -> None:
    """What a job does; the shards of the record index as its tasks would. ``by_partition``: the form of that index."""
    table = case.writer.table
    metadata = create_metadata_table(table, case.writer.now_ms)
    for partition in (name for name in PARTITIONS if name in groups):
        index = partition == "record_index"
        paths = sorted(changes.partitions) if index and by_partition else None
        initial = begin_partition(metadata, partition, groups[partition], paths)
        if index:
            own = groups_of_keys(places.column("record_key").combine_chunks(), initial.groups)
            if paths is not None:
                own += pc.index_in(places["partition_path"], pa.array(paths)).to_numpy() * initial.groups
            stats = []
            for number in range(initial.total):
                shard = newest_places(places.filter(pa.array(own == number)))
                parts = [shard.slice(start, 7) for start in range(0, shard.num_rows, 7)]
                stats.append(write_index_shard(initial, number, parts))
                assert write_index_shard(initial, number, parts) == stats[-1]  # a task is done again
            found = [stat for stat in stats if stat is not None]
        else:
            found = write_records(initial, changes)
        complete_partition(initial, found, case.times)
    assert MetadataWriter.open(table.reload()) is None
    case.writer.table = register(table, groups, case.columns, case.writer.now_ms, by_partition)


@pytest.mark.extended("more kinds of tables", first=("COPY_ON_WRITE-6", "MERGE_ON_READ-9"))
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_of_a_table_with_commits(table_type: str, version: int, tmp_path: Path) -> None:
    with using(version):
        writer = Writer.without_metadata(tmp_path, table_type)
    case = Case(writer, ["id", "ver", "amount", "_hoodie_record_key"])
    instants: dict[str, str] = {}
    for number in range(3):
        instant = writer.write([row(n, f"p{n % 3}", number) for n in range(number * 10, number * 10 + 40)])
        instants |= {key: instant for key in writer.where if key not in instants}
    rows = [{"record_key": key, "partition_path": p, "file_id": f, "instant_ms": instant_ms(instants[key], True)}
            for key, (p, f) in writer.where.items()]  # fmt: skip
    make(case, groups_of(version), contents(writer.table, case.columns), pa.Table.from_pylist(rows, PLACES))
    case.check()
    index = opened_index(case.metadata)
    assert {r["record_key"]: r["instant"] for part in index.scan() for r in part.to_pylist()} == instants
    writer.before_complete = case.tell
    writer.write([row(n, "p9", 8) for n in range(30, 60)], deletes=["k1"])
    case.check()


@pytest.mark.extended(
    "more tables that real Hudi wrote",
    first=("cow_v6_complexkey_replace", "cow_v9_record_index", "mor_v9_services", "mor_v6_record_index_015"),
)
@pytest.mark.parametrize("name", sorted(WITH_METADATA))
def test_it_says_what_that_of_hudi_said(name: str, tmp_path: Path) -> None:
    table, theirs = opened(name, tmp_path)
    groups = {partition: len(theirs.slices(partition)) for partition in theirs.partitions}
    by_partition = name in BY_PARTITION
    if by_partition:
        (groups["record_index"],) = {*opened_index(theirs).shard_counts.values()}
    columns = sorted({r[COLUMN_STATS]["columnName"] for r in scan(theirs, "column_stats").values()})
    wanted: dict[str, Any] = {
        partition: scan(theirs, partition) for partition in groups if partition != "partition_stats"
    }
    places = index_rows(theirs)
    utc = table.config.timezone_utc
    on_disk = contents(table, columns)
    listed = {p: set(theirs.files(p)) for p in theirs.partition_paths()}
    partitions = {
        p: PartitionChange(tuple(f for f in on_disk.partitions[p].written if f.name in listed[p])) for p in listed
    }
    table.drop_metadata_table(0)
    case = Case(Writer(table.reload(), now_ms=1_800_000_000_000), columns)
    told = [{"record_key": r["record_key"], "partition_path": r["partition_path"], "file_id": r["file_id"],
             "instant_ms": instant_ms(r["instant"], utc)} for r in places]  # fmt: skip
    made = Changes(partitions, columns=columns)
    make(case, groups, made, pa.Table.from_pylist(told, PLACES), by_partition=by_partition)
    ours = case.metadata
    assert sorted(index_rows(ours), key=str) == sorted(places, key=str)
    for partition, records in wanted.items():
        if partition != "record_index":
            assert comparable(scan(ours, partition)) == comparable(records, listed)


def scan(metadata: MetadataTable, partition: str) -> dict[str, Record]:
    return metadata.scan(partition) if partition in metadata.partitions and partition != "record_index" else {}


def opened_index(metadata: MetadataTable) -> RecordIndex:
    index = RecordIndex.open(metadata)
    assert index is not None
    return index


def index_rows(metadata: MetadataTable) -> list[dict[str, Any]]:
    index = RecordIndex.open(metadata)
    return [r for part in index.scan() for r in part.to_pylist()] if index is not None else []


def comparable(records: dict[str, Record], listed: dict[str, set[str]] | None = None) -> dict[str, Any]:
    """What both must say: not when a bloom filter was made; ends of statistics are compared elsewhere."""
    files = {name for names in (listed or {}).values() for name in names}
    found: dict[str, Any] = {}
    for key, record in records.items():
        if record.get(BLOOM_FILTER) is not None:
            found[key] = record[BLOOM_FILTER]["bloomFilter"]
        elif record.get(COLUMN_STATS) is not None:
            stats = record[COLUMN_STATS]
            if listed is None or (stats["fileName"] in files and stats["valueCount"]):
                found[key] = (stats["fileName"], stats["columnName"], stats["valueCount"], stats["nullCount"])
        elif record["filesystemMetadata"]:  # a partition that was cleaned away may have an empty one
            found[key] = record["filesystemMetadata"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_one_that_was_cut_off_is_made_anew(version: int, tmp_path: Path) -> None:
    with using(version):
        writer = Writer.without_metadata(tmp_path, MERGE_ON_READ)
    case = Case(writer, [])
    metadata = create_metadata_table(writer.table, 0)
    begin_partition(metadata, "files", 1)
    assert MetadataTable.open(writer.table.reload(), writer.table.timeline()) is None
    writer.table = create_empty(writer.table, {"files": 1}, [], case.times, 0)
    assert case.metadata.partition_paths() == []
    with pytest.raises(ValueError, match="drop it first"):
        create_metadata_table(writer.table, 0)
    with pytest.raises(ValueError, match="no partition"):
        begin_partition(case.metadata_writer, "x", 1)
    with pytest.raises(ValueError, match="has the partition files"):
        begin_partition(case.metadata_writer, "files", 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_whose_making_was_cut_off(version: int, tmp_path: Path) -> None:
    """The table's next commit takes the unfinished instant back; made again, nothing of the first attempt counts."""
    case = Case.create(tmp_path, COPY_ON_WRITE, version, {"files": 1})
    case.writer.write([row(n, "p", 1) for n in range(9)])
    initial = begin_partition(case.metadata_writer, "record_index", 1)
    places = [("gone", "p", "x", 1)]
    write_index_shard(
        initial, 0, [pa.Table.from_pylist([dict(zip(PLACES.names, r, strict=True)) for r in places], PLACES)]
    )
    case.writer.write([row(n, "p", 2) for n in range(12)])
    assert not case.metadata_writer.timeline().pending
    case.check()
    rows = [(key, p, f, 1) for key, (p, f) in sorted(case.writer.where.items())]
    again = begin_partition(case.metadata_writer, "record_index", 1)
    table = pa.Table.from_pylist([dict(zip(PLACES.names, r, strict=True)) for r in rows], PLACES)
    stat = write_index_shard(again, 0, [newest_places(table)])
    assert stat is not None
    complete_partition(again, [stat], case.times)
    case.writer.table = register(case.writer.table, ["record_index"], [], 0)
    case.check()
    case.writer.write([row(n, "q", 3) for n in range(6, 20)])
    case.check()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_is_added_and_dropped(version: int, tmp_path: Path) -> None:
    case = Case.create(tmp_path, COPY_ON_WRITE, version, {"files": 1})
    case.writer.write([row(n, "p", 1) for n in range(9)])
    initial = begin_partition(case.metadata_writer, "column_stats", 2)
    stats = write_records(initial, contents(case.writer.table, case.columns))
    complete_partition(initial, stats, case.times)
    case.writer.table = register(case.writer.table, ["column_stats"], case.columns, 0)
    case.check()
    case.writer.write([row(n, "p", 2) for n in range(9)])
    case.check()
    assert case.metadata.partitions == {"files", "column_stats"}
    case.writer.table = drop_partition(case.writer.table, "column_stats", 0)
    assert case.metadata.partitions == {"files"}
    assert not case.writer.table.storage.exists(".hoodie/metadata/column_stats")
    if version >= 8:
        assert json.loads(case.writer.table.storage.read(".hoodie/.index_defs/index.json")) == {"indexDefinitions": {}}
    case.writer.write([row(n, "p", 3) for n in range(9)])
    case.check()
    with pytest.raises(ValueError, match="cannot be dropped alone"):
        drop_partition(case.writer.table, "files", 0)


def test_a_metadata_table_that_cannot_be_kept_up_is_named(tmp_path: Path) -> None:
    case = Case.create(tmp_path, COPY_ON_WRITE, 9, {"files": 1})
    table = case.writer.table
    update_properties(table.storage, {"hoodie.table.metadata.partitions": "files,secondary_index_x"}, 0)
    assert unkept_partitions(table.reload()) == ("secondary_index_x",)
    with pytest.raises(UnsupportedTableError, match="secondary_index_x cannot be kept up"):
        MetadataWriter.open(table.reload())
    case.writer.table = drop_partition(table.reload(), "secondary_index_x", 0)
    update_properties(table.storage.below(".hoodie/metadata"), {"hoodie.table.version": "8"}, 0)
    with pytest.raises(MetadataTableMismatchError, match="has version 8"):
        MetadataWriter.open(case.writer.table)


@pytest.mark.parametrize("name", sorted(WITH_METADATA))
def test_the_properties_are_those_of_hudi(name: str, tmp_path: Path) -> None:
    table, metadata = opened(name, tmp_path)
    theirs = read_properties(metadata.storage)
    ours = new_metadata_properties(table.config.name, table.config.version)
    by_015 = "hoodie.table.keygenerator.class" in theirs
    if table.config.version >= 8 or by_015:
        assert ours == theirs


@pytest.mark.parametrize("name", sorted(WITH_METADATA - {"cow_v6_native015_days"}))
def test_the_columns_of_a_real_table_are_kept(name: str, tmp_path: Path) -> None:
    table, metadata = opened(name, tmp_path)
    schema = avro_to_arrow(table.schema_json() or "")
    indexed = {record[COLUMN_STATS]["columnName"] for record in metadata.scan("column_stats").values()}
    assert set(kept_columns(table, schema, ["ver"])) == indexed or name in BY_015
    assert set(kept_columns(table, schema)) == indexed


def test_columns_that_are_asked_for(tmp_path: Path) -> None:
    with using(6):
        writer = Writer.without_metadata(tmp_path, MERGE_ON_READ)
    assert kept_columns(writer.table, writer.schema, ["ver", "gone"]) == ["ver"]
    assert len(kept_columns(writer.table, writer.schema)) == 10


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_are_made_in_the_order_of_hudi(version: int, tmp_path: Path) -> None:
    """That of each version, as the instants say which made the partitions of real tables."""
    case = Case.create(tmp_path, MERGE_ON_READ, version)
    made = {
        path.name: path.joinpath(".hoodie_partition_metadata").read_text().split("commitTime=")[1].split("\n")[0]
        for path in Path(case.metadata_writer.storage.root).iterdir()
        if not path.name.startswith(".")
    }
    wanted = ["files", "column_stats", "bloom_filters", "record_index", "partition_stats"]
    if version == 6:
        wanted = ["files", "bloom_filters", "column_stats", "record_index"]
    assert sorted(made, key=made.__getitem__) == wanted


def test_names() -> None:
    assert group_name("record_index", 12) == "record-index-0012-0"
    assert initial_instant(6, 0, None) == "00000000000000010"
    assert initial_instant(6, 3, "20260101000000000") == "20260101000000000013"
    assert initial_instant(9, 3, "20260101000000000") == "00000000000000003"
    assert [record_index_groups(keys) for keys in (0, 10**8, 10**9, 10**12)] == [10, 10, 90, 10_000]
