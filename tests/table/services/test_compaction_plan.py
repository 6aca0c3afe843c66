"""When a plan is made, of what, in which form; and that it looks at what changed alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tagstream.table.errors import ConfigError, CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.fs_view import BaseFile, FileSlice, LogFile
from tagstream.table.history.archive import archive
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import (
    choose,
    day_of,
    schedule_compaction,
)
from tagstream.table.services.compaction_task import CompactionTask, Inputs
from tagstream.table.services.options import MIB, CompactionOptions, Strategy, Trigger, strategy_of
from tagstream.table.services.plans import (
    PLANNED_BY,
    PLANNER,
    TAKEN_BEFORE,
    Operation,
    groups_with_logs,
    metrics_of,
    read_operations,
)
from tagstream.table.services.upgrade_layouts import place_of
from tagstream.table.timeline.avro_timeline import parsed_schema, read_record, write_parsed
from tagstream.table.timeline.instant import COMPACTION
from tagstream.table.write.write_context import WriteContext, WriterOptions
from tests.table.services.compaction_compacting import ALL, clock, fill, made, plan_and_compact, slices_with_logs, sound
from tests.table.stepping import Stepping
from tests.table.writer import CrashError, Writer, row

OURS = {PLANNED_BY: PLANNER}


def planned(writer: Writer, instant: str) -> dict[str, Any]:
    rel = writer.timeline_rel(f"{instant}.compaction.requested")
    return read_record(writer.table.storage.read(rel), rel)


def schedule(writer: Writer, **options: Any) -> str | None:
    return schedule_compaction(writer.table, CompactionOptions(**options), clock(writer))


@pytest.mark.table_versions(6, 8, 9)
def test_the_plan_is_hudis(version: int, tmp_path: Path) -> None:
    writer = fill(made(tmp_path))
    view = writer.table.view()
    slices = {s.file_id: s for p in view.partitions() for s in view.latest_merged_slices(p) if s.log_files}
    instant = schedule(writer, max_delta_commits=4)
    assert instant is not None
    plan = planned(writer, instant)
    assert (plan["version"], plan["strategy"], plan["preserveHoodieMetadata"]) == (2, None, False)
    assert plan["extraMetadata"] == {**OURS, TAKEN_BEFORE: instant}
    assert {operation["fileId"] for operation in plan["operations"]} == set(slices)
    for operation in plan["operations"]:
        found = slices[operation["fileId"]]
        base = found.base_file
        assert operation["partitionPath"] == found.partition_path
        assert operation["baseInstantTime"] == found.base_instant
        assert operation["dataFilePath"] == (base.name if base else None)
        assert operation["deltaFilePaths"] == [log.name for log in found.log_files]
        assert operation["bootstrapFilePath"] is None
        assert operation["metrics"]["TOTAL_LOG_FILES"] == len(found.log_files)
        assert operation["metrics"]["TOTAL_LOG_FILES_SIZE"] == sum(log.size for log in found.log_files)
    sizes = [operation["metrics"]["TOTAL_LOG_FILES_SIZE"] for operation in plan["operations"]]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.table_versions(6, 9)
def test_by_the_number_of_delta_commits(version: int, tmp_path: Path) -> None:
    writer = made(tmp_path)
    for number in range(1, 5):
        assert schedule(writer) is None
        writer.write([row(1, "p0", number)])
    assert schedule(writer) is None
    writer.write([row(1, "p0", 5)])
    instant = schedule(writer)
    assert instant is not None
    for number in range(6, 11):
        writer.write([row(1, "p0", number), row(number, "p1", 1)])
        assert schedule(writer, max_delta_commits=1) is None, "one plan at a time"
        found = schedule(writer, trigger=Trigger.NUM_COMMITS_AFTER_LAST_REQUEST)
        assert (found is not None) == (number == 10)
    second = [i for i in writer.table.timeline().pending if i.action == "compaction"][-1].time
    assert {op["partitionPath"] for op in planned(writer, second)["operations"]} == {"p1"}, "p0 is in the first plan"
    for time in (second, instant):
        compact(writer.table, time, clock(writer))
        sound(writer)
    assert schedule(writer) is None
    for number in range(11, 16):
        writer.write([row(1, "p0", number)])
    assert schedule(writer) is not None


def test_by_seconds(tmp_path: Path) -> None:
    writer = made(tmp_path)
    hour = {"max_delta_seconds": 3600, "trigger": Trigger.TIME_ELAPSED}
    assert schedule(writer, **hour) is None
    writer.write([row(1, "p0", 1)])
    writer.now_ms += 3_590_000
    assert schedule(writer, **hour) is None
    writer.now_ms += 11_000
    assert schedule(writer, **{**hour, "trigger": Trigger.NUM_AND_TIME}) is None
    assert schedule(writer, **{**hour, "trigger": Trigger.NUM_OR_TIME, "max_delta_seconds": 9999}) is None
    instant = schedule(writer, **{**hour, "trigger": Trigger.NUM_OR_TIME})
    assert instant is not None
    compact(writer.table, instant, clock(writer))
    writer.write([row(1, "p0", 2)])
    assert schedule(writer, **hour) is None
    writer.now_ms += 3_601_000
    assert schedule(writer, **{**hour, "trigger": Trigger.NUM_AND_TIME, "max_delta_commits": 1}) is not None


@pytest.mark.table_versions(6)  # the versions after it: the next test
def test_version_6_waits_for_pending_writes(tmp_path: Path) -> None:
    writer = fill(made(tmp_path))
    with pytest.raises(CrashError):
        writer.write([row(1, "p0", 9)], crash="files")
    assert schedule(writer, max_delta_commits=1) is None
    writer.rollback_pending()
    assert schedule(writer, max_delta_commits=1) is not None


@pytest.mark.table_versions(8, 9)
def test_later_versions_leave_a_pending_write_out(version: int, tmp_path: Path) -> None:
    writer = fill(made(tmp_path))
    with pytest.raises(CrashError):
        writer.write([row(1, "p1", 9), row(55, "p5", 1)], crash="publish")
    (pending,) = writer.table.timeline().pending_writes
    instant = schedule(writer, max_delta_commits=1)
    assert instant is not None
    plan = planned(writer, instant)
    assert plan["extraMetadata"] == {**OURS, TAKEN_BEFORE: pending.time}
    assert not any(pending.time in name for op in plan["operations"] for name in op["deltaFilePaths"])
    compact(writer.table, instant, clock(writer))
    writer.rollback_pending()
    sound(writer)


def test_the_lease_is_asked_before_the_plan_is_written(tmp_path: Path) -> None:
    writer = fill(made(tmp_path))

    def lost() -> None:
        raise CrashError

    with pytest.raises(CrashError):
        schedule_compaction(writer.table, ALL, clock(writer), lost, force=True)
    assert writer.table.timeline().pending == ()


def test_copy_on_write_is_refused(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    with pytest.raises(UnsupportedTableError, match="copy-on-write"):
        schedule_compaction(writer.table, ALL, clock(writer))


@pytest.mark.table_versions(6, 9)
def test_planning_looks_at_what_changed(version: int, tmp_path: Path) -> None:
    writer = made(tmp_path)
    writer.write([row(key, f"p{key}", 1) for key in range(12)])
    plan_and_compact(writer)
    writer.write([row(3, "p3", 2)])
    listed: list[str] = []

    def before(kind: str, rel: str = "", *rest: str) -> None:
        if kind in ("list", "names") and not rel.startswith(".hoodie"):
            listed.append(rel)

    watched = HoodieTable.open(Stepping(writer.table.storage, before))
    instant = schedule_compaction(watched, ALL, clock(writer), force=True)
    assert instant is not None
    assert listed == ["p3"]
    assert len(planned(writer, instant)["operations"]) == 1
    compact(writer.table, instant, clock(writer))
    # What says so is archived: then all is listed again.
    writer.write([row(5, "p5", 2)])
    timeline = writer.table.timeline()
    archive(place_of(writer.table), [i for i in timeline.completed_writes if i.time <= instant])
    assert groups_with_logs(writer.table, writer.table.timeline()) is None
    listed.clear()
    assert schedule_compaction(watched, ALL, clock(writer), force=True) is not None
    assert {f"p{number}" for number in range(12)} <= set(listed)


@pytest.mark.table_versions(6, 9)
def test_what_a_plan_left_out_is_found_later(version: int, tmp_path: Path) -> None:
    """A bounded plan takes a part: it does not say that all older logs are taken."""
    writer = made(tmp_path)
    writer.write([row(key, f"p{key}", 1) for key in range(4)])
    writer.write([row(key, f"p{key}", 2) for key in range(4)])
    wanted = slices_with_logs(writer.table)
    bounded = replace(ALL, strategy=Strategy.LOG_FILE_SIZE, target_io_mb=120)
    taken = []
    while len(taken) < 4:
        result = plan_and_compact(writer, bounded)
        taken += [(s.stat.partition_path, s.stat.file_id) for s in result.statuses]
        sound(writer)
        writer.write([row(9, "p9", len(taken))])
        plan_and_compact(writer, replace(ALL, strategy=Strategy.PARTITION_REGEX, partition_regex="p9"))
    assert sorted(taken) == wanted
    assert slices_with_logs(writer.table) == []


def test_a_group_in_a_pending_plan_is_not_said_to_be_taken(tmp_path: Path) -> None:
    writer = made(tmp_path)
    writer.write([row(1, "p1", 1), row(2, "p2", 1)])
    first = schedule_compaction(
        writer.table, replace(ALL, strategy=Strategy.PARTITION_REGEX, partition_regex="p1"), clock(writer), force=True
    )
    assert first is not None
    writer.write([row(1, "p1", 2)])
    second = schedule_compaction(writer.table, ALL, clock(writer), force=True)
    assert second is not None
    assert planned(writer, second)["extraMetadata"] == OURS
    for time in (first, second):
        compact(writer.table, time, clock(writer))
    (left,) = slices_with_logs(writer.table)
    assert left[0] == "p1"
    plan_and_compact(writer)
    assert slices_with_logs(writer.table) == []


def some(partition: str, log_mib: list[int], base_mib: int | None = None) -> FileSlice:
    base = BaseFile("f_0-0-0_1.parquet", "f", "1", base_mib * MIB) if base_mib is not None else None
    logs = tuple(LogFile(f".f_1.log.{n}_0-0-0", "f", "1", n, "0-0-0", size * MIB) for n, size in enumerate(log_mib, 1))
    return FileSlice(partition, "f", "1", base, logs)


SLICES = [
    some("2026/11/20", [1, 1, 1], 10), some("2026/11/21", [30], 100), some("2026/11/22", [5, 6]), some("2026/11/23", [2, 2]),
]  # fmt: skip
TODAY = date(2026, 11, 22)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"strategy": Strategy.UNBOUNDED}, [0, 1, 2, 3]),
        ({"strategy": Strategy.LOG_FILE_SIZE}, [1, 2, 3, 0]),
        ({"strategy": Strategy.LOG_FILE_SIZE, "target_io_mb": 231}, [1, 2]),  # 130 + 100, then 11 + 120
        ({"strategy": Strategy.LOG_FILE_SIZE, "target_io_mb": 230}, [1]),
        ({"strategy": Strategy.LOG_FILE_SIZE, "log_size_threshold": 4 * MIB}, [1, 2, 3]),
        ({"strategy": Strategy.LOG_FILE_NUM}, [0, 2, 3, 1]),
        ({"strategy": Strategy.LOG_FILE_NUM, "log_count_threshold": 2}, [0, 2, 3]),
        ({"strategy": Strategy.BOUNDED_IO, "target_io_mb": 24}, [0, 1]),
        ({"strategy": Strategy.DAY_BASED, "target_partitions": 2}, [3, 2]),
        ({"strategy": Strategy.BOUNDED_PARTITION_AWARE, "target_partitions": 1}, [3, 2, 1]),
        ({"strategy": Strategy.PARTITION_REGEX, "partition_regex": "/2[01]$"}, [0, 1]),
    ],
)
def test_strategies(options: dict[str, Any], wanted: list[int]) -> None:
    assert choose(SLICES, CompactionOptions(**options), TODAY) == [SLICES[n] for n in wanted]


def test_metrics() -> None:
    """As FileSliceMetricUtils counts: whole MiB, a base file to be made counts as its greatest size."""
    assert metrics_of(SLICES[1], 120 * MIB) == {
        "TOTAL_LOG_FILES": 1.0, "TOTAL_LOG_FILES_SIZE": 30.0 * MIB, "TOTAL_IO_READ_MB": 130.0, "TOTAL_IO_WRITE_MB": 100.0,
        "TOTAL_IO_MB": 230.0,
    }  # fmt: skip
    assert metrics_of(SLICES[2], 120 * MIB)["TOTAL_IO_MB"] == 131.0


def test_days() -> None:
    assert day_of("year=2026/month=1/day=2") == date(2026, 1, 2)
    assert day_of("2026/01/02/05") == date(2026, 1, 2)
    for wrong in ("p0", "2026-01-02", "2026/13/01", ""):
        with pytest.raises(ConfigError, match="is not a day"):
            day_of(wrong)


def test_names_of_strategies() -> None:
    for name in (
        "org.apache.hudi.table.action.compact.strategy.DayBasedCompactionStrategy", "DayBasedCompactionStrategy", "DayBased",
    ):  # fmt: skip
        assert strategy_of(name) is Strategy.DAY_BASED
    with pytest.raises(ConfigError, match="com.acme.Mine is not known"):
        strategy_of("com.acme.Mine")


@pytest.mark.parametrize(
    "options", [{"max_delta_commits": 0}, {"max_memory": 0}, {"strategy": Strategy.PARTITION_REGEX},
                {"strategy": Strategy.PARTITION_REGEX, "partition_regex": "("}],
)  # fmt: skip
def test_options_that_cannot_be_used(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        CompactionOptions(**options)


@pytest.mark.extended("more kinds of tables", first=("v9-False",))
@pytest.mark.table_versions(8, 9)
@pytest.mark.parametrize("metadata", [False, True])
def test_a_write_that_was_begun_before_the_plan_and_completed_after_it(
    version: int, metadata: bool, tmp_path: Path
) -> None:
    """Its time is before the plan's, but it was completed later: its logs lie over the new base file."""
    writer = fill(made(tmp_path, metadata))
    tell, found = writer.before_complete, []

    def plan_now(*told: Any) -> None:
        found.append(schedule_compaction(writer.table, ALL, clock(writer), force=True))
        if tell is not None:
            tell(*told)

    writer.before_complete = plan_now
    late = writer.write([row(key, f"p{key % 2}", 60) for key in range(0, 24, 5)], ["k4"])
    writer.before_complete = tell
    (instant,) = found
    assert instant is not None
    assert late < instant < writer.table.timeline().completion_time(late)
    sound(writer)
    compact(writer.table, instant, clock(writer))
    sound(writer)
    assert slices_with_logs(writer.table) != []
    plan_and_compact(writer)  # it is found, though its time is before the plan's that took all
    assert slices_with_logs(writer.table) == []
    sound(writer)


