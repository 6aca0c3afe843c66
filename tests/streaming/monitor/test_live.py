"""Streams that run, looked at through their port: by programs, and by people in a browser.

What is looked at from within a batch stands still meanwhile, so that page and JSON can be compared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.batch.report import KINDS
from tagstream.streaming.errors import BadRecordsError
from tagstream.streaming.monitor.health import Begun, read_stops, write_stops
from tagstream.table.storage.posix import PosixStorage
from tests.drills.stream_job import StreamJob, chunks_of
from tests.streaming.stream_case import StreamCase, now_ms
from tests.streaming.test_kafka_stream import kafka_case, send
from tests.support import events as ev
from tests.support.browser import DESKTOP, PHONE, Browser
from tests.support.kafka_broker import KafkaBroker, free_ports
from tests.support.process import wait_for
from tests.support.table_version import timeline_of
from tests.support.tools import run_tool

pytestmark = pytest.mark.spark
WAIT_S = 60.0
PICTURES = os.environ.get("TAGSTREAM_PICTURES")  # a folder: pictures of the pages go there, for people


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


class Site:
    """The pages of a run."""

    def __init__(self) -> None:
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}/"

    def text(self, path: str) -> str:
        with urlopen(self.url + path, timeout=30) as answer:
            return str(answer.read().decode())

    def document(self) -> dict[str, Any]:
        return dict(json.loads(self.text("status.json")))

    def health(self) -> tuple[int, str]:
        try:
            return 200, self.text("healthz")
        except HTTPError as e:
            return e.code, e.read().decode()

    def metrics(self) -> dict[str, float]:
        """By name and labels, those of table and stream left out."""
        found = {}
        for line in self.text("metrics").splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                head, _, labels = name.rstrip("}").partition("{")
                own = [x for x in labels.split(",") if x and not x.startswith(("table=", "stream="))]
                found[head + ("{" + ",".join(own) + "}" if own else "")] = float(value)
        return found

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        wait_for(lambda: condition(self.document()), WAIT_S, what)
        return self.document()

    def wait_for_health(self, condition: Callable[[int, str], bool]) -> None:
        """Wait for a state, of a process that does not listen yet, too."""

        def holds() -> bool:
            try:
                return condition(*self.health())
            except OSError:
                return False

        wait_for(holds, 3 * WAIT_S, "the state")

    def compare(self, browser: Browser, name: str) -> None:
        """Page and JSON say the same; nothing is wrong with the page in any width or colour."""
        for width in (DESKTOP, PHONE):
            for dark in (False, True):
                page = browser.page(self.url, width, dark=dark)
                shown, doc = page.values(), self.document()
                assert shown["health"] == doc["health"]["state"]
                assert shown["step"] == doc["doing"]["step"]
                assert shown["lag"] == ("" if doc["lag"] is None else str(doc["lag"]))
                assert shown["batches"] == str(doc["batches"])
                assert shown["records"] == str(doc["counts"]["records"])
                assert {kind: shown[kind] for kind in KINDS} == {kind: str(doc["counts"][kind]) for kind in KINDS}
                assert (page.problems(), page.requests(), page.overflow()) == ([], [self.url], [])
                assert page.low_contrast() == []
                if PICTURES:
                    page.screenshot(Path(PICTURES, f"{name}-{width}-{'dark' if dark else 'light'}.png"))


@pytest.fixture
def site() -> Site:
    return Site()


def arguments(site: Site, *more: str) -> tuple[str, ...]:
    return ("--status-port", str(site.port), *more)


def batches(doc: dict[str, Any]) -> list[dict[str, Any]]:
    """The commits of the stream's batches."""
    return [commit for commit in doc["commits"] if commit["batch_id"] is not None]


@pytest.mark.extended("a page in a real browser, for seconds")
def test_a_running_stream_in_the_browser(tmp_path: Path, spark: SparkSession, browser: Browser, site: Site) -> None:
    # There are logs to compact on every table version.
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", conf={"tagstream.inserts.to.base.files": "first"})
    events = list(ev.generate(6_000, ev.Mix(keys=900), seed=5))
    ev.write_files(events, case.source, 500)

    def look(step: str, batch: int) -> None:
        if (step, batch) != ("files_written", 10):
            return
        doc = site.wait_for(lambda d: d["files"] is not None and d["groups_whole"], "the first look at table and index")
        assert (doc["health"]["state"], doc["doing"]["batch_id"], doc["doing"]["step"]) == ("ok", 10, "committing")
        assert (doc["batches"], doc["counts"]["records"]) == (10, 5_000)
        assert sum(doc["counts"][kind] for kind in KINDS) == 5_000
        assert doc["counts"]["unknown_deletes"] > 0
        assert set(doc["phases"]) == {"check", "prepare", "tasks", "commit", "services"}
        assert len(doc["groups"]) == 8
        assert doc["derived"]["last_commit_age_s"] < 60
        doc = site.wait_for(lambda d: len(batches(d)) == 10, "the commits")
        assert [c["batch_id"] for c in batches(doc)] == list(range(9, -1, -1))
        assert {c["stream"] for c in batches(doc)} == {doc["about"]["stream"]}
        assert len(doc["commits"]) > 10  # compactions are among them, and none of them is another writer's
        assert {c["service"] for c in doc["commits"] if c["batch_id"] is None} == {"compaction"}
        assert "another writer" not in site.text("")
        lines = {line["name"]: line for line in doc["service_lines"]}
        assert lines["compaction"]["completed"] > 0 and lines["compaction"]["last_ms"] > 0
        assert "delta commit" in lines["compaction"]["due"] or "next commit" in lines["compaction"]["due"]
        assert (doc["about"]["pid"], doc["about"]["log"] != "") == (os.getpid(), True)
        site.compare(browser, "running")
        told = run_tool("promtool", "check", "metrics", stdin=site.text("metrics").encode())
        assert told.strip() == ""

    reports = case.run(*arguments(site), at=look)
    assert len(reports) == 12
    with pytest.raises(OSError):
        site.health()  # nothing is left behind


