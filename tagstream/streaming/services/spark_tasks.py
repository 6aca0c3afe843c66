"""Work of a table service on Spark's executors: its tasks, the largest first, so that none is left alone at the end.

A service asks Spark at once or on a thread of its own. A metadata table's file groups are compacted the same way:
each group is read, merged and written by one task.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext, TaskContext
from pyspark.sql import SparkSession

from tagstream.table.metadata.compaction import CompactionTask, Execute
from tagstream.table.timeline.commit_metadata import WriteStat, WriteStatus

_SMALL_BYTES = 1 << 20  # some 150,000 record keys: so little is merged here in a fraction of a second


def on_executors(spark: SparkSession) -> Execute:
    """Carries out large groups there, the largest first, and small ones here."""

    def execute(tasks: Sequence[CompactionTask]) -> Iterator[WriteStat | None]:
        ordered = sorted(tasks, key=lambda task: -task.weight)
        large = [task for task in ordered if task.weight >= _SMALL_BYTES]
        if len(large) > 1:
            yield from _in_spark(spark, large)
            ordered = ordered[len(large) :]
        yield from (task.run() for task in ordered)

    return execute


def _in_spark(spark: SparkSession, tasks: Sequence[CompactionTask]) -> list[WriteStat | None]:
    return spark.sparkContext.parallelize(tasks, len(tasks)).mapPartitions(_run).collect()


def _run(tasks: Iterable[CompactionTask]) -> Iterator[WriteStat | None]:
    return (task.run() for task in tasks)


POOL = "tagstream-services"
_POOL_KEY = "spark.scheduler.pool"
_MOST = 10_000  # of Spark's tasks in a job


class ServiceTask(Protocol):
    """One piece of a service's work: picklable, and done again with the same result."""

    @property
    def weight(self) -> int:
        """What the work is proportional to, compared with the other tasks."""
        ...

    def run(self, attempt: int = 0) -> WriteStatus | list[WriteStatus]:
        """Stage new files. ``attempt``: attempts that may run at once have different ones."""
        ...


def run_in_spark(spark: SparkSession, tasks: Sequence[ServiceTask]) -> list[WriteStatus]:
    """Carry the tasks out on the executors; the error of one that failed as often as Spark allows."""
    if not tasks:
        return []
    context = spark.sparkContext
    ordered = sorted(tasks, key=lambda task: -task.weight)
    done = context.parallelize(ordered, min(len(ordered), _MOST)).mapPartitions(_carry_out).collect()
    return [WriteStatus.from_json(text) for text in done]


def use_own_pool(context: SparkContext, group: str) -> None:
    """What this thread asks of Spark shares the cores with the batches from now on, and can be cancelled by name."""
    context.setLocalProperty(_POOL_KEY, POOL)
    context.setJobGroup(group, "a table service of this stream", interruptOnCancel=False)


def _carry_out(tasks: Iterable[ServiceTask]) -> Iterator[str]:
    running = TaskContext.get()
    attempt = running.attemptNumber() if running is not None else 0
    for task in tasks:
        done = task.run(attempt)
        yield from (status.to_json() for status in ([done] if isinstance(done, WriteStatus) else done))


T = TypeVar("T")


class Background(Generic[T]):
    """One piece of work, begun by its making. ``beside``: on its own thread, as a job group of that name."""

    def __init__(self, spark: SparkSession, name: str, work: Callable[[], T], *, beside: bool) -> None:
        self._spark, self._name, self._work = spark, name, work
        self._done = threading.Event()
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        if beside:
            self._thread = InheritableThread(target=self._run_beside, name=name, daemon=True)
            self._thread.start()
        else:
            self._run()

    @property
    def ended(self) -> bool:
        """Whether the result, or the error, is there."""
        return self._done.is_set()

    def result(self) -> T:
        """What the work gave, once it has ended; its error is raised here."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def cancel(self) -> None:
        """Ask Spark to end the work's tasks, and wait until it has; what came of it is forgotten."""
        if self._thread is None or self.ended:
            return
        with suppress(Py4JError, ConnectionError):  # Spark has ended, and the work with it
            self._spark.sparkContext.cancelJobGroup(self._name)
        self._thread.join()

    def _run_beside(self) -> None:
        try:
            use_own_pool(self._spark.sparkContext, self._name)
        except (Py4JError, ConnectionError) as error:
            self._error = error
            self._done.set()
            return
        self._run()

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()
