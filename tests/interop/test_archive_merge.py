"""Our merging of version 6's archive, as Hudi 0.15.0 and 1.2.0 see it at each step, and with Hudi's own merging after it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.history.archive import archive
from tagstream.table.history.archive_log import archive_files
from tagstream.table.history.archive_merge import NOTE_FILE, MergeOptions, merge_archive
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.upgrade_layouts import place_of
from tests.interop.histories import create, event, live_rows
from tests.interop.hudi_spark import HudiSpark
from tests.interop.test_archived_instants import EAGER
from tests.support.compare import compare
from tests.table.history.archives import archived_times
from tests.table.history.crashes import cut_off_at_each_change

pytestmark = pytest.mark.hudi_jar
THREE = MergeOptions(files=3)


@pytest.mark.parametrize("hudi", [("0.15.0", 6), ("1.2.0", 6)], indirect=True)
def test_hudi_finds_every_archived_commit_at_each_step(hudi: HudiSpark, tmp_path: Path) -> None:
    writer = create(tmp_path, "cow", "long")
    for number in range(14):
        writer.write([event(key, key % 3, 3_000_000_000 + number, f"c{number}") for key in range(number, number + 5)])
    table = writer.table
    folder = table.config.history_folder
    times = [i.time for i in table.timeline().completed_writes][:11]
    for instant in table.timeline().completed_writes[:11]:
        archive(place_of(table), [instant], merge=None)
    assert len(files(table)) == 11

    def seen(_: int) -> None:
        # Hudi goes through the files from the newest on, and stops where one adds nothing. The start is not in a range.
        assert listed(hudi, table, "0", "3") == times
        assert listed(hudi, table, times[2], times[9]) == times[3:10]

    # Each pair of runs begins a merge and ends it.
    for _ in range(5):
        cut_off_at_each_change(table.storage, lambda cut: merge_archive(cut, folder, THREE), seen)
    assert len(files(table)) <= 4
    # Hudi archives on, with its own merging where it has one.
    merging = {"hoodie.archive.merge.enable": "true", "hoodie.archive.merge.files.batch.size": "2"}
    for later in range(3):
        row = event(later, later % 3, 3_000_001_000 + later, "hudi")
        row["part"] = writer.live.get(row["id"], row)["part"]
        writer.live[row["id"]] = row
        hudi.write(table, pa.Table.from_pylist([row], schema=writer.schema), {**EAGER, **merging})
    found = archived_times(table)
    assert set(times) < set(found), "Hudi has archived nothing"
    assert listed(hudi, table, "0", "3") == sorted(found)
    # And so do we, one by one.
    for oldest in table.timeline().completed_writes[:2]:
        archive(place_of(table), [oldest], merge=MergeOptions(files=2))
        found.append(oldest.time)
        assert listed(hudi, table, "0", "3") == sorted(found)
    assert archived_times(table) == sorted(found)
    assert not compare(live_rows(writer), hudi.read(table.base_path), ["id"])


@pytest.mark.parametrize("hudi", [("1.2.0", 6)], indirect=True)
def test_hudis_upgrade_within_a_merge_keeps_every_commit(hudi: HudiSpark, tmp_path: Path) -> None:
    """The files that were taken up are still there: what Hudi's history has then."""
    writer = create(tmp_path, "cow", "long")
    for number in range(9):
        writer.write([event(number % 5, 0, number, "x")])
    table = writer.table
    instants = table.timeline().completed_writes[:6]
    for instant in instants:
        archive(place_of(table), [instant], merge=None)
    merge_archive(table.storage, table.config.history_folder, THREE)
    assert table.storage.exists(f"{table.config.history_folder}/{NOTE_FILE}")
    name = "upgraded_by_hudi"
    hudi.sql(
        table.base_path,
        f"create table {name} using hudi location '{table.base_path}'",
        f"call upgrade_table(table => '{name}', to_version => 'NINE')",
    )
    table = table.reload()
    assert table.config.version == 9
    assert archived_times(table) == [i.time for i in instants]
    assert listed(hudi, table, "0", "3") == [i.time for i in instants]


def files(table: HoodieTable) -> list[str]:
    return archive_files(table.storage, table.config.history_folder)


def listed(hudi: HudiSpark, table: HoodieTable, first: str, last: str) -> list[str]:
    """The times of the commits that Hudi finds archived in a range, each as often as it does."""
    name = "merged_" + "".join(c if c.isalnum() else "_" for c in Path(table.base_path).parent.name)
    rows = hudi.sql(
        table.base_path,
        f"create table if not exists {name} using hudi location '{table.base_path}'",
        f"call show_archived_commits(table => '{name}', limit => 100, start_ts => '{first}', end_ts => '{last}')",
    )
    return sorted(row["commit_time"] for row in rows)
