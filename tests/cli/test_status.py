"""``tagstream status`` of real checkpoints: ended, running, killed again and again, stopped by bad records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.cli.status import stream_state
from tagstream.streaming.errors import BadRecordsError
from tagstream.streaming.monitor.health import Begun, Stops, read_stops, write_stops
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.lease import Lease, LeaseOwner
from tests.cli.running import run, run_json
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev

BEGUN = Begun("run", 1_000, "worker-3", 77)


@pytest.mark.spark
def test_a_stream_through_its_fates(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE")
    ev.write_files(list(ev.generate(200, ev.Mix(keys=60), seed=5)), case.source, 100)
    seen: list[str] = []

    def look(step: str, batch: int) -> None:
        if (step, batch) == ("inflight", 1):
            doc = run_json("status", "--checkpoint-dir", case.checkpoint)
            assert (doc["batch_finished"], doc["batch_planned"], doc["table_path"]) == (0, 1, str(case.table))
            seen.append(doc["state"])

    case.run(at=look)
    assert seen == ["running"]
    doc = run_json("status", "--checkpoint-dir", case.checkpoint)
    assert (doc["state"], doc["batch_finished"], doc["batch_planned"], doc["bad_records"]) == ("ended", 1, None, 0)
    assert doc["text"].endswith("all records of the source were read")

    checkpoint = PosixStorage(str(case.checkpoint))
    two = replace(replace(read_stops(checkpoint), begun=BEGUN).killed(2, None), begun=BEGUN).killed(2, None)
    write_stops(checkpoint, replace(two, begun=BEGUN))
    doc = run_json("status", "--checkpoint-dir", case.checkpoint, code=1)
    assert (doc["state"], doc["in_row"], doc["killed_in_row"], doc["errors"]) == ("killed", 3, 3, "Killed 3")
    assert "3 runs were killed between two batches; out of memory?" in doc["text"]
    assert read_stops(checkpoint).begun == BEGUN, "the command only reads"

    write_stops(checkpoint, Stops())
    (case.source / "00002.json").write_text("nonsense\n")
    with pytest.raises(BadRecordsError):
        case.run()
    told = run("status", "--checkpoint-dir", case.checkpoint, code=1)
    assert "failed" in told and "1 bad record" in told
    assert f"tagstream quarantine list --checkpoint-dir {case.checkpoint}" in told


def test_who_holds_the_lease_is_at_work() -> None:
    noted = Stops(begun=BEGUN)
    owner = LeaseOwner("worker-3", "boot", 77, 5)
    lease = Lease(1, owner, expires_ms=60_000, ttl_ms=60_000)
    assert stream_state(noted, lease, 4, now_ms=30_000).state == "running"
    assert stream_state(noted, lease, 4, now_ms=60_000).state == "killed"
    assert stream_state(noted, replace(lease, released=True), 4, now_ms=30_000).state == "killed"
    assert stream_state(noted, replace(lease, owner=replace(owner, pid=78)), 4, now_ms=30_000).state == "killed"
    found = stream_state(noted, None, 4, now_ms=30_000)
    assert found.text.startswith("1970-01-01 00:00:01 UTC: killed in batch 4; out of memory?")
    assert stream_state(Stops(), None, None, now_ms=0).state == "unknown"
