"""What a run knows of itself adds up."""

from __future__ import annotations

import json
import threading
from itertools import pairwise

from tagstream.streaming.batch.report import KINDS
from tagstream.streaming.monitor.run_status import Trend
from tagstream.streaming.monitor.snapshot import CommitLine, GroupSize
from tests.streaming.monitor.case import Clock, report, run_status

GROUPS = {0: {"live_keys": 5, "tombstones": 1, "bytes": 100}, 8: {"live_keys": 7, "tombstones": 0, "bytes": 200}}


def test_sums_over_batches() -> None:
    clock = Clock()
    status = run_status(clock)
    status.query_started()
    for batch in range(3):
        status.batch(report(batch, records=100, late=7, unknown_deletes=3, quarantined=1, seconds=0.5 * (batch + 1)))
    found = status.snapshot()
    assert (found.batches, found.counts["records"], found.counts["unknown_deletes"]) == (3, 300, 9)
    assert sum(found.counts[kind] for kind in KINDS) == 300
    assert (found.seconds, round(sum(found.phases.values()), 6)) == (3.0, 3.0)
    assert (sum(found.durations), found.durations[1], found.durations[2], found.durations[3]) == (3, 1, 1, 1)
    assert found.rate == 100.0
    assert [b.batch_id for b in found.recent] == [0, 1, 2]


def test_a_replayed_batch_wrote_nothing_and_is_no_commit() -> None:
    status = run_status(Clock())
    status.batch(report(3, replayed=True))
    found = status.snapshot()
    assert (found.replayed, found.batches, found.counts["records"], found.last_commit_ms) == (1, 0, 0, None)


def test_time_in_a_step_and_in_the_batch() -> None:
    clock = Clock()
    status = run_status(clock)
    status.step("checking the timeline", 2)
    clock.after(3)
    status.step("committing", 2)
    clock.after(4)
    found = status.snapshot()
    assert (found.doing.step, found.doing_s, found.batch_running_s) == ("committing", 4.0, 7.0)
    status.batch(report(2))
    assert status.snapshot().batch_running_s == 0.0


def test_the_last_commit_of_a_run_before_counts_until_this_run_has_one() -> None:
    clock = Clock()
    status = run_status(clock)
    assert status.snapshot().last_commit_age_s is None
    line = CommitLine("20270115070000000", "commit", "orders-topic", 3, 1, 0, 0, 1, 10)
    status.commits([line], clock.now_ms - 60_000, exact=True)
    assert status.snapshot().last_commit_age_s == 60.0
    status.batch(report(4))
    status.commits([line], clock.now_ms - 60_000, exact=True)  # a look that was slower than the batch
    assert status.snapshot().last_commit_age_s == 0.0


def test_what_a_batch_tells_of_a_key_group_counts_more_than_the_checkpoint() -> None:
    status = run_status(Clock())
    status.batch(report(0, groups=GROUPS))
    assert not status.snapshot().groups_whole
    status.groups([GroupSize(8, 1, 1, 1), GroupSize(16, 2, 0, 50)], whole=True)
    found = status.snapshot()
    assert (found.groups_whole, found.index_keys, found.index_tombstones, found.index_bytes) == (True, 14, 1, 350)
    assert [g.label for g in found.groups] == [0, 8, 16]


def test_the_index_is_whole_once_every_group_was_told_and_unknown_after_it_was_loaded_anew() -> None:
    status = run_status(Clock())
    status.new_index(2)
    status.batch(report(0, groups={0: GROUPS[0]}))
    assert not status.snapshot().groups_whole
    status.batch(report(1, groups=GROUPS))
    assert status.snapshot().groups_whole
    status.new_index(2)
    assert (status.snapshot().groups_whole, status.snapshot().groups) == (False, ())


def test_warnings_are_few_and_all_counted() -> None:
    status = run_status(Clock())
    for number in range(50):
        status.warned("WARNING", f"warning {number}")
    found = status.snapshot()
    assert (found.warnings_total, len(found.warnings), found.warnings[-1].text) == (50, 20, "warning 49")


def test_a_document_is_json_and_says_what_the_snapshot_says() -> None:
    status = run_status(Clock())
    status.batch(report(0, groups=GROUPS))
    status.lag(12)
    doc = json.loads(json.dumps(status.snapshot().document(), allow_nan=False))
    assert (doc["lag"], doc["health"]["state"], doc["derived"]["index_keys"]) == (12, "starting", 12)


def test_a_trend_stays_bounded_and_keeps_its_ends() -> None:
    trend = Trend(room=10, spacing_ms=1_000)
    for at in range(0, 1_000_000, 500):
        trend.add(at, at)
    found = trend.points()
    assert len(found) <= 10
    assert (found[0], found[-1][0]) == ((0, 0), 999_500)
    assert all(a < b for (a, _), (b, _) in pairwise(found))


def test_many_threads_tell_and_look() -> None:
    status = run_status(Clock())

    def tell() -> None:
        for batch in range(50):
            status.batch(report(batch, groups=GROUPS))

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    seen = [status.snapshot() for _ in range(50)]
    for thread in threads:
        thread.join()
    assert all(sum(s.counts[k] for k in KINDS) == s.counts["records"] == s.batches * 1_000 for s in seen)
    assert status.snapshot().batches == 200
