"""Work of a table service on Spark's executors: its tasks, the largest first, so that no large task runs alone at the end.

A service calls Spark on the thread of the batches or on a separate thread. A metadata table's file groups are compacted in
the same way: one task reads, merges and writes each group.
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

_SMALL_BYTES = 1 << 20  # about 150,000 record keys: the driver merges this amount in a fraction of a second
POOL = "tagstream-services"
_POOL_KEY = "spark.scheduler.pool"
_MOST = 10_000  # limit of Spark's tasks in a job
T = TypeVar("T")


def on_executors(spark: SparkSession) -> Execute:
    """Runs large groups on the executors, the largest first, and small ones on the driver."""

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


class ServiceTask(Protocol):
    """One task of a service: picklable, and repeatable with the same result."""

    @property
    def weight(self) -> int:
        """The relative size of the work."""
        ...

    def run(self, attempt: int = 0) -> WriteStatus | list[WriteStatus]:
        """Write new files under temporary names. ``attempt``: parallel attempts have different ones."""
        ...


def run_in_spark(spark: SparkSession, tasks: Sequence[ServiceTask]) -> list[WriteStatus]:
    """Run the tasks on the executors; raises the error of a task that failed as often as Spark allows."""
    if not tasks:
        return []
    context = spark.sparkContext
    ordered = sorted(tasks, key=lambda task: -task.weight)
    done = context.parallelize(ordered, min(len(ordered), _MOST)).mapPartitions(_carry_out).collect()
    return [WriteStatus.from_json(text) for text in done]


def use_own_pool(context: SparkContext, group: str) -> None:
    """Spark jobs of this thread share the cores with the batches from now on, and can be cancelled by name."""
    context.setLocalProperty(_POOL_KEY, POOL)
    context.setJobGroup(group, "a table service of this stream", interruptOnCancel=False)


def _carry_out(tasks: Iterable[ServiceTask]) -> Iterator[str]:
    running = TaskContext.get()
    attempt = running.attemptNumber() if running is not None else 0
    for task in tasks:
        done = task.run(attempt)
        yield from (status.to_json() for status in ([done] if isinstance(done, WriteStatus) else done))


class Background(Generic[T]):
    """Work that begins with the object. ``is_async``: on a separate thread, as a job group of that name."""

    def __init__(self, spark: SparkSession, name: str, work: Callable[[], T], *, is_async: bool) -> None:
        self._spark, self._name, self._work = spark, name, work
        self._done = threading.Event()
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        if is_async:
            self._thread = InheritableThread(target=self._run_async, name=name, daemon=True)
            self._thread.start()
        else:
            self._run()

    @property
    def ended(self) -> bool:
        """Whether there is a result or an error."""
        return self._done.is_set()

    def result(self) -> T:
        """The result of the ended work; raises its error."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def cancel(self) -> None:
        """Ask Spark to end the work's tasks, and wait until they have ended; the result is discarded."""
        if self._thread is None or self.ended:
            return
        with suppress(Py4JError, ConnectionError):  # Spark has ended, and so has the work
            self._spark.sparkContext.cancelJobGroup(self._name)
        self._thread.join()

    def _run_async(self) -> None:
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