OPERATION = {"baseInstantTime": "1", "deltaFilePaths": [], "dataFilePath": None, "fileId": "f-0", "partitionPath": "p0"}
LOGS = [".f-0_1.log.10_0-1-0", ".f-0_1.log.2_0-1-0"]


def put(writer: Writer, version: int | None, *operations: dict[str, Any]) -> None:
    record = {"operations": list(operations), "version": version}
    data = write_parsed(parsed_schema("HoodieCompactionPlan"), record)
    writer.table.storage.replace(writer.timeline_rel("2.compaction.requested"), data)


@pytest.mark.parametrize(("version", "folder"), [(None, "hdfs://host/t/p0/"), (1, "/t/p0/"), (2, "")])
def test_plans_with_paths_and_with_names(version: int | None, folder: str, tmp_path: Path) -> None:
    writer = made(tmp_path)
    base = "f-0_1-2-3_1.parquet"
    files = {"dataFilePath": folder + base, "deltaFilePaths": [folder + name for name in LOGS]}
    put(writer, version, {**OPERATION, **files}, {**OPERATION, "partitionPath": "", "deltaFilePaths": LOGS})
    first, second = read_operations(writer.table, "2")
    assert first == Operation("p0", "f-0", "1", base, tuple(LOGS))
    assert first.file_slice().base_path == f"p0/{base}"
    assert [log.version for log in first.file_slice().log_files] == [2, 10]
    assert first.file_slice(frozenset(LOGS[:1])).log_paths == (f"p0/{LOGS[1]}",)
    assert (second.base_file, second.file_slice().log_paths) == (None, (LOGS[1], LOGS[0]))


