"""Tables of real Hudi: its cleans read, its plans carried out, and our own cleaning goes on from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.cleaning import clean, execute_clean
from tagstream.table.services.cleaning_plan import last_clean
from tagstream.table.services.options import CleanOptions, CleanPolicy
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.instant import CLEAN
from tests.table.reference import NAMES, expected_records, records, unpack
from tests.table.services.tables import clock

NOW = 1_900_000_000_000
CLEANED = ["mor_v6_services_015", "mor_v9_services"]


def content(table: HoodieTable, name: str) -> dict[str, object]:
    rel = f"{table.config.timeline_folder}/{name}"
    return read_record(table.storage.read(rel), rel)


@pytest.mark.parametrize("name", CLEANED)
def test_a_plan_of_hudis_is_carried_out(name: str, tmp_path: Path) -> None:
    base = unpack(name, tmp_path)
    table = HoodieTable.open(str(base)).without_metadata_table()
    newest = [i for i in table.timeline().instants if i.action == CLEAN and i.is_completed][-1]
    theirs = content(table, newest.file_name())
    before = last_clean(table.storage, table.timeline())
    table.storage.delete(f"{table.config.timeline_folder}/{newest.file_name()}")
    assert execute_clean(table, newest.time, clock(NOW)) is not None
    done = [i for i in table.timeline().instants if i.action == CLEAN and i.is_completed][-1]
    ours = content(table, done.file_name())
    told = ("timeTakenInMillis", "partitionMetadata", "bootstrapPartitionMetadata")
    assert {k: v for k, v in ours.items() if k not in told} == {k: v for k, v in theirs.items() if k not in told}
    assert last_clean(table.storage, table.timeline()) == before
    gone, wanted = (
        {p: set(each["deletePathPatterns"]) for p, each in record["partitionMetadata"].items()}  # type: ignore[attr-defined]
        for record in (ours, theirs)
    )
    assert gone == wanted
    assert records(read_snapshot(table)) == expected_records(base)


@pytest.mark.extended(
    "more tables that real Hudi wrote",
    first=(
        "KEEP_LATEST_COMMITS-cow_v6_global_bloom_moves",
        "KEEP_LATEST_COMMITS-mor_v6_compaction_pending",
        "KEEP_LATEST_COMMITS-cow_v9_record_index",
        "KEEP_LATEST_COMMITS-mor_v9_services",
    ),
)
@pytest.mark.parametrize("name", [name for name in NAMES if "failed_left" not in name])
@pytest.mark.parametrize("policy", list(CleanPolicy))
def test_it_is_cleaned_on(name: str, policy: CleanPolicy, tmp_path: Path) -> None:
    base = unpack(name, tmp_path)
    table = HoodieTable.open(str(base))
    wanted, problems = expected_records(base), validate(table)
    if any(p not in ("files", "column_stats", "bloom_filters", "record_index", "partition_stats")
           for p in table.config.metadata_partitions):  # fmt: skip
        table.drop_metadata_table(NOW)
        table = table.reload()
    clean(table, CleanOptions(policy, 1, 1, 1), clock(NOW))
    table = table.reload()
    assert records(read_snapshot(table)) == wanted
    assert set(validate(table)) <= set(problems)
    assert validate_metadata(table) == []
