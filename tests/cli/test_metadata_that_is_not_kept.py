"""Commands on a table whose metadata table is gone, or has a partition that is not kept up here: as a stream does it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate_metadata import validate_metadata
from tests.cli.running import run, run_json, state_of
from tests.support.public_tables import unpack

GONE, SECONDARY = "rs_mor_v9_mor_nonpart_3commits", "rs_mor_v8_trips_8i3u1d"
LOOKS = (
    ("validate",), ("health",), ("commits",), ("files",), ("rows",), ("compact", "--dry-run"), ("cluster", "--dry-run"),
    ("clean", "--dry-run"), ("archive", "--dry-run"),
)  # fmt: skip
CHANGES = (("compact",), ("cluster",), ("clean",), ("archive",))


@pytest.mark.parametrize("command", LOOKS, ids=lambda c: c[0])
def test_a_look_passes_over_a_metadata_table_that_is_gone(command: tuple[str, ...], tmp_path: Path) -> None:
    """Each of them ended with "is not a Hudi table" before."""
    place = unpack(GONE, tmp_path)
    before = state_of(place)
    run("table", *command, "--target-base-path", place)
    assert state_of(place) == before


def test_its_absence_is_told(tmp_path: Path) -> None:
    text = " ".join(run("table", "validate", "--target-base-path", unpack(GONE, tmp_path)).split())
    assert "name a metadata table (column_stats, files) that does not exist; it is ignored" in text


@pytest.mark.parametrize("command", CHANGES, ids=lambda c: c[0])
@pytest.mark.parametrize("name", [GONE, SECONDARY])
def test_a_change_drops_what_it_cannot_keep_and_says_so(name: str, command: tuple[str, ...], tmp_path: Path) -> None:
    place = unpack(name, tmp_path)
    rows = read_snapshot(HoodieTable.open(str(place))).num_rows
    found = run_json("table", *command, "--target-base-path", place, "--yes")
    (told,) = found["metadata_dropped"]
    table = HoodieTable.open(str(place))
    if name == GONE:
        assert table.config.metadata_partitions == ()
        assert "whose folder is missing" in told
    else:
        assert "secondary_index_rider_idx" in told
        assert {*table.config.metadata_partitions} == {"column_stats", "files", "partition_stats", "record_index"}
    assert validate_metadata(table) == []
    assert read_snapshot(table).num_rows == rows
    assert "metadata_dropped" not in run_json("table", *command, "--target-base-path", place, "--yes")


def test_the_services_of_their_own_process_do_the_same(tmp_path: Path) -> None:
    place = unpack(SECONDARY, tmp_path)
    text = run("services", "run", "--target-base-path", place, "--once")
    assert "dropped the partition secondary_index_rider_idx" in " ".join(text.split())
    assert "secondary_index_rider_idx" not in HoodieTable.open(str(place)).config.metadata_partitions
