"""Spark's Python workers: the settings that they start with, and a check that they run this copy of the package.

They start with an interpreter, the path of this project, and the keys of stores. A worker searches the folder that it
was started in before all other paths. So if a job of an installed version is started in a checkout, its workers would
run the checkout's code. Therefore the copy is checked once per session, before anything is written.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from pathlib import PurePath

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tagstream.streaming.copy_print import CopyPrint, difference, this_copy
from tagstream.streaming.errors import EnvironmentProblemError
from tagstream.table.storage.settings import VARIABLE as STORE_SETTINGS
from tagstream.table.storage.settings import keep_settings, store_settings
from tagstream.version import PACKAGE

# The folder that holds the package, in a checkout as in site-packages: what a worker needs on its path.
PROJECT = PACKAGE.parent
# The identity of a process at a store, where the settings have none. Spark passes the driver's to its own part of a task.
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_USER = "HADOOP_USER_NAME"
_STARTED_IN = "."


def prepare_environment(env: MutableMapping[str, str], conf: Mapping[str, str]) -> None:
    """Make Spark's Python workers use this interpreter and find this package.

    Without PYSPARK_PYTHON Spark starts ``python3`` of the PATH, which may lack pyarrow. ``spark.pyspark.*`` in ``conf``
    mean the same, but Spark reads them before the job starts. A relative path is made absolute, because workers run in
    other folders. It is not changed if it does not exist here. It is not changed either if it is inside an archive that
    Spark ships to the workers, even where a folder with the archive's name exists here.
    """
    python = conf.get("spark.pyspark.python")
    driver = conf.get("spark.pyspark.driver.python")
    for name, given in (("PYSPARK_PYTHON", python), ("PYSPARK_DRIVER_PYTHON", driver or python)):
        program = env.get(name) or given or sys.executable
        if "/" in program and os.path.exists(program) and PurePath(program).parts[0] not in _archives(conf):
            program = os.path.abspath(program)
        env[name] = program
    paths = [p for p in env.get("PYTHONPATH", "").split(os.pathsep) if p]
    if str(PROJECT) not in paths:
        env["PYTHONPATH"] = os.pathsep.join([str(PROJECT), *paths])


def prefer_this_copy(environment: MutableMapping[str, str], master: str | None) -> None:
    """Make workers on this host find this copy of the package before one in the folder that the job was started in.

    ``environment``: the variables that Spark passes to its workers. A worker is started with ``python -m``, which
    searches that folder first. Here it becomes the last one. The executors of a cluster are started in other folders.
    """
    if not on_one_host(master):
        return
    own = (str(PROJECT), _STARTED_IN)
    paths = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p and p not in own]
    environment["PYTHONPATH"] = os.pathsep.join([own[0], *paths, own[1]])
    environment["PYTHONSAFEPATH"] = "1"


def take_stores(spark: SparkSession) -> None:
    """Use the settings of file systems of a user's session for the table, too.

    Workers get this package, this interpreter and these settings. A function of a DataFrame has the interpreter of the
    time when it was made.
    """
    context = spark.sparkContext
    keep_settings(store_settings(dict(context.getConf().getAll())), os.environ)
    if STORE_SETTINGS in os.environ:
        context.environment[STORE_SETTINGS] = os.environ[STORE_SETTINGS]
    paths = [p for p in context.environment.get("PYTHONPATH", "").split(os.pathsep) if p]
    if str(PROJECT) not in paths:
        context.environment["PYTHONPATH"] = os.pathsep.join([str(PROJECT), *paths])
    prefer_this_copy(context.environment, context.master)
    if on_one_host(context.master) and not os.environ.get("PYSPARK_PYTHON"):
        context.pythonExec = sys.executable  # Spark takes python3 of the PATH, which is another one in a venv


def on_one_host(master: str | None) -> bool:
    """Whether all workers of a Spark with this master are on the driver's host."""
    return (master or "").startswith("local")


def worker_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The driver's variables that its workers get on every host, so that they use the same stores with the same keys.

    Spark passes them to each worker; they are in no file and on no page. Keys without an id are not passed: then the
    driver's come from another source (a profile, a role), and each host has its own.
    """
    names = [STORE_SETTINGS, _USER, *(_KEYS if env.get(_KEYS[0]) else ())]
    return {name: env[name] for name in names if env.get(name)}


def _archives(conf: Mapping[str, str]) -> set[str]:
    """The folders that archives are unpacked into where a task runs."""
    given = ",".join(conf.get(name, "") for name in ("spark.archives", "spark.yarn.dist.archives")).split(",")
    return {(archive.partition("#")[2] or PurePath(archive).name).strip() for archive in given if archive.strip()}


_MOST = 64  # tasks; a cluster may have more cores, and each executor has several
_NEEDED = ("pyarrow", "pandas", "numpy", "rocksdict")  # the project's dependencies that each batch imports
_PYTHON = (
    f"set PYSPARK_PYTHON, before the session is made, to a Python {sys.version_info[0]}.{sys.version_info[1]} with the "
    "driver's packages on every host"
)
# Spark's errors where its workers' Python cannot be used, and what they mean.
_SIGNS = {
    "PYTHON_VERSION_MISMATCH": "which is another version of Python than the driver's",
    "Cannot run program": "which does not exist there",
}
_LACKS = re.compile(r"No module named '([\w.]+)'")  # from the daemon's imports, before any of our tasks ran
# A copy's folder, version and sources (``CopyPrint``), the worker's Python, and the packages that it lacks.
Seen = tuple[str, str, int, str, str]
_checked: set[tuple[str, str, str]] = set()


def check_workers(spark: SparkSession) -> None:
    """EnvironmentProblemError when a worker's Python lacks a package, has another version than the driver's, or finds
    another copy of this package or none.

    Executors that start later are checked by the tasks of the batches (``CopyPrint.check_here``).
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
    """The function that a task runs. As a nested function it is pickled whole, so it also runs where this package is
    missing.
    """

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
        except Exception:  # an earlier version lacks this function, or has it in another form
            version = str(getattr(sys.modules.get("tagstream"), "__version__", "unknown"))
            return iter([(found.origin.rpartition("/")[0], version, 0, sys.executable, "")])

    return look


def _why(error: str) -> str | None:
    """What is wrong with the workers' Python, by Spark's error of a failed task; None for another cause."""
    found = next((reason for sign, reason in _SIGNS.items() if sign in error), None)
    lacks = _LACKS.search(error)
    return f"which has no {lacks[1]}" if found is None and lacks is not None else found


def _compare(driver: CopyPrint, folder: str, version: str, sources: int, python: str, lacks: str) -> None:
    if lacks:
        raise EnvironmentProblemError(f"Spark's workers run {python}, which has no {lacks}: {_PYTHON}")
    if not folder:
        raise EnvironmentProblemError(
            f"Spark's workers do not find this program, which the driver has in {driver.folder}; install it in their "
            "Python on every host, or ship it with spark-submit --py-files"
        )
    if not CopyPrint(folder, version, sources).same_code(driver):
        raise EnvironmentProblemError(difference(driver, folder, version))
