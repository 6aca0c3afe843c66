"""The metadata tables that real Hudi wrote say what is on disk, and what Hudi read."""

from __future__ import annotations

import decimal
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.log_format import BlockType, HeaderKey, encode_block, rollback_block, write_log_file
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import update_properties
from tagstream.table.metadata.column_ranges import ColumnRange
from tagstream.table.metadata.metadata_table import COLUMN_STATS_PARTITION, FILES_PARTITION, MetadataTable
from tagstream.table.metadata.record_encoding import stats_record
from tagstream.table.metadata.records import (
    COLUMN_STATS,
    Record,
    column_id,
    column_stats_key,
    file_id,
    merged,
    partition_id,
)
from tests.support.stored import stored
from tests.table.metadata.hfiles import FIXTURES
from tests.table.reference import NAMES, unpack

HASHES = json.loads((FIXTURES / "vectors/hashes.json").read_text())
VECTORS = json.loads((FIXTURES / "vectors/mdt.json").read_text())
WITH_METADATA = {
    "cow_v6_complexkey_replace", "cow_v6_failed_left", "cow_v6_native015_days", "cow_v6_nonpart_simplebloom",
    "cow_v9_defaults_alltypes", "cow_v9_record_index", "mor_v6_compacted", "mor_v6_parquet_log",
    "mor_v6_record_index_015", "mor_v6_services_015", "mor_v8_global_record_index", "mor_v9_defaults",
    "mor_v9_partitioned_record_index", "mor_v9_services",
}  # fmt: skip


def opened(name: str, folder: Path) -> tuple[HoodieTable, MetadataTable]:
    table = HoodieTable.open(str(unpack(name, folder)))
    found = MetadataTable.open(table, table.timeline())
    assert found is not None
    return table, found


def test_hashes_of_names() -> None:
    for row in HASHES["strings"]:
        if row["s"]:  # the empty partition has a name of its own
            assert (column_id(row["s"]), partition_id(row["s"])) == (row["column_id"], row["partition_id"])
        assert file_id(row["s"]) == row["file_id"]


def test_keys_of_column_statistics() -> None:
    for entry in VECTORS["column_stats_v8"]:
        record = entry["record"]
        assert entry["key"] in {
            column_stats_key(record["columnName"], f"part=p{n}", record["fileName"]) for n in range(4)
        }


