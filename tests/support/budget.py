"""A run that has to end in time: tests that come too late are not started, and listed at the end.

``--until SECONDS`` (since 1970) is for a machine that may be many times slower than another one: what was not started is
named, and the next runs begin with other files (``--begin-at TEXT``, as a commit's name), so that none is always the last.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence

import pytest

_NOT_STARTED = "not started: the time of --until is over"


def add_option(parser: pytest.Parser) -> None:
    """The options ``--until`` and ``--begin-at``."""
    parser.addoption(
        "--until", type=int, metavar="SECONDS", help="start no test after this second since 1970; list them"
    )
    parser.addoption("--begin-at", metavar="TEXT", help="run the files in turn from one that this text chooses")


def rotate(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--begin-at``: the same order of files and tests, from another file on."""
    text = config.getoption("--begin-at")
    if text and items:
        first = begin_at(text, [item.nodeid.partition("::")[0] for item in items])
        items[:] = [*items[first:], *items[:first]]


def begin_at(text: str, files: Sequence[str]) -> int:
    """The place of the first test of the file that a text chooses; ``files``: the file of each test, in their order."""
    names = list(dict.fromkeys(files))
    return files.index(names[zlib.crc32(text.encode()) % len(names)])


def check(item: pytest.Item, now: float) -> None:
    """Before anything of a test is made: leave it out when its time is over. ``now``: seconds since 1970."""
    until = item.config.getoption("--until")
    if until is not None and now >= until:
        pytest.skip(_NOT_STARTED)


def not_started(reporter: pytest.TerminalReporter) -> list[str]:
    """The tests that were left out."""
    skipped = reporter.stats.get("skipped", [])
    return [r.nodeid for r in skipped if isinstance(r.longrepr, tuple) and _NOT_STARTED in r.longrepr[2]]


class Budget:
    """Asks before each test; in the processes that run them."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Of the test alone: what a session or a module has made stays."""
        check(item, time.time())
