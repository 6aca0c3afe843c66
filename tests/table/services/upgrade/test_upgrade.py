"""Tables brought from version to version: rows and history stay, whatever cuts it off, and what is in the way is named."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tagstream.table.errors import ForeignCommitError, InstantConflictError, UnsupportedTableError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import PROPERTIES_FILE, parse
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.upgrade.layouts import leftovers, place_of
from tagstream.table.services.upgrade.upgrade import VersionChange, downgrade, plan_change, upgrade
from tagstream.table.services.validate import validate
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.heartbeat import write_heartbeat
from tagstream.table.timeline.history.archive import archive
from tagstream.table.timeline.history.archive_log import read_archive
from tests.support.table_version import using
from tests.table.reference import expected_records, records, unpack
from tests.table.stepping import Stepping
from tests.table.timeline.history.archives import archived_times
from tests.table.timeline.history.crashes import cut_off_at_each_change
from tests.table.writer import CrashError, Writer, row

NOW = 1_800_000_000_000


def clock() -> Callable[[], int]:
    times = itertools.count(NOW, 7)
    return lambda: next(times)


def change(table: HoodieTable, to: int) -> VersionChange:
    direction = upgrade if to >= table.config.version else downgrade
    return direction(table, to, clock())


def written(folder: Path, version: int, kind: str = "COPY_ON_WRITE", archived: int = 2) -> Writer:
    """Commits with updates, moves and deletes, the oldest of them archived."""
    with using(version):
        writer = Writer.create(folder, kind)
    for number in range(1, 6):
        writer.write(
            [row(key, f"p{key % 2}", number) for key in range(number, number + 4)], ["k2"] if number == 3 else []
        )
    instants = writer.table.timeline().completed_writes
    archive(place_of(writer.table), instants[:archived])
    return writer


def history(table: HoodieTable) -> list[tuple[str, CommitMetadata]]:
    """Every completed write, archived ones included, with what it says."""
    timeline = table.timeline()
    active = [(i.time, timeline.metadata(table.storage, i)) for i in timeline.completed_writes]
    if table.config.has_completion_times:
        actions = list(table.history().actions())
    else:
        actions = list(read_archive(table.storage, table.config.history_folder))
    old = [
        (a.time, CommitMetadata.from_bytes(a.metadata or b"", a.time)) for a in actions if a.action.endswith("commit")
    ]
    return [*old, *active]


def rows(table: HoodieTable, as_of: str | None = None) -> pa.Table:
    return read_snapshot(table.reload(), as_of=as_of).sort_by("id")


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


REAL = [
    "cow_v6_complexkey_replace", "cow_v6_hive_alltypes", "cow_v6_native015_days", "cow_v6_nonpart_simplebloom",
    "cow_v6_global_bloom_moves", "cow_v9_defaults_alltypes", "cow_v9_record_index",
]  # fmt: skip


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


@pytest.mark.parametrize("start", [8, 9])
def test_downwards_log_files_in_newest_slices_are_refused(start: int, tmp_path: Path) -> None:
    table = written(tmp_path, start, "MERGE_ON_READ").table
    before = sorted(p.name for p in Path(table.base_path).rglob("*"))
    for attempt in (change, plan_change):
        with pytest.raises(UnsupportedTableError, match=r"has log files in \d of its newest file slices.*compact"):
            attempt(table, 6)
    assert sorted(p.name for p in Path(table.base_path).rglob("*")) == before
    asked = []
    with pytest.raises(UnsupportedTableError, match="log files"):
        downgrade(table, 6, clock(), compact=lambda found: asked.append(found.config.version))
    assert asked == [start]


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

    class Late(Exception):
        pass

    def compact(table: HoodieTable) -> None:
        raise Late

    with pytest.raises(Late):
        upgrade(written(tmp_path / "mor", 6, "MERGE_ON_READ").table, 9, clock(), compact=compact)
    with pytest.raises(AssertionError, match="too late"):
        upgrade(writer.table, 9, clock(), guard)
    assert writer.table.reload().config.version == 6
    storage = writer.table.storage
    written_once = []

    def before(kind: str, *rels: str) -> None:
        if kind == "replace" and rels[0].startswith(".hoodie/timeline/") and not written_once:
            written_once.append(rels[0])
            writer.write([row(5, "p1", 9)])

    with pytest.raises(ForeignCommitError, match="came or went"):
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


@pytest.mark.parametrize(
    ("changes", "to", "problem"),
    [
        ({}, 7, "no way to table version 7"),
        ({}, 10, "no way to table version 10"),
        ({"hoodie.compaction.payload.class": "com.acme.Payload"}, 8, "foreign code.*com.acme.Payload"),
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
    with pytest.raises(UnsupportedTableError, match="downgrade it to come to 6"):
        upgrade(table, 6, clock())
    with pytest.raises(UnsupportedTableError, match="upgrade it to come to 9"):
        downgrade(table, 9, clock())


@pytest.mark.parametrize("name", ["mor_v6_compaction_pending", "mor_v9_defaults"])
def test_a_pending_compaction_is_named(name: str, tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack(name, tmp_path)))
    with pytest.raises(UnsupportedTableError, match="compaction that was planned and not run"):
        change(table, 6 if table.config.version > 6 else 8)


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
