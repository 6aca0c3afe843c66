"""Instants that we archived, as real Hudi sees them: listed, gone on with by its own archiving, and asked when a log was
completed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.history.archive import archive
from tagstream.table.history.archive_log import read_archive
from tagstream.table.history.lsm_write import merge_levels, remove_old
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.upgrade import downgrade
from tagstream.table.services.upgrade_layouts import place_of
from tests.interop.histories import create, event, live_rows
from tests.interop.hudi_spark import HudiSpark
from tests.support.compare import compare
from tests.table.history.archives import archived_times, begin_before_its_base_file
from tests.table.reference import unpack

pytestmark = pytest.mark.hudi_jar
# What makes Hudi archive after every commit.
EAGER = {
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
    "hoodie.clean.commits.retained": "1",
    "hoodie.cleaner.commits.retained": "1",
    "hoodie.metadata.enable": "false",
    "hoodie.index.type": "BLOOM",
}


def test_hudi_goes_on_with_our_archive(hudi: HudiSpark, tmp_path: Path) -> None:
    writer = create(tmp_path, "cow", "long")
    for number in range(12):
        writer.write([event(key, key % 3, 3_000_000_000 + number, f"c{number}") for key in range(number, number + 5)])
    table = writer.table
    times = [i.time for i in table.timeline().completed_writes]
    for instant in table.timeline().completed_writes[:8]:
        archive(place_of(table), [instant])
    if table.config.has_completion_times:  # files of several levels
        merged = merge_levels(table.storage, table.config.history_folder, files_a_level=3)
        remove_old(table.storage, table.config.history_folder, merged)
        assert {file.level for file in table.history().manifest.files} == {0, 1}
    assert archived_times(table) == times[:8]
    assert listed(hudi, table) == times[:8]
    for later in range(2):
        row = event(later, later % 3, 3_000_001_000 + later, "hudi")
        row["part"] = writer.live.get(row["id"], row)["part"]
        writer.live[row["id"]] = row
        hudi.write(table, pa.Table.from_pylist([row], schema=writer.schema), EAGER)
    found = archived_times(table)
    assert found[:8] == times[:8]
    assert len(found) > 8, "Hudi has archived nothing"
    assert [time for time in found if time in times] == times[: len([t for t in found if t in times])]
    assert set(listed(hudi, table)) == set(found)
    assert not compare(live_rows(writer), hudi.read(table.base_path), ["id"])
    assert not compare(live_rows(writer), read_snapshot(table.reload()), ["id"])
    # And so do we.
    oldest = table.timeline().completed_writes[0]
    archive(place_of(table), [oldest])
    assert set(listed(hudi, table)) == {*found, oldest.time}


def listed(hudi: HudiSpark, table: HoodieTable) -> list[str]:
    """The times of the commits that Hudi finds archived."""
    name = "archived_" + "".join(c if c.isalnum() else "_" for c in Path(table.base_path).parent.name)
    rows = hudi.sql(
        table.base_path,
        f"create table if not exists {name} using hudi location '{table.base_path}'",
        f"call show_archived_commits(table => '{name}', limit => 100, start_ts => '0', end_ts => '3')",
    )
    return sorted(row["commit_time"] for row in rows)


def test_a_log_is_where_the_archive_says(hudi: HudiSpark, tmp_path: Path) -> None:
    """A delta commit of a real table, made to have begun before a compaction that it outlived, and archived."""
    if hudi.is_0x:
        table = HoodieTable.open(str(unpack("mor_v6_services_015", tmp_path)))
        known = [a.time for a in read_archive(table.storage, table.config.history_folder)]
        assert set(listed(hudi, table)) <= set(known)
        return
    table = HoodieTable.open(str(unpack("mor_v9_services", tmp_path)))
    before = ids(hudi.read(table.base_path, **{"hoodie.metadata.enable": "false"}))
    moved = begin_before_its_base_file(table)
    table = table.reload()
    archive(place_of(table), [i for i in table.timeline().instants if i.is_completed and i.time <= moved])
    assert ids(hudi.read(table.base_path, **{"hoodie.metadata.enable": "false"})) == before
    assert ids(read_snapshot(table.reload().without_metadata_table())) == before


@pytest.mark.parametrize("hudi", [("1.2.0", 9)], indirect=True)
def test_a_downgrade_keeps_every_archived_commit(hudi: HudiSpark, tmp_path: Path) -> None:
    """Hudi's own loses each eleventh, and the rest to readers who go by the properties."""
    writer = create(tmp_path, "cow", "long")
    for number in range(30):
        writer.write([event(number % 5, 0, number, "x")])
    instants = writer.table.timeline().completed_writes[:26]
    archive(place_of(writer.table), instants)
    theirs = HoodieTable.open(str(shutil.copytree(writer.table.base_path, tmp_path / "theirs")))
    downgrade(writer.table, 6, lambda: 1_900_000_000_000)
    assert listed(hudi, writer.table.reload()) == [i.time for i in instants]
    name = "downgraded_by_hudi"
    hudi.sql(
        theirs.base_path,
        f"create table {name} using hudi location '{theirs.base_path}'",
        f"call downgrade_table(table => '{name}', to_version => 'SIX')",
    )
    assert len(list(read_archive(theirs.storage, ".hoodie/archived"))) == 24
    assert theirs.reload().config.history_folder == ".hoodie/history"
    assert theirs.storage.names(".hoodie/history") == ()


def ids(rows: pa.Table) -> list[tuple[str, int]]:
    return sorted((row["id"], row["ver"]) for row in rows.to_pylist())
