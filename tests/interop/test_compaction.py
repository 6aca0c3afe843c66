"""Real Hudi and we carry out each other's compaction plans, read what came of it, and go on writing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.validate_metadata import validate_metadata
from tests.interop.hudi_spark import HudiSpark
from tests.interop.test_hudi_on_tables import check, may_be_hidden_from_hudi_rs
from tests.interop.test_metadata_tables import BY_METADATA, options, upsert_by_hudi
from tests.support.hudi_rs import read_table
from tests.support.table_version import table_version
from tests.table.metadata.case import Case
from tests.table.services.compaction_compacting import ALL, clock, fill, plan_and_compact, plans, rows, slices_with_logs
from tests.table.writer import Writer, row

pytestmark = pytest.mark.hudi_jar


def case_of(folder: Path) -> Case:
    """Base files and logs, with a metadata table of every partition of the version."""
    case = Case.create(folder, "MERGE_ON_READ", table_version())
    fill(case.writer)
    return case


def procedure(hudi: HudiSpark, case: Case, operation: str) -> None:
    """One of Hudi's compactions, with what keeps it from changing the table's version or its metadata table."""
    settings = options(hudi, case) | {"hoodie.compact.inline.max.delta.commits": "1"}
    if not hudi.is_0x:
        settings |= {"hoodie.write.table.version": str(table_version()), "hoodie.write.auto.upgrade": "false"}
    told = ",".join(f"{key}={value}" for key, value in settings.items())
    path = case.writer.table.base_path
    found = hudi.sql(path, f"call run_compaction(op => '{operation}', path => '{path}', options => '{told}')")
    assert found, "Hudi had nothing to do"


def all_read(hudi: HudiSpark, case: Case, *, pending: bool = False) -> None:
    """Hudi by listing and by the metadata table, hudi-rs and this project read the oracle's rows."""
    writer = case.writer
    path = writer.table.base_path
    check(read_snapshot(writer.table.reload()), writer, "this project")
    check(hudi.read(path, **{"hoodie.metadata.enable": "false"}), writer, f"Hudi {hudi.version}, by listing")
    check(hudi.read(path, **BY_METADATA), writer, f"Hudi {hudi.version}, by the metadata table")
    # On version 6 hudi-rs does not see what was written between a plan and its commit.
    if not (pending and table_version() == 6) and not may_be_hidden_from_hudi_rs(writer.table.reload()):
        check(read_table(path), writer, "hudi-rs")
    assert validate_metadata(writer.table.reload()) == []


def write_beside(writer: Writer) -> None:
    writer.write([row(key, f"p{key % 2}", 50, "beside") for key in range(0, 30, 4)], ["k5"])


def write_after(hudi: HudiSpark, case: Case) -> None:
    """Hudi finds known keys by the record index; then we write again, and compact."""
    upsert_by_hudi(hudi, case, 100)
    live = list(case.writer.live.values())
    case.writer.write([{**found, "ver": 200, "name": "ours"} for found in live[::3]], [live[1]["id"]])
    all_read(hudi, case)
    plan_and_compact(case.writer)
    assert slices_with_logs(case.writer.table) == []
    all_read(hudi, case)


def test_our_plan_and_our_execution(hudi: HudiSpark, tmp_path: Path) -> None:
    case = case_of(tmp_path)
    writer = case.writer
    instant = schedule_compaction(writer.table, ALL, clock(writer), force=True)
    assert instant is not None
    all_read(hudi, case, pending=True)
    write_beside(writer)
    all_read(hudi, case, pending=True)
    compact(writer.table, instant, clock(writer))
    all_read(hudi, case)
    write_after(hudi, case)


def test_our_plan_is_carried_out_by_hudi(hudi: HudiSpark, tmp_path: Path) -> None:
    case = case_of(tmp_path)
    writer = case.writer
    assert schedule_compaction(writer.table, ALL, clock(writer), force=True) is not None
    write_beside(writer)
    before = rows(writer.table)
    procedure(hudi, case, "run")
    assert plans(writer.table) == []
    assert rows(writer.table) == before
    all_read(hudi, case)
    write_after(hudi, case)


def test_hudis_plan_is_carried_out_by_us(hudi: HudiSpark, tmp_path: Path) -> None:
    case = case_of(tmp_path)
    writer = case.writer
    procedure(hudi, case, "schedule")
    (plan,) = plans(writer.table)
    write_beside(writer)
    before = rows(writer.table)
    compact(writer.table, plan.time, clock(writer))
    assert plans(writer.table) == []
    assert rows(writer.table) == before
    all_read(hudi, case)
    write_after(hudi, case)
