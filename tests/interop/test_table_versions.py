"""Tables that we brought to another version, as real Hudi sees them; and beside them what Hudi's own change makes of the
same.

A table of version 6, by this project or by Hudi, goes to 8 and 9, with a part of its history archived. Hudi 1.2 reads it,
also as of past instants and as increments, lists the archived instants, and writes on in it, by indexes, with log files
and compactions. Back in version 6 Hudi 0.15.0 and 1.2.0 read it.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.peers import home as peers
from tagstream.table.history.action_files import commit_record, read_commit
from tagstream.table.history.archive import archive
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import PROPERTIES_FILE, parse
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.upgrade import downgrade, upgrade
from tagstream.table.services.upgrade_layouts import place_of
from tagstream.table.timeline.avro_timeline import MAGIC, read_record
from tests.interop.histories import create, event, live_rows, write_history
from tests.interop.hudi_spark import HudiSpark
from tests.support.compare import compare
from tests.support.table_version import using
from tests.table.reference import expected_records, records, unpack
from tests.table.writer import Writer

pytestmark = pytest.mark.hudi_jar
ORDERING = "long"
ARCHIVED = 2
PINNED = "hoodie.write.auto.upgrade=false,hoodie.write.table.version="
MERGED = ["_hoodie_commit_seqno"]  # the number that Hudi gives a row in a file: another one in a merge
_names = itertools.count()

# Settings that differ from those that Hudi's own change leaves, by (from, to), and why.
OTHER_SETTINGS: dict[tuple[int, int], dict[str, str]] = {
    (6, 8): {},
    (6, 9): {},
    (8, 6): {
        "hoodie.table.initial.version": "Hudi unsets it and writes it again",
        "hoodie.table.keygenerator.type": "Hudi unsets it and writes it again",
        "hoodie.timeline.path": "of layout 2 alone; Hudi leaves it",
    },
}
# Files of the timeline whose content differs, and why.
REQUESTED = (
    "Hudi writes an empty commit into requested files that were empty; a new table of version 8 or 9 has empty ones"
)


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="session")
def hudi_1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiSpark]:
    """A running Hudi 1.2.0."""
    peers.set_up()
    with HudiSpark("1.2.0", tmp_path_factory.mktemp("hudi-1")) as running:
        yield running


@pytest.fixture(scope="session")
def hudi_0(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiSpark]:
    """A running Hudi 0.15.0."""
    peers.set_up()
    with HudiSpark("0.15.0", tmp_path_factory.mktemp("hudi-0")) as running:
        yield running


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Writer]:
    """A table of version 6 with a past, by its kind; shared, and copied before it is changed."""

    @cache
    def make(kind: str) -> Writer:
        with using(6):
            writer = create(tmp_path_factory.mktemp(kind), kind, ORDERING)
            write_history(writer, ORDERING)
        return writer

    return make


def copy_of(writer: Writer, folder: Path, name: str = "t") -> Writer:
    shutil.copytree(writer.table.base_path, folder / name)
    table = HoodieTable.open(str(folder / name))
    return Writer(table, writer.schema, writer.groups, writer.options, dict(writer.live), dict(writer.where),
                  writer.now_ms, writer.attempt)  # fmt: skip


def archive_some(table: HoodieTable) -> list[str]:
    """Archive the oldest commits; their times."""
    chosen = table.timeline().completed_writes[:ARCHIVED]
    archive(place_of(table), chosen)
    return [instant.time for instant in chosen]


def check(hudi: HudiSpark, writer: Writer, what: str, **options: str) -> None:
    """Hudi and we read the oracle's rows."""
    table = writer.table.reload().without_metadata_table()
    for who, found in ((f"Hudi {hudi.version}", hudi.read(table.base_path, **options)), ("we", read_snapshot(table))):
        wrong = compare(live_rows(writer), found, ["id"])
        assert not wrong, f"{what}, {who}: {wrong}"


def settings_of(table: HoodieTable) -> dict[str, str]:
    return parse(table.storage.read(PROPERTIES_FILE))


def procedure(hudi: HudiSpark, table: HoodieTable, call: str) -> list[dict[str, str]]:
    """Call one of Hudi's procedures; ``{}`` stands for the table."""
    name = f"versions_{next(_names)}"
    at = table.base_path
    return hudi.sql(at, f"create table {name} using hudi location '{at}'", f"call {call.format(name)}")


