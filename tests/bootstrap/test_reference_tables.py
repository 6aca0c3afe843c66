"""Every table that real Hudi wrote loads to exactly the rows that real Hudi reads from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.bootstrap.plan import plan_bootstrap
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.bootstrap.index_content import content, live, load, make_layout
from tests.table.reference import BY_PARTITION, NAMES, expected, unpack


def rows_of(base_path: Path) -> list[tuple[str, str, str]]:
    """(record key, partition path, file id) by Hudi's own snapshot query."""
    records = expected(base_path)["records"]
    return [(r["_hoodie_record_key"], r["_hoodie_partition_path"], r["file_id"]) for r in records]


@pytest.mark.extended(
    "more tables that real Hudi wrote",
    first=(
        "cow_v6_global_bloom_moves",
        "mor_v6_compaction_pending",
        "cow_v9_record_index",
        "mor_v9_services",
        "mor_v6_avro_log_deletes",
        "mor_v6_bucket",
        "flink_mor_moves",
    ),
)
@pytest.mark.parametrize("name", sorted({*NAMES} - BY_PARTITION))
def test_loads_to_exactly_its_rows(name: str, tmp_path: Path) -> None:
    base_path = unpack(name, tmp_path)
    table = HoodieTable.open(str(base_path))
    layout = make_layout(tmp_path, table)
    report = load(table, layout)
    rows = rows_of(base_path)
    assert live(layout) == set(rows)
    assert (report.live, report.twice, report.skipped, report.mismatched) == (len(rows), 0, [], [])
    assert report.instant == table.timeline().newest_completed


@pytest.mark.parametrize("name", ["cow_v6_global_bloom_moves", "mor_v8_global_record_index", *BY_PARTITION])
def test_partition_is_part_of_the_key_in_an_index_that_is_not_global(name: str, tmp_path: Path) -> None:
    base_path = unpack(name, tmp_path)
    table = HoodieTable.open(str(base_path))
    layout = make_layout(tmp_path, table, global_index=False)
    load(table, layout)
    found = {k: (e.partition, e.file_id) for k, e in content(layout).items() if e.partition is not None}
    assert found == {f"{partition}\0{key}": (partition, file_id) for key, partition, file_id in rows_of(base_path)}


def test_moves_leave_no_key_behind_and_deletes_leave_their_ordering(tmp_path: Path) -> None:
    """The deletes in this table's logs are what a bootstrap that takes every key it sees would count twice."""
    base_path = unpack("mor_v6_global_simple_moves_015", tmp_path)
    table = HoodieTable.open(str(base_path))
    layout = make_layout(tmp_path, table)
    report = load(table, layout)
    index = content(layout)
    gone = {k for k, e in index.items() if e.partition is None}
    assert len(gone) == report.tombstones > 0
    assert gone.isdisjoint(key for key, _, _ in rows_of(base_path))
    assert all(index[key].ordering is not None for key in gone)
    versions = {r["_hoodie_record_key"]: r["row"]["ver"] for r in expected(base_path)["records"]}
    assert {k: int(e.ordering) for k, e in index.items() if e.partition is not None} == versions


def test_partitions_that_do_not_match_are_left_out_and_said(tmp_path: Path) -> None:
    base_path = unpack("cow_v6_global_bloom_moves", tmp_path)
    table = HoodieTable.open(str(base_path))
    layout = make_layout(tmp_path, table)
    report = load(table, layout, partition_regex="p[01]")
    assert live(layout) == {row for row in rows_of(base_path) if row[1] in ("p0", "p1")}
    assert sorted(x for x in report.left_out if x.startswith("partition ")) == [
        "partition 'p2': index.partition.regex=p[01] leaves it out",
        "partition 'p3': index.partition.regex=p[01] leaves it out",
    ]


def test_the_plan_says_what_is_pending_and_what_was_replaced(tmp_path: Path) -> None:
    replaced = plan_bootstrap(HoodieTable.open(str(unpack("cow_v6_complexkey_replace", tmp_path))))
    assert any("replaced by instant" in item.why for item in replaced.left_out)
    failed = plan_bootstrap(HoodieTable.open(str(unpack("cow_v6_failed_left", tmp_path))))
    assert any("not completed" in item.why for item in failed.left_out)
    assert failed.expected_rows == 170
