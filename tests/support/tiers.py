"""Two tiers of tests: ``make test`` runs the first one, ``make test-all`` both. And what a run shows while it lasts.

A test is in the second tier when it has the mark ``extended``, whose argument is the reason, or when it needs a server that
is not on the machine. ``--tier first`` (``second``) leaves the others out; without it both run. Of a test with very many
variants the mark names those of both tiers; the others are a matrix, which `make drills-matrix` runs.
``--platform`` runs the tests of both tiers that have the mark ``platform``, which every release of Spark has to pass;
with ``--one-variant`` of each test function the first variant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.support.table_version import asked_for

FIRST, SECOND = "first", "second"
# Servers that are not on the machine, by what says that a test needs one: a mark, or a fixture.
SERVERS = {
    "a real HBase with its Thrift server": ("hbase", "hbase_server"),
    "a real HDFS": ("hdfs", "hdfs_server"),
    "a real Kafka broker": ("kafka", "kafka_broker", "own_kafka_broker"),
}
SLOW_S = 15.0  # a test that takes longer is named at once


def reason(item: pytest.Item) -> str | None:
    """Why a test is in the second tier; None for one of the first.

    ``extended("reason", first=("v9", ...), second=("v8", ...))``: a variant whose id holds a text of ``first`` stays in the
    first tier. With ``second``, a variant that has a text of neither is left to the matrix (:func:`is_matrix`).
    UsageError when the mark has no reason.
    """
    for server, (mark, *fixtures) in SERVERS.items():
        asked = {*fixtures} & {*getattr(item, "fixturenames", ())}
        if asked or (mark and item.get_closest_marker(mark) is not None):
            return f"needs {server}"
    for found in item.iter_markers("extended"):
        if len(found.args) != 1 or not isinstance(found.args[0], str) or not found.args[0].strip():
            raise pytest.UsageError(f"{item.nodeid}: the mark extended takes one argument, the reason")
        if not _named(item, found, "first"):
            return str(found.args[0])
    return None


def is_matrix(item: pytest.Item) -> bool:
    """Whether a variant is in neither tier: its mark ``extended`` names those of both, and not this one."""
    marks = [mark for mark in item.iter_markers("extended") if "second" in mark.kwargs]
    return any(not _named(item, mark, "first") and not _named(item, mark, "second") for mark in marks)


def _named(item: pytest.Item, mark: pytest.Mark, tier: str) -> bool:
    return any(text in variant(item) for text in mark.kwargs.get(tier, ()))


def variant(item: pytest.Item) -> str:
    """What stands in the brackets of a test's name; empty for one without parameters."""
    return item.name.partition("[")[2].removesuffix("]")


def unknown_variants(items: Iterable[pytest.Item]) -> list[str]:
    """What marks name as a variant of a tier and no test is: a change of parameters would empty the tier."""
    named: dict[tuple[str, str], bool] = {}
    for item in items:
        for mark in item.iter_markers("extended"):
            for text in (*mark.kwargs.get("first", ()), *mark.kwargs.get("second", ())):
                place = (item.nodeid.partition("[")[0], text)
                named[place] = named.get(place, False) or text in variant(item)
    return sorted(f"{test}: {text}" for (test, text), found in named.items() if not found)


def add_option(parser: pytest.Parser) -> None:
    """The options ``--tier``, ``--platform`` and ``--one-variant``."""
    parser.addoption("--tier", choices=(FIRST, SECOND), default=None, help="run the tests of this tier alone")
    parser.addoption("--platform", action="store_true", help="run the tests that every release of Spark has to pass")
    parser.addoption(
        "--one-variant", action="store_true", help="with --platform: the first variant of each test function"
    )


def story(item: pytest.Item) -> str | None:
    """What a test shows of a platform; None for one that other platforms need not run.

    ``platform("a lost checkpoint", only=("v9", ...))``: of its variants those whose id holds one of the texts.
    """
    mark = item.get_closest_marker("platform")
    if mark is None:
        return None
    only = mark.kwargs.get("only", ())
    return str(mark.args[0]) if not only or any(text in variant(item) for text in only) else None


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the other tier; with ``--collect-only`` count those of the second one by their reasons."""
    if config.getoption("--platform"):
        stories = {item: story(item) for item in items}
        config.hook.pytest_deselected(items=[item for item in items if stories[item] is None])
        items[:] = [item for item in items if stories[item] is not None]
        for item in items:
            item.user_properties.append(("story", stories[item]))
    for item in items:
        if is_matrix(item):
            item.add_marker(pytest.mark.drill)
            item.add_marker(pytest.mark.matrix)
    reasons = {item: reason(item) for item in items}
    tier = config.getoption("--tier")
    if tier is not None:
        _choose_tier(config, items, reasons, tier)
    if config.getoption("--one-variant"):
        first = {item.nodeid.partition("[")[0]: item for item in reversed(items) if not is_matrix(item)}
        config.hook.pytest_deselected(items=[item for item in items if item not in set(first.values())])
        items[:] = [item for item in items if item in set(first.values())]


def _choose_tier(
    config: pytest.Config, items: list[pytest.Item], reasons: dict[pytest.Item, str | None], tier: str
) -> None:
    # In a process of pytest-xdist the error would not be seen: `make check` collects all tests. A part of the tests, or a
    # run for one kind of table, has not all variants.
    whole = config.args == config.getini("testpaths") and not asked_for() and not config.getoption("--platform")
    if config.option.collectonly and whole and (unknown := unknown_variants(items)):
        raise pytest.UsageError(f"the mark extended names no such variant: {'; '.join(unknown)}")
    chosen = [item for item, why in reasons.items() if (why is None) == (tier == FIRST) and not is_matrix(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen
    if config.option.collectonly and tier == SECOND:
        counts = Counter(why for item in chosen if (why := reasons[item]) is not None)
        for why, count in counts.most_common():
            print(f"{count:5d}  {why}")


class SlowTests:
    """Names a slow test as soon as it has ended; in the process that shows the run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One of the three parts of a test has ended."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and report.duration >= SLOW_S:
            reporter.write_line(f"\n{report.duration:.0f} s {report.when} {report.nodeid}")
