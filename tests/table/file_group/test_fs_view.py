"""Which slices a table has: replaced groups, pending compactions, uncommitted files, log order."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.table.file_group.names import ensure_partition, list_partitions
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import parse
from tagstream.table.meta_client.table_config import MERGE_ON_READ, TableConfig
from tagstream.table.storage.storage import Storage
from tests.support.table_version import table_version
from tests.table.reference import NAMES, expected, expected_records, unpack
from tests.table.stepping import Stepping

F = "f-0"


@pytest.mark.parametrize("name", NAMES)
def test_the_groups_of_every_row_have_a_slice(name: str, tmp_path: Path) -> None:
    base_path = unpack(name, tmp_path)
    view = HoodieTable.open(str(base_path)).view()
    found = {(p, s.file_id) for p in view.partitions() for s in view.latest_merged_slices(p)}
    assert {(p, file_id) for p, _, file_id, _ in expected_records(base_path)} <= found
    assert all(view.latest_slice(p, f) is not None for p, f in found)
    assert not found & set(view.timeline.replaced)


def test_replaced_groups_come_back_in_the_past(tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack("cow_v6_complexkey_replace", tmp_path)))
    timeline = table.timeline()
    assert timeline.replaced
    for (partition, file_id), at in timeline.replaced.items():
        assert table.view(timeline).latest_slice(partition, file_id) is None
        before = max((i.time for i in timeline.completed_writes if i.time < at), default=None)
        assert table.view(timeline, before).latest_slice(partition, file_id) is not None


@pytest.fixture
def table(tmp_path: Path) -> HoodieTable:
    return HoodieTable.create(str(tmp_path / "t"), TableConfig("t", MERGE_ON_READ, ("id",), version=table_version()), 0)


def touch(table: HoodieTable, *names: str) -> None:
    ensure_partition(table.storage, "p", "20260101000000000")
    for name in names:
        if name.startswith("/") and table.config.has_completion_times and name.count(".") == 1:
            name = name.replace(".", "1.").replace("/", f"/{name[1]}_")  # completed before anything later began
        table.storage.write_new(f"{table.config.timeline_folder}{name}" if name.startswith("/") else f"p/{name}", b"")


@pytest.mark.table_versions(6)  # from version 8 on a log file is named by its own commit, not by its slice
def test_log_versions_are_numbers_and_failed_ones_count(table: HoodieTable) -> None:
    touch(table, "/1.deltacommit", "/2.deltacommit", f"{F}_0-0-1_1.parquet")
    touch(table, *(f".{F}_1.log.{n}_0-0-1" for n in (10, 9, 1)), f".{F}_2.log.3_0-0-1", f".{F}_1.log.1_0-0-1.cdc")
    (found,) = table.view().latest_merged_slices("p")
    # The newest valid base instant is 2, where only a log file is.
    assert (found.base_instant, found.base_file, found.next_log_version) == ("2", None, 4)
    (found,) = table.view(as_of="1").latest_merged_slices("p")
    assert [log.version for log in found.log_files] == [1, 9, 10]
    assert found.next_log_version == 11


def test_uncommitted_files_do_not_hide_the_slice_before(table: HoodieTable) -> None:
    touch(table, "/1.deltacommit", "/3.deltacommit.requested", f"{F}_0-0-1_1.parquet", f"{F}_0-0-1_3.parquet")
    touch(table, f".{F}_3.log.1_0-0-1", "g-0_0-0-1_3.parquet", ".h-0_3.log.1_0-0-1", "_SUCCESS", ".x.parquet.tmp")
    (found,) = table.view().latest_merged_slices("p")
    assert found.base_file is not None
    assert (found.base_file.instant, found.log_files) == ("1", ())
    assert table.view().latest_slice("p", "g-0") is None
    assert table.view().latest_slice("p", "nothing") is None


def test_partitions_are_folders_with_a_metafile(table: HoodieTable) -> None:
    storage: Storage = table.storage
    for partition in ("a", "a/b", "2024/01/02"):
        ensure_partition(storage, partition, "20260101000000000")
    os.makedirs(storage.where("empty"))
    assert list_partitions(storage) == ["2024/01/02", "a", "a/b"]
    ensure_partition(storage, "a", "20270101000000000")
    metafile = parse(storage.read("2024/01/02/.hoodie_partition_metadata"))
    assert metafile == {"commitTime": "20260101000000000", "partitionDepth": "3"}
    assert parse(storage.read("a/.hoodie_partition_metadata"))["commitTime"] == "20260101000000000"
    ensure_partition(storage, "", "20260101000000000")
    assert list_partitions(storage)[0] == ""
    assert parse(storage.read(".hoodie_partition_metadata"))["partitionDepth"] == "0"


def test_the_unpartitioned_table(tmp_path: Path) -> None:
    base_path = unpack("cow_v6_nonpart_simplebloom", tmp_path)
    view = HoodieTable.open(str(base_path)).view()
    assert view.partitions() == [""]
    assert len(view.latest_merged_slices("")) == len({f for _, _, f, _ in expected_records(base_path)})
    assert expected(base_path)["row_count"] == 450


@pytest.mark.parametrize("groups", [1, 5, 200])
def test_the_slices_of_many_groups_cost_one_listing(table: HoodieTable, groups: int) -> None:
    ids = [f"{n:032d}-0" for n in range(200)]
    touch(table, "/1.deltacommit", *(f"{file_id}_0-0-1_1.parquet" for file_id in ids))
    touch(table, *(f".{file_id}_1.log.1_0-0-1" for file_id in ids[::2]), f".{ids[0]}9_1.log.1_0-0-1")
    view = table.view()
    expected = {s.file_id: s for s in view.latest_merged_slices("p") if s.file_id in ids[:groups]}
    looks: list[tuple[str, str]] = []
    stepping = replace(view, storage=Stepping(table.storage, lambda name, rel: looks.append((name, rel))))
    assert stepping.latest_slices("p", [*ids[:groups], "unknown-0"]) == expected
    assert looks == [("list", "p")]
    assert len(expected) == groups
