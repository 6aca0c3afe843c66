"""``tagstream services run``: the loop around the rounds, and its end by a signal."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType

from tagstream.admin.output import Fact, Output
from tagstream.admin.services.process import ProcessOptions, one_round
from tagstream.streaming.crash import ANY_BATCH, CrashPlan
from tagstream.streaming.options.cli import entries_of
from tagstream.streaming.options.service_options import CompactionMode, services_of
from tagstream.table.errors import LeaseLostError, TagstreamError
from tagstream.table.meta_client.hoodie_table import HoodieTable


def run_process(arguments: argparse.Namespace, out: Output, clock_ms: Callable[[], int]) -> int:
    """Rounds until a signal asks for the end, or until a round finds nothing to do with ``--once``; returns the exit code.

    With ``--once`` the first error ends it; else an error is said, and the next round tries again.
    """
    table = HoodieTable.open(arguments.target_base_path)
    table.check_writable(keeps_metadata=True)
    options = _options(arguments, clock_ms())
    crash = CrashPlan.from_env(os.environ, os.getpgrp())
    ended = threading.Event()
    before = {number: signal.signal(number, _ender(ended)) for number in (signal.SIGTERM, signal.SIGINT)}
    rounds = services = 0
    said = ""
    try:
        while not ended.is_set():
            rounds += 1
            try:
                done = one_round(table, options, clock_ms, out.note, lambda point: crash.reach(point, ANY_BATCH))
                said = ""
            except (TagstreamError, OSError) as error:
                if arguments.once:
                    raise
                done = 0
                if not isinstance(error, LeaseLostError) and str(error) != said:  # a job that starts takes the lease
                    said = str(error)
                    out.note(f"{said}; it is tried again")
            services += done
            if not done:
                if arguments.once:
                    break
                ended.wait(arguments.poll_seconds)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    out.facts(
        [
            Fact("table", "table", table.config.name),
            Fact("rounds", "rounds", rounds, "count"),
            Fact("services", "services that did something", services, "count"),
        ]
    )
    return 0


def _options(arguments: argparse.Namespace, now_ms: int) -> ProcessOptions:
    told = services_of(entries_of(arguments.props, arguments.hoodie_conf))
    return ProcessOptions(
        worker=f"{socket.gethostname()} {os.getpid()} {now_ms}",
        processes=arguments.processes or os.cpu_count() or 1,
        compaction=told.compaction,
        compacts=told.mode is not CompactionMode.OFF,
        clean=told.clean,
        archive=told.archive,
    )


def _ender(ended: threading.Event) -> Callable[[int, FrameType | None], None]:
    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    return end