@pytest.mark.parametrize("name", NAMES)
def test_only_tables_with_a_metadata_table_have_one(name: str, tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    assert (MetadataTable.open(table, table.timeline()) is not None) == (name in WITH_METADATA)
    assert MetadataTable.open(table.without_metadata_table(), table.timeline()) is None


@pytest.mark.parametrize("name", sorted(WITH_METADATA))
def test_its_listing_is_that_of_the_folders(name: str, tmp_path: Path) -> None:
    table, metadata = opened(name, tmp_path)
    view = table.view(metadata.data_timeline)
    assert metadata.partition_paths() == view.partitions()
    for partition in view.partitions():
        listed = metadata.files(partition)
        for file_slice in view.latest_merged_slices(partition):
            files = [*([file_slice.base_file] if file_slice.base_file else []), *file_slice.log_files]
            assert {file.name: file.size for file in files}.items() <= listed.items()
        on_disk = {
            e.name: e.size for e in table.storage.list(partition) if not e.name.startswith(".hoodie") and not e.is_dir
        }
        assert listed.items() <= on_disk.items()


@pytest.mark.parametrize("name", sorted(WITH_METADATA))
def test_a_lookup_is_that_part_of_a_scan(name: str, tmp_path: Path) -> None:
    _, metadata = opened(name, tmp_path)
    for partition in sorted(metadata.partitions):
        whole = metadata.scan(partition)
        assert whole
        some = sorted(whole)[::3]
        assert metadata.lookup(partition, [*some, "no such key"]) == {key: whole[key] for key in some}


@pytest.mark.parametrize("name", sorted(n for n in WITH_METADATA if n != "cow_v6_native015_days"))
def test_column_statistics_have_the_keys_of_their_names(name: str, tmp_path: Path) -> None:
    table, metadata = opened(name, tmp_path)
    found = metadata.scan(COLUMN_STATS_PARTITION)
    # Statistics of a partition that was cleaned away as a whole may stay.
    partitions = [*table.view(metadata.data_timeline).partitions(), "p2"]
    for key, record in found.items():
        stats = record[COLUMN_STATS]
        assert key in {column_stats_key(stats["columnName"], path, stats["fileName"]) for path in partitions}


def test_a_table_whose_last_write_failed_does_not_list_its_files(tmp_path: Path) -> None:
    table, metadata = opened("cow_v6_failed_left", tmp_path)
    pending = {instant.time for instant in metadata.data_timeline.pending}
    assert pending
    for partition in metadata.partition_paths():
        assert not [name for name in metadata.files(partition) for time in pending if time in name]
    assert table.timeline().newest_completed is not None


@pytest.mark.parametrize("name", ["mor_v6_record_index_015", "mor_v8_global_record_index", "cow_v9_record_index"])
def test_an_instant_that_is_not_completed_on_the_data_timeline_is_ignored(name: str, tmp_path: Path) -> None:
    table, metadata = opened(name, tmp_path)
    before = metadata.scan(FILES_PARTITION)
    last = metadata.data_timeline.completed_writes[-1]
    (tmp_path / name / "table" / metadata.data_timeline.folder / last.file_name()).unlink()
    earlier = MetadataTable.open(table, table.timeline())
    assert earlier is not None
    assert not earlier.counts(last.time)
    assert metadata.counts(last.time)
    after = earlier.scan(FILES_PARTITION)
    assert after != before
    assert not [
        file for key in after if key != "__all_partitions__" for file in earlier.files(key) if last.time in file
    ]


def test_a_rolled_back_instant_of_its_own_is_forgotten(tmp_path: Path) -> None:
    _, metadata = opened("mor_v6_record_index_015", tmp_path)
    last = metadata.data_timeline.completed_writes[-1].time
    (file_slice,) = metadata.slices(FILES_PARTITION)
    name = f".files-0000-0_{file_slice.base_instant}.log.{file_slice.next_log_version}_9-9-9"
    before = metadata.scan(FILES_PARTITION)
    write_log_file(metadata.storage, f"files/{name}", [rollback_block("20991231235959999", last)])
    table = HoodieTable.open(str(tmp_path / "mor_v6_record_index_015/table"))
    again = MetadataTable.open(table, metadata.data_timeline)
    assert again is not None
    after = again.scan(FILES_PARTITION)
    assert before != after
    assert not [name for record in after.values() for name in record["filesystemMetadata"] if last in name]


def test_foreign_blocks_are_refused(tmp_path: Path) -> None:
    _, metadata = opened("mor_v6_record_index_015", tmp_path)
    last = metadata.data_timeline.completed_writes[-1].time
    (file_slice,) = metadata.slices(FILES_PARTITION)
    path = Path(metadata.storage.where(f"files/.files-0000-0_{file_slice.base_instant}.log.99_9-9-9"))
    cases: list[tuple[BlockType, dict[HeaderKey, str], type[Exception], str]] = [
        (BlockType.PARQUET_DATA, {}, CorruptFileError, "does not belong"),
        (BlockType.HFILE_DATA, {HeaderKey.SCHEMA: "{}"}, CorruptFileError, "no readable HFile"),
    ]
    table = HoodieTable.open(str(tmp_path / "mor_v6_record_index_015/table"))
    for kind, header, error, text in cases:
        path.unlink(missing_ok=True)
        write_log_file(*stored(path), [encode_block(kind, {HeaderKey.INSTANT_TIME: last, **header}, b"nothing")])
        again = MetadataTable.open(table, metadata.data_timeline)
        assert again is not None
        with pytest.raises(error, match=text):
            again.scan(FILES_PARTITION)


def test_a_partition_it_does_not_have_is_named(tmp_path: Path) -> None:
    _, metadata = opened("cow_v6_native015_days", tmp_path)
    with pytest.raises(UnsupportedTableError, match="no partition column_stats; it has files"):
        metadata.scan(COLUMN_STATS_PARTITION)


def test_a_metadata_table_that_is_gone_or_of_another_version_is_an_error(tmp_path: Path) -> None:
    table, metadata = opened("mor_v8_global_record_index", tmp_path)
    update_properties(metadata.storage, {"hoodie.table.version": "6"}, 0)
    with pytest.raises(UnsupportedTableError, match="version 6"):
        MetadataTable.open(table, table.timeline())
    shutil.rmtree(metadata.storage.root)
    with pytest.raises(Exception, match="metadata"):
        MetadataTable.open(table, table.timeline())


def files(**sizes: int | None) -> dict[str, Any]:
    infos = {name: {"size": size or 0, "isDeleted": size is None} for name, size in sizes.items()}
    return {"filesystemMetadata": infos}


def stats(low: int | None, high: int | None, **more: Any) -> dict[str, Any]:
    ends = [None if value is None else ("IntWrapper", {"value": value}) for value in (low, high)]
    counts = dict.fromkeys(("valueCount", "nullCount", "totalSize", "totalUncompressedSize"), 1)
    return {COLUMN_STATS: {"minValue": ends[0], "maxValue": ends[1], "isDeleted": False, **counts, **more}}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (files(a=1, b=2), files(b=3, c=4), files(a=1, b=3, c=4)),
        (files(a=1, b=2), files(b=1), files(a=1, b=2)),
        (files(a=1, b=2), files(a=None, z=None), files(b=2)),
        (None, files(a=1, b=None), files(a=1)),
    ],
)
def test_listings_merge(old: Any, new: Any, expected: Any) -> None:
    assert merged(old, new) == expected


