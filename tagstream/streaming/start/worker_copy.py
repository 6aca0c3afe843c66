"""That Spark's workers can run this copy of the package: looked at once a session, before anything is written.

A worker looks for modules in the folder that it was started in before all others. A job of an installed version that is
started in a checkout would run the checkout's code in its workers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tagstream.streaming.copy_print import CopyPrint, difference, this_copy
from tagstream.streaming.errors import EnvironmentProblemError
from tagstream.streaming.start.workers import on_one_host

_MOST = 64  # tasks: a cluster's cores may be many, and each executor has several
_NEEDED = ("pyarrow", "pandas", "numpy", "rocksdict")  # of the project's own packages, what each batch imports
_PYTHON = (
    f"set PYSPARK_PYTHON, before the session is made, to a Python {sys.version_info[0]}.{sys.version_info[1]} with the "
    "driver's packages on every host"
)
# What Spark says where its workers' Python cannot be used.
_SIGNS = {
    "PYTHON_VERSION_MISMATCH": "which is another version of Python than the driver's",
    "Cannot run program": "which is not there",
}
_LACKS = re.compile(r"No module named '([\w.]+)'")  # a daemon's own import: no task of ours has run then
# A copy's folder, version and sources (``CopyPrint``), the worker's Python, and the packages that it lacks.
Seen = tuple[str, str, int, str, str]
_checked: set[tuple[str, str, str]] = set()


def check_workers(spark: SparkSession) -> None:
    """EnvironmentProblemError when a worker's Python lacks a package or is of another version than the driver's, and when
    it finds another copy of this package than the driver's, or none.

    Executors that come later are looked at by the tasks of the batches (``CopyPrint.check_here``).
    """
    context = spark.sparkContext
    asked = (context.applicationId, context.pythonExec, repr(sorted(context.environment.items())))
    if asked in _checked:
        return
    # On one host all workers are forks of one process.
    tasks = 1 if on_one_host(context.master) else min(max(context.defaultParallelism, 1), _MOST)
    try:
        found = context.parallelize(range(tasks), tasks).mapPartitions(_looked_up(_NEEDED)).collect()
    except (Py4JJavaError, PySparkException) as error:
        why = _why(str(error))
        if why is None:
            raise
        raise EnvironmentProblemError(f"Spark's workers run {context.pythonExec}, {why}: {_PYTHON}") from None
    for seen in sorted(set(found)):
        _compare(this_copy(), *seen)
    _checked.add(asked)


def _looked_up(needed: tuple[str, ...]) -> Callable[[Iterable[int]], Iterator[Seen]]:
    """What a task runs: a function within a function travels whole, so that it runs with a copy that has not got it."""

    def look(_: Iterable[int]) -> Iterator[Seen]:
        import sys
        from importlib import import_module
        from importlib.util import find_spec

        lacks = ", ".join(name for name in needed if find_spec(name) is None)
        found = find_spec("tagstream")
        if lacks or found is None or found.origin is None:
            return iter([("", "", 0, sys.executable, lacks)])
        try:
            here = import_module("tagstream.streaming.copy_print").this_copy()
            return iter([(here.folder, here.version, here.sources, sys.executable, "")])
        except Exception:  # an earlier version's copy has none, or one of another form
            version = str(getattr(sys.modules.get("tagstream"), "__version__", "unknown"))
            return iter([(found.origin.rpartition("/")[0], version, 0, sys.executable, "")])

    return look


def _why(error: str) -> str | None:
    """What is wrong with the workers' Python, by what Spark says of a task that failed; None for another reason."""
    found = next((reason for sign, reason in _SIGNS.items() if sign in error), None)
    lacks = _LACKS.search(error)
    return f"which has no {lacks[1]}" if found is None and lacks is not None else found


def _compare(driver: CopyPrint, folder: str, version: str, sources: int, python: str, lacks: str) -> None:
    if lacks:
        raise EnvironmentProblemError(f"Spark's workers run {python}, which has no {lacks}: {_PYTHON}")
    if not folder:
        raise EnvironmentProblemError(
            f"Spark's workers do not find this program, which the driver has from {driver.folder}; install it in their "
            "Python on every host, or ship it with spark-submit --py-files"
        )
    if not CopyPrint(folder, version, sources).same_code(driver):
        raise EnvironmentProblemError(difference(driver, folder, version))
