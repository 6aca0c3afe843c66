"""At most so many operations a second, by a clock that only sleep moves."""

from __future__ import annotations

import pytest

from tagstream.index.hbase_client import RateLimiter
from tagstream.index.hbase_options import HbaseOptions
from tagstream.table.errors import ConfigError
from tests.index.fake_clock import FakeClock


def test_operations_are_spread_over_time() -> None:
    clock = FakeClock()
    limiter = RateLimiter(250, clock, clock.sleep)
    began = []
    for _ in range(11):
        limiter.acquire(100)
        began.append(clock())
    assert began == pytest.approx([0.4 * n for n in range(11)])


def test_time_that_passes_otherwise_counts_but_is_not_saved_up() -> None:
    clock = FakeClock()
    limiter = RateLimiter(100, clock, clock.sleep)
    limiter.acquire(100)
    clock.now = 0.75
    limiter.acquire(100)
    assert clock() == pytest.approx(1.0)
    clock.now = 60.0
    for expected in (60.0, 60.5, 61.0):
        limiter.acquire(50)
        assert clock() == pytest.approx(expected)


def test_a_clock_that_wakes_early_is_asked_again() -> None:
    clock = FakeClock()
    limiter = RateLimiter(10, clock, lambda seconds: clock.sleep(seconds / 2 if seconds > 0.01 else seconds))
    limiter.acquire(10)
    limiter.acquire(10)
    assert clock() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("servers", "tasks", "each"),
    # Hudi's example: 10 servers of 16667 and a tenth of them, 200 tasks: 83 a second and task, not 84.
    [(10, 200, 83), (10, 1, 16667), (1, 10_000, 1), (1, 0, 1666)],
)
def test_a_tasks_share_is_hudis(servers: int, tasks: int, each: int) -> None:
    options = HbaseOptions("t", qps_fraction=0.1, max_qps_per_region_server=16667)
    assert options.puts_a_second(servers, tasks) == each
    assert options.puts_a_batch(servers, tasks) == 100


def test_autocompute_makes_a_batch_of_what_a_second_allows() -> None:
    options = HbaseOptions("t", put_batch_size_autocompute=True)
    assert options.puts_a_batch(region_servers=4, tasks=10) == 200


def test_the_defaults_are_hudis() -> None:
    options = HbaseOptions("t")
    assert (options.get_batch_size, options.put_batch_size, options.put_batch_size_autocompute) == (100, 100, False)
    assert (options.qps_fraction, options.max_qps_per_region_server) == (0.5, 1000)
    assert (options.rollback_sync, options.update_partition_path, options.bucket_number) == (False, False, 8)
    assert options.gets_a_second == 1000


@pytest.mark.parametrize(
    "change",
    [
        {"table": ""}, {"get_batch_size": 0}, {"put_batch_size": -1}, {"qps_fraction": 0.0}, {"qps_fraction": 1.5},
        {"max_qps_per_region_server": 0}, {"bucket_number": 0}, {"thrift_port": 0}, {"thrift_retries": -1},
        {"security_authentication": "kerberos"},
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_used_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"hbase"):
        HbaseOptions(**{"table": "t", **change})  # type: ignore[arg-type]
