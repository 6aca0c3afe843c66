"""The status page as text: it says what the snapshot says, and nothing from outside becomes markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from tagstream.streaming.monitor import health
from tagstream.streaming.monitor.health import Stops
from tagstream.streaming.monitor.run_status import RunStatus
from tagstream.streaming.monitor.server import POLICY, status_page
from tagstream.streaming.monitor.snapshot import CommitLine, GroupSize, PartitionLine, Snapshot, Stop, TableFiles
from tagstream.table.services.health import FileSizes
from tests.streaming.monitor.case import ABOUT, HOSTILE, Clock, report, run_status
from tests.streaming.monitor.test_metrics import full_status


class Page(HTMLParser):
    """Tags, attributes and values of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.values: dict[str, str] = {}
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if "data-name" in found:
            self.values[str(found["data-name"])] = str(found["data-value"])

    def handle_data(self, data: str) -> None:
        self.text += data


def page(s: Snapshot) -> Page:
    return Page(status_page(s).decode())


def test_values_are_those_of_the_snapshot() -> None:
    found = full_status(Clock()).snapshot()
    shown = page(found).values
    assert (shown["health"], shown["step"], shown["lag"]) == ("ok", "committing", "17")
    assert (shown["records"], shown["batches"], shown["index_keys"]) == ("1000", "1", "14")
    assert (shown["unknown_deletes"], shown["late"], shown["quarantined"]) == ("3", "7", "2")
    assert (shown["file_groups"], shown["small_files"], shown["base_bytes"]) == ("4", "3", "1000")


def test_a_run_that_has_only_begun_has_a_page() -> None:
    shown = page(run_status(Clock()).snapshot())
    assert (shown.values["health"], shown.values["lag"], shown.values["last_commit_ms"]) == ("starting", "", "")
    assert "not known yet" in shown.text and "None" not in shown.text


def test_every_state_has_a_page() -> None:
    s = full_status(Clock()).snapshot()
    for state in health.STATES:
        shown = page(replace(s, health=health.Health(state, "because", state in health.FINE)))
        assert health.TITLES[state] in shown.text


def hostile_status() -> RunStatus:
    clock = Clock()
    about = ABOUT.__class__(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, "kafka", HOSTILE, HOSTILE, HOSTILE)
    status = run_status(clock, about)
    status.step(HOSTILE, 1)
    status.batch(report(0))
    status.warned("WARNING", HOSTILE + "x" * 5_000)
    status.restarted(HOSTILE, HOSTILE)
    status.stops(Stops({HOSTILE: 1}, 1, Stop(1, HOSTILE, HOSTILE), end=Stop(1, HOSTILE, HOSTILE)))
    status.commits([CommitLine(HOSTILE, HOSTILE, HOSTILE, 1, 1, 1, 1, 1, 1)], 1, exact=True)
    total = FileSizes(1, 1, 1, 1, 1, 1, 1)
    rows = (PartitionLine(HOSTILE, total, 1.0), PartitionLine("p" * 900, total), PartitionLine("\udcff", total))
    status.files(TableFiles(1, 1, 1, total, rows))
    status.groups([GroupSize(0, 1, 1, 1)], whole=True)
    return status


def test_nothing_from_outside_becomes_markup_or_is_hidden() -> None:
    text = status_page(hostile_status().snapshot()).decode()
    shown = Page(text)
    assert [tag for tag, _ in shown.tags].count("script") == 1
    assert "alert(" in shown.text  # it is shown
    assert "<script>alert" not in text
    assert "\\x1b[31m\\u202eevil\\x00" in shown.text
    assert not re.search(r"[\x00-\x08\x0e-\x1f\u202e]", text)
    assert "p" * 200 not in re.sub(r'title="[^"]*"', "", text)


def test_the_page_needs_nothing_from_elsewhere_and_breaks_no_policy() -> None:
    shown = page(hostile_status().snapshot())
    for tag, attributes in shown.tags:
        assert not {"style", "onclick", "onload", "srcdoc"} & attributes.keys(), tag
        for name in ("src", "href", "action"):
            target = attributes.get(name)
            assert target is None or target in ("data:,", "status.json", "metrics", "healthz"), target
    assert "unsafe-inline" not in POLICY


def test_it_renews_itself_without_scripts_too() -> None:
    text = status_page(run_status(Clock()).snapshot()).decode()
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in text


def test_large_tables_and_indexes_make_no_large_page() -> None:
    status = full_status(Clock())
    status.groups([GroupSize(label, label, 0, 10) for label in range(100, 5_000)], whole=True)
    for batch in range(500):
        status.batch(report(batch))
    assert len(status_page(status.snapshot())) < 100_000
