"""The product's own steps without Spark: `python -m bench.steps --keys 2000000 --workloads mixed wide`.

Runs a stream over the files of a workload in one thread of this process, with the stand-in for Spark of the simulations:
decode, tag, write and commit are the product's, and there is no JVM, no child process and no shuffle. The processor seconds
of a batch are those of all threads of this process, without those of reading the file. What `python -m bench.budget` counts
more for the same batches is the cost of running the steps in Spark. hudi-rs checks the table.

`--profile FILE`: also write where the time of the last batches goes, for Python's `pstats`.
"""

from __future__ import annotations

import cProfile
import logging
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench.budget import cases, parser
from bench.inputs.lines import append_lines
from bench.writers.case import Case
from bench.writers.run import order_of, prepare
from bench.writers.tagstream import command_line
from bench.writers.verdict import judge
from tagstream.streaming.batch.report import BatchReport
from tagstream.streaming.job.job import open_table, stream
from tagstream.streaming.monitor.watch import Watch
from tagstream.streaming.options.cli import load_options
from tagstream.streaming.process import CrashPlan, StopFlag
from tagstream.streaming.source.kafka_topic import Ends
from tests.simulation.engine import Engine, installed
from tests.simulation.processes import Processes
from tests.simulation.session import Session
from tests.simulation.topic import TOPIC, Topic

_WARM_UP = 5  # batches; the index was just loaded
_AT_ONCE = 10_000  # rows of a batch of Arrow, as Spark sends them


class Files(Topic):
    """The files of a workload as a topic of one partition. ``spent``: processor seconds of reading them."""

    def __init__(self, files: Sequence[Path], records: int) -> None:
        super().__init__([[]])
        self.spent, self._files, self._records = 0.0, files, records

    def ends(self, *_: object) -> dict[int, Ends]:
        return {0: Ends(0, len(self._files) * self._records)}

    def first(self, *_: object) -> list[bytes]:
        return self._files[0].read_bytes().splitlines()[:1]

    def raw(self, start: Mapping[int, int], end: Mapping[int, int]) -> list[list[pa.RecordBatch]]:
        """One file."""
        began = time.process_time()
        at = start.get(0, 0)
        lines = self._files[at // self._records].read_bytes().splitlines()
        assert (len(lines), end[0] - at) == (self._records, self._records), self._files[at // self._records]
        nothing = pa.nulls(len(lines), pa.binary())
        columns: dict[str, Any] = {"key": nothing, "value": pa.array(lines, pa.binary())}
        columns |= {"src": pa.nulls(len(lines), pa.string()), "pos_hi": np.zeros(len(lines), np.int64)}
        columns |= {"pos_lo": np.arange(at, end[0]), "old_key": nothing, "new_key": nothing}
        whole = pa.RecordBatch.from_pydict(columns)
        found = [whole.slice(n, _AT_ONCE) for n in range(0, len(lines), _AT_ONCE)]
        self.spent += time.process_time() - began
        return [found]


class Laps:
    """Takes the reports of a stream, and notes the processor and elapsed seconds of each batch."""

    def __init__(self, files: Files, profile: cProfile.Profile | None) -> None:
        self.cpu: list[float] = []
        self.seconds: list[float] = []
        self._files, self._profile = files, profile
        self._last = (0.0, 0.0)

    def _now(self) -> tuple[float, float]:
        return time.process_time() - self._files.spent, time.monotonic()

    def begin(self, batch_id: int) -> None:
        """A batch begins."""
        if batch_id == 0:
            self._last = self._now()
        if batch_id == _WARM_UP and self._profile is not None:
            self._profile.enable()

    def batch(self, report: BatchReport) -> None:  # noqa: ARG002
        """A batch has ended."""
        now = self._now()
        self.cpu.append(now[0] - self._last[0])
        self.seconds.append(now[1] - self._last[1])
        self._last = now

    def lag(self, records: int | None) -> None:
        """Not used."""

    def loading(self, at: object) -> None:
        """Not used."""


def measure(case: Case, profile: cProfile.Profile | None) -> Laps:
    """Run the case in this process."""
    prepare(case)
    order = order_of(case)
    order["flags"] = ["--source-class", "JsonKafkaSource"]
    order["options"] |= {
        "hoodie.streamer.source.kafka.topic": TOPIC,
        "bootstrap.servers": "localhost:1",
        "auto.offset.reset": "earliest",
    }
    workload = case.workload
    files = Files(sorted((case.folder / "batches").glob("*.json")), workload.records)
    laps = Laps(files, profile)

    def now() -> int:
        return time.time_ns() // 1_000_000

    processes = Processes()
    engine = Engine(files, Random(0), workload.records)
    with processes.process(), installed(engine, processes, now):
        options = load_options(command_line(order))
        table = open_table(options, now())
        session: Any = Session(str(case.place / "spark"))
        with Watch(options, now) as watch:
            stream(session, options, table, laps, StopFlag(), CrashPlan(), now, watch)
    if profile is not None:
        profile.disable()
    return laps


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; exit code 1 when a table is wrong."""
    found = parser(__doc__, batches=16)
    found.add_argument("--profile", type=Path, metavar="FILE")
    args = found.parse_args(argv)
    logging.getLogger("tagstream").setLevel(logging.WARNING)
    profile = None if args.profile is None else cProfile.Profile()
    table = Table("workload", "table type", "batches", "processor seconds a batch", "seconds", "rows")
    wrong = 0
    for case in cases(args, "steps"):
        laps = measure(case, profile)
        right = judge(case, args.case_timeout).right
        cpu, seconds = laps.cpu[_WARM_UP:] or laps.cpu, laps.seconds[_WARM_UP:] or laps.seconds
        figures = {"cpu": statistics.mean(cpu), "seconds": statistics.median(seconds)}
        append_lines(args.out / "results.jsonl", [{"kind": "steps", **case.identity, **figures, "right": right}])
        shown = (str(len(cpu)), f"{figures['cpu']:.3f}", f"{figures['seconds']:.3f}", "right" if right else "WRONG")
        table.add_row(case.workload.name, case.table_type, *shown)
        wrong += not right
    Console(width=120).print(table)
    if profile is not None:
        profile.dump_stats(args.profile)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
