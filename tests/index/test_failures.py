"""Moves, deletes, writes that fail, tasks that are tried again: no key is lost from the index."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from tagstream.index.errors import HbaseTableError
from tagstream.index.hbase_index import HbaseIndex
from tests.index.case import Case, options
from tests.support.hbase import HbaseServer
from tests.table.writer import row

pytestmark = [pytest.mark.hbase, pytest.mark.spark]
MOVES = {"update_partition_path": True}


def test_a_move_is_one_put(make_case: Callable[..., Case]) -> None:
    case = make_case(**MOVES)
    first = case.commit([row(1, "p0", 1), row(2, "p0", 1)])
    second = case.commit([row(1, "p1", 2)])
    assert case.tag("k1", "k2") == {
        "k1": ("p1", case.writer.where["k1"][1], second),
        "k2": ("p0", case.writer.where["k2"][1], first),
    }
    assert case.versions(b"k1") == [second.encode(), first.encode()]


@pytest.mark.parametrize("sync", [False, True])
def test_the_old_place_is_back_after_a_move_that_failed(make_case: Callable[..., Case], sync: bool) -> None:
    case = make_case(rollback_sync=sync, **MOVES)
    first = case.commit([row(1, "p0", 1), row(2, "p0", 1), row(3, "p0", 1)])
    before = case.tag("k1", "k2", "k3")
    failed = case.fail([row(1, "p1", 2), row(2, "p0", 2), row(9, "p1", 2)], deletes=["k3"])
    assert case.tag("k1", "k2", "k3", "k9") == before
    newest = {key: case.cells(key).get(b"_s:commit_ts", b"").decode() for key in (b"k1", b"k2", b"k3", b"k9")}
    if sync:  # HBase is as it was, also for Hudi, which looks at the newest version only
        assert newest == {b"k1": first, b"k2": first, b"k3": first, b"k9": ""}
    else:
        assert newest == {b"k1": failed, b"k2": first, b"k3": first, b"k9": failed}
    second = case.commit([row(1, "p1", 3), row(9, "p1", 3)])
    assert case.tag("k1", "k9") == {key: (*case.writer.where[key], second) for key in ("k1", "k9")}


def test_many_failures_and_attempts_do_not_push_out_the_place_that_counts(make_case: Callable[..., Case]) -> None:
    case = make_case(versions=2, **MOVES)
    case.commit([row(n, "p0", 1) for n in range(6)])
    keys = [f"k{n}" for n in range(6)]
    before = case.tag(*keys)
    for round_ in range(2):
        case.fail([row(n, f"p{1 + round_ % 2}", 2) for n in range(6)], attempts=3)
        case.settle()
        assert case.tag(*keys) == before
    second = case.commit([row(n, "p3", 3) for n in range(3)])
    third = case.commit([row(n, "p4", 4) for n in range(3)])
    assert case.versions(b"k0") == [third.encode(), second.encode()]
    case.fail([row(n, "p5", 5) for n in range(6)], attempts=2)
    after = {key: (*where, third if where[0] == "p4" else before[key][2]) for key, where in case.writer.where.items()}
    assert case.tag(*keys) == after


def test_a_commit_that_this_look_does_not_know_is_not_overwritten_in_its_place(make_case: Callable[..., Case]) -> None:
    case = make_case(versions=3, **MOVES)
    first = case.commit([row(1, "p0", 1)])
    stale = case.index  # a task of a driver that was replaced meanwhile
    case.index = HbaseIndex(stale.options)
    second = case.commit([row(1, "p1", 2)])
    case.index = stale
    case.update([("k1", "p2", "f-0", True)], case.writer.instant())
    assert case.versions(b"k1")[1:] == [second.encode(), first.encode()]
    assert case.tag("k1") == {"k1": (*case.writer.where["k1"], second)}


def test_a_task_that_outlives_its_write_hides_nothing(make_case: Callable[..., Case]) -> None:
    case = make_case(versions=1)
    new = [row(n, "p0", 1) for n in range(3)]
    failed = case.fail(new)
    instant = case.commit(new[:2])
    case.update([(each["id"], *case.writer.locate(each), True) for each in new], failed)
    assert case.tag("k0", "k1", "k2") == {key: (*case.writer.where[key], instant) for key in ("k0", "k1")}
    assert case.versions(b"k0") == [instant.encode()]


def test_a_location_that_is_told_late_takes_the_place_of_a_failed_one(make_case: Callable[..., Case]) -> None:
    case = make_case(versions=1)
    instant = case.commit([row(n, "p0", 1) for n in range(2)])
    place = case.writer.where["k1"]
    with case.server.connect() as connection:  # a key that the index never knew ...
        connection.table(case.index.options.table).delete(b"k1")
    failed = case.fail([row(1, "p1", 2)])  # ... so a write took it for a new one, and failed ...
    assert case.cells(b"k1")[b"_s:commit_ts"] == failed.encode() > instant.encode()
    assert case.tag("k1") == {}
    case.update([("k1", *place, True)], instant)  # ... before the index is filled from the table
    assert case.tag("k1") == {"k1": (*place, instant)}


def test_a_second_attempt_changes_nothing(make_case: Callable[..., Case]) -> None:
    case = make_case(versions=3, **MOVES)
    case.commit([row(1, "p0", 1)])
    instant = case.commit([row(1, "p1", 2), row(2, "p1", 2)])
    before = case.versions(b"k1"), case.versions(b"k2"), case.cells(b"k1")
    case.update([(key, *case.writer.where[key], True) for key in ("k1", "k2")], instant)
    assert (case.versions(b"k1"), case.versions(b"k2"), case.cells(b"k1")) == before


def test_a_deleted_key_is_gone_after_the_commit_and_not_before(make_case: Callable[..., Case]) -> None:
    case = make_case(**MOVES)
    keys = ("k1", "k2", "k3")
    first = case.commit([row(1, "p0", 1), row(2, "p0", 1), row(3, "p0", 1)])
    before = case.tag(*keys)
    case.fail([], deletes=["k1"])
    assert case.tag(*keys) == before
    case.commit([], deletes=["k2"])
    assert case.tag(*keys) == {key: before[key] for key in ("k1", "k3")}
    assert case.cells(b"k2") == {}
    # The driver dies behind the commit: the location stays, and leads to where the key was.
    case.commit([], deletes=["k3"], clean_up=False)
    assert case.tag("k3") == {"k3": (*before["k3"][:2], first)}


def test_deletes_that_come_late_or_twice_spare_a_key_that_came_back(make_case: Callable[..., Case]) -> None:
    case = make_case(**MOVES)
    case.commit([row(1, "p0", 1), row(2, "p0", 1)])
    deleting = case.commit([], deletes=["k1", "k2"])
    back = case.commit([row(1, "p1", 2)])
    case.index.complete_commit(deleting, pa.array(["k1", "k2", "k2", "never"]))
    assert case.tag("k1", "k2", "never") == {"k1": (*case.writer.where["k1"], back)}
    case.index.complete_commit(deleting, pa.array([], pa.string()))
    # What is deleted shows no older version either.
    case.commit([row(1, "p0", 3)])
    case.commit([], deletes=["k1"])
    failed = case.fail([row(1, "p2", 4)])
    assert case.tag("k1") == {}
    assert case.versions(b"k1") == [failed.encode()]


def test_a_table_that_would_lose_places_is_refused(hbase_server: HbaseServer, make_case: Callable[..., Case]) -> None:
    case = make_case(versions=1)  # keys that do not move need no second version
    name = case.index.options.table
    with pytest.raises(HbaseTableError, match=rf"alter '{name}'.*VERSIONS => 3"):
        HbaseIndex(options(hbase_server, name, **MOVES)).start(case.look())


def test_a_table_that_is_missing_or_another_ones_is_refused(
    hbase_server: HbaseServer, make_case: Callable[..., Case]
) -> None:
    case = make_case()
    hbase_server.make_table("strange", family="data")
    with pytest.raises(HbaseTableError, match=r"'strange'.*no column family _s"):
        HbaseIndex(options(hbase_server, "strange")).start(case.look())
    with pytest.raises(HbaseTableError, match=r"'absent'.*does not exist.*create 'absent', \{NAME => '_s'"):
        HbaseIndex(options(hbase_server, "absent")).start(case.look())
    with pytest.raises(HbaseTableError, match="'absent'"):
        HbaseIndex(options(hbase_server, "absent")).complete_commit("20260101000000000", pa.array(["k"]))
