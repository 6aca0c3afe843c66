"""Instants of both layouts, their newest states, and which instants count."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest

from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import Instant, State, parse_instant
from tagstream.table.timeline.timeline import Timeline

T = "2026010100000{}000"


def load(tmp_path: Path, *names: str) -> Timeline:
    storage = open_storage(str(tmp_path))
    for name in names:
        storage.replace(f".hoodie/{name}", b"")
    return Timeline.load(storage, ".hoodie")


@pytest.mark.parametrize(
    ("name", "instant"),
    [
        ("20260101000000000.commit", Instant("20260101000000000", "commit", State.COMPLETED)),
        ("20260101000000000.inflight", Instant("20260101000000000", "commit", State.INFLIGHT)),
        ("20260101000000000.commit.requested", Instant("20260101000000000", "commit", State.REQUESTED)),
        ("20260101000000000.deltacommit.inflight", Instant("20260101000000000", "deltacommit", State.INFLIGHT)),
        ("20260101000000000.compaction.requested", Instant("20260101000000000", "compaction", State.REQUESTED)),
        ("20260101000000000.rollback", Instant("20260101000000000", "rollback", State.COMPLETED)),
        (
            "20260101000000000_20260101000001000.deltacommit",
            Instant("20260101000000000", "deltacommit", State.COMPLETED, "20260101000001000"),
        ),
    ],
)
def test_names_of_instants(name: str, instant: Instant) -> None:
    assert parse_instant(name) == instant
    assert instant.file_name() == name


@pytest.mark.parametrize(
    "name", ["hoodie.properties", ".tagstream_lease.3", "20260101000000000.unheard", "x.commit", "1.commit.done"]
)
def test_other_files_are_no_instants(name: str) -> None:
    assert parse_instant(name) is None


def test_the_newest_state_wins(tmp_path: Path) -> None:
    one, two, three = (T.format(n) for n in (1, 2, 3))
    timeline = load(
        tmp_path,
        f"{one}.commit.requested", f"{one}.inflight", f"{one}.commit",
        f"{two}.compaction.inflight", f"{two}.commit",
        f"{three}.deltacommit.requested", f"{three}.deltacommit.inflight",
    )  # fmt: skip
    assert [i.file_name() for i in timeline.instants] == [
        f"{one}.commit", f"{two}.commit", f"{three}.deltacommit.inflight",
    ]  # fmt: skip
    assert timeline.newest_completed == two
    assert timeline.newest == three
    assert [i.time for i in timeline.pending_writes] == [three]


def test_valid_is_completed_or_archived(tmp_path: Path) -> None:
    zero, one, two, three, four = (T.format(n) for n in range(5))
    timeline = load(tmp_path, f"{one}.commit", f"{two}.inflight", f"{four}.commit")
    assert [timeline.is_valid(t) for t in (zero, one, two, three, four)] == [True, True, False, False, True]


def test_nothing_is_valid_without_commits(tmp_path: Path) -> None:
    timeline = load(tmp_path, f"{T.format(1)}.clean")
    assert timeline.newest_completed is None
    assert not timeline.is_valid(T.format(0))


def test_a_savepoint_does_not_hold_the_start_back(tmp_path: Path) -> None:
    """Hudi archives past a savepoint: what lies between it and the next active commit was archived."""
    one, two, three = (T.format(n) for n in (1, 2, 3))
    timeline = load(tmp_path, f"{one}.commit", f"{one}.savepoint", f"{three}.commit")
    assert timeline.start == three
    assert timeline.is_valid(two)


def test_archived_writes_count_where_every_write_has_a_savepoint(tmp_path: Path) -> None:
    one, two, three, four = (T.format(n) for n in (1, 2, 3, 4))
    names = [f"{two}.commit", f"{two}.savepoint", f"{three}.commit", f"{three}.savepoint"]
    timeline = load(tmp_path, *names)
    assert timeline.start == three
    assert [timeline.is_valid(t) for t in (one, two, three, four)] == [True, True, True, False]
    assert timeline.is_archived(one)
    assert not timeline.is_archived(three)


def test_a_savepoint_does_not_change_when_its_write_was_completed(tmp_path: Path) -> None:
    one, two, three = (T.format(n) for n in (1, 2, 3))
    timeline = load(tmp_path, f"{one}_{two}.deltacommit", f"{one}_{three}.savepoint")
    assert timeline.completion_time(one) == two


def test_an_older_pending_write_is_never_taken_for_archived(tmp_path: Path) -> None:
    one, two = T.format(1), T.format(2)
    timeline = load(tmp_path, f"{one}.deltacommit.requested", f"{two}.deltacommit")
    assert not timeline.is_valid(one)


def test_a_second_look_is_the_first_one_until_something_changes(tmp_path: Path) -> None:
    first = load(tmp_path, f"{T.format(1)}.commit")
    assert load(tmp_path) is first
    second = load(tmp_path, f"{T.format(2)}.commit.requested")
    assert [i.time for i in second.instants] == [T.format(1), T.format(2)]
    (tmp_path / ".hoodie" / f"{T.format(2)}.commit.requested").unlink()
    assert load(tmp_path).instants == first.instants
    shutil.rmtree(tmp_path / ".hoodie")
    assert load(tmp_path).instants == ()
    # other tables do not push the look at this one aside too soon, and are not mistaken for it
    assert load(tmp_path / "other", f"{T.format(3)}.commit").newest == T.format(3)


class Unstamped(PosixStorage):
    """A store that cannot tell whether a folder has changed."""

    def stamp(self, rel: str) -> object | None:
        return None


def test_without_a_stamp_the_names_are_compared_each_time(tmp_path: Path) -> None:
    load(tmp_path, f"{T.format(1)}.commit")
    storage = Unstamped(str(tmp_path))
    first = Timeline.load(storage, ".hoodie")
    assert Timeline.load(Unstamped(str(tmp_path)), ".hoodie") is first
    load(tmp_path, f"{T.format(2)}.commit")
    assert Timeline.load(storage, ".hoodie").newest == T.format(2)


def test_two_storages_never_share_a_look(tmp_path: Path) -> None:
    first = load(tmp_path, f"{T.format(1)}.commit")
    assert Timeline.load(Unstamped(str(tmp_path)), ".hoodie") is not first
    assert Timeline.load(PosixStorage(str(tmp_path), sync=False), ".hoodie") is not first


def replaces(folder: Path, number: int, *file_ids: str) -> None:
    """A completed replace commit in partition p."""
    content = CommitMetadata(operation="INSERT_OVERWRITE", replaced={"p": file_ids}).to_bytes(6)
    (folder / ".hoodie" / f"{T.format(number)}.replacecommit").write_bytes(content)


def test_a_replace_commit_is_read_once(tmp_path: Path) -> None:
    (tmp_path / ".hoodie").mkdir()
    replaces(tmp_path, 1, "a", "b")
    replaces(tmp_path, 3, "c")
    assert load(tmp_path).replaced == {("p", "a"): T.format(1), ("p", "b"): T.format(1), ("p", "c"): T.format(3)}
    for number in (1, 3):  # completed files never change: this one stands for one that is not read again
        (tmp_path / ".hoodie" / f"{T.format(number)}.replacecommit").write_text("damaged")
    replaces(tmp_path, 2, "b", "d")
    found = load(tmp_path).replaced
    assert found == {("p", "a"): T.format(1), ("p", "b"): T.format(2), ("p", "c"): T.format(3), ("p", "d"): T.format(2)}
    (tmp_path / ".hoodie" / f"{T.format(2)}.replacecommit").unlink()  # rolled back
    assert load(tmp_path).replaced == {("p", "a"): T.format(1), ("p", "b"): T.format(1), ("p", "c"): T.format(3)}
    replaces(tmp_path, 2, "e")
    assert load(tmp_path).replaced[("p", "e")] == T.format(2)


def test_a_timeline_travels_packed() -> None:
    """Between driver and tasks: everything of it, few bytes an instant, and unpacked once a process."""
    start = 1_767_225_600_000
    times = [instant_from_ms(start + 10_000 * n, True) for n in range(10_000)]
    instants = [Instant(time, "deltacommit", State.COMPLETED) for time in times]
    instants[5] = Instant(times[5], "replacecommit", State.COMPLETED, times[6])
    instants[-1] = Instant(times[-1], "compaction", State.REQUESTED)
    key = ("p0", "f-0")
    timeline = Timeline(
        ".hoodie", tuple(instants), {key: times[-1]}, {("p1", "g-0"): times[7]}, {("p2", "h-0"): times[5]}
    )
    packed = pickle.dumps(timeline)
    assert len(packed) < 10 * len(instants)
    found = pickle.loads(packed)  # noqa: S301 -- what Spark does with it
    assert found == timeline
    assert found.is_valid(times[3]) and not found.is_valid(times[-1])
    assert pickle.loads(packed) is found  # noqa: S301
    assert pickle.loads(pickle.dumps(Timeline(".hoodie", ()))) == Timeline(".hoodie", ())  # noqa: S301


@pytest.mark.parametrize("done", [None, "20260101000002000"])
@pytest.mark.parametrize("action", ["commit", "deltacommit"])
def test_a_look_is_what_a_look_after_the_commit_would_be(action: str, done: str | None, tmp_path: Path) -> None:
    other = [f"{T.format(n)}.{action}{state}" for n in (1, 3) for state in (".requested", "")]
    pending = Instant(T.format(2), action, State.INFLIGHT)
    before = load(tmp_path, *other, f"{T.format(2)}.{action}.requested", pending.file_name())
    completed = Instant(T.format(2), action, State.COMPLETED, done)
    assert before.with_completed(completed) == load(tmp_path, completed.file_name())
    assert before.with_completed(Instant(T.format(2), "replacecommit", State.COMPLETED, done)) is None
