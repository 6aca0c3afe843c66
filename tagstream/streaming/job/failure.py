"""One clear line for each error that ends the job: our errors unchanged, Spark's with their cause explained.

Spark's log is limited to warnings, also where spark-submit has started the JVM with Spark's defaults.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tagstream.streaming.batch.spark_checkpoint import unfinished_batch
from tagstream.streaming.errors import LastingError
from tagstream.streaming.options.keys import kafka as kafka_keys
from tagstream.streaming.options.options import Options
from tagstream.table.errors import ConfigError, TagstreamError
from tagstream.table.storage.storage import Storage

LOG = logging.getLogger("tagstream")
# Up to Spark 4.0, and later.
_QUERY_LOGGERS = tuple(
    f"org.apache.spark.sql.execution.streaming.{folder}MicroBatchExecution" for folder in ("", "runtime.")
)
_SPARKS_DEFAULTS = "log4j2-defaults.properties"


def quiet_python() -> None:
    """Silence py4j's traceback of a batch's error, which the job itself reports in one line.

    The root logger gets a handler, so that libraries do not add one, which would log every line twice.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)


def quiet_jvm(log4j: Path) -> None:
    """Give a JVM with Spark's default log4j settings those of ``log4j``, a file or an entry of a zip on Python's path.

    A user's log settings are kept. Call it when the Spark context exists: while the context is made, Spark sets its
    defaults again.
    """
    SparkContext._ensure_initialized()  # noqa: SLF001 (the gateway of spark-submit)
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    if jvm is None:
        return
    try:
        log4j2 = jvm.org.apache.logging.log4j
        loader = jvm.java.lang.ClassLoader.getSystemClassLoader()  # Spark's loader: each loader has other settings
        context = log4j2.LogManager.getContext(loader, False)
        used = context.getConfiguration().getConfigurationSource().getLocation()
        if used is None or used.endswith(_SPARKS_DEFAULTS):
            context.setConfigLocation(jvm.java.net.URI(url_of(log4j)))
    except (Py4JError, TypeError) as e:  # Spark uses another log library, whose settings are not changed
        LOG.debug("Spark's log settings are not changed: %s", e)


class FailureLog:
    """Silences Spark's log lines about a query that this program ends with an error: 60 lines, which it reports in one.

    It is for a user's session, whose log settings this program must not change.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._before: dict[str, Any] = {}
        self._python = _OwnErrors()

    def keep_back(self) -> None:
        """Silence these lines until :meth:`restore`."""
        if self._before:
            return
        logging.getLogger("py4j.clientserver").addFilter(self._python)
        with suppress(Py4JError, TypeError):  # Spark uses another log library, whose settings are not changed
            log4j = self._log4j()
            for name in _QUERY_LOGGERS:
                self._before[name] = log4j.LogManager.getLogger(name).getLevel()
                log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)

    def restore(self) -> None:
        """Set the log levels as they were before."""
        logging.getLogger("py4j.clientserver").removeFilter(self._python)
        with suppress(Py4JError, TypeError, ConnectionError):
            for name, level in self._before.items():
                self._log4j().core.config.Configurator.setLevel(name, level)
        self._before = {}

    def _log4j(self) -> Any:
        jvm: Any = self._spark._jvm  # noqa: SLF001 (PySpark has no way to the levels of single loggers)
        return jvm.org.apache.logging.log4j


class _OwnErrors(logging.Filter):
    """Drops py4j's traceback of an error that this program has raised and reports itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], TagstreamError))


def url_of(path: Path) -> str:
    """The path as a URL for Java: ``file:``, or ``jar:`` where one of the path's folders is a zip."""
    path = path.absolute()
    packed = next((folder for folder in path.parents if folder.is_file()), None)
    return path.as_uri() if packed is None else f"jar:{packed.as_uri()}!/{path.relative_to(packed).as_posix()}"


