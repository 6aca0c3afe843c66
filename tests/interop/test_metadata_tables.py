"""Real Hudi takes our metadata table for its own: it lists by it, finds keys in its record index, and goes on with it."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.metadata.compaction import clean, compact
from tagstream.table.metadata.metadata_writer import MetadataWriter
from tests.interop.hudi_spark import HudiSpark
from tests.interop.test_hudi_on_tables import check, learn_places
from tests.support.table_version import table_version
from tests.table.metadata.case import Case
from tests.table.metadata.test_rollback import failing_write, take_back
from tests.table.writer import row

pytestmark = pytest.mark.hudi_jar
BY_METADATA = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
WITH_FILTERS = {"hoodie.metadata.bloom.filter.enable": "true"}  # 1.2 asks those of the metadata table's own base files


def filled(folder: Path, table_type: str) -> Case:
    """Inserts, updates, deletes and moves, each told to a metadata table with every partition of the version."""
    case = Case.create(folder, table_type, table_version())
    case.writer.write([row(n, f"p{n % 3}", 1) for n in range(60)])
    case.writer.write([row(n, f"p{n % 3}", 2) for n in range(0, 60, 4)], deletes=["k1", "k2"])
    case.writer.write([row(n, "p9", 3) for n in range(20, 30)])
    case.check()
    return case


def options(hudi: HudiSpark, case: Case) -> dict[str, str]:
    """The indexes that the table has stay on."""
    partitions = case.metadata.partitions
    on = {
        "column.stats": "column_stats", "partition.stats": "partition_stats", "bloom.filter": "bloom_filters"
    }  # fmt: skip
    return hudi.index("RECORD") | {
        f"hoodie.metadata.index.{name}.enable": str(partition in partitions).lower() for name, partition in on.items()
    }


def read_by_both(hudi: HudiSpark, case: Case, **more: str) -> None:
    """The oracle's rows by listing, and by the metadata table."""
    path = case.writer.table.base_path
    check(hudi.read(path, **{"hoodie.metadata.enable": "false"}), case.writer, f"Hudi {hudi.version}, by listing")
    check(hudi.read(path, **{**BY_METADATA, **more}), case.writer, f"Hudi {hudi.version}, by the metadata table")


def check_filters(hudi: HudiSpark, case: Case) -> None:
    """Hudi finds the rows of each name and of each version, by statistics of files and partitions, whatever they have."""
    path = case.writer.table.base_path
    view = (
        f"create or replace temporary view found using hudi options (path '{path}', 'hoodie.metadata.enable' 'true', "
        "'hoodie.enable.data.skipping' 'true')"
    )
    for column in ("name", "ver"):
        for value in {r[column] for r in case.writer.live.values()}:
            rows = hudi.sql(path, view, f"select id from found where {column} = {value!r}")
            assert sorted(r["id"] for r in rows) == sorted(k for k, r in case.writer.live.items() if r[column] == value)


def upsert_by_hudi(hudi: HudiSpark, case: Case, ver: int, **more: str) -> None:
    """Known keys are found through the record index, new ones come in; all partitions of the metadata table are kept up."""
    write_by_hudi(hudi, case, ver, **more)
    read_by_both(hudi, case, **more)


def write_by_hudi(hudi: HudiSpark, case: Case, ver: int, **more: str) -> None:
    """The same; it is we who look at the rows' places and at the record index."""
    before = case.metadata.partitions
    known = [{**found, "ver": ver, "name": "hudi"} for found in list(case.writer.live.values())[::3]]
    rows = [*known, *(row(1000 + ver * 10 + n, f"p{n % 2}", ver) for n in range(5))]
    hudi.write(case.writer.table, pa.Table.from_pylist(rows, case.writer.schema), options(hudi, case) | more)
    case.writer.live |= {found["id"]: found for found in rows}
    case.writer.table = case.writer.table.reload()
    assert case.metadata.partitions == before
    learn_places(case.writer)
    case.check_record_index(case.metadata)


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_hudi_reads_and_goes_on_with_it(hudi: HudiSpark, tmp_path: Path, table_type: str) -> None:
    case = filled(tmp_path, table_type)
    read_by_both(hudi, case)
    upsert_by_hudi(hudi, case, 10)
    case.writer.write([row(n, f"p{n % 3}", 20) for n in range(0, 60, 5) if f"k{n}" in case.writer.live], deletes=["k3"])
    case.check_record_index(case.metadata)
    read_by_both(hudi, case)


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_hudi_goes_on_after_our_services(hudi: HudiSpark, tmp_path: Path, table_type: str) -> None:
    case = filled(tmp_path, table_type)
    assert compact(case.metadata_writer, case.times, 2) is not None
    failed = failing_write(case)
    take_back(case, failed)
    read_by_both(hudi, case)
    case.writer.write([row(n, f"p{n % 3}", 4) for n in range(0, 60, 7) if f"k{n}" in case.writer.live])
    assert compact(case.metadata_writer, case.times, 1) is not None
    assert clean(case.metadata_writer, case.times)
    case.check()
    upsert_by_hudi(hudi, case, 10)


