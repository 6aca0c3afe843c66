"""The lock of a table for all threads: Hudi's tries and pauses, messages, errors."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

import pytest

from tagstream.table.errors import CorruptFileError, LockError, LockLostError, LockTimeoutError
from tagstream.table.locks.lock import TableLock
from tagstream.table.locks.options import LockOptions

OPTIONS = LockOptions(wait_time_ms=2000, client_retries=3, client_retry_wait_ms=500)


class FakeLock:
    """A lock that follows a list of answers: True, False or an error; the last one is repeated."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.place = "the test's place"
        self.answers = list(answers)
        self.calls: list[str] = []
        self.held = False
        self.now = 0.0

    def try_acquire(self, wait_s: float) -> bool:
        self.calls.append(f"try {wait_s:g}")
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        self.now += 0 if answer else wait_s
        self.held = answer
        return answer

    def is_held(self) -> bool:
        return self.held

    def holder(self) -> str:
        return "somebody"

    def release(self) -> None:
        self.held = False
        self.calls.append("release")

    def close(self) -> None:
        self.calls.append("close")

    def sleep(self, seconds: float) -> None:
        self.calls.append(f"sleep {seconds:g}")
        self.now += seconds


def table_lock(lock: FakeLock, options: LockOptions = OPTIONS) -> TableLock:
    return TableLock(lock, options, clock=lambda: lock.now, sleep=lock.sleep)


def test_tries_and_pauses_are_those_of_hudis_lock_manager(caplog: pytest.LogCaptureFixture) -> None:
    lock = FakeLock(False)
    with pytest.raises(LockTimeoutError) as error, table_lock(lock).hold("commit 7"):
        pass
    assert lock.calls == ["try 2", *["sleep 0.5", "try 2"] * 3]
    assert str(error.value).startswith(
        "commit 7: the lock at the test's place was not free for 10 s; it is held by somebody"
    )
    assert [r.message for r in caplog.records] == ["commit 7 waits: the lock at the test's place is held by somebody"]


def test_one_try_without_a_wait_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    lock = FakeLock(True)
    with table_lock(lock).hold("commit"):
        assert lock.held
    assert (lock.calls, caplog.records) == (["try 2", "release"], [])


def test_the_greatest_wait_with_hudis_defaults() -> None:
    lock = FakeLock(False)
    with pytest.raises(LockTimeoutError, match="for 3310 s"), table_lock(lock, LockOptions()).hold("commit"):
        pass


def test_an_error_that_may_pass_is_tried_again() -> None:
    lock = FakeLock(LockError("no answer"), False, True)
    with table_lock(lock).hold("commit"):
        pass
    assert lock.calls == ["try 2", "sleep 0.5", "try 2", "sleep 0.5", "try 2", "release"]


def test_an_error_that_stays_is_the_cause(caplog: pytest.LogCaptureFixture) -> None:
    lock = FakeLock(LockError("no answer"))
    expected = pytest.raises(LockError, match="commit: no lock after 2 s and 4 tries: no answer")
    with expected as error, table_lock(lock).hold("commit"):
        pass
    assert not isinstance(error.value, LockTimeoutError)
    assert [r.message for r in caplog.records] == ["commit waits: no answer"]


@pytest.mark.parametrize("error", [LockError("no rights", may_pass=False), CorruptFileError("broken")])
def test_an_error_that_cannot_pass_is_raised_at_once(error: Exception) -> None:
    lock = FakeLock(error)
    table = table_lock(lock)
    with pytest.raises(type(error), match=str(error)), table.hold("commit"):
        pass
    assert lock.calls == ["try 2"]
    lock.answers = [True]
    with table.hold("commit"):  # nothing of the failure is left
        pass


def test_it_is_given_back_after_an_error_in_the_block() -> None:
    lock = FakeLock(True)
    with pytest.raises(ValueError), table_lock(lock).hold("commit"):
        raise ValueError
    assert lock.calls == ["try 2", "release"]


def test_a_thread_enters_again() -> None:
    lock = FakeLock(True)
    table = table_lock(lock)
    with table.hold("outer"):
        with table.hold("inner"):
            table.check()
        assert lock.calls == ["try 2"]
        table.check()
    assert lock.calls == ["try 2", "release"]


def test_a_lost_lock_is_told_and_the_block_still_ends() -> None:
    lock = FakeLock(True)
    table = table_lock(lock)
    with table.hold("commit"):
        lock.held = False
        with pytest.raises(LockLostError, match=r"lost the lock at the test's place \(now: somebody\)"):
            table.check()
    with pytest.raises(LockLostError, match="not held here"):
        table.check()


@pytest.mark.parametrize("lock", [None, FakeLock(True)], ids=["without", "with"])
def test_threads_exclude_each_other_with_and_without_a_lock(lock: FakeLock | None) -> None:
    table = TableLock(lock, replace(OPTIONS))
    order: list[str] = []
    entered = threading.Event()

    def second() -> None:
        entered.set()
        with table.hold("second"):
            order.append("second")

    with table.hold("first"):
        table.check()
        thread = threading.Thread(target=second)
        thread.start()
        entered.wait()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    table.close()


def test_without_a_lock_nothing_can_be_lost() -> None:
    table = TableLock(None, LockOptions())
    table.check()
    with table.hold("commit"):
        table.check()
    table.close()
