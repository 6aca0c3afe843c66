"""Bad records through the whole stream: each kind is quarantined with its place and reason, and decides the job's end."""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.bootstrap.errors import IndexCoverageError
from tagstream.streaming.errors import BadRecordsError
from tagstream.streaming.job.failure import explain
from tagstream.streaming.options.cli import load_options
from tests.streaming.stream_case import StreamCase
from tests.support.events import write_event_file
from tests.support.hudi_rs import read_table
from tests.support.table_version import timeline_of

pytestmark = pytest.mark.spark
GOOD = b'{"id":"a","part":"p0","ts":1,"name":"x","amount":1.5,"_hoodie_is_deleted":false}'
# What is wrong -> the record, and a word of its reason.
BAD = {
    "not JSON": (b"hello", "JSON"),
    "cut off": (b'{"id":"b","part":"p0","ts":1', "JSON"),
    "trailing content": (b'{"id":"c","part":"p0","ts":1} and more', "after"),
    "two objects": (b'{"id":"d","part":"p0","ts":1}{"id":"d2","part":"p0","ts":1}', "after"),
    "no key": (b'{"part":"p0","ts":1}', "id"),
    "null key": (b'{"id":null,"part":"p0","ts":1}', "id"),
    "empty key": (b'{"id":"","part":"p0","ts":1}', "id"),
    "null ordering": (b'{"id":"e","part":"p0","ts":null}', "ts"),
    "no ordering": (b'{"id":"f","part":"p0"}', "ts"),
    "text for a number": (b'{"id":"g","part":"p0","ts":"soon"}', "ts"),
    "lost digits": (b'{"id":"h","part":"p0","ts":1.5}', "ts"),
    "too large": (b'{"id":"i","part":"p0","ts":9223372036854775808}', "ts"),
    "object in a text": (b'{"id":"j","part":"p0","ts":1,"name":{"a":1}}', "name"),
    "leaves the table": (b'{"id":"k","part":"../../etc","ts":1}', "partition"),
    "not UTF-8": (b'{"id":"\xff\xfe","part":"p0","ts":1}', "UTF-8"),
}


def prepare(tmp_path: Path, spark: SparkSession) -> StreamCase:
    """One file with a good record after each bad one."""
    case = StreamCase(tmp_path, spark)
    case.source.mkdir(parents=True)
    lines = [line for bad, _ in BAD.values() for line in (bad, GOOD)]
    path = write_event_file(case.source, 0, "", modified=1_600_000_000)
    path.write_bytes(b"\n".join(lines) + b"\n")
    return case


def quarantined(case: StreamCase) -> list[dict]:
    files = sorted((case.checkpoint / "tagstream" / "quarantine").glob("batch=*/*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def test_every_kind_is_quarantined_with_place_and_reason_and_the_rest_is_committed(
    tmp_path: Path, spark: SparkSession
) -> None:
    case = prepare(tmp_path, spark)
    (report,) = case.run("--commit-on-errors")
    assert (report.quarantined, report.inserts, report.records) == (len(BAD), 1, 2 * len(BAD))
    found = {base64.b64decode(r["value_base64"]): r for r in quarantined(case)}
    text = (case.source / "events-00000.json").read_bytes()
    for what, (record, word) in BAD.items():
        entry = found[record]
        assert word in entry["reason"], f"{what}: {entry['reason']}"
        assert entry["path"].endswith("/events-00000.json")
        assert text[entry["offset"] :].startswith(record), what
    assert len(found) == len(BAD)
    assert read_table(case.table)["id"].to_pylist() == ["a"]


def test_without_leave_the_job_fails_commits_nothing_and_goes_on_when_told_to(
    tmp_path: Path, spark: SparkSession
) -> None:
    case = prepare(tmp_path, spark)
    with pytest.raises(BadRecordsError, match=f"{len(BAD)} bad records in batch 0"):
        case.run("--max-bad-records", str(len(BAD) - 1))
    assert len(quarantined(case)) == len(BAD)
    timeline = {p.name.split(".", 1)[1] for p in timeline_of(case.table).glob("2*")}
    assert timeline == {"rollback", "rollback.inflight", "rollback.requested"}
    assert not list(case.table.rglob("*.parquet"))

    (report,) = case.run("--max-bad-records", str(len(BAD)))
    assert (report.batch_id, report.quarantined, report.inserts) == (0, len(BAD), 1)
    assert len(quarantined(case)) == len(BAD)


def test_a_batch_of_nothing_but_bad_records_is_committed_too(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark)
    case.source.mkdir(parents=True)
    write_event_file(case.source, 0, "rubbish\n", modified=1_600_000_000)
    (report,) = case.run("--commit-on-errors")
    assert (report.quarantined, report.files) == (1, 0)
    assert len(list(timeline_of(case.table).glob("*.commit"))) == 1


def test_a_damaged_delta_stops_the_job_with_its_name_and_what_to_do(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark)
    case.source.mkdir(parents=True)
    write_event_file(case.source, 0, GOOD.decode() + "\n", modified=1_600_000_000)
    case.run()
    write_event_file(case.source, 1, GOOD.decode().replace('"ts":1', '"ts":2') + "\n", modified=1_600_000_001)
    (delta,) = (case.checkpoint / "tagstream" / "index" / "deltas").glob("*/*")
    delta.write_bytes(b"damaged")
    shutil.rmtree(case.folder / "local")  # which has a copy of the newest delta
    # By default the index would be loaded from the table again.
    with pytest.raises(IndexCoverageError) as caught:
        replace(case, conf={"index.bootstrap.enabled": "false"}).run()
    words = explain(caught.value, load_options(case.arguments())).line
    assert str(delta) in words
    assert f"key group {delta.parent.name}" in words
    assert len(list(timeline_of(case.table).glob("*.commit"))) == 1