def test_statistics_merge() -> None:
    both = merged(stats(1, 5), stats(3, 9))
    assert both == {
        COLUMN_STATS: {
            **stats(1, 9, valueCount=2, nullCount=2)[COLUMN_STATS],
            "totalSize": 2,
            "totalUncompressedSize": 2,
        }
    }
    assert merged(stats(1, 5), stats(3, 9, isTightBound=True)) == stats(3, 9, isTightBound=True)
    unknown = merged(stats(1, 5), stats(None, None, valueCount=2))
    assert unknown is not None
    assert unknown[COLUMN_STATS]["minValue"] is None
    assert merged(stats(1, 5), stats(1, 5, isDeleted=True)) is None
    assert merged(None, stats(1, 5)) == stats(1, 5)


@pytest.mark.parametrize("rows", [0, 3])
def test_what_has_no_values_leaves_a_range_as_it_is(rows: int) -> None:
    """Deletes alone, or nulls alone: Hudi's readers take a range without ends for one that no row is in."""
    some = stats_record("p", "f", "c", ColumnRange("decimal(10,2)", -5, 300, 4, 1, 1, 1), 9)[1]
    none = stats_record("p", "f", "c", ColumnRange("decimal(10,2)", None, None, rows, rows), 9)[1]
    for both in (merged(some, none), merged(none, some)):
        assert both is not None
        found, wanted = both[COLUMN_STATS], some[COLUMN_STATS]
        assert {n: found[n] for n in ("minValue", "maxValue", "valueType")} == {
            n: wanted[n] for n in ("minValue", "maxValue", "valueType")
        }
        assert (found["valueCount"], found["nullCount"]) == (4 + rows, 1 + rows)
    both = merged(none, none)
    assert both is not None
    assert both[COLUMN_STATS]["maxValue"] is None


def test_not_a_number_is_greater_than_all_numbers() -> None:
    ranges = (ColumnRange("double", 1.0, 2.0, 1, 0), ColumnRange("double", 0.5, math.nan, 1, 0))
    records = [stats_record("p", "f", "c", each, 9)[1] for each in ranges]
    for first, second in (records, records[::-1]):
        both = merged(first, second)
        assert both is not None
        assert both[COLUMN_STATS]["minValue"][1]["value"] == 0.5
        assert math.isnan(both[COLUMN_STATS]["maxValue"][1]["value"])


@pytest.mark.parametrize("values", [(-5, 300), (300, -5), (-1, -40_000), (127, 128), (0, -128)])
def test_ends_of_decimals_are_numbers_and_not_bytes(values: tuple[int, int]) -> None:
    """Table version 9 has the bytes of the unscaled number; its own record of a file has them from our encoder."""
    first, second = (stats_record("p", "f", "c", ColumnRange("decimal(10,2)", v, v, 1, 0, 1, 1), 9)[1] for v in values)
    both = merged(first, second)
    assert both is not None
    ends = [both[COLUMN_STATS][name][1]["value"] for name in ("minValue", "maxValue")]
    assert [int.from_bytes(end, "big", signed=True) for end in ends] == [min(values), max(values)]


@pytest.mark.parametrize(
    ("kind", "low", "high", "ends"),
    [
        ("decimal(12,3)", -2, 99102, ("-0.002", "99.102")),
        ("date", 20454, 20553, (20454, 20553)),
        ("long", 1, 7, (1, 7)),
    ],
)
def test_statistics_of_both_forms_are_joined_in_the_newer_ones(
    kind: str, low: int, high: int, ends: tuple[object, object]
) -> None:
    """A table that Hudi brought to version 9 has the old form; one of ours wrote the new one over it."""

    def told(form: int, value: int) -> Record:
        return stats_record("p", "f", "c", ColumnRange(kind, value, value, 1, 0, 1, 1), form)[1]

    for forms in ((8, 9), (9, 8)):
        both = merged(told(forms[0], low), told(forms[1], high))
        assert both is not None
        found, plain = both[COLUMN_STATS], told(forms[1], low)[COLUMN_STATS]
        assert found["minValue"] == plain["minValue"]
        assert found["maxValue"] == told(forms[1], high)[COLUMN_STATS]["maxValue"]
        assert found.get("valueType") == plain.get("valueType")
        if forms[1] == 8:
            assert tuple(found[end][1]["value"] for end in ("minValue", "maxValue")) == tuple(
                decimal.Decimal(end) if isinstance(end, str) else end for end in ends
            )