def past(hudi: HudiSpark, path: str, times: list[str]) -> list[pa.Table]:
    """The table as of each of its commits."""
    return [hudi.read(path, **{"as.of.instant": time}).drop(MERGED).sort_by("id") for time in times]


@pytest.mark.parametrize("kind", ["cow", "mor", "mor_base_inserts"])
@pytest.mark.parametrize("to", [8, 9])
def test_hudi_reads_all_of_the_history(
    hudi_1: HudiSpark, start: Callable[[str], Writer], kind: str, to: int, tmp_path: Path
) -> None:
    writer = copy_of(start(kind), tmp_path)
    path = writer.table.base_path
    times = [i.time for i in writer.table.timeline().completed_writes]
    before = past(hudi_1, path, times)
    archived = archive_some(writer.table)
    assert upgrade(writer.table, to, clock_ms).archived == ARCHIVED
    check(hudi_1, writer, "upgraded")
    assert past(hudi_1, path, times) == before
    increments = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": "000"}
    found = hudi_1.read(path, **increments)
    assert not compare(live_rows(writer), found, ["id"])
    # Those that were completed after the third commit was begun: the archived ones are not among them.
    since = hudi_1.read(path, **{**increments, "hoodie.datasource.read.begin.instanttime": times[2]})
    assert set(since["_hoodie_commit_time"].to_pylist()) == set(times[2:])
    listed = procedure(hudi_1, writer.table, "show_archived_commits(table => '{}', start_ts => '0', end_ts => '3')")
    assert sorted(row["commit_time"] for row in listed) == archived
    assert all(int(row["total_files_added"]) + int(row["total_files_updated"]) > 0 for row in listed)


@pytest.mark.parametrize("to", [8, 9])
@pytest.mark.parametrize(
    ("kind", "index"), [("cow", "BLOOM"), ("cow", "RECORD"), ("mor", "RECORD"), ("mor_base_inserts", "BLOOM")]
)
def test_hudi_writes_on_and_so_do_we(
    hudi_1: HudiSpark, start: Callable[[str], Writer], kind: str, index: str, to: int, tmp_path: Path
) -> None:
    writer = copy_of(start(kind), tmp_path)
    archive_some(writer.table)
    upgrade(writer.table, to, clock_ms)
    writer.table = writer.table.reload()
    hudi_upserts(hudi_1, writer, index, 1_000)
    check(hudi_1, writer, "Hudi wrote", **{"hoodie.metadata.enable": "true"})
    if kind != "cow":
        options = f"hoodie.compact.inline.max.delta.commits=1,{PINNED}{to}"
        call = f"run_compaction(op => 'scheduleAndExecute', table => '{{}}', options => '{options}')"
        assert procedure(hudi_1, writer.table, call)[0]["state"] == "COMPLETED"
        check(hudi_1, writer, "Hudi compacted", **{"hoodie.metadata.enable": "true"})
    writer.table = writer.table.reload()
    writer.table.drop_metadata_table(clock_ms())
    writer.table = writer.table.reload()
    ours = [event(key, 0, 3_000_000_000 + 2_000, "ours") for key in (200, 201)]
    writer.write(ours)
    check(hudi_1, writer, "we wrote")


def hudi_upserts(hudi: HudiSpark, writer: Writer, index: str, later: int) -> None:
    """Every third key changed where it is, and some new ones."""
    rows = []
    for key in range(0, 140, 3):
        found = event(key, 0, 3_000_000_000 + later, "hudi")
        if found["id"] in writer.live:
            found["part"] = writer.live[found["id"]]["part"]
        rows.append(found)
        writer.live[found["id"]] = found
    hudi.write(writer.table, pa.Table.from_pylist(rows, schema=writer.schema), hudi.index(index))


