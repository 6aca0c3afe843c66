"""That Spark's workers run this copy of the package: looked at once a session, before anything is written.

A worker looks for modules in the folder that it was started in before all others. A job of an installed version that is
started in a checkout would run the checkout's code in its workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pyspark.sql import SparkSession

from tagstream.streaming.copy_print import CopyPrint, difference, this_copy
from tagstream.streaming.errors import EnvironmentProblemError
from tagstream.streaming.start.workers import on_one_host

_MOST = 64  # tasks: a cluster's cores may be many, and each executor has several
_checked: set[tuple[str, str]] = set()


def check_workers(spark: SparkSession) -> None:
    """EnvironmentProblemError when a worker finds another copy of this package than the driver's, or none.

    Executors that come later are looked at by the tasks of the batches (``CopyPrint.check_here``).
    """
    context = spark.sparkContext
    asked = (context.applicationId, repr(sorted(context.environment.items())))
    if asked in _checked:
        return
    # On one host all workers are forks of one process.
    tasks = 1 if on_one_host(context.master) else min(max(context.defaultParallelism, 1), _MOST)
    found = context.parallelize(range(tasks), tasks).mapPartitions(_looked_up()).collect()
    for folder, version, sources in sorted(set(found)):
        _compare(this_copy(), folder, version, sources)
    _checked.add(asked)


def _looked_up() -> Callable[[Iterable[int]], Iterator[tuple[str, str, int]]]:
    """What a task runs: a function within a function travels whole, so that it runs with a copy that has not got it."""

    def look(_: Iterable[int]) -> Iterator[tuple[str, str, int]]:
        import sys
        from importlib import import_module
        from importlib.util import find_spec

        found = find_spec("tagstream")
        if found is None or found.origin is None:
            return iter([("", "", 0)])
        try:
            here = import_module("tagstream.streaming.copy_print").this_copy()
            return iter([(here.folder, here.version, here.sources)])
        except Exception:  # an earlier version's copy has none, or one of another form
            version = str(getattr(sys.modules.get("tagstream"), "__version__", "unknown"))
            return iter([(found.origin.rpartition("/")[0], version, 0)])

    return look


def _compare(driver: CopyPrint, folder: str, version: str, sources: int) -> None:
    if not folder:
        raise EnvironmentProblemError(
            f"Spark's workers do not find this program, which the driver has from {driver.folder}; install it in their "
            "Python on every host, or ship it with spark-submit --py-files"
        )
    if not CopyPrint(folder, version, sources).same_code(driver):
        raise EnvironmentProblemError(difference(driver, folder, version))