def test_a_task_weighs_what_its_plan_says_and_else_its_log_files(tmp_path: Path) -> None:
    writer = made(tmp_path)
    operation = {**OPERATION, "dataFilePath": "f-0_1-2-3_1.parquet", "deltaFilePaths": LOGS}
    put(writer, 2, {**operation, "metrics": {"TOTAL_IO_MB": 17.0}}, {**operation, "metrics": {}}, operation)
    weights = []
    for each in read_operations(writer.table, "2"):
        context = WriteContext(
            "2", COMPACTION, 0, "", pa.schema([]), "", None, writer.table.timeline(), WriterOptions()
        )
        weights.append(CompactionTask(writer.table, context, Inputs(each), 1, 1).weight)
    assert weights == [17, 2, 2]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"deltaFilePaths": ["nonsense"]}, CorruptFileError, "nonsense, which is not a data file"),
        ({"dataFilePath": "p0/x.txt"}, CorruptFileError, "x.txt, which is not a data file"),
        ({"fileId": None}, CorruptFileError, "no file id"),
        ({"bootstrapFilePath": "/other/x.parquet"}, UnsupportedTableError, "bootstrapped"),
    ],
)
def test_plans_that_cannot_be_carried_out(
    change: dict[str, Any], error: type[Exception], text: str, tmp_path: Path
) -> None:
    writer = made(tmp_path)
    put(writer, 2, {**OPERATION, **change})
    with pytest.raises(error, match=text):
        read_operations(writer.table, "2")


@pytest.mark.table_versions(6, 8, 9)
def test_what_was_completed_since_the_look_is_in_the_plan(version: int, tmp_path: Path) -> None:
    """The look tells whether it is time. Another writer may have completed a write since, whose logs the plan must name."""
    writer = fill(made(tmp_path))
    looked = writer.table.timeline()
    writer.write([row(number, "p0", 99) for number in range(40)])
    view = writer.table.view()
    logs = {log.name for p in view.partitions() for one in view.latest_merged_slices(p) for log in one.log_files}
    instant = schedule_compaction(writer.table, ALL, clock(writer), force=True, timeline=looked)
    assert instant is not None
    assert {
        name for operation in planned(writer, instant)["operations"] for name in operation["deltaFilePaths"]
    } == logs