@pytest.mark.extended("more states of a live page")
def test_stuck_in_its_first_batch(tmp_path: Path, spark: SparkSession, browser: Browser, site: Site) -> None:
    conf = {"tagstream.status.stuck.after.seconds": "1"}
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", conf)
    ev.write_files(list(ev.generate(300, ev.Mix(keys=60), seed=5)), case.source, 300)

    def look(step: str, batch: int) -> None:
        if step == "inflight":
            wait_for(lambda: site.health()[0] == 503, WAIT_S, "a job that is stuck")
            assert site.health()[1].startswith("stuck: in its first batch (0) for ")
            found = site.metrics()
            assert found['tagstream_health{state="stuck"}'] == 1
            assert found["tagstream_batch_running_seconds"] > 1
            site.wait_for(lambda d: d["last_commit_ms"] is not None, "the age of the checkpoint")
            assert site.metrics()["tagstream_last_commit_age_seconds"] > 1
            site.compare(browser, "stuck")

    assert len(case.run(*arguments(site), at=look)) == 1


@pytest.mark.extended("more states of a live page")
def test_bad_records_stop_it_and_the_next_run_knows(
    tmp_path: Path, spark: SparkSession, browser: Browser, site: Site
) -> None:
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE")
    events = list(ev.generate(600, ev.Mix(keys=60), seed=5))
    _, second = ev.write_files(events, case.source, 300)
    lines = second.read_text().splitlines()
    when = second.stat().st_mtime_ns
    second.write_text("\n".join(["{", *lines, "[]", '{"id": "<script>alert(1)</script>", "ts": "never"}']) + "\n")
    os.utime(second, ns=(when, when))

    with pytest.raises(BadRecordsError):
        case.run(*arguments(site))
    seen: list[str] = []

    def look(step: str, batch: int) -> None:
        if step == "inflight":
            code, text = site.health()
            assert (code, batch) == (503, 1)
            assert text.startswith("bad_records: 3 bad records in batch 1")
            assert f"`tagstream quarantine list --checkpoint-dir {case.checkpoint}` shows them" in text
            assert "this run has not got past these records yet" in text
            found = site.metrics()
            assert found["tagstream_bad_record_stops_total"] == len(seen) + 1
            assert found['tagstream_errors_total{error="BadRecordsError"}'] == len(seen) + 1
            assert found["tagstream_runs_total"] == len(seen) + 2
            site.compare(browser, "bad-records")
            seen.append(text)

    with pytest.raises(BadRecordsError):
        case.run(*arguments(site), at=look)
    case.run(*arguments(site, "--commit-on-errors"), at=look)
    assert len(seen) == 2
    third = list(ev.generate(50, ev.Mix(keys=60), seed=9))
    ev.write_files(third, case.source, 50, first=2)

    def well(step: str, batch: int) -> None:
        if step == "inflight":
            assert site.health()[0] == 200
            assert site.metrics()["tagstream_bad_record_stops_total"] == 2

    case.run(*arguments(site), at=well)


