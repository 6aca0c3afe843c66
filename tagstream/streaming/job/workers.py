"""Spark's Python workers: what they are started with, and a check that they can run this copy of the package.

They are started with an interpreter, the path on which they find this project, and keys of stores. A worker
searches for modules in the folder that it was started in before all others. A job of an installed version that is
started in a checkout would run the checkout's code in its workers. So the copy is checked once a session, before
anything is written.
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
from tagstream.version import PACKAGE

# The folder that holds the package, in a checkout as in site-packages: what a worker needs on its path.
PROJECT = PACKAGE.parent
# Who a process is to a store, where the settings do not say. Spark's own part of a task is given the driver's, too.
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_USER = "HADOOP_USER_NAME"
_STARTED_IN = "."


def prepare_environment(env: MutableMapping[str, str], conf: Mapping[str, str]) -> None:
    """Make Spark's Python workers use this interpreter and find these packages.

    Without PYSPARK_PYTHON Spark starts ``python3`` of the PATH, which need not hold pyarrow. ``spark.pyspark.*`` in ``conf``
    say the same, but Spark asks for them before the job starts. A relative path is one from where the job was started;
    workers run elsewhere. One that is not there is left as it is, and so is one in an archive that Spark brings to them,
    even where a folder of the archive's name is here: the one that it was made of.
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
    """Let workers on this host find this copy of the package before one in the folder that the job was started in.

    ``environment``: what Spark gives to its workers. Python looks in that folder first where a program is started by
    ``-m``, as a worker is; here it comes last. The executors of a cluster are started in folders of their own.
    """
    if not on_one_host(master):
        return
    own = (str(PROJECT), _STARTED_IN)
    paths = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p and p not in own]
    environment["PYTHONPATH"] = os.pathsep.join([own[0], *paths, own[1]])
    environment["PYTHONSAFEPATH"] = "1"


def on_one_host(master: str | None) -> bool:
    """Whether a Spark with this master has all of its workers on the driver's host."""
    return (master or "").startswith("local")


def worker_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Variables of the driver that its workers have, on whatever host: so their stores are the driver's, by its keys.

    Spark hands them to each worker; they are in no file and on no page. Keys without an id are not sent: the driver's
    come from elsewhere (a profile, a role), and each host has its own.
    """
    names = [STORE_SETTINGS, _USER, *(_KEYS if env.get(_KEYS[0]) else ())]
    return {name: env[name] for name in names if env.get(name)}


def _archives(conf: Mapping[str, str]) -> set[str]:
    """The folders, where a task runs, that archives are unpacked into."""
    given = ",".join(conf.get(name, "") for name in ("spark.archives", "spark.yarn.dist.archives")).split(",")
    return {(archive.partition("#")[2] or PurePath(archive).name).strip() for archive in given if archive.strip()}


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