@pytest.mark.parametrize("kind", ["cow", "mor_base_inserts"])
@pytest.mark.parametrize("by", [8, 9])
def test_back_in_version_6_both_releases_read_it(
    hudi_0: HudiSpark, hudi_1: HudiSpark, start: Callable[[str], Writer], kind: str, by: int, tmp_path: Path
) -> None:
    writer = copy_of(start(kind), tmp_path)
    archived = archive_some(writer.table)
    upgrade(writer.table, by, clock_ms)
    writer.table = writer.table.reload()
    writer.write([event(300, 1, 3_000_000_000 + 500, "ours")])
    downgrade(writer.table, 6, clock_ms)
    writer.table = writer.table.reload()
    for hudi in (hudi_0, hudi_1):
        check(hudi, writer, "downgraded")
        listed = procedure(hudi, writer.table, "show_archived_commits(table => '{}', start_ts => '0', end_ts => '3')")
        assert sorted(row["commit_time"] for row in listed) == archived
    hudi_upserts(hudi_0, writer, "BLOOM", 1_000)
    for hudi in (hudi_0, hudi_1):
        check(hudi, writer, "Hudi 0.15.0 wrote")
    # And up again, by Hudi itself.
    procedure(hudi_1, writer.table, "upgrade_table(table => '{}', to_version => 'NINE')")
    writer.table = writer.table.reload()
    assert writer.table.config.version == 9
    check(hudi_1, writer, "upgraded by Hudi")


@pytest.mark.parametrize("name", ["mor_v6_avro_log_deletes", "mor_v6_bucket", "mor_v6_rollback_and_inflight",
                                  "cow_v6_complexkey_replace", "mor_v6_services_015", "flink_mor"])  # fmt: skip
def test_hudi_reads_its_own_tables_that_we_upgraded(hudi_1: HudiSpark, name: str, tmp_path: Path) -> None:
    base = unpack(name, tmp_path)
    upgrade(HoodieTable.open(str(base)), 9, clock_ms)
    ours = records(read_snapshot(HoodieTable.open(str(base))))
    assert ours == expected_records(base)
    found = hudi_1.read(base)
    assert {(row["_hoodie_partition_path"], row["_hoodie_record_key"]) for row in found.to_pylist()} == {
        (partition, key) for partition, key, _, _ in ours
    }
    assert found.num_rows == len(ours)


@pytest.mark.parametrize("kind", ["cow", "mor_base_inserts"])
@pytest.mark.parametrize("to", [8, 9])
def test_field_by_field_it_is_what_hudi_makes(
    hudi_1: HudiSpark, start: Callable[[str], Writer], kind: str, to: int, tmp_path: Path
) -> None:
    ours, theirs = copy_of(start(kind), tmp_path, "ours").table, copy_of(start(kind), tmp_path, "theirs").table
    for table in (ours, theirs):
        archive_some(table)
    upgrade(ours, to, clock_ms)
    number = {8: "EIGHT", 9: "NINE"}[to]
    procedure(hudi_1, theirs, f"upgrade_table(table => '{{}}', to_version => '{number}')")
    ours, theirs = ours.reload(), theirs.reload()
    assert different(settings_of(ours), settings_of(theirs)) == OTHER_SETTINGS[6, to].keys()
    assert [_without_completion(i) for i in ours.timeline().instants] == [
        _without_completion(i) for i in theirs.timeline().instants
    ]
    for mine, other in zip(contents(ours), contents(theirs), strict=True):
        assert mine[0] == other[0]
        if mine[1] != other[1]:
            assert mine[0].endswith(".requested"), REQUESTED
            assert mine[1] is None, REQUESTED
    assert history_of(ours) == history_of(theirs)
    downgrade(ours, 6, clock_ms)
    procedure(hudi_1, theirs, "downgrade_table(table => '{}', to_version => 'SIX')")
    ours, theirs = ours.reload(), theirs.reload()
    assert different(settings_of(ours), settings_of(theirs)) == OTHER_SETTINGS[8, 6].keys()
    assert ours.timeline().instants == theirs.timeline().instants
    for mine, other in zip(contents(ours), contents(theirs), strict=True):
        assert mine[0] == other[0]
        assert mine[1] == other[1] or (mine[0].endswith(".requested") and mine[1] is None), REQUESTED


def different(ours: dict[str, str], theirs: dict[str, str]) -> set[str]:
    return {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}


def _without_completion(instant: Any) -> tuple[str, str, str]:
    """Ours is before the next commit; Hudi's is that of the file, whenever that was copied."""
    return instant.time, instant.action, instant.state.value


