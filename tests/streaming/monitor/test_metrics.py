"""What Prometheus scrapes: right from the first second, documented one by one, clean in the eyes of promtool."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tagstream.streaming.batch.report import KINDS
from tagstream.streaming.monitor.health import STATES, Stops
from tagstream.streaming.monitor.metrics import METRICS, RunCollector
from tagstream.streaming.monitor.run_status import RunStatus
from tagstream.streaming.monitor.snapshot import GroupSize, PartitionLine, Quarantine, Stop, TableFiles, Waiting
from tagstream.table.services.health import FileSizes
from tests.streaming.monitor.case import ABOUT, HOSTILE, Clock, report, run_status
from tests.support.paths import ROOT
from tests.support.tools import run_tool

STREAM = {"table": "events", "stream": "orders-topic"}


def scrape(status: RunStatus) -> bytes:
    registry = CollectorRegistry()
    registry.register(RunCollector(status.snapshot))
    return generate_latest(registry)


def values(status: RunStatus, **labels: str) -> dict[str, float]:
    """Samples by name, of those that have these labels beside table and stream."""
    found = {}
    for family in text_string_to_metric_families(scrape(status).decode()):
        for sample in family.samples:
            assert sample.labels.items() >= STREAM.items(), sample
            if {k: v for k, v in sample.labels.items() if k not in STREAM} == labels:
                found[sample.name] = sample.value
    return found


def full_status(clock: Clock) -> RunStatus:
    """A status that has something to say of everything."""
    status = run_status(clock)
    status.began(3)
    status.query_started()
    status.restarted("ForeignCommitError", "another writer")
    status.query_started()
    status.batch(report(0, late=7, unknown_deletes=3, quarantined=2))
    status.step("committing", 1)
    status.waits([Waiting(0, 12, clock.now_ms - 90_000), Waiting(1, 5, clock.now_ms - 60_000), Waiting(2, 0)])
    status.service("cleaning", 2, None)
    status.service("compaction", 0, "no room")
    status.services_due({"compaction": "after the next commit"}, {"compaction": clock.now_ms - 7_000_000})
    status.quarantine(Quarantine(2, True, ((0, "no JSON"),)))
    status.groups([GroupSize(0, 5, 1, 100), GroupSize(8, 9, 0, 200)], whole=True)
    total = FileSizes(4, 3, 4, 1_000, 2, 500, 1)
    status.files(TableFiles(clock.now_ms, 1, 2, total, (PartitionLine("2027-01-15", total, 1.0),)))
    status.stops(Stops({"BadRecordsError": 2, "StateError": 1}, 0, Stop(1, "StateError", "no room")))
    status.warned("WARNING", "careful")
    return status


def test_before_the_first_batch_of_a_run() -> None:
    clock = Clock()
    status = run_status(clock)
    status.began(12)
    status.commits([], clock.now_ms - 7_200_000, exact=True)
    status.query_started()
    status.lag(21_032)
    status.step("reading, tagging and writing", 40)
    clock.after(30)
    found = values(status)
    assert found["tagstream_lag_records"] == 21_032
    assert found["tagstream_last_commit_age_seconds"] == 7_230
    assert found["tagstream_batch_running_seconds"] == 30
    assert (found["tagstream_batch"], found["tagstream_runs_total"], found["tagstream_batches_total"]) == (40, 12, 0)
    assert values(status, kind="unknown_deletes")["tagstream_rows_total"] == 0


def test_what_is_not_known_has_no_sample() -> None:
    found = values(run_status(Clock()))
    for name in (
        "tagstream_lag_records",
        "tagstream_last_commit_age_seconds",
        "tagstream_index_keys",
        "tagstream_batch",
    ):
        assert name not in found
    assert b"NaN" not in scrape(run_status(Clock()))


def test_a_part_of_the_index_is_not_given_for_the_whole() -> None:
    status = run_status(Clock())
    status.batch(report(0, groups={0: {"live_keys": 5, "tombstones": 1, "bytes": 100}}))
    assert "tagstream_index_keys" not in values(status)


def test_after_batches() -> None:
    status = full_status(Clock())
    found = values(status)
    assert (found["tagstream_records_total"], found["tagstream_batches_total"]) == (1_000, 1)
    assert (found["tagstream_batch_seconds_sum"], found["tagstream_batch_seconds_count"]) == (2.0, 1)
    assert values(status, le="2.0")["tagstream_batch_seconds_bucket"] == 1
    assert values(status, le="1.0")["tagstream_batch_seconds_bucket"] == 0
    kinds = {kind: values(status, kind=kind)["tagstream_rows_total"] for kind in KINDS}
    assert (kinds["unknown_deletes"], kinds["quarantined"], sum(kinds.values())) == (3, 2, 1_000)
    assert values(status, phase="tasks")["tagstream_batch_phase_seconds_total"] == pytest.approx(1.4)
    assert (found["tagstream_index_keys"], found["tagstream_index_largest_group_keys"]) == (14, 9)
    assert (found["tagstream_table_small_files"], found["tagstream_table_partitions"]) == (3, 2)
    assert found["tagstream_bad_record_stops_total"] == 2
    assert values(status, error="StateError")["tagstream_errors_total"] == 1
    assert values(status, error="ForeignCommitError")["tagstream_restarts_total"] == 1
    states = {state: values(status, state=state)["tagstream_health"] for state in STATES}
    assert states == {state: float(state == "ok") for state in STATES}


def test_every_metric_is_documented_and_every_documented_one_exported() -> None:
    text = (ROOT / "docs" / "operations" / "monitoring.md").read_text("utf-8")
    rows = re.findall(r"^\| `(tagstream_\w+)` \| ([^|]*) \| ([^|]*) \| ([^|]*) \|", text, flags=re.M)
    documented = {name: (kind.strip(), unit.strip(), labels.strip()) for name, kind, unit, labels in rows}
    wanted = {m.name: (m.kind, m.unit, ", ".join(f"`{label}`" for label in m.labels)) for m in METRICS}
    assert documented == wanted
    families = {f.name: f for f in text_string_to_metric_families(scrape(full_status(Clock())).decode())}
    exported = {f"{name}_total" if f.type == "counter" else name for name, f in families.items() if f.samples}
    assert exported == set(documented)


def test_hostile_names_stay_in_their_label() -> None:
    about = ABOUT.__class__(HOSTILE + '\n"} evil 1', "\udcff\\", "/t", "/c")
    text = scrape(run_status(Clock(), about)).decode()
    found = {s.labels["table"] for f in text_string_to_metric_families(text) for s in f.samples}
    assert found == {HOSTILE + '\n"} evil 1'}
    assert not [line for line in text.splitlines() if line.startswith("evil")]


def test_promtool_finds_nothing_to_say() -> None:
    told = run_tool("promtool", "check", "metrics", stdin=scrape(full_status(Clock())))
    assert told.strip() == ""
