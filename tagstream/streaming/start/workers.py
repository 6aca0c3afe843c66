"""What Spark's Python workers are started with: an interpreter, the path on which it finds this project, keys of stores."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import PurePath

from tagstream.table.store_settings import VARIABLE as STORE_SETTINGS
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
