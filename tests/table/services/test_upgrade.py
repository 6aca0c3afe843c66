"""Tables brought from version to version: rows and history stay, whatever cuts it off, and what is in the way is named."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tagstream.table.errors import LeaseLostError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import PROPERTIES_FILE, parse
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.upgrade import VersionChange, downgrade, plan_change, upgrade
from tagstream.table.services.upgrade_checks import slices_with_logs
from tagstream.table.services.upgrade_layouts import leftovers
from tagstream.table.services.validate import validate
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tests.support.hudi_rs import read_table
from tests.table.history.archives import archived_times
from tests.table.history.crashes import cut_off_at_each_change
from tests.table.reference import expected_records, records, unpack
from tests.table.services.changing import NOW, change, clock, history, rows, written
from tests.table.writer import Writer, row


@pytest.mark.parametrize("path", [(6, 8), (6, 9), (8, 9), (8, 6), (9, 8), (9, 6), (6, 8, 9, 8, 6), (6, 9, 6, 9)])
def test_rows_and_history_stay(path: tuple[int, ...], tmp_path: Path) -> None:
    writer = written(tmp_path, path[0])
    table = writer.table
    before, past = rows(table), history(table)
    times = [i.time for i in table.timeline().completed_writes]
    old = [rows(table, time) for time in times]
    for to in path[1:]:
        result = change(table, to)
        layouts = (table.config.version >= 8) != (to >= 8)
        assert (result.before, result.after) == (table.config.version, to)
        assert (result.active, result.archived) == ((3, 2) if layouts else (0, 0))
        table = table.reload()
        assert table.config.version == to
        assert rows(table) == before
        assert history(table) == past
        assert [rows(table, time) for time in times] == old
        assert archived_times(table) == [time for time, _ in past[:2]]
        assert leftovers(table) == ()
        assert validate(table) == []
    # The table is written on in its new version.
    writer.table = table
    writer.write([row(1, "p1", 9), row(77, "p0", 9)])
    assert rows(table).to_pylist() == sorted(writer_rows(writer), key=lambda r: str(r["id"]))
    assert change(table, table.config.version) == VersionChange(table.config.version, table.config.version, {})


def writer_rows(writer: Writer) -> list[dict[str, object]]:
    meta = {r["id"]: r for r in rows(writer.table).to_pylist()}
    return [{**meta[key], **found} for key, found in writer.live.items()]


@pytest.mark.extended("more kinds of tables", first=("path2", "path3", "path4"))
@pytest.mark.parametrize("path", [(6, 8), (6, 9), (9, 6), (8, 9), (9, 8)])
def test_a_change_can_be_cut_off_anywhere(path: tuple[int, int], tmp_path: Path) -> None:
    start, to = path
    writer = written(tmp_path, start)
    table = writer.table
    before, past = rows(table), history(table)
    seen = set()

    def whole(_: int) -> None:
        found = table.reload()
        seen.add(found.config.version)
        assert rows(found) == before
        assert history(found) == past
        assert found.timeline().pending == ()

    def work(cut: Storage) -> None:
        change(HoodieTable.open(cut), to)

    cut_off_at_each_change(table.storage, work, whole)
    assert seen == {start, to}
    assert leftovers(table.reload()) == ()


@pytest.mark.extended("more kinds of tables", first=("path1",))
@pytest.mark.parametrize("path", [(9, 6), (6, 9)])
def test_a_process_that_wakes_in_the_middle_takes_nothing_from_its_successor(
    path: tuple[int, int], tmp_path: Path
) -> None:
    """It was paused at one of its looks at the lease; another process has brought the table back and written to it since."""
    start, to = path
    for looks in itertools.count(1):
        writer = written(tmp_path / str(looks), start)
        left = looks

        def guard(writer: Writer = writer) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                for version in (to, start):  # what is left of the change, and back
                    writer.table = writer.table.reload()
                    change(writer.table, version)
                writer.table = writer.table.reload()
                writer.write([row(1, "p1", 9), row(77, "p0", 9)])
            if left <= 0:
                raise LeaseLostError("taken over")

        if not _loses_lease(writer.table, to, guard):
            break
        assert rows(writer.table.reload()).to_pylist() == sorted(writer_rows(writer), key=lambda r: str(r["id"]))
        assert [*archived_times(writer.table.reload())] == [time for time, _ in history(writer.table)[:2]]
    assert looks > 5, "one look at least for each file of a completed action"


def _loses_lease(table: HoodieTable, to: int, guard: Callable[[], None]) -> bool:
    direction = upgrade if to > table.config.version else downgrade
    try:
        direction(table, to, clock(), guard)
    except LeaseLostError:
        return True
    return False


REAL = [
    "cow_v6_complexkey_replace", "cow_v6_hive_alltypes", "cow_v6_native015_days", "cow_v6_nonpart_simplebloom",
    "cow_v6_global_bloom_moves", "cow_v9_defaults_alltypes", "cow_v9_record_index",
]  # fmt: skip


@pytest.mark.extended("more tables that real Hudi wrote", first=("cow_v6_complexkey_replace", "cow_v9_record_index"))
@pytest.mark.parametrize("name", REAL)
def test_real_tables_go_up_and_down(name: str, tmp_path: Path) -> None:
    base = unpack(name, tmp_path)
    table = HoodieTable.open(str(base))
    wanted, past = expected_records(base), history(table)
    timeline = table.timeline()
    states = [(i.time, i.action, i.state) for i in timeline.instants]
    for to in (8, 9, 6, 9, 8, 6):
        result = change(table, to)
        assert result.metadata == table.config.metadata_partitions
        table = table.reload()
        assert records(read_snapshot(table)) == wanted
        assert history(table) == past
        assert [(i.time, i.action, i.state) for i in table.timeline().instants] == states
        assert validate(table) == []
        assert table.config.metadata_partitions == ()
        assert table.timeline().replaced == timeline.replaced


def test_completed_files_are_found_again_byte_by_byte(tmp_path: Path) -> None:
    """Up and down again, what is not a commit is the same file; a commit says the same."""
    base = unpack("cow_v6_nonpart_simplebloom", tmp_path)
    table = HoodieTable.open(str(base))
    folder = base / ".hoodie"
    before = {p.name: p.read_bytes() for p in folder.iterdir() if p.name.startswith("20")}
    change(table, 9)
    change(table.reload(), 6)
    after = {p.name: p.read_bytes() for p in folder.iterdir() if p.name.startswith("20")}
    assert after.keys() == before.keys()
    for name, data in before.items():
        if data.startswith(b"{") or (name.endswith(".inflight") and ".clean" not in name):
            assert CommitMetadata.from_bytes(after[name], name) == CommitMetadata.from_bytes(data, name)
        elif name.endswith(".clean.inflight"):  # empty, or the plan once more: both are in tables that Hudi made
            assert after[name] == before[name.replace("inflight", "requested")]
        else:
            assert after[name] == data, name


@pytest.mark.parametrize(("start", "to"), [(6, 8), (6, 9), (8, 9), (9, 8)])
@pytest.mark.parametrize("archived", [0, 3])
def test_upwards_log_files_stay(start: int, to: int, archived: int, tmp_path: Path) -> None:
    """Also where all files say the same time, as those of a copy do."""
    writer = written(tmp_path, start, "MERGE_ON_READ", archived)
    table = writer.table
    for path in Path(table.base_path, ".hoodie").rglob("*"):
        os.utime(path, (NOW / 1000 - 60, NOW / 1000 - 60))
    times = [i.time for i in table.timeline().completed_writes]
    before = [rows(table, time) for time in times]
    change(table, to)
    assert [rows(table, time) for time in times] == before
    writer.table = table.reload()
    writer.write([row(1, "p1", 9), row(77, "p0", 9)], ["k5"])
    assert set(rows(writer.table)["id"].to_pylist()) == set(writer.live)
    assert validate(writer.table) == []


LOGS = [
    "mor_v6_avro_log_deletes", "mor_v6_parquet_log", "mor_v6_bucket", "mor_v6_compacted", "mor_v6_global_simple_moves_015",
    "mor_v6_rollback_and_inflight", "mor_v6_record_index_015", "mor_v6_services_015", "flink_mor", "flink_mor_moves",
    "cow_v6_failed_left",
]  # fmt: skip


@pytest.mark.extended(
    "more tables that real Hudi wrote", first=("mor_v6_parquet_log", "flink_mor_moves", "mor_v6_rollback_and_inflight")
)
@pytest.mark.parametrize("name", LOGS)
def test_real_tables_go_up_with_their_logs(name: str, tmp_path: Path) -> None:
    """Blocks taken back, writes left unfinished, slices without a base file, clusterings, restores: the rows stay."""
    base = unpack(name, tmp_path)
    table = HoodieTable.open(str(base))
    wanted, past = expected_records(base), history(table)
    times = [i.time for i in table.timeline().completed_writes]
    before = [rows(table.without_metadata_table(), time) for time in times]
    for to in (8, 9, 8):
        change(table, to)
        table = table.reload()
        assert records(read_snapshot(table)) == wanted
        assert [rows(table, time) for time in times] == before
        assert history(table) == past
        assert not [problem for problem in validate(table) if "unfinished" not in problem]


@pytest.mark.parametrize("path", [(8, 6), (9, 6), (6, 9, 6, 8)])
@pytest.mark.parametrize("archived", [0, 2])
def test_downwards_log_files_are_compacted(path: tuple[int, ...], archived: int, tmp_path: Path) -> None:
    writer = written(tmp_path, path[0], "MERGE_ON_READ", archived)
    table = writer.table
    before = rows(table).drop_columns(["_hoodie_file_name"])
    for to in path[1:]:
        slices = len(list(slices_with_logs(table)))
        wanted = slices if to == 6 else 0
        assert plan_change(table, to).compacted == wanted
        assert change(table, to).compacted == wanted
        table = table.reload()
        assert rows(table).drop_columns(["_hoodie_file_name"]) == before
        assert len(list(slices_with_logs(table))) == (0 if to == 6 else slices)
        assert validate(table) == []
    writer.table = table
    writer.write([row(1, "p1", 9), row(77, "p0", 9)], ["k5"])
    assert set(rows(writer.table)["id"].to_pylist()) == set(writer.live)


@pytest.mark.parametrize(("name", "to"), [("mor_v6_compaction_pending", 8), ("mor_v9_defaults", 6), ("mor_v9_services", 6),
                                          ("mor_v8_global_record_index", 6)])  # fmt: skip
def test_what_was_planned_is_compacted_first(name: str, to: int, tmp_path: Path) -> None:
    base = unpack(name, tmp_path)
    table = HoodieTable.open(str(base))
    wanted = expected_records(base)
    assert plan_change(table, to).compacted > 0
    assert change(table, to).compacted > 0
    table = table.reload()
    assert records(read_snapshot(table)) == wanted
    assert table.timeline().pending_compactions == {}
    assert (list(slices_with_logs(table)) == []) == (to == 6)
    assert read_table(str(base)).num_rows == len(wanted)


def test_a_downgrade_that_compacts_can_be_cut_off_anywhere(tmp_path: Path) -> None:
    table = written(tmp_path, 9, "MERGE_ON_READ").table
    before = rows(table).drop_columns(["_hoodie_file_name"])
    seen = set()

    def whole(_: int) -> None:
        seen.add(table.reload().config.version)
        assert rows(table.reload()).drop_columns(["_hoodie_file_name"]) == before

    cut_off_at_each_change(table.storage, lambda cut: change(HoodieTable.open(cut), 6), whole)
    assert seen == {9, 6}
    assert leftovers(table.reload()) == ()


def test_a_plan_says_what_a_change_does_and_changes_nothing(tmp_path: Path) -> None:
    table = written(tmp_path, 6).table
    before = {p: p.read_bytes() for p in Path(table.base_path).rglob("*") if p.is_file()}
    plan = plan_change(table, 9)
    assert {p: p.read_bytes() for p in Path(table.base_path).rglob("*") if p.is_file()} == before
    assert (plan.active, plan.archived) == (3, 2)
    assert plan.settings["hoodie.table.version"] == ("6", "9")
    done = change(table, 9)
    assert done.settings == plan.settings
    after = parse(table.storage.read(PROPERTIES_FILE))
    assert {key: after.get(key) for key in done.settings} == {key: new for key, (_, new) in done.settings.items()}
    # Named are the files of version 6 that went.
    assert {name for name in done.removed if "archive" in name} == {".hoodie/archived/.commits_.archive.1_1-0-1"}


def test_index_definitions_follow(tmp_path: Path) -> None:
    base = unpack("cow_v9_record_index", tmp_path)
    table = HoodieTable.open(str(base))
    file = base / ".hoodie/.index_defs/index.json"
    versions = {k: v["version"] for k, v in json.loads(file.read_text())["indexDefinitions"].items()}
    assert set(versions.values()) == {"V1", "V2"}
    result = change(table, 8)
    kept = json.loads(file.read_text())["indexDefinitions"]
    assert set(kept) == {name for name, version in versions.items() if version == "V1"}
    assert set(result.dropped_indexes) == set(versions) - set(kept)
    definition = {**kept["record_index"]}
    del definition["version"]
    file.write_text(json.dumps({"indexDefinitions": {"record_index": definition}}))
    change(table.reload(), 9)
    assert json.loads(file.read_text())["indexDefinitions"]["record_index"]["version"] == "V1"


@pytest.mark.interop
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_rs_reads_every_version(kind: str, tmp_path: Path) -> None:
    # From version 8 on it passes over archived logs of groups without a base file, in any table:
    # docs/reference/compatibility.md.
    writer = written(tmp_path, 6, kind, archived=2 if kind == "COPY_ON_WRITE" else 0)
    ways = (8, 9, 8, 6, 9, 6) if kind == "COPY_ON_WRITE" else (8, 9, 8)
    for number, to in enumerate(ways):
        change(writer.table, to)
        writer.table = writer.table.reload()
        writer.write([row(3 + number, f"p{(3 + number) % 2}", 20 + number)])
        found = read_table(writer.table.base_path)
        assert {r["id"]: r["ver"] for r in found.to_pylist()} == {key: r["ver"] for key, r in writer.live.items()}
        assert found.num_rows == len(writer.live)
