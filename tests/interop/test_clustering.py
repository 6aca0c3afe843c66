"""Real Hudi and we carry out each other's clustering plans, read what came of it, and go on writing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.clustering import cluster
from tagstream.table.services.clustering_plan import schedule_clustering
from tests.interop.hudi_spark import HudiSpark
from tests.interop.test_compaction import all_read
from tests.interop.test_metadata_tables import options, upsert_by_hudi
from tests.support.table_version import table_version
from tests.table.metadata.case import Case
from tests.table.services.clusters import ALL, fill, learn, pending, plan_and_cluster
from tests.table.services.compaction_compacting import clock
from tests.table.writer import row

pytestmark = pytest.mark.hudi_jar
TYPES = [COPY_ON_WRITE, MERGE_ON_READ]


def case_of(folder: Path, table_type: str) -> Case:
    """Several small groups a partition, with a metadata table of every partition of the version."""
    case = Case.create(folder, table_type, table_version())
    case.writer.groups = 3
    fill(case.writer)
    return case


def procedure(hudi: HudiSpark, case: Case, operation: str) -> None:
    """One of Hudi's clusterings, with what keeps it from changing the table's version or its metadata table."""
    settings = options(hudi, case)
    if not hudi.is_0x:
        settings |= {"hoodie.write.table.version": str(table_version()), "hoodie.write.auto.upgrade": "false"}
    told = ",".join(f"{key}={value}" for key, value in settings.items())
    path = case.writer.table.base_path
    hudi.sql(path, f"call run_clustering(op => '{operation}', path => '{path}', options => '{told}')")


def go_on(hudi: HudiSpark, case: Case) -> None:
    """Hudi finds known keys by the record index, where they are now; then we write."""
    writer = case.writer
    learn(writer)
    upsert_by_hudi(hudi, case, 100)
    learn(writer)
    live = list(writer.live.values())
    writer.write([{**found, "ver": 200, "name": "ours"} for found in live[::3]], [live[1]["id"]])
    all_read(hudi, case)


@pytest.mark.parametrize("table_type", TYPES)
def test_our_plan_and_our_execution(hudi: HudiSpark, table_type: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, table_type)
    writer = case.writer
    instant = schedule_clustering(writer.table, ALL, clock(writer), force=True)
    assert instant is not None
    all_read(hudi, case)
    cluster(writer.table, instant, clock(writer))
    all_read(hudi, case)
    go_on(hudi, case)


@pytest.mark.parametrize("table_type", TYPES)
def test_our_plan_and_their_execution(hudi: HudiSpark, table_type: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, table_type)
    assert schedule_clustering(case.writer.table, ALL, clock(case.writer), force=True) is not None
    procedure(hudi, case, "execute")
    assert pending(case.writer.table) == []
    assert case.writer.table.timeline().replaced
    all_read(hudi, case)
    go_on(hudi, case)


@pytest.mark.parametrize("table_type", TYPES)
def test_their_plan_and_our_execution(hudi: HudiSpark, table_type: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, table_type)
    procedure(hudi, case, "schedule")
    (planned,) = pending(case.writer.table)
    all_read(hudi, case)
    cluster(case.writer.table, planned.time, clock(case.writer))
    all_read(hudi, case)
    go_on(hudi, case)
    case.writer.with_options(inserts_to_base_files=True)
    case.writer.write([row(key, "p0", 300) for key in range(500, 510)])
    learn(case.writer)
    plan_and_cluster(case.writer)
    all_read(hudi, case)
