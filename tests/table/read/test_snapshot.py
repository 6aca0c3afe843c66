"""Tables that real Hudi wrote read to exactly the rows real Hudi reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import update_properties
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import read_snapshot, scan_snapshot, snapshot_schema
from tagstream.table.services.validate import validate
from tests.table.reference import NAMES, expected, expected_records, records, unpack

# The Flink tables come without the answer of the read-optimized query.
MOR = [name for name in NAMES if name.startswith("mor_")]
# Those that went through table services come without the list of instants.
LISTED = [name for name in NAMES if "_services" not in name]
# What validate has to say about tables whose last write was left unfinished.
UNFINISHED = {"cow_v6_failed_left", "flink_mor", "flink_mor_moves", "mor_v6_rollback_and_inflight"}


@pytest.mark.parametrize("name", NAMES)
def test_snapshot_of_every_reference_table(name: str, tmp_path: Path) -> None:
    base_path = unpack(name, tmp_path)
    rows = read_snapshot(HoodieTable.open(str(base_path)))
    assert records(rows) == expected_records(base_path)
    assert rows.num_rows == expected(base_path)["row_count"]


@pytest.mark.parametrize("name", MOR)
def test_base_files_alone_are_the_read_optimized_query(name: str, tmp_path: Path) -> None:
    base_path = unpack(name, tmp_path)
    table = HoodieTable.open(str(base_path))
    timeline = table.timeline()
    view = table.view(timeline)
    schema = snapshot_schema(table, timeline, view)
    reader = SliceReader(table, timeline, view.as_of or "", schema, tuple(schema.names))
    parts = [schema.empty_table()]
    for partition in view.partitions():
        for base in view.latest_base_files(partition):
            parts += reader.read(FileSlice(partition, base.file_id, base.instant, base))
    assert records(pa.concat_tables(parts)) == expected_records(base_path, "expected_ro.json")


@pytest.mark.parametrize("name", NAMES)
def test_validate_finds_only_what_is_unfinished(name: str, tmp_path: Path) -> None:
    problems = validate(HoodieTable.open(str(unpack(name, tmp_path))))
    assert len(problems) == (1 if name in UNFINISHED else 0), problems
    assert all(problem.startswith("unfinished ") for problem in problems)


@pytest.mark.parametrize("name", LISTED)
def test_timeline_has_the_instants_hudi_lists(name: str, tmp_path: Path) -> None:
    base_path = unpack(name, tmp_path)
    timeline = HoodieTable.open(str(base_path)).timeline()
    listed = expected(base_path)["completed_instants"]
    times = [entry["time"] if isinstance(entry, dict) else str(entry).split(".")[0].split("_")[0] for entry in listed]
    assert {i.time for i in timeline.completed_writes} <= set(times)
    assert {i.time for i in timeline.instants if i.is_completed} == set(times)


def test_columns_and_partitions_can_be_chosen(tmp_path: Path) -> None:
    base_path = unpack("mor_v6_avro_log_deletes", tmp_path)
    table = HoodieTable.open(str(base_path))
    rows = read_snapshot(table, ["name", "_hoodie_record_key"], ["p1"])
    assert rows.column_names == ["name", "_hoodie_record_key"]
    wanted = {key for partition, key, _, _ in expected_records(base_path) if partition == "p1"}
    assert set(rows.column("_hoodie_record_key").to_pylist()) == wanted
    with pytest.raises(ValueError, match="no column nothing"):
        read_snapshot(table, ["nothing"])


def test_time_travel_reads_each_commit_as_it_was(tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack("mor_v6_avro_log_deletes", tmp_path)))
    counts = [read_snapshot(table, as_of=i.time).num_rows for i in table.timeline().completed_writes]
    assert counts == [120, 130, 118, 128, 123]  # insert 120, 10 new, delete 12, 10 new, delete 5


def test_batches_are_bounded(tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack("cow_v6_nonpart_simplebloom", tmp_path)))
    schema, batches = scan_snapshot(table)
    parts = list(batches)
    assert all(part.schema == schema for part in parts)
    assert sum(part.num_rows for part in parts) == 450


def test_foreign_merge_code_is_refused_by_name(tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack("mor_v6_avro_log_deletes", tmp_path)))
    update_properties(table.storage, {"hoodie.compaction.payload.class": "com.example.MyPayload"}, 0)
    with pytest.raises(UnsupportedTableError, match=r"com\.example\.MyPayload"):
        read_snapshot(table.reload())