def test_runs_note_their_beginning_and_their_end(
    tmp_path: Path, spark: SparkSession, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE")
    ev.write_files(list(ev.generate(200, ev.Mix(keys=60), seed=5)), case.source, 100)
    checkpoint = PosixStorage(str(case.checkpoint))
    seen: list[tuple[int, str]] = []

    def look(step: str, batch: int) -> None:
        if step == "inflight":
            begun = read_stops(checkpoint).begun
            assert begun is not None and begun.pid == os.getpid() and begun.committed == (batch == 1)
            seen.append(site.health())

    case.run(*arguments(site), at=look)
    noted = read_stops(checkpoint)
    assert (noted.begun, noted.counts) == (None, {})
    assert noted.end is not None and noted.end.text == "all records of the source were read"
    assert [code for code, _ in seen] == [200, 200] and "killed" not in seen[0][1]

    # As two runs that were killed have left it, and the run after them that was killed, too.
    begun = Begun("another", 5, "worker-3", 77)
    two = replace(replace(noted, begun=begun).killed(2, None), begun=begun).killed(2, None)
    write_stops(checkpoint, replace(two, begun=begun))
    ev.write_files(list(ev.generate(50, ev.Mix(keys=60), seed=9)), case.source, 50, first=2)
    case.run(*arguments(site), at=look)
    code, text = seen[-1]
    assert code == 503 and text.startswith("restarting: 3 runs were killed between two batches; out of memory?")
    assert any("3 runs were killed between two batches" in line for line in caplog.messages), "the log says so, too"
    assert read_stops(checkpoint).in_row == 0, "a commit has ended the row"


@pytest.mark.kill
@pytest.mark.drill
def test_a_loop_of_real_kills_is_told(tmp_path: Path, site: Site) -> None:
    job = StreamJob(tmp_path, "COPY_ON_WRITE", chunks_of(list(ev.generate(200, ev.Mix(keys=80), seed=5)), 100))
    job.write_input()
    for _ in range(3):
        job.crash("inflight", 1)
    with job.start(*arguments(site), crash="inflight@1:pause") as process:
        site.wait_for_health(
            lambda _, text: text.startswith("restarting: 3 runs were killed in batch 1; out of memory?")
        )
        assert site.metrics()['tagstream_errors_total{error="Killed"}'] == 3
        assert "3 runs were killed in batch 1; out of memory?" in process.output()
    assert "the run before was killed" not in job.finish().splitlines()[-1]
    assert job.check() == 2


@pytest.mark.extended("more states of a live page")
def test_quarantined_records_are_shown(tmp_path: Path, spark: SparkSession, browser: Browser, site: Site) -> None:
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE")
    for path in ev.write_files(list(ev.generate(900, ev.Mix(keys=60), seed=5)), case.source, 300):
        when = path.stat().st_mtime_ns
        path.write_text("nonsense\n" + path.read_text())
        os.utime(path, ns=(when, when))

    def look(step: str, batch: int) -> None:
        if (step, batch) == ("inflight", 2):
            doc = site.document()
            assert (doc["counts"]["quarantined"], doc["counts"]["records"]) == (2, 602)
            doc = site.wait_for(
                lambda d: d["quarantine"] is not None and d["quarantine"]["records"] == 2, "the quarantine"
            )
            assert doc["quarantine"]["whole"] and doc["quarantine"]["newest"][0][0] == 1
            assert f"tagstream quarantine list --checkpoint-dir {case.checkpoint}" in site.text("")
            assert sum(doc["counts"][kind] for kind in KINDS) == 602
            site.compare(browser, "quarantined")

    case.run(*arguments(site, "--commit-on-errors"), at=look)


@pytest.mark.extended("the same decisions over another real stream")
def test_index_and_last_commit_are_known_before_the_first_batch_of_a_run(
    tmp_path: Path, spark: SparkSession, site: Site
) -> None:
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ")
    events = list(ev.generate(700, ev.Mix(keys=300), seed=6))
    ev.write_files(events[:600], case.source, 200)
    keys = case.run()[-1].index_keys
    newest = max(timeline_of(case.table).glob("*.deltacommit"))
    ev.write_files(events[600:], case.source, 100, first=3)

    def look(step: str, batch: int) -> None:
        if step == "inflight":
            doc = site.wait_for(lambda d: d["groups_whole"] and d["files"] is not None, "what the checkpoint knows")
            assert doc["batches"] == 0
            assert doc["derived"]["index_keys"] == keys == len(ev.oracle(events[:600]))
            assert doc["derived"]["index_bytes"] > 0
            assert (doc["last_commit_ms"], doc["last_commit_exact"]) == (newest.stat().st_mtime_ns // 1_000_000, True)
            assert site.metrics()["tagstream_index_keys"] == keys

    case.run(*arguments(site), at=look)


@pytest.mark.kafka
def test_the_lag_of_a_topic_is_right_in_the_first_batch_and_after_a_restart(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker, site: Site
) -> None:
    kafka_broker.create_topic("lag", partitions=2)
    began = now_ms()
    events = list(ev.generate(1_500, ev.Mix(keys=120), seed=21))
    send(kafka_broker, "lag", events[:1_000], 2)
    case = kafka_case(tmp_path, spark, kafka_broker, "lag")

    def first(step: str, batch: int) -> None:
        if (step, batch) == ("inflight", 0):
            doc = site.wait_for(lambda d: d["lag"] == 1_000 and d["tasks"] is None, "all of the topic")
            assert sum(part["records"] for part in doc["waiting"]) == 1_000
            assert [part["partition"] for part in doc["waiting"]] == [0, 1]
            assert began - 60_000 < doc["oldest_ms"] <= doc["at_ms"], "its records came when the test began"
            assert doc["derived"]["data_age_s"] == (doc["at_ms"] - doc["oldest_ms"]) / 1000
            assert site.metrics()["tagstream_lag_records"] == 1_000

    case.run(*arguments(site), at=first)
    send(kafka_broker, "lag", events[1_000:], 2)

    def again(step: str, batch: int) -> None:
        if (step, batch) == ("inflight", 1):
            site.wait_for(lambda d: d["lag"] == 500, "what came since the last commit")

    case.run(*arguments(site), at=again)
