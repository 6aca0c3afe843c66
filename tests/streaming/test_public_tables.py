"""Tables that public projects publish: read, loaded, streamed into, kept in order, checked and upgraded."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.cli.running import run_json
from tests.streaming.public_tables_case import REFUSED, SHAPES, PublicCase
from tests.support.public_tables import NAMES, unpack

# What a start drops of a metadata table, and says so.
DROPPED = {
    "rs_mor_v8_trips_8i3u1d": {"secondary_index_rider_idx"},
    "rs_mor_v9_mor_nonpart_3commits": {"column_stats", "files"},
    # One place for a key; the stream's rows are known by partition and key.
    "rs_cow_v9_timebasedkeygen_epochmillis": {"record_index"},
    "rs_cow_v9_timebasedkeygen_unixtimestamp": {"record_index"},
}
FIRST = ("hudi_multi_pt_v8_mor", "ms_in_us_whole_seconds")


def test_each_table_is_tried_or_refused() -> None:
    assert sorted({*SHAPES, *REFUSED}) == NAMES


@pytest.mark.spark
@pytest.mark.extended("every public table", first=FIRST)
@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_public_table_from_its_load_to_its_upgrade(name: str, tmp_path: Path, spark: SparkSession) -> None:
    case = PublicCase.of(name, tmp_path, spark)
    at = ("--target-base-path", case.case.table)
    had, before = case.table.config.metadata_partitions, problems_of(case)
    assert case.stream() == (1, 1, 1, 0), case.rows
    case.check()
    assert problems_of(case) <= before
    if case.table.config.is_merge_on_read:
        run_json("table", "compact", *at, "--yes")
        case.check()
    run_json("table", "cluster", *at, "--yes")
    case.check()
    run_json("table", "clean", *at, "--yes")
    case.check()
    assert problems_of(case) <= before
    assert {*had} - DROPPED.get(name, set()) <= {*case.table.config.metadata_partitions}
    if case.table.config.version < 9:
        run_json("table", "upgrade", *at, "--to", "9", "--yes")
        case.check()
        assert problems_of(case) <= before


def problems_of(case: PublicCase) -> set[str]:
    """What ``table validate`` finds."""
    table = case.table
    if table.has_lost_metadata_table:
        table = table.without_metadata_table()
    return {*validate(table), *validate_metadata(table)}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_table_that_cannot_be_read_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTableError, match=REFUSED[name]):
        HoodieTable.open(str(unpack(name, tmp_path)))
