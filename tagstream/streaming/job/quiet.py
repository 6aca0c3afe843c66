"""Spark's own log lines kept to warnings, also where spark-submit has started the JVM with Spark's defaults."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tagstream.table.errors import TagstreamError

LOG = logging.getLogger("tagstream")
# Up to Spark 4.0, and later.
_QUERY_LOGGERS = tuple(
    f"org.apache.spark.sql.execution.streaming.{folder}MicroBatchExecution" for folder in ("", "runtime.")
)
_SPARKS_DEFAULTS = "log4j2-defaults.properties"


def quiet_python() -> None:
    """py4j logs the trace of what a batch raises, which the job itself says in one line.

    With a handler of its own the root logger gets none from libraries, which would say every line twice.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)


def quiet_jvm(log4j: Path) -> None:
    """Give a JVM that runs on Spark's default log4j settings those of ``log4j``, a file or one in a zip on Python's path.

    A user's own settings stay.

    Called when the context is there: while it is made, Spark puts its own settings back.
    """
    SparkContext._ensure_initialized()  # noqa: SLF001 (the gateway of spark-submit)
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    if jvm is None:
        return
    try:
        log4j2 = jvm.org.apache.logging.log4j
        loader = jvm.java.lang.ClassLoader.getSystemClassLoader()  # Spark's own: each loader has its settings
        context = log4j2.LogManager.getContext(loader, False)
        used = context.getConfiguration().getConfigurationSource().getLocation()
        if used is None or used.endswith(_SPARKS_DEFAULTS):
            context.setConfigLocation(jvm.java.net.URI(url_of(log4j)))
    except (Py4JError, TypeError) as e:  # another log library is behind Spark: its lines stay as they are
        LOG.debug("Spark's log settings stay as they are: %s", e)


class FailureLog:
    """Spark's own lines about a query that ends by an error, kept back while this program ends one: 60 lines a time, of
    what it says itself in one. For a session of the user's, whose settings of logs are not this program's.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._before: dict[str, Any] = {}
        self._python = _OwnErrors()

    def keep_back(self) -> None:
        """From now on, until :meth:`restore`."""
        if self._before:
            return
        logging.getLogger("py4j.clientserver").addFilter(self._python)
        with suppress(Py4JError, TypeError):  # another log library is behind Spark: its lines stay as they are
            log4j = self._log4j()
            for name in _QUERY_LOGGERS:
                self._before[name] = log4j.LogManager.getLogger(name).getLevel()
                log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)

    def restore(self) -> None:
        """As it was before."""
        logging.getLogger("py4j.clientserver").removeFilter(self._python)
        with suppress(Py4JError, TypeError, ConnectionError):
            for name, level in self._before.items():
                self._log4j().core.config.Configurator.setLevel(name, level)
        self._before = {}

    def _log4j(self) -> Any:
        jvm: Any = self._spark._jvm  # noqa: SLF001 (PySpark has no way to the levels of single loggers)
        return jvm.org.apache.logging.log4j


class _OwnErrors(logging.Filter):
    """Lets py4j's trace of an error go that this program has raised and tells itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], TagstreamError))


def url_of(path: Path) -> str:
    """As Java reads it: ``file:``, or ``jar:`` where one of the path's folders is a zip."""
    path = path.absolute()
    packed = next((folder for folder in path.parents if folder.is_file()), None)
    return path.as_uri() if packed is None else f"jar:{packed.as_uri()}!/{path.relative_to(packed).as_posix()}"
