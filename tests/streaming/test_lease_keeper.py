"""Who may write to a table next to whom: streams with one lock, streams with another, and programs without a lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tagstream.state.checkpoint import same_stream
from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.table.errors import LeaseLostError
from tagstream.table.storage.opening import open_storage, same_place
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline import lease as leases
from tagstream.table.timeline.job_leases import Share
from tagstream.table.timeline.lease import LeaseOwner, process_stat

HOUR_MS = 3_600_000


class Keepers:
    """Makes keepers on one table, and releases them."""

    def __init__(self, storage: Storage) -> None:
        self.storage, self.now_ms = storage, 0
        self._made: list[LeaseKeeper] = []

    def alone(self) -> LeaseKeeper:
        """A program that takes no lock."""
        return self._of(None)

    def stream(
        self, name: str, checkpoint: str = "", lock: str = "/t/.hoodie/lock", *, local: bool = False
    ) -> LeaseKeeper:
        """A stream with a lock."""
        return self._of(Share(name, checkpoint or f"/checkpoint of {name}", lock, local, same_stream, same_place))

    def _of(self, share: Share | None) -> LeaseKeeper:
        self._made.append(LeaseKeeper(self.storage, lambda: self.now_ms, HOUR_MS, share))
        return self._made[-1]

    def end(self) -> None:
        for keeper in self._made:
            keeper.release()


@pytest.fixture
def keepers(tmp_path: Path) -> Iterator[Keepers]:
    (tmp_path / ".hoodie").mkdir()
    made = Keepers(open_storage(str(tmp_path)))
    yield made
    made.end()


def started(keeper: LeaseKeeper, label: str) -> LeaseKeeper:
    keeper.acquire(label)
    keeper.check()
    return keeper


def test_streams_with_one_lock_write_at_the_same_time(keepers: Keepers) -> None:
    a, b = started(keepers.stream("a"), "stream a"), started(keepers.stream("b"), "stream b")
    assert a.is_shared
    assert a.is_alive("b")
    assert b.is_alive("a")
    assert not a.is_alive("a"), "a pending write of the stream itself is of a dead run"
    assert not a.is_alive("c")
    assert not a.is_alive("")
    b.release()
    assert not a.is_alive("b")


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"name": "a"}, {"name": "a", "checkpoint": "/other"}, "It is the same stream"),
        ({"name": "/data/in"}, {"name": "/data/in/"}, "It is the same stream"),
        ({"name": "a", "checkpoint": "/c"}, {"name": "b", "checkpoint": "/c/"}, "the same checkpoint"),
        ({"name": "a"}, {"name": "b", "lock": "zookeeper node /x"}, "must take the same lock"),
        ({"name": "a"}, None, "takes none: stop that job"),
        (None, {"name": "b"}, "That program takes no lock"),
        (None, None, "stop that writer, or wait"),
    ],
)
def test_who_is_refused(
    keepers: Keepers, first: dict[str, str] | None, second: dict[str, str] | None, said: str
) -> None:
    def made(told: dict[str, str] | None) -> LeaseKeeper:
        return keepers.alone() if told is None else keepers.stream(**told)  # type: ignore[arg-type]

    one = started(made(first), "the first")
    two = made(second)
    with pytest.raises(LeaseLostError, match=said):
        two.acquire("the second")
    one.check()
    one.release()
    started(made(second), "the second, later")


def test_two_queries_of_one_process_with_one_name(keepers: Keepers) -> None:
    """They would be the same owner of the lease."""
    started(keepers.alone(), "stream dataframe")
    with pytest.raises(LeaseLostError, match="another query of this process"):
        keepers.alone().acquire("stream dataframe")


def test_a_program_without_a_lock_that_came_in_between_ends_the_stream(keepers: Keepers) -> None:
    """An earlier version of this program does not know of streams that share the table."""
    stream = started(keepers.stream("a"), "stream a")
    leases.acquire(keepers.storage, LeaseOwner.this_process("an old one"), 0, HOUR_MS)
    with pytest.raises(LeaseLostError, match="an old one.*takes no lock"):
        stream.check()


def test_a_lock_of_one_process_is_not_shared_by_two(keepers: Keepers) -> None:
    started(keepers.stream("a", local=True), "stream a")
    started(keepers.stream("b", local=True), "stream b of the same process")
    owner = LeaseOwner.this_process("stream c of another process")
    share = Share("c", "/c", "/t/.hoodie/lock", True, same_stream, same_place)
    parent = os.getppid()
    start = int((process_stat(parent) or [""] * 20)[19])
    other = LeaseOwner(**{**owner.__dict__, "pid": parent, "process_start": start})
    lease = leases.take(keepers.storage, other, 0, HOUR_MS, None, share.file, share.about)
    with pytest.raises(LeaseLostError, match="must take the same lock"):
        keepers.stream("d", local=True).acquire("stream d")
    leases.release(keepers.storage, lease)


def test_one_stream_does_the_services_until_it_ends(keepers: Keepers) -> None:
    a, b = started(keepers.stream("a"), "stream a"), started(keepers.stream("b"), "stream b")
    assert not b.others_lead()
    assert a.leads()
    assert b.others_lead()
    assert not b.leads()
    assert a.leads(), "it keeps them"
    assert not a.others_lead()
    a.release()
    assert not b.others_lead()
    assert b.leads()
    assert keepers.alone().leads(), "a program without other streams does its own"


def test_the_turn_of_a_stream_is_over_when_it_says_so_or_is_dead(keepers: Keepers) -> None:
    a, b = started(keepers.stream("a"), "stream a"), started(keepers.stream("b"), "stream b")
    assert not a.must_wait()
    assert a.take_turn()
    assert b.must_wait()
    assert not a.must_wait()
    assert not b.take_turn()
    a.end_turn()
    assert not b.must_wait()
    assert b.take_turn()
    keepers.now_ms = 2 * HOUR_MS  # nobody has renewed it
    assert not a.must_wait()
    assert a.take_turn()
