"""Processor time and memory of a program with its own Spark: this process, the JVM, the Python workers, servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
from pyspark.sql import SparkSession

DRIVER, JVM, WORKER, SERVER = "driver", "JVM", "worker", "server"
_LOOK_S = 0.5


@dataclass
class Cost:
    """Processor seconds and peak resident bytes of one kind of process."""

    cpu: float = 0.0
    peak: int = 0


@dataclass
class Watch:
    """Costs of this process, Spark's JVM, its Python workers and other children (servers) during the block."""

    spark: SparkSession | None = None
    costs: dict[str, Cost] = field(default_factory=dict)

    def __enter__(self) -> Watch:
        self._stop = threading.Event()
        self._first: dict[int, float] = {}
        self._last: dict[int, tuple[str, float]] = {}
        self._look(begun_before=True)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()
        for pid, (kind, seconds) in self._last.items():
            self._cost(kind).cpu += seconds - self._first[pid]

    @property
    def cpu(self) -> float:
        """Processor seconds of all processes except servers."""
        return sum(cost.cpu for kind, cost in self.costs.items() if kind != SERVER)

    def peak(self, kind: str) -> float:
        """Peak memory in MiB."""
        return self._cost(kind).peak / (1 << 20)

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_S):
            self._look()

    def _look(self, *, begun_before: bool = False) -> None:
        for kind, process in self._processes():
            with suppress(psutil.Error, OSError):
                times = process.cpu_times()
                self._first.setdefault(process.pid, times.user + times.system if begun_before else 0.0)
                self._last[process.pid] = (kind, times.user + times.system)
                self._cost(kind).peak = max(self._cost(kind).peak, _greatest_rss(process.pid))

    def _processes(self) -> Iterator[tuple[str, psutil.Process]]:
        me = psutil.Process()
        yield DRIVER, me
        gateway = None if self.spark is None else self.spark.sparkContext._gateway  # noqa: SLF001
        jvm = None if gateway is None else gateway.proc.pid
        for child in me.children():
            is_spark = child.pid == jvm
            yield JVM if is_spark else SERVER, child
            with suppress(psutil.Error):
                for below in child.children(recursive=True):
                    yield WORKER if is_spark else SERVER, below

    def _cost(self, kind: str) -> Cost:
        return self.costs.setdefault(kind, Cost())


def _greatest_rss(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        return next((int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM:")), 0)
