"""One word for how a job is, and its thresholds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tagstream.bootstrap.report import BootstrapProgress
from tagstream.streaming.monitor import health
from tagstream.streaming.monitor.health import Begun, Stops, Thresholds, answer
from tagstream.streaming.monitor.run_status import RunStatus
from tagstream.streaming.monitor.snapshot import Stop, Tasks
from tests.streaming.monitor.case import Clock, report, run_status

BAD = Stop(1, "BadRecordsError", "3 bad records in batch 7")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def status(clock: Clock) -> RunStatus:
    return run_status(clock)


def state(status: RunStatus) -> str:
    return status.snapshot().health.state


def test_a_start_is_a_start_until_it_takes_too_long(status: RunStatus, clock: Clock) -> None:
    status.step("starting Spark")
    assert state(status) == "starting"
    clock.after(900)
    assert state(status) == "starting"
    clock.after(1)
    found = status.snapshot().health
    assert (found.state, found.fine) == ("stuck", False)
    assert found.why == "starting for 15 min 1 s, now at: starting Spark"


def test_the_loading_of_an_index_may_take_as_long_as_it_takes(status: RunStatus, clock: Clock) -> None:
    at = BootstrapProgress(
        stage="scan", done=3, total=10, keys=300_000, share=0.3, seconds=3.0, files=12, total_files=40
    )
    status.loading(at)
    clock.after(100_000)
    status.loading(replace(at, share=0.31))
    found = status.snapshot().health
    assert found.state == "starting"
    assert found.why == "loading the index (reading files 31%, 300,000 keys), before the first batch"
    status.loading(replace(at, stage="load", done=10))
    assert status.snapshot().doing.step == "comparing index and table"


def test_a_source_without_records_is_no_trouble(status: RunStatus, clock: Clock) -> None:
    status.query_started()
    clock.after(100_000)
    assert state(status) == "ok"
    status.lag(0)
    assert state(status) == "ok"


def test_stuck_in_its_first_batch(status: RunStatus, clock: Clock) -> None:
    status.query_started()
    status.step("checking the timeline", 4)
    clock.after(600)
    status.step("reading, tagging and writing", 4)  # the batch's time counts, not the step's
    clock.after(301)
    found = status.snapshot().health
    assert found.state == "stuck"
    assert found.why == "in its first batch (4) for 15 min 1 s, now at: reading, tagging and writing"
    assert answer(found) == (503, f"stuck: {found.why}\n")


def test_stuck_in_a_later_batch_and_well_again(status: RunStatus, clock: Clock) -> None:
    status.query_started()
    status.batch(report(4))
    status.step("committing", 5)
    clock.after(901)
    assert status.snapshot().health.why.startswith("in batch 5 for 15 min 1 s")
    status.batch(report(5, seconds=901))
    assert state(status) == "ok"


def test_the_thresholds_are_the_users(clock: Clock) -> None:
    status = run_status(clock, limits=Thresholds(stuck_after_s=10, behind_after_s=5))
    status.query_started()
    status.step("committing", 0)
    clock.after(11)
    assert state(status) == "stuck"
    status.batch(report(0, records=1_000, seconds=1.0))
    status.lag(5_001)
    assert state(status) == "behind"


def test_behind_by_what_waits_at_the_rate_of_the_last_batches(status: RunStatus) -> None:
    status.query_started()
    status.lag(1_000_000)
    assert state(status) == "ok"  # no rate is known yet
    status.batch(report(0, records=1_000, seconds=2.0))
    status.lag(299_000)
    assert state(status) == "ok"
    status.lag(301_000)
    found = status.snapshot()
    assert (found.health.state, found.health.fine, found.catch_up_s) == ("behind", True, 602.0)
    status.lag(0)
    assert state(status) == "ok"


def test_a_query_that_begins_anew_again_and_again(status: RunStatus) -> None:
    status.query_started()
    for _ in range(3):
        assert state(status) != "restarting"
        status.restarted("ForeignCommitError", "commit 2 was made by another writer")
    found = status.snapshot()
    assert found.health.state == "restarting"
    assert "3 times without a commit: commit 2 was made by another writer" in found.health.why
    assert found.restarts == {"ForeignCommitError": 3}
    status.query_started()
    status.batch(report(0))
    assert state(status) == "ok"


def test_runs_that_end_by_an_error_again_and_again(status: RunStatus) -> None:
    last = Stop(1, "StateError", "no room")
    status.stops(Stops({"StateError": 2}, 2, last))
    assert state(status) == "starting"
    status.stops(Stops({"StateError": 3}, 3, last))
    assert status.snapshot().health.why == "3 runs ended without a commit, the last one with: no room"


def killed(times: int, before: Stops | None = None) -> Stops:
    """What is noted after so many runs that were killed in batch 17."""
    found = before or Stops()
    for number in range(times):
        found = replace(found, begun=Begun(f"run {number}", 10 * number, "worker-3", 100 + number)).killed(17, None)
    return found


def test_a_loop_of_kills_is_no_first_batch_that_is_well(status: RunStatus) -> None:
    status.query_started()
    status.step("reading, tagging and writing", 17)
    status.stops(killed(2))
    found = status.snapshot().health
    assert (found.state, found.fine) == ("ok", True)
    assert "first batch of this run" in found.why and "the run before was killed in batch 17" in found.why
    status.stops(killed(3))
    found = status.snapshot().health
    assert (found.state, found.fine) == ("restarting", False)
    assert found.why.startswith("3 runs were killed in batch 17; out of memory? Check the kernel's log (dmesg)")
    assert "give the job more memory" in found.why and found.why.endswith("(process 102 on worker-3)")
    status.batch(report(17))
    assert status.snapshot().health == health.Health("ok", "waiting for records", True)


def test_kills_and_errors_in_a_row_are_told_apart(status: RunStatus) -> None:
    status.stops(killed(2).one_more("StateError", "no room", 5))
    assert status.snapshot().health.why == "3 runs ended without a commit, 2 of them killed, the last one with: no room"


def test_stopped_by_bad_records_until_a_commit(status: RunStatus) -> None:
    status.stops(Stops({"BadRecordsError": 1}, 1, BAD))
    found = status.snapshot().health
    assert (found.state, answer(found)[0]) == ("bad_records", 503)
    assert "3 bad records in batch 7; this run has not got past these records yet" in found.why
    status.query_started()
    status.step("committing", 7)
    assert state(status) == "bad_records"
    status.batch(report(7))
    assert state(status) == "ok"


def test_this_run_has_just_been_stopped(status: RunStatus) -> None:
    status.query_started()
    status.stops(Stops({"BadRecordsError": 1}, 1, BAD))
    status.stopped("BadRecordsError")
    status.ended()
    why = status.snapshot().health.why
    assert why == "3 bad records in batch 7; `tagstream quarantine list --checkpoint-dir /t/ck` shows them"


def test_records_that_are_left_out_are_no_green(status: RunStatus) -> None:
    status.query_started()
    status.batch(report(0, records=1_000, quarantined=9))
    assert state(status) == "ok", "less than one of a hundred"
    status.batch(report(1, records=1_000, quarantined=110))
    found = status.snapshot().health
    assert (found.state, found.fine) == ("leaving_out", True)
    assert found.why == (
        "119 of the 2,000 records (5.9%) of the last batches were left out as bad; "
        "`tagstream quarantine list --checkpoint-dir /t/ck` shows them"
    )
    for batch in range(2, 7):
        status.batch(report(batch, records=1_000))
    assert state(status) == "ok", "the last five were well"


def test_a_service_that_fails_is_told(status: RunStatus) -> None:
    status.query_started()
    status.service("compaction", 0, "no room")
    assert answer(status.snapshot().health) == (200, "ok: waiting for records; compaction fails and is tried again\n")
    status.service("cleaning", 0, "no room")
    assert "compaction and cleaning fail and are tried again" in status.snapshot().health.why
    status.service("compaction", 1, None)
    status.service("cleaning", 0, None)
    assert status.snapshot().health.why == "waiting for records"


def test_a_service_that_is_new_to_the_status_has_a_line_from_its_first_turn(status: RunStatus) -> None:
    status.service("indexing", 2, None)
    found = status.snapshot()
    assert found.services == {
        "compaction": 0,
        "clustering": 0,
        "expiry": 0,
        "cleaning": 0,
        "archiving": 0,
        "indexing": 2,
    }


def test_a_batch_that_is_long_tells_its_tasks(status: RunStatus, clock: Clock) -> None:
    status.query_started()
    status.step("reading, tagging and writing", 4)
    clock.after(100)
    status.tasks(Tasks(total=8, done=3, running=2, failed=1, moved_ms=clock.now_ms))
    clock.after(801)
    assert status.snapshot().health.why == (
        "in its first batch (4) for 15 min 1 s, now at: reading, tagging and writing; 3 of 8 tasks done, the last one "
        "13 min 21 s ago, 2 running, 1 failed and were tried again"
    )
    status.batch(report(4))
    assert status.snapshot().tasks is None, "they were of that batch"


def test_an_end_in_order(status: RunStatus) -> None:
    status.query_started()
    status.batch(report(0))
    status.ended()
    assert state(status) == "ended"


def test_every_state_has_a_title() -> None:
    assert set(health.TITLES) == set(health.STATES)
