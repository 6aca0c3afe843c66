"""Tables that real Hudi wrote: its pending plans are carried out, and every merge-on-read table is compacted."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.rollback import resume_rollbacks, rollback
from tagstream.table.services.validate_metadata import validate_metadata
from tests.support.hudi_rs import read_table
from tests.support.paths import FIXTURES
from tests.table.reference import expected_records, records, unpack
from tests.table.services.compaction_compacting import ALL, free_clock, plans, slices_with_logs

MERGE_ON_READ = [
    "mor_v6_avro_log_deletes", "mor_v6_parquet_log", "mor_v6_bucket", "mor_v6_compacted", "mor_v6_global_simple_moves_015",
    "mor_v6_rollback_and_inflight", "mor_v6_record_index_015", "mor_v6_services_015", "mor_v6_compaction_pending",
    "flink_mor", "flink_mor_moves", "flink_mor_compaction_pending", "mor_v8_global_record_index", "mor_v9_defaults",
    "mor_v9_services",
]  # fmt: skip


def settled(table: HoodieTable) -> HoodieTable:
    """As a job leaves it at its start: failed writes are rolled back, a metadata table that can't be kept is dropped."""
    tick = free_clock()
    resume_rollbacks(table)
    for pending in table.timeline().pending_writes:
        rollback(table, pending.time, next_instant(tick(), table.timeline().newest, table.config.timezone_utc))
    return table.reload()


def unpacked(name: str, folder: Path) -> Path:
    """One of the tables above, as ``reference.unpack``; Flink's plan lies apart, for it is of no use to other tests."""
    archive = FIXTURES / "compaction" / f"{name}.tar.gz"
    if not archive.exists():
        return unpack(name, folder)
    with tarfile.open(archive) as found:
        found.extractall(folder, filter="data")
    return folder / name / "table"


@pytest.mark.extended(
    "more tables that real Hudi wrote",
    first=("mor_v6_compaction_pending", "mor_v6_parquet_log", "flink_mor_moves", "mor_v9_services"),
)
@pytest.mark.parametrize("name", MERGE_ON_READ)
def test_it_is_compacted(name: str, tmp_path: Path) -> None:
    base = unpacked(name, tmp_path)
    wanted = expected_records(base)
    table = settled(HoodieTable.open(str(base)))
    tick = free_clock()
    told = table.config.metadata_partitions
    for pending in plans(table):
        compact(table, pending.time, tick)
        assert records(read_snapshot(table)) == wanted
        assert validate_metadata(table) == []
    instant = schedule_compaction(table, ALL, tick, force=True)
    if instant is not None:
        assert records(read_snapshot(table)) == wanted
        compact(table, instant, tick)
    assert slices_with_logs(table) == []
    assert records(read_snapshot(table)) == wanted
    assert table.reload().config.metadata_partitions == told
    assert validate_metadata(table) == []
    assert read_table(str(base)).num_rows == len(wanted)


def test_a_table_without_logs_is_refused(tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack("cow_v6_failed_left", tmp_path)))
    with pytest.raises(UnsupportedTableError, match="copy-on-write"):
        schedule_compaction(table, ALL, free_clock())
