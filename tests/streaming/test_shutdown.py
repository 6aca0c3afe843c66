"""A signal is answered in words at once, and a second one ends at once."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys

import pytest

from tagstream.streaming.process import StopFlag


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (None, "SIGINT: ending; send it again to end at once"),
        (12, "SIGINT: finishing batch 12; send it again to end at once"),
    ],
)
def test_it_says_what_it_does(batch: int | None, words: str, caplog: pytest.LogCaptureFixture) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    stop = StopFlag()
    stop.install()
    try:
        stop.batch = batch
        with caplog.at_level(logging.WARNING, "tagstream"):
            signal.raise_signal(signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert stop.requested
    assert stop.signal_name == "SIGINT"
    assert caplog.messages[0].startswith(words)


def test_the_second_signal_ends_at_once() -> None:
    program = (
        "import signal; from tagstream.streaming.process import StopFlag; stop = StopFlag(); stop.install(); "
        "[signal.raise_signal(signal.SIGTERM) for _ in range(2)]"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGTERM
