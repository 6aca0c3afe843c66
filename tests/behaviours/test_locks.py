"""One suite for all lock providers: real ZooKeeper, moto's S3 and DynamoDB, the local disk."""

from __future__ import annotations

import json
import threading
import time

import pytest

from tagstream.table.errors import LockLostError, LockTimeoutError
from tagstream.table.locks.lock import Lock, TableLock
from tagstream.table.locks.options import LockOptions
from tagstream.table.locks.storage_based import LOCK_FILE
from tests.behaviours.lock_places import (
    BETWEEN_PROCESSES,
    DYNAMODB,
    EXPIRE_MIN,
    FILE_SYSTEM,
    LEASE_MS,
    LONG_S,
    STORAGE,
    ZOOKEEPER,
    Clock,
    Place,
    only,
)
from tests.support.process import in_thread


def test_one_of_two_handles_has_it(place: Place) -> None:
    one, other = place.open("one"), place.open("other")
    assert one.try_acquire(0)
    assert (one.is_held(), other.is_held()) == (True, False)
    assert not other.try_acquire(0)
    assert "one" in other.holder()
    one.release()
    assert not one.is_held()
    assert one.holder() == "nobody"
    assert other.try_acquire(0)
    assert (one.is_held(), other.is_held()) == (False, True)
    one.release()  # not its own: nothing happens
    assert other.is_held()


def test_a_handle_is_used_again_and_again(place: Place) -> None:
    lock = place.open()
    for _ in range(3):
        assert lock.try_acquire(0)
        assert lock.is_held()
        lock.release()
    lock.release()
    lock.close()
    lock.close()


def test_closing_gives_it_back(place: Place) -> None:
    one, other = place.open("one"), place.open("other")
    assert one.try_acquire(0)
    one.close()
    assert other.try_acquire(LONG_S)


def test_waiting_ends_with_the_release(place: Place) -> None:
    one, other = place.open("one"), place.open("other")
    assert one.try_acquire(0)
    got: list[bool] = []
    waiting = in_thread(lambda: got.append(other.try_acquire(LONG_S)))
    assert not got
    one.release()
    waiting.join()
    assert got == [True]
    assert other.is_held()


def test_only_one_of_many_has_it_at_a_time(place: Place) -> None:
    inside: list[str] = []
    most: list[int] = []

    def write(name: str) -> None:
        lock = place.open(name)
        for _ in range(2):
            assert lock.try_acquire(LONG_S)
            inside.append(name)
            most.append(len(inside))
            assert lock.is_held()
            inside.remove(name)
            lock.release()

    threads = [in_thread(lambda name=name: write(name)) for name in ("a", "b")]  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert most == [1] * 4


def test_threads_of_one_handle_exclude_each_other(place: Place) -> None:
    table = TableLock(place.open(), LockOptions(**place.options))
    inside: list[int] = []
    most: list[int] = []

    def write() -> None:
        with table.hold("outer"), table.hold("inner"):
            inside.append(1)
            table.check()
            most.append(len(inside))
            inside.pop()

    threads = [in_thread(write) for _ in range(3)]
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1]
    with pytest.raises(LockLostError, match="not held here"):
        table.check()
    table.close()


