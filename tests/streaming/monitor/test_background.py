"""Looks beside the batches: at once, when woken, never for more than their share of the time, and no matter what."""

from __future__ import annotations

import logging
import threading

import pytest

from tagstream.streaming.monitor.watch import Background

WAIT_S = 20.0


class Look:
    """Counts its calls and lets a test wait for one."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error, self._calls, self._called = error, 0, threading.Condition()

    def __call__(self) -> None:
        with self._called:
            self._calls += 1
            self._called.notify_all()
        if self._error is not None:
            raise self._error

    def wait_for(self, calls: int) -> bool:
        with self._called:
            return self._called.wait_for(lambda: self._calls >= calls, WAIT_S)

    @property
    def calls(self) -> int:
        return self._calls


def test_at_once_and_when_woken() -> None:
    background, look = Background(lambda: 0.0, every_s=3_600), Look()
    background.add(look)
    assert look.wait_for(1)
    for calls in (2, 3):
        background.wake()
        assert look.wait_for(calls)
    background.close()
    background.wake()
    assert look.calls <= 4


def test_a_look_that_takes_long_is_followed_by_a_long_pause() -> None:
    now = [0.0]

    def slow() -> None:
        now[0] += 50.0
        look()

    background, look = Background(lambda: now[0], every_s=0.001), Look()
    background.add(slow)
    assert look.wait_for(1)
    for _ in range(100):
        background.wake()
    background.close()  # ends the pause of 5,000 s
    assert look.calls == 1


def test_an_error_is_said_once_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    bad, good = Look(OSError("no such folder")), Look()
    background = Background(lambda: 0.0, every_s=0.001)
    with caplog.at_level(logging.WARNING, "tagstream"):
        background.add(bad)
        background.add(good)
        assert bad.wait_for(5) and good.wait_for(5)
        background.close()
    assert [r.getMessage() for r in caplog.records] == [
        "the status page is incomplete, the stream continues: OSError: no such folder"
    ]


def test_closing_what_never_ran() -> None:
    Background(lambda: 0.0).close()
