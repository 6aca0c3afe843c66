"""The states in which someone opens the page of a job, each with as much behind it as a job has after some hours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tagstream.streaming.monitor.health import Begun, Stops, show_bad
from tagstream.streaming.monitor.run_status import RunStatus
from tagstream.streaming.monitor.snapshot import CommitLine, GroupSize, Quarantine, TableFiles, Tasks, Waiting, largest
from tagstream.table.services.health import FileSizes, total_sizes
from tests.streaming.monitor.case import ABOUT, Clock, report, run_status

CHECKPOINT = "s3a://lake-production/checkpoints/shop/orders"
HOUR_MS = 3_600_000


def large_status(clock: Clock) -> RunStatus:
    """A job of some hours on a large table, with numbers of ten digits."""
    about = replace(
        ABOUT, checkpoint=CHECKPOINT, base_path="s3a://lake-production/tables/shop/orders", host="worker-17.example",
        pid=48_213, log="the journal: journalctl _PID=48213",
    )  # fmt: skip
    status = run_status(clock, about)
    status.began(41)
    status.stops(Stops().in_order("stopped by SIGTERM", clock.now_ms - HOUR_MS))
    status.query_started()
    for batch in range(60):
        clock.after(20)
        status.lag(1_200_000 + batch % 7 * 90_000 - batch * 19_000)
        seconds = 12 + batch % 5 * 1.7
        status.batch(report(2_140 + batch, records=21_345_678 + batch * 13_007, seconds=seconds, late=1_207, moves=14))
    parts = [Waiting(n, 98_000 // (n + 1), clock.now_ms - 240_000 // (n + 1)) for n in range(48)]
    status.waits(parts)
    status.groups([GroupSize(n, 19_531_250 - 991 * n, 12_004, 401_235_111) for n in range(64)], whole=True)
    sizes = {
        f"region=eu-west/day=2027-01-{n:02}": FileSizes(
            120 - n, 30, 120 - n, 14_000_000_000 - n * 10**8, 44, 10**9, 4, (3, 9, 18, 30, 50, 10)
        )
        for n in range(1, 30)
    }
    status.files(TableFiles(clock.now_ms, 29, 2_190, total_sizes(sizes.values()), largest(sizes, 30)))
    lines = [
        CommitLine(
            f"202701150800{n:02}000", "deltacommit", "orders-topic", 2_199 - n, 20_000_123, 1_300_000, 5_003, 240, 10**9
        )
        for n in range(9)
    ]
    compaction = CommitLine("20270115075950000", "commit", None, None, 0, 8_000_000, 0, 120, 13 * 10**9, "compaction")
    hudi = CommitLine("20270115075940000", "deltacommit", None, None, 120, 3, 0, 2, 10**6)
    status.commits([*lines, compaction, hudi], clock.now_ms - 4_000, exact=True)
    status.service("compaction", 12, None)
    status.service("cleaning", 58, None)
    due = {
        "compaction": "in 3 delta commits",
        "clustering": "off",
        "cleaning": "after each commit",
        "archiving": "above 30 commits on the timeline; it has 27",
    }
    status.services_due(due, {"archiving": clock.now_ms - HOUR_MS})
    return status


def running(clock: Clock) -> RunStatus:
    status = large_status(clock)
    status.step("reading, tagging and writing", 2_200)
    status.tasks(Tasks(64, 23, 2, 0, clock.now_ms))
    clock.after(7)
    return status


def behind(clock: Clock) -> RunStatus:
    status = large_status(clock)
    for minute in range(40):
        clock.after(60)
        status.lag(10**9 + minute * 90_000_000)
        status.batch(report(2_200 + minute, records=21_345_678, seconds=55))
    status.waits([Waiting(n, 400_000_000 // (n + 1), clock.now_ms - 40_000_000 // (n + 1)) for n in range(48)])
    status.warned("WARNING", "the broker answers slowly: a look at topic orders took 12 s")
    return status


def bad_records(clock: Clock) -> RunStatus:
    status = large_status(clock)
    status.batch(report(2_200, records=20_000_000, quarantined=11_000_000, seconds=14))
    status.quarantine(
        Quarantine(
            11_000_014,
            False,
            (
                (2_200, "field amount is '12,50': no decimal number with two digits behind the point"),
                (2_200, "no JSON: a value ends in the middle at byte 512"),
                (1_877, "record key field order_id is null"),
            ),
        )
    )
    status.warned("WARNING", f"11,000,000 bad records were left out and are in the quarantine: {show_bad(CHECKPOINT)}")
    return status


def stopped_by_bad_records(clock: Clock) -> RunStatus:
    status = run_status(clock, replace(ABOUT, checkpoint=CHECKPOINT))
    text = "3 bad records in batch 2201, and --max-bad-records is 0; the first: field amount is '12,50'"
    status.stops(Stops().one_more("BadRecordsError", text, clock.now_ms - HOUR_MS))
    status.quarantine(Quarantine(3, True, ((2_201, "field amount is '12,50'"),)))
    status.query_started()
    status.step("reading, tagging and writing", 2_201)
    clock.after(3)
    return status


def kill_loop(clock: Clock) -> RunStatus:
    status = run_status(
        clock,
        replace(ABOUT, checkpoint=CHECKPOINT, host="orders-6c9d", pid=7, log="the pod's log: kubectl logs orders-6c9d"),
    )
    noted = Stops()
    for number in range(3):
        begun = Begun(f"run {number}", clock.now_ms, "orders-6c9d", 7)
        clock.after(90)
        noted = replace(noted, begun=begun).killed(2_201, clock.now_ms)
    status.stops(noted)
    status.began(44)
    clock.after(20)
    status.query_started()
    status.step("reading, tagging and writing", 2_201)
    status.waits([Waiting(0, 182_818, clock.now_ms - 400_000)])
    status.commits([], clock.now_ms - 400_000, exact=True)
    clock.after(41)
    return status


def failing_service(clock: Clock) -> RunStatus:
    status = running(clock)
    error = (
        "OSError: [Errno 28] No space left on device: '/data/tables/orders/region=eu-west/.hoodie_partition_metadata'; "
        "make room, it is tried again"
    )
    status.service("compaction", 0, error)
    status.services_due({"compaction": "plan 20270115080010000 is pending"}, {})
    status.warned("WARNING", f"compaction of table s3a://lake-production/tables/shop/orders failed: {error}")
    return status


SCENES: dict[str, Callable[[Clock], RunStatus]] = {
    "running": running,
    "behind": behind,
    "leaving-bad-records-out": bad_records,
    "stopped-by-bad-records": stopped_by_bad_records,
    "kill-loop": kill_loop,
    "failing-service": failing_service,
}