def test_hudi_asks_the_bloom_filters_of_our_base_files(hudi: HudiSpark, tmp_path: Path) -> None:
    """1.2.0 has a setting to ask them, which its own look-ups do not heed yet; its reader of a file does, when told to."""
    case = filled(tmp_path, MERGE_ON_READ)
    assert compact(case.metadata_writer, case.times, 2) is not None
    files = [Path(case.metadata.storage.root, s.base_path or "") for s in case.metadata.slices("record_index")]
    keys, strangers = sorted(case.writer.live), [f"stranger-{n}" for n in range(200)]
    told = [hudi.ask_hfile(path, [*keys, *strangers]) for path in files]
    assert sorted(key for each in told for key in each["passed"]) == keys
    assert [each["ends"] for each in told] == [[min(each["passed"]), max(each["passed"])] for each in told]
    if not hudi.is_0x:
        assert [each["found"] for each in told] == [each["passed"] for each in told]
    read_by_both(hudi, case, **WITH_FILTERS)
    upsert_by_hudi(hudi, case, 10, **WITH_FILTERS)


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_hudi_passes_no_partition_over_after_a_commit_of_deletes(
    hudi: HudiSpark, tmp_path: Path, table_type: str
) -> None:
    """By its statistics of partitions: those of a log file that has only deletes have no ends."""
    case = filled(tmp_path, table_type)
    assert compact(case.metadata_writer, case.times, 1) is not None
    case.writer.write(deletes=["k5", "k6"])
    check_filters(hudi, case)
    assert compact(case.metadata_writer, case.times, 1) is not None
    check_filters(hudi, case)
    case.writer.write([row(7, "p1", 4, "last"), row(40, "p1", 4, "last")])
    check_filters(hudi, case)


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_hudi_finds_rows_beside_not_a_number(hudi: HudiSpark, tmp_path: Path, table_type: str) -> None:
    """By statistics of a file and of a log file whose columns have it, and of a file whose columns may have it."""
    case = Case.create(tmp_path, table_type, table_version(), {"files": 1, "column_stats": 1})
    case.writer.with_options(inserts_to_base_files=True)
    values = [math.nan, 0.0, -2.5, math.inf, 7.0, None]
    case.writer.write([{**row(n, "p0", 1), "amount": value} for n, value in enumerate(values)])
    case.writer.write([{**row(1, "p0", 2), "amount": math.nan}, {**row(6, "p0", 2), "amount": 0.0}])
    path = case.writer.table.base_path
    view = (
        f"create or replace temporary view found using hudi options (path '{path}', 'hoodie.metadata.enable' 'true', "
        "'hoodie.enable.data.skipping' 'true')"
    )
    wanted = {
        "amount = 0.0D": ["k6"], "amount > 1e300D": ["k0", "k1", "k3"], "amount >= 7.0D": ["k0", "k1", "k3", "k4"],
        "amount < 0.0D": ["k2"], "ver = 1 and amount in (7.0D, -2.5D)": ["k2", "k4"], "isnan(amount)": ["k0", "k1"],
        "amount != 0.0D": ["k0", "k1", "k2", "k3", "k4"], "amount is null": ["k5"],
        "amount is not null": ["k0", "k1", "k2", "k3", "k4", "k6"],
    }  # fmt: skip
    for condition, keys in wanted.items():
        rows = hudi.sql(path, view, f"select id from found where {condition}")
        assert sorted(r["id"] for r in rows) == keys, condition


def test_hudi_goes_on_after_files_are_gone(hudi: HudiSpark, tmp_path: Path) -> None:
    case = filled(tmp_path, COPY_ON_WRITE)
    assert case.clean_files()
    case.check()
    read_by_both(hudi, case)
    upsert_by_hudi(hudi, case, 10)


def test_an_empty_table_is_filled_by_hudi(hudi: HudiSpark, tmp_path: Path) -> None:
    """The metadata table as it is made with its table holds what Hudi needs to go on."""
    case = Case.create(tmp_path, MERGE_ON_READ, table_version(), {"files": 1, "record_index": 2})
    # Hudi lists the folder of a timeline, which a table without commits has not on every store.
    Path(case.writer.table.base_path, case.writer.table.config.timeline_folder).mkdir(exist_ok=True)
    rows = [row(n, f"p{n % 3}", 1) for n in range(20)]
    hudi.write(case.writer.table, pa.Table.from_pylist(rows, case.writer.schema), options(hudi, case))
    case.writer.live |= {found["id"]: found for found in rows}
    case.writer.table = HoodieTable.open(case.writer.table.base_path)
    assert MetadataWriter.open(case.writer.table) is not None
    learn_places(case.writer)
    case.check_record_index(case.metadata)
    assert len(case.metadata.slices("record_index")) == 2
    read_by_both(hudi, case)
    case.writer.write([row(n, "p1", 2) for n in range(10, 30)])
    case.check_record_index(case.metadata)
    read_by_both(hudi, case)