# The last line of a Python worker's traceback, as Spark passes it on: "tagstream.state.errors.StateError: text".
_OWN = re.compile(r"^tagstream\.[\w.]*errors\.(\w+): (.+)$", re.MULTILINE)
_CAUSE = re.compile(r"^(?:Caused by: )?((?:[a-z]\w*\.)+[A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE)


# Errors that a restart does not fix: no permission for a file of this machine, or a wrong path.
_STAYS = frozenset((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR))


@dataclass(frozen=True)
class Explained:
    """``line``: what ended the job, and what to do next. ``detail``: the full text, where the line is shorter."""

    line: str
    detail: str = ""


def explain(error: BaseException, options: Options) -> Explained:
    """Explain an error to the user: the project's errors by their text, known causes by an advice, others by their last
    cause.
    """
    if isinstance(error, TagstreamError):
        return Explained(str(error))
    if isinstance(error, OSError) and error.errno is not None and error.errno != errno.ENOSPC:
        return Explained(_of_files(error))
    text = _full_text(error)
    own = _OWN.findall(text)
    if own:
        return Explained(str(own[-1][1]))
    for pattern, advice in _KNOWN:
        found = re.search(pattern, text)
        if found is not None:
            words = {"topic": options.kafka.topic, "root": options.files.root, "checkpoint": options.run.checkpoint_dir}
            return Explained(advice.format(*found.groups(), **words))
    causes = _CAUSE.findall(text)
    last = f"{causes[-1][0]}: {causes[-1][1]}" if causes else _first_line(text) or type(error).__name__
    batch = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    what = "Spark failed" if isinstance(error, PySparkException | Py4JError) else type(error).__name__
    shown = "\n".join(kafka_keys.shown("", line) for line in text.strip().splitlines())
    return Explained(f"{what}: {last} (the full text is above{batch})", shown)


def exit_code(error: BaseException) -> int:
    """The exit code for a supervisor: 1 for a failure that a restart may fix, 2 for wrong use, 3 for an error that
    remains until somebody changes something.

    A store that denies access counts as 1: its tokens expire, and a restart gets new ones.
    """
    if isinstance(error, ConfigError):
        return 2
    stays = isinstance(error, OSError) and not isinstance(error, TagstreamError) and error.errno in _STAYS
    return 3 if stays or isinstance(error, LastingError) else 1


def note_batch(error: BaseException, root: Storage) -> None:
    """Add a note to an error that says which batch is unfinished, if one is. ``root``: the query's folder."""
    batch_id = unfinished_batch(root)
    if batch_id is not None:
        error.add_note(f"batch {batch_id} was not finished, and the next start processes it again")


def _of_files(error: OSError) -> str:
    """The text for a file error of the operating system, with its usual cause."""
    where = f"{error.filename}: " if error.filename else ""
    advice = {
        errno.EACCES: f"user {os.geteuid()} has no access; change the file's owner or mode, or run the job as its owner",
        errno.EPERM: f"user {os.geteuid()} has no access; change the file's owner or mode, or run the job as its owner",
        errno.EROFS: "use a folder on a writable file system",
        errno.ENOTDIR: "a part of that path is a file where a folder is needed; correct the path",
        errno.EISDIR: "that path is a folder where a file is needed; correct the path",
        errno.ENOENT: "the file was removed, or the path is wrong; correct the path, or start again",
        errno.EADDRINUSE: "another program uses this port; set another one",
    }.get(error.errno or 0, "the operating system gives no further cause")
    return f"{where}{error.strerror}; {advice}"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def own_errors(error: BaseException) -> list[tuple[str, str]]:
    """(class name, text) of the project's errors that caused a failure, also of errors that a task raised."""
    if isinstance(error, TagstreamError):
        return [(type(error).__name__, str(error))]
    return [(name, text) for name, text in _OWN.findall(_full_text(error))]


_KNOWN = (
    (
        r"CONCURRENT_STREAM_LOG_UPDATE",
        "another process took over the checkpoint {checkpoint} while this one was paused, and has continued the stream; "
        "nothing is lost, and this process ends",
    ),
    (
        r'Cannot run program "([^"]+)"',
        "Spark can't run the program {0} on one of its hosts; set PYSPARK_PYTHON (or spark.pyspark.python) to a Python that "
        "every host has at that path, with this project's dependencies",
    ),
    (
        r"ModuleNotFoundError: No module named '(tagstream(?:\.[\w.]+)?)'",
        "Spark's workers have no module {0}, which the driver has: they have another version of this program, or none; "
        "install the driver's version in their Python on every host, or ship it with spark-submit --py-files",
    ),
    (
        r"\[PYTHON_VERSION_MISMATCH\]",
        "Spark's workers run another version of Python than the driver; set PYSPARK_PYTHON to the same version on all hosts",
    ),
    (
        r"UnknownTopicOrPartitionException|This server does not host this topic-partition",
        "Kafka topic {topic} does not exist on this broker; create it, or correct hoodie.streamer.source.kafka.topic",
    ),
    (
        r"SaslAuthenticationException|Authentication failed",
        "the Kafka broker refused the login; check security.protocol, sasl.mechanism and sasl.jaas.config",
    ),
    (
        r"SslAuthenticationException|SSL handshake failed|SSLHandshakeException",
        "no TLS connection to the Kafka broker; check security.protocol and the ssl.* stores and passwords",
    ),
    (
        r"Timed out waiting for a node assignment|TimeoutException.*(describeTopics|listTopics|fetching topic)|"
        r"Failed to (?:create new|construct) Kafka|Timeout of \d+ms expired before (?:the position|.*partition)",
        "the Kafka broker does not answer; check bootstrap.servers, security.protocol and the network",
    ),
    (
        r"\[JAVA_GATEWAY_EXITED\]",
        "Spark's JVM ended before it was ready, and its message is above; check JAVA_HOME, spark.driver.memory and the "
        "other settings of the driver",
    ),
    (
        r"Failed to find data source: kafka",
        "Spark's Kafka connector is not on the class path; run through .venv/bin/python, which fetches it, or pass the jars "
        "to spark-submit with --jars (tagstream/conf/poms/kafka-connector.xml names them)",
    ),
    (
        r"Some data may have been lost because they are not available in Kafka any more|KAFKA_DATA_LOSS|"
        r"OffsetOutOfRangeException",
        "topic {topic} no longer has offsets that the checkpoint needs (expired, or the topic was created again); restore "
        "them, or accept the loss with hoodie.streamer.source.kafka.enable.failOnDataLoss=false",
    ),
    (
        r"\[PATH_NOT_FOUND\]|Path does not exist",
        "source folder {root} does not exist; correct hoodie.streamer.source.dfs.root",
    ),
    (
        r"FileNotFoundException: File (file:\S+/tagstream/source/\S+) does not exist",
        "a host of Spark cannot find {0}: put the checkpoint where all hosts can read it under the same path, or on a store "
        "(S3, HDFS, ...)",
    ),
    (
        r"Multiple streaming queries are concurrently using",
        "another job uses checkpoint {checkpoint} (end it first), or somebody removed a file from its logs without the .crc "
        "file next to it (remove that, too)",
    ),
    (
        r"shuffle map stage with indeterminate output",
        "an executor or a part of its local disk was lost while the batch was written, and Spark can't repeat a part of a "
        "batch; the batch was not committed, and a restart processes it again",
    ),
    (
        r"No space left on device",
        "a disk is full (table, checkpoint or spark.local.dir); free some space and start again, nothing is lost",
    ),
)


def _full_text(error: BaseException) -> str:
    parts = [str(error)]
    java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    for _ in range(20):
        if java is None:
            break
        try:
            parts.append(str(java.toString()))
            java = java.getCause()
        except Exception:  # the JVM may be gone; use the texts so far
            break
    return "\n".join(parts)
