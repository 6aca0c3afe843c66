"""Tables that real Hudi wrote are clustered, and a plan that it left is carried out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.clustering import cluster
from tagstream.table.services.clustering_plan import schedule_clustering
from tagstream.table.services.validate_metadata import validate_metadata
from tests.support.hudi_rs import read_table
from tests.table.reference import expected_records, records, unpack
from tests.table.services.clusters import ALL, pending
from tests.table.services.compaction_compacting import free_clock
from tests.table.services.test_compaction_real_tables import settled

TABLES = [
    "cow_v6_hive_alltypes", "cow_v6_native015_days", "cow_v6_global_bloom_moves", "cow_v9_defaults_alltypes",
    "cow_v9_record_index", "mor_v6_avro_log_deletes", "mor_v6_parquet_log", "mor_v6_compacted",
    "mor_v6_global_simple_moves_015", "mor_v6_record_index_015", "mor_v6_services_015", "flink_mor",
    "mor_v8_global_record_index", "mor_v9_defaults", "mor_v9_services",
]  # fmt: skip


def without_groups(found: list[tuple[str, str, str, str]]) -> list[tuple[str, str, str]]:
    """Partition, key and row of each record: the file groups are others afterwards."""
    return sorted((partition, key, row) for partition, key, _, row in found)


@pytest.mark.extended(
    "more tables that real Hudi wrote", first=("cow_v6_global_bloom_moves", "mor_v6_parquet_log", "mor_v9_services")
)
@pytest.mark.parametrize("name", TABLES)
def test_it_is_clustered(name: str, tmp_path: Path) -> None:
    base = unpack(name, tmp_path)
    wanted = without_groups(expected_records(base))
    table = settled(HoodieTable.open(str(base)))
    tick = free_clock()
    told = table.config.metadata_partitions
    for plan in pending(table):
        cluster(table, plan.time, tick)
        assert without_groups(records(read_snapshot(table))) == wanted
        assert validate_metadata(table) == []
    instant = schedule_clustering(table, ALL, tick, force=True)
    assert instant is not None
    assert without_groups(records(read_snapshot(table))) == wanted
    cluster(table, instant, tick)
    assert pending(table) == []
    assert without_groups(records(read_snapshot(table))) == wanted
    assert table.reload().config.metadata_partitions == told
    assert validate_metadata(table) == []
    assert read_table(str(base)).num_rows == len(wanted)
