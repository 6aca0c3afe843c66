"""A plan carried out: the same rows from base files alone, and the table is written on beside it and after it."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tagstream.table.errors import InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.base_file import read_footer
from tagstream.table.meta_client.table_config import MERGE_ON_READ, MergeMode
from tagstream.table.metadata.compaction import compact as metadata_compact
from tagstream.table.schema.schema import FILE_NAME
from tagstream.table.services.compaction import begin_compaction, compact, compaction_tasks, complete_compaction
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.lease import write_heartbeat
from tagstream.table.write.commit import complete, publish_files
from tests.table.metadata.case import Case
from tests.table.services.compaction_compacting import (
    ALL,
    clock,
    fill,
    groups,
    made,
    plan_and_compact,
    plans,
    rows,
    slices_with_logs,
    sound,
)
from tests.table.writer import row


@pytest.mark.extended("more kinds of tables", first=("v6-False", "v9-True"))
@pytest.mark.table_versions(6, 8, 9)
@pytest.mark.parametrize("metadata", [False, True])
def test_rows_and_their_meta_columns_stay(version: int, metadata: bool, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, metadata))
    before, places = rows(writer.table), groups(writer.table)
    wanted = slices_with_logs(writer.table)
    result = plan_and_compact(writer)
    assert sorted((s.stat.partition_path, s.stat.file_id) for s in result.statuses) == wanted
    assert rows(writer.table) == before
    assert groups(writer.table) == places
    assert slices_with_logs(writer.table) == []
    assert plans(writer.table) == []
    sound(writer)
    storage = writer.table.storage
    for status in result.statuses:
        found = pq.read_table(storage.where(status.stat.path), partitioning=None)
        assert set(found[FILE_NAME].to_pylist()) <= {status.stat.file_name}
        assert found.num_rows == status.stat.num_writes
        footer = read_footer(storage, status.stat.path)
        assert footer.bloom is not None
        assert footer.rows == found.num_rows
    assert list(storage.walk_files(f".hoodie/.temp/{result.instant}")) == []
    metadata_of = writer.table.timeline().metadata(storage, result.completed)
    assert (metadata_of.operation, metadata_of.compacted) == ("COMPACT", True)
    writer.write([row(key, f"p{key % 2}", 9) for key in range(0, 40, 5)], ["k3"])
    sound(writer)
    plan_and_compact(writer)
    sound(writer)


@pytest.mark.extended("more kinds of tables", first=("v6-False", "v9-True"))
@pytest.mark.table_versions(6, 8, 9)
@pytest.mark.parametrize("metadata", [False, True])
def test_writes_go_on_beside_a_plan(version: int, metadata: bool, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, metadata))
    tick = clock(writer)
    instant = schedule_compaction(writer.table, ALL, tick, force=True)
    assert instant is not None
    sound(writer)
    writer.write([row(key, f"p{key % 2}", 7, "beside") for key in range(0, 30, 4)], ["k5"])
    sound(writer)
    later = {r["id"]: r for r in rows(writer.table)}
    compact(writer.table, instant, tick)
    assert {r["id"]: r for r in rows(writer.table)} == later
    sound(writer)
    assert slices_with_logs(writer.table) != []  # what was written beside it
    writer.write([row(key, f"p{key % 2}", 8, "after") for key in range(0, 30, 6)], ["k9"])
    sound(writer)
    plan_and_compact(writer)
    sound(writer)
    assert slices_with_logs(writer.table) == []


def test_who_comes_second_leaves_nothing(tmp_path: Path) -> None:
    """Two executions of one plan, which a lease prevents: the files of the later one go."""
    writer = fill(made(tmp_path))
    before, tick = rows(writer.table), clock(writer)
    instant = schedule_compaction(writer.table, ALL, tick, force=True)
    assert instant is not None
    begin_compaction(writer.table, instant, tick)
    first, second = ([task.run() for task in compaction_tasks(writer.table, instant, run)] for run in (1, 2))
    complete_compaction(writer.table, instant, first, tick)
    for late in (
        lambda: complete_compaction(writer.table, instant, second, tick),
        lambda: compact(writer.table, instant, tick),
        lambda: begin_compaction(writer.table, instant, tick),
    ):
        with pytest.raises(InstantConflictError, match="already completed"):
            late()
    assert rows(writer.table) == before
    storage = writer.table.storage
    assert not any(storage.exists(status.stat.path) for status in second)
    assert all(storage.exists(status.stat.path) for status in first)
    assert list(storage.walk_files(".hoodie/.temp")) == []
    sound(writer)


@pytest.mark.table_versions(6, 9)
def test_another_one_completes_it_in_the_last_moment(version: int, tmp_path: Path) -> None:
    writer = fill(made(tmp_path))
    before, tick = rows(writer.table), clock(writer)
    instant = schedule_compaction(writer.table, ALL, tick, force=True)
    assert instant is not None
    begin_compaction(writer.table, instant, tick)
    first, second = ([task.run() for task in compaction_tasks(writer.table, instant, run)] for run in (1, 2))
    keep = writer.table.storage

    def other(step: str) -> None:
        if step == "compaction_published":
            publish_files(writer.table, instant, second)
            metadata = CommitMetadata.build(second, {}, writer.table.schema_json() or "", "COMPACT")
            complete(writer.table, instant, "compaction", metadata, clock_ms=tick)

    with pytest.raises(InstantConflictError):
        complete_compaction(writer.table, instant, first, tick, reach=other)
    assert rows(writer.table) == before
    assert not any(keep.exists(status.stat.path) for status in first)
    sound(writer)


def test_a_late_task_stages_nothing(tmp_path: Path) -> None:
    writer = fill(made(tmp_path))
    tick = clock(writer)
    instant = schedule_compaction(writer.table, ALL, tick, force=True)
    assert instant is not None
    begin_compaction(writer.table, instant, tick)
    tasks = pickle.loads(pickle.dumps(compaction_tasks(writer.table, instant, 1)))  # noqa: S301
    assert tasks[0].run(1).stat.file_name.split("_")[1] == "0-1-1"
    assert tasks[0].bytes > 0
    compact(writer.table, instant, tick)
    late = replace(tasks[0], context=replace(tasks[0].context, instant="20990101000000000"))
    with pytest.raises(InstantConflictError, match="rolled back"):
        late.run()


def test_no_plan_no_compaction(tmp_path: Path) -> None:
    writer = fill(made(tmp_path))
    with pytest.raises(InstantConflictError, match="no compaction was planned"):
        compact(writer.table, "20260101000000000", clock(writer))


def test_another_process_beats(tmp_path: Path) -> None:
    writer = fill(made(tmp_path))
    instant = schedule_compaction(writer.table, ALL, clock(writer), force=True)
    assert instant is not None
    write_heartbeat(writer.table.storage, instant)
    beat = writer.table.storage.list(".hoodie/.heartbeat")[0].mtime_ms
    with pytest.raises(InstantConflictError, match="another process"):
        compact(writer.table, instant, lambda: beat + 1000)
    compact(writer.table, instant, lambda: beat + 1_000_000)


@pytest.mark.table_versions(6, 9)
def test_nothing_is_left_of_a_slice(version: int, tmp_path: Path) -> None:
    """Every record was deleted: a base file without rows, over which the group is written on."""
    writer = made(tmp_path, True)
    writer.with_options(inserts_to_base_files=True)
    writer.write([row(key, "p0", 1) for key in range(4)])
    writer.with_options(inserts_to_base_files=False)
    writer.write([row(9, "p1", 1)], ["k0", "k1", "k2", "k3"])
    result = plan_and_compact(writer)
    assert sorted(s.stat.num_writes for s in result.statuses) == [0, 0, 1]
    assert sum(s.stat.num_deletes for s in result.statuses) == 4
    sound(writer)
    writer.write([row(key, "p0", 2) for key in range(6)])
    sound(writer)
    plan_and_compact(writer)
    sound(writer)


@pytest.mark.table_versions(6, 9)
def test_rows_of_an_older_schema_get_nulls(version: int, tmp_path: Path) -> None:
    writer = fill(made(tmp_path))
    writer.schema = writer.schema.append(pa.field("more", pa.int32()))
    writer.live = {key: {**found, "more": None} for key, found in writer.live.items()}
    writer.write([{**row(key, f"p{key % 2}", 9), "more": key} for key in range(0, 24, 5)])
    before = rows(writer.table)
    plan_and_compact(writer)
    assert rows(writer.table) == before
    assert {r["id"]: r["more"] for r in before if r["more"] is not None} == {f"k{n}": n for n in range(0, 24, 5)}
    sound(writer)


@pytest.mark.table_versions(6, 9)
def test_log_rows_that_memory_has_no_room_for(version: int, tmp_path: Path) -> None:
    writer = fill(made(tmp_path))
    before, tick = rows(writer.table), clock(writer)
    instant = schedule_compaction(writer.table, ALL, tick, force=True)
    assert instant is not None
    compact(writer.table, instant, tick, options=replace(ALL, max_memory=1))
    assert rows(writer.table) == before
    sound(writer)


@pytest.mark.table_versions(6, 8, 9)
def test_the_metadata_table_is_told_all_of_the_new_files(version: int, tmp_path: Path) -> None:
    """Names, sizes, ranges of every column, bloom filters; the record index stays as it was."""
    case = Case.create(tmp_path, MERGE_ON_READ, version)
    fill(case.writer)
    case.check()
    plan_and_compact(case.writer)
    case.check()
    case.writer.write([row(key, f"p{key % 2}", 9) for key in range(0, 40, 5)], ["k3"])
    plan_and_compact(case.writer)
    assert metadata_compact(case.metadata_writer, case.times, 1) is not None
    case.check()
    sound(case.writer)


def test_records_that_cannot_be_merged_are_named_before_anything_is_done(tmp_path: Path) -> None:
    writer = fill(made(tmp_path))
    instant = schedule_compaction(writer.table, ALL, clock(writer), force=True)
    assert instant is not None
    config = replace(writer.table.config, merge_mode=MergeMode.CUSTOM, payload_class="com.acme.Mine")
    with pytest.raises(UnsupportedTableError, match=r"Java code \(com.acme.Mine\)"):
        compact(replace(writer.table, config=config), instant, clock(writer))
    assert [i.state.value for i in plans(writer.table)] == ["requested"]
