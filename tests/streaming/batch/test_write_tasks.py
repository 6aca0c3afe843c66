"""Lanes: a file group has one in every task, and the work is shared out evenly."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tagstream.streaming.batch.located import (
    WriteTasks,
    by_write_task,
    located_schema,
    located_table,
    shared_out,
    work_of,
)
from tagstream.streaming.source.packed import unpack
from tagstream.table.timeline.commit_metadata import FileKind, WriteStat, WriteStatus
from tagstream.table.write.write_context import WriteProfile

ROW = pa.struct([("a", pa.int64())])
# So many groups as are pinned for one lane; of more the rest is hashed.
WORK = st.dictionaries(
    st.tuples(st.sampled_from(["p", "q", ""]), st.text(max_size=4)), st.integers(0, 1000), max_size=32
)


def test_a_file_group_has_one_lane_in_every_task() -> None:
    parts, files = pa.array(["p1", "p2", "p1", "", "p1"]), pa.array(["f", "f", "g", "#3", "f"])
    for write_tasks in (WriteTasks(3), WriteTasks(3, {"p1": {"f": 2, "g": 0}, "p2": {"h": 1}})):
        found = write_tasks.of(parts, files)
        assert found[0] == found[4]
        assert write_tasks.of(parts.slice(4), files.slice(4)).tolist() == [found[4]]
    assert found.tolist()[:1] + found.tolist()[2:3] == [2, 0]
    assert WriteTasks(3).of(parts, files).tolist()[1] == found[1]  # one that is not pinned is hashed
    assert set(WriteTasks(3).of(pa.array(["p"] * 300), pa.array([str(i) for i in range(300)])).tolist()) == {0, 1, 2}
    assert WriteTasks(2, {"p1": {"f": 2}}).of(parts, files).max() < 2  # a lane that is no more


def test_located_rows_by_lane() -> None:
    schema = located_schema("int64", ROW)
    columns = {"dest_part": pa.array(["p"] * 40), "dest_file": pa.array([f"f{i % 5}" for i in range(40)])}
    columns["skey"] = pa.array([b"%d" % i for i in range(40)])
    table = located_table(schema, 40, columns)
    found = [(write_task, unpack([value])) for write_task, value in by_write_task(table, WriteTasks(2))]
    assert sorted(k for _, t in found for k in t.column("skey").to_pylist()) == sorted(columns["skey"].to_pylist())
    of_file = [(write_task, f) for write_task, t in found for f in set(t.column("dest_file").to_pylist())]
    assert len(of_file) == 5
    assert all(t.schema == schema for _, t in found)


@given(WORK, st.integers(1, 5))
def test_no_lane_has_more_than_the_fairest_and_one_file_group(
    work: dict[tuple[str, str], int], write_tasks: int
) -> None:
    places = shared_out(work, write_tasks)
    assert {(p, f) for p, files in places.items() for f in files} == set(work)
    counted = {place: max(1, rows) for place, rows in work.items()}  # a group without rows is work, too
    load = [0] * write_tasks
    for (part, file_id), rows in counted.items():
        load[places[part][file_id]] += rows
    assert max(load) <= sum(counted.values()) / write_tasks + max(counted.values(), default=0)


def test_thirteen_equal_groups_are_cut_seven_to_six() -> None:
    places = shared_out({(f"p{i % 10}", f"f{i}"): 1000 for i in range(13)}, 2)
    write_tasks = [write_task for files in places.values() for write_task in files.values()]
    assert sorted(map(write_tasks.count, (0, 1))) == [6, 7]


def test_of_a_table_of_very_many_groups_the_greatest_are_pinned() -> None:
    work = {("p", f"f{i:05d}"): i for i in range(5000)}
    for write_tasks, pinned in ((2, 64), (100, 1024)):
        (files,) = shared_out(work, write_tasks).values()
        assert sorted(files) == [f"f{i:05d}" for i in range(5000 - pinned, 5000)]


def test_work_is_all_that_a_group_wrote_and_deleted() -> None:
    def status(file_id: str, writes: int, deletes: int) -> WriteStatus:
        stat = WriteStat(
            partition_path="p", file_id=file_id, path=f"p/{file_id}", num_writes=writes, num_deletes=deletes
        )
        return WriteStatus(stat=stat, kind=FileKind.APPEND)

    assert work_of([status("a", 5, 1), status("b", 0, 2), status("a", 1, 0)]) == {("p", "a"): 7, ("p", "b"): 2}


def test_the_profile_keeps_them() -> None:
    told = WriteProfile("t", "q", 1, 1, "20260101000000000", 0, (0,), write_tasks=shared_out({("p/ä", "f"): 1}, 2))
    assert WriteProfile.from_json(told.to_json()) == told