def test_the_error_names_place_holder_and_what_to_do(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    one, other = place.open("the-first-writer"), place.open("other")
    assert one.try_acquire(0)
    options = LockOptions(**{**place.options, "wait_time_ms": 1, "client_retries": 2, "client_retry_wait_ms": 1})
    table = TableLock(other, options)
    with pytest.raises(LockTimeoutError) as error, table.hold("commit 1"):
        pass
    for part in ("commit 1", other.place, "the-first-writer", "remove its lock"):
        assert part in str(error.value)
    waits = [record for record in caplog.records if "commit 1 waits" in record.message]
    assert len(waits) == 1
    assert one.is_held()


@only(*BETWEEN_PROCESSES)
def test_two_processes(place: Place) -> None:
    lock = place.open("one")
    with place.holder() as other:
        assert other.ask("acquire 0") == "True"
        assert not lock.try_acquire(0)
        assert "other" in lock.holder()
        assert other.ask("release") == "ok"
        assert lock.try_acquire(0)
        assert other.ask("acquire 0") == "False"
        other.tell(f"acquire {LONG_S}")
        lock.release()
        assert other.answer() == "True"
        assert not lock.try_acquire(0)


def expiring(place: Place) -> Place:
    """The place with a lock that ends soon without its holder."""
    if place.kind == FILE_SYSTEM:
        place.options["file_expire_min"] = EXPIRE_MIN
    if place.kind == ZOOKEEPER:
        place.options["zookeeper_session_timeout_ms"] = 4000
    return place


def check_takeover(place: Place, took: float, left: float) -> None:
    """The seconds until a lock was taken over, by the provider's own rule on the clock of the one that waits.

    `left`: for how long the storage's lock was valid when its holder was killed.
    """
    print(f"{place.kind}: taken over after {took:.1f} s")
    if place.kind == STORAGE:  # 0.5 s for clocks, looks 1 s apart
        assert left + 0.5 < took <= left + 0.5 + 1
    elif place.kind == DYNAMODB:  # the lease since the first look, and the time between two looks
        assert LEASE_MS / 1000 <= took <= LEASE_MS / 1000 * 1.1 + 0.001
    elif place.kind == FILE_SYSTEM:
        assert took <= EXPIRE_MIN * 60 + 0.2


@only(*BETWEEN_PROCESSES)
def test_a_killed_holder_is_taken_over(place: Place) -> None:
    place = expiring(place)
    with place.holder() as other:
        assert other.ask("acquire 0") == "True"
        clock = Clock()
        lock = place.open("one", clock if place.kind != ZOOKEEPER else None)
        assert not lock.try_acquire(0)
        other.kill()
        began = time.monotonic()
        left = json.loads(place.storage.read(LOCK_FILE))["validUntil"] - clock.began_ms if place.kind == STORAGE else 0
        assert lock.try_acquire(2 * LONG_S)
    took = clock.slept_s if place.kind != ZOOKEEPER else time.monotonic() - began
    check_takeover(place, took, left / 1000)


@only(*BETWEEN_PROCESSES)
def test_a_stopped_holder_knows_that_it_lost_it(place: Place) -> None:
    place = expiring(place)
    with place.holder() as other:
        assert other.ask("acquire 0") == "True"
        assert other.ask("held") == "True"
        other.stop()
        lock = place.open("one", Clock() if place.kind != ZOOKEEPER else None)
        assert lock.try_acquire(LONG_S)
        other.go_on()
        assert other.ask("held") == "False"
        assert other.ask("release") == "ok"
        assert lock.is_held()
        assert other.ask("acquire 0") == "False"


@only(FILE_SYSTEM)
def test_a_lock_file_that_does_not_expire_stays(place: Place) -> None:
    with place.holder("the dead") as other:
        assert other.ask("acquire 0") == "True"
        other.kill()
    lock = place.open("one", Clock())
    assert not lock.try_acquire(60)
    assert "the dead" in lock.holder()
    place.remove()
    assert lock.try_acquire(0)


@pytest.mark.extended("waits for as long as the lock is valid")
@only(STORAGE, DYNAMODB)
def test_a_killed_holder_is_taken_over_in_real_time(place: Place) -> None:
    place.options |= (
        {"wait_time_ms": 3000} if place.kind == DYNAMODB else {"storage_validity_s": 10, "storage_renew_s": 1}
    )
    with place.holder() as other:
        assert other.ask("acquire 0") == "True"
        other.kill()
    lock = place.open()
    began = time.monotonic()
    assert lock.try_acquire(LONG_S)
    print(f"{place.kind}: taken over after {time.monotonic() - began:.1f} s")
    assert lock.is_held()


@only(*BETWEEN_PROCESSES)
def test_a_deleted_lock_is_noticed(place: Place) -> None:
    lock, other = place.open("one"), place.open("other")
    table = TableLock(lock, LockOptions(**place.options))
    with table.hold("commit"):
        table.check()
        place.remove()
        with pytest.raises(LockLostError, match="publishes nothing"):
            table.check()
    assert other.try_acquire(LONG_S)
    lock.release()
    assert other.is_held()


@only(FILE_SYSTEM, STORAGE, DYNAMODB)
def test_a_lock_of_another_is_left_alone(place: Place) -> None:
    lock = place.open("one")
    assert lock.try_acquire(0)
    place.take_by_force()
    theirs = place.content()
    assert not lock.is_held()
    lock.release()
    lock.close()
    assert place.content() == theirs
    assert not place.open("third").try_acquire(0)


def test_no_thread_is_left(place: Place) -> None:
    before = {thread.ident for thread in threading.enumerate()}
    lock = place.open()
    assert lock.try_acquire(0)
    lock.close()
    ours = ("table lock", "kazoo", "ZooKeeper")
    left = [t.name for t in threading.enumerate() if t.ident not in before and t.name.startswith(ours)]
    assert left == []
    assert not lock.is_held()


@pytest.mark.hdfs
def test_a_lock_file_on_hdfs(hdfs_folder: str) -> None:
    place = Place(FILE_SYSTEM, {"provider": "FileSystemBasedLockProvider"}, hdfs_folder)
    lock = place.open("one")
    with place.holder() as other:
        assert other.ask("acquire 0") == "True"
        assert not lock.try_acquire(0)
        assert "other" in lock.holder()
        assert other.ask("release") == "ok"
        assert lock.try_acquire(0)
        assert lock.is_held()
        assert other.ask("acquire 0") == "False"
        place.take_by_force()
        assert not lock.is_held()
        lock.release()
        assert "left no name" in lock.holder()
        place.remove()
        assert other.ask("acquire 0") == "True"
        other.kill()
    late = place.open("late", Clock(), file_expire_min=EXPIRE_MIN)
    assert not late.try_acquire(0)
    assert late.try_acquire(LONG_S)
    late.release()


def test_a_lock_is_a_lock(place: Place) -> None:
    lock: Lock = place.open()
    assert lock.place
    assert lock.holder().startswith(
        "nobody" if place.kind != ZOOKEEPER else "a writer that is not known without a connection"
    )
