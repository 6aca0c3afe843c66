"""What keeps a table from being brought to another version: it is named, and nothing is changed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.table.errors import ForeignCommitError, InstantConflictError, UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import PROPERTIES_FILE
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.upgrade import VersionChange, downgrade, plan_change, upgrade
from tagstream.table.services.upgrade_checks import slices_with_logs
from tagstream.table.services.upgrade_layouts import leftovers, place_of
from tagstream.table.timeline.avro_timeline import parsed_schema, write_parsed
from tagstream.table.timeline.lease import write_heartbeat
from tests.table.services.changing import change, clock, rows, written
from tests.table.stepping import Stepping
from tests.table.writer import CrashError, row


@pytest.mark.parametrize("start", [8, 9])
def test_several_ordering_fields_stay_above_version_6(start: int, tmp_path: Path) -> None:
    writer = written(tmp_path, start)
    table = writer.table
    table.drop_metadata_table(0)
    config = replace(table.reload().config, ordering_fields=("ver", "name"))
    table = HoodieTable.create(str(tmp_path / "several"), config, 1_700_000_000_000)
    for call in (lambda: downgrade(table, 6, clock()), lambda: plan_change(table, 6)):
        with pytest.raises(UnsupportedTableError, match=r"\(ver, name\), which version 6 does not support"):
            call()
    other = 17 - start
    change(table, other)
    assert table.reload().config.version == other
    assert table.reload().config.ordering_fields == ("ver", "name")


def test_merge_on_read_without_partition_columns_stays_above_version_6(tmp_path: Path) -> None:
    config = replace(written(tmp_path, 9).table.config, metadata_partitions=(), raw={}, drops_partition_columns=True)
    config = replace(config, table_type=MERGE_ON_READ)
    table = HoodieTable.create(str(tmp_path / "dropped"), config, 1_700_000_000_000)
    with pytest.raises(UnsupportedTableError, match="must keep version 9.*nulls for the partition columns"):
        plan_change(table, 6)
    change(table, 8)
    assert table.reload().config.drops_partition_columns
    other = HoodieTable.create(str(tmp_path / "cow"), replace(config, table_type=COPY_ON_WRITE), 1_700_000_000_000)
    change(other, 6)
    assert other.reload().config.drops_partition_columns


@pytest.mark.parametrize(("start", "to"), [(6, 9), (9, 6)])
def test_a_failed_write_is_rolled_back_first(start: int, to: int, tmp_path: Path) -> None:
    writer = written(tmp_path, start)
    before = rows(writer.table)
    with pytest.raises(CrashError):
        writer.write([row(1, "p1", 9)], crash="publish")
    (failed,) = writer.table.timeline().pending_writes
    assert plan_change(writer.table, to).failed == (failed.time,)
    assert change(writer.table, to).failed == (failed.time,)
    assert rows(writer.table) == before
    assert [i.action for i in writer.table.reload().timeline().instants if i.action == "rollback"] == ["rollback"]


def test_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    writer = written(tmp_path, 6)
    with pytest.raises(CrashError):
        writer.write([row(1, "p1", 9)], crash="files")
    (alive,) = writer.table.timeline().pending_writes
    write_heartbeat(writer.table.storage, alive.time)
    beat = Path(writer.table.storage.where(f".hoodie/.heartbeat/{alive.time}")).stat().st_mtime_ns // 1_000_000
    with pytest.raises(InstantConflictError, match="being written by another process"):
        upgrade(writer.table, 9, lambda: beat + 1000)
    assert writer.table.reload().config.version == 6


def test_a_commit_in_between_stops_the_change(tmp_path: Path) -> None:
    writer = written(tmp_path, 6)

    def guard() -> None:
        raise AssertionError("too late")

    with pytest.raises(AssertionError, match="too late"):
        upgrade(writer.table, 9, clock(), guard)
    assert writer.table.reload().config.version == 6
    storage = writer.table.storage
    written_once = []

    def before(kind: str, *rels: str) -> None:
        if kind == "replace" and rels[0].startswith(".hoodie/timeline/") and not written_once:
            written_once.append(rels[0])
            writer.write([row(5, "p1", 9)])

    with pytest.raises(ForeignCommitError, match="was added or removed"):
        change(HoodieTable.open(Stepping(storage, before)), 9)
    change(writer.table, 9)
    assert rows(writer.table).num_rows == len(writer.live)


def test_what_another_tool_has_moved_halfway_is_not_removed(tmp_path: Path) -> None:
    """Hudi moves the timeline file by file before it changes the version."""
    table = written(tmp_path, 9).table
    names = place_of(table).names()
    (_, moved) = next(iter(names.values()))[-1]
    storage = table.storage
    storage.replace(f".hoodie/{moved.split('_')[0]}.commit", storage.read(f".hoodie/timeline/{moved}"))
    storage.delete(f".hoodie/timeline/{moved}")
    for _, name in next(iter(names.values()))[:-1]:
        storage.delete(f".hoodie/timeline/{name}")
    for to in (6, 8, 9):
        with pytest.raises(ForeignCommitError, match="another tool's change"):
            change(table, to)


def test_our_own_unfinished_change_is_known_as_ours(tmp_path: Path) -> None:
    """Also when the table has lost an action since, by a restore with another tool."""
    table = written(tmp_path, 6).table

    class Killed(Exception):
        pass

    def guard() -> None:
        raise Killed

    with pytest.raises(Killed):
        upgrade(table, 9, clock(), guard)
    assert ".hoodie/tagstream_version_change.json" in leftovers(table)
    for _, name in list(place_of(table).names().values())[-1]:
        table.storage.delete(f".hoodie/{name}")
    before = rows(table)
    change(table, 9)
    assert rows(table) == before
    assert leftovers(table.reload()) == ()


@pytest.mark.parametrize(
    ("changes", "to", "problem"),
    [
        ({}, 7, "table version 7 is not known; 6, 8 and 9 are"),
        ({}, 10, "table version 10 is not known"),
        ({"hoodie.compaction.payload.class": "com.acme.Payload"}, 8, "Java code.*com.acme.Payload"),
        ({"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, 8, "'unchanged'.*IGNORE_DEFAULTS"),
        ({"hoodie.table.keygenerator.class": "com.acme.Keys"}, 8, "com.acme.Keys"),
        ({"hoodie.table.keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator"}, 9, "kind of each partition"),
    ],
)
def test_what_is_in_the_way_is_named(changes: dict[str, str], to: int, problem: str, tmp_path: Path) -> None:
    table = written(tmp_path, 6).table
    raw = {**table.config.raw, **changes}
    text = "".join(f"{key}={value}\n" for key, value in raw.items())
    table.storage.replace(PROPERTIES_FILE, text.encode())
    with pytest.raises(UnsupportedTableError, match=problem):
        upgrade(table.reload(), to, clock())
    with pytest.raises(UnsupportedTableError, match=problem):
        plan_change(table.reload(), to)


def test_the_direction_is_the_callers(tmp_path: Path) -> None:
    table = written(tmp_path, 8).table
    with pytest.raises(UnsupportedTableError, match="downgrade it to get to 6"):
        upgrade(table, 6, clock())
    with pytest.raises(UnsupportedTableError, match="upgrade it to get to 9"):
        downgrade(table, 9, clock())


@pytest.mark.parametrize("action", ["logcompaction", "clustering"])
def test_plans_that_keep_a_compaction_away_are_named(action: str, tmp_path: Path) -> None:
    table = written(tmp_path, 9, "MERGE_ON_READ").table
    found = next(slices_with_logs(table))
    sliced = {"partitionPath": found.partition_path, "fileId": found.file_id, "deltaFilePaths": []}
    operation = {**sliced, "baseInstantTime": found.base_instant}
    group = {"slices": [sliced], "metrics": {}, "numOutputFileGroups": 1, "extraMetadata": {}, "version": 1}
    clustering = {"inputGroups": [group], "strategy": None, "extraMetadata": {}, "version": 1}
    name, plan = {
        "logcompaction": ("HoodieCompactionPlan", {"operations": [operation], "version": 2}),
        "clustering": ("HoodieRequestedReplaceMetadata", {"operationType": "CLUSTER", "clusteringPlan": clustering}),
    }[action]
    rel = f".hoodie/timeline/20990101000000000.{action}.requested"
    table.storage.write_new(rel, write_parsed(parsed_schema(name), plan))
    before = sorted(p.name for p in Path(table.base_path).rglob("*"))
    for attempt in (change, plan_change):
        with pytest.raises(
            UnsupportedTableError, match="log compaction|clustering 20990101000000000 and cannot be compacted"
        ):
            attempt(table, 6)
    assert sorted(p.name for p in Path(table.base_path).rglob("*")) == before


def test_what_an_older_change_left_goes(tmp_path: Path) -> None:
    """A process that died behind the change of the properties: the old files are still there."""
    writer = written(tmp_path, 6)
    copy = tmp_path / "copy"
    shutil.copytree(Path(writer.table.base_path) / ".hoodie", copy)
    change(writer.table, 9)
    hoodie = Path(writer.table.base_path) / ".hoodie"
    for path in copy.iterdir():
        if path.name.startswith("20"):
            shutil.copy(path, hoodie / path.name)
    shutil.copytree(copy / "archived", hoodie / "archived", dirs_exist_ok=True)
    table = writer.table.reload()
    assert len(leftovers(table)) == 10
    assert plan_change(table, 9).removed == leftovers(table)
    assert len(change(table, 9).removed) == 10
    assert leftovers(table) == ()
    assert replace(change(table, 9), removed=()) == VersionChange(9, 9, {})