def contents(table: HoodieTable) -> list[tuple[str, dict[str, Any] | None]]:
    """The content of every commit file as a record, by its name without the completion time; None: an empty file."""
    found = []
    for files in place_of(table).names().values():
        for instant, name in files:
            rel = f"{table.config.timeline_folder}/{name}"
            data = table.storage.read(rel)
            record = None
            if data:
                content = read_record(data, rel) if data.startswith(MAGIC) else read_commit(data, rel)
                record = commit_record(content, rel, replace=False)
            state = "" if instant.is_completed else f".{instant.state.value}"
            found.append((f"{instant.time}.{instant.action}{state}", record))
    return found


def history_of(table: HoodieTable) -> list[tuple[str, str, dict[str, Any]]]:
    """The archived actions by time: Hudi's upgrade writes those of the newest archive file first."""
    actions = sorted(table.history().actions(), key=lambda action: action.key)
    return [
        (
            action.time,
            action.action,
            commit_record(read_commit(action.metadata or b"", action.time), action.time, False),
        )
        for action in actions
    ]


# What Hudi's own upgrade to version 9 leaves otherwise on its own tables, and why ours does not.
STRATEGY = (
    "hoodie.compaction.record.merger.strategy"  # an older name of the strategy's key, which Hudi writes beside it
)
METADATA = "hoodie.table.metadata.partitions"  # Hudi takes the metadata table along; here the next writer makes it anew
MODE = (
    "hoodie.record.merge.mode"  # Hudi makes event time of commit time where a merge-on-read table has an ordering field
)
REAL = {
    # An insert overwrite is no clustering, but Hudi gives its unfinished files the name of one.
    "cow_v6_complexkey_replace": ({STRATEGY, METADATA}, {".replacecommit.requested", ".replacecommit.inflight"},
                                  {".clustering.requested", ".clustering.inflight"}),
    "cow_v6_nonpart_simplebloom": ({STRATEGY, METADATA}, set(), set()),
    # Hudi compacts; logs may stay (see table/services/upgrade_checks.py).
    "mor_v6_services_015": ({METADATA, MODE}, set(),
                            {".compaction.requested", ".compaction.inflight", ".commit"}),
}  # fmt: skip
# Members of a log file's stat that Hudi loses on the way: it reads the JSON as the stat of a base file.
LOST = {"logVersion", "logOffset", "baseFile", "logFiles"}


@pytest.mark.parametrize("name", REAL)
def test_on_hudis_own_tables_every_difference_has_a_reason(hudi_1: HudiSpark, name: str, tmp_path: Path) -> None:
    ours = HoodieTable.open(str(unpack(name, tmp_path / "ours")))
    theirs = HoodieTable.open(str(unpack(name, tmp_path / "theirs")))
    upgrade(ours, 9, clock_ms)
    procedure(hudi_1, theirs, "upgrade_table(table => '{}', to_version => 'NINE')")
    ours, theirs = ours.reload(), theirs.reload()
    settings, only_ours, only_theirs = REAL[name]
    assert different(settings_of(ours), settings_of(theirs)) == settings
    assert history_of(ours) == history_of(theirs)
    mine, other = plain_files(ours), plain_files(theirs)
    assert {file[file.index(".") :] for file in mine.keys() - other.keys()} == only_ours
    assert {file[file.index(".") :] for file in other.keys() - mine.keys()} == only_theirs
    for file in mine.keys() & other.keys():
        if mine[file] == other[file]:
            continue
        if (
            mine[file] == b""
        ):  # empty as in a new table; Hudi has an empty commit there, or the plan of a clean once more
            assert file.endswith((".requested", ".clean.inflight")), file
            continue
        a, b = read_record(mine[file], file), read_record(other[file], file)
        for stats, again in zip(a["partitionToWriteStats"].values(), b["partitionToWriteStats"].values(), strict=True):
            for stat, found in zip(stats, again, strict=True):
                differing = {member for member in stat if stat[member] != found[member]}
                assert differing <= LOST
                assert not any(found[member] for member in differing)
        assert {key: value for key, value in a.items() if key != "partitionToWriteStats"} == {
            key: value for key, value in b.items() if key != "partitionToWriteStats"
        }


def plain_files(table: HoodieTable) -> dict[str, bytes]:
    """The timeline's files by their names without completion times."""
    files = [file for found in place_of(table).names().values() for file in found]
    rel = table.config.timeline_folder
    return {
        replace(instant, completion_time=None).file_name(): table.storage.read(f"{rel}/{name}")
        for instant, name in files
    }
