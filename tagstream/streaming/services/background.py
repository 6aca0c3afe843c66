"""Work that asks things of Spark, on a thread of its own or at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from py4j.protocol import Py4JError
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from tagstream.streaming.services.spark_tasks import use_own_pool

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
