"""One clear line for whatever ended the job: our own errors as they are, Spark's with their cause explained.

Spark's own log lines are kept to warnings, also where spark-submit has started the JVM with Spark's defaults.
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


# The last line of a Python worker's traceback, as Spark passes it on: "tagstream.state.errors.StateError: text".
_OWN = re.compile(r"^tagstream\.[\w.]*errors\.(\w+): (.+)$", re.MULTILINE)
_CAUSE = re.compile(r"^(?:Caused by: )?((?:[a-z]\w*\.)+[A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE)


# No right to a file of this machine, or a path that is none.
_STAYS = frozenset((errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR))


@dataclass(frozen=True)
class Explained:
    """``line``: what ended the job, and what to do next. ``detail``: all that is known, where the line leaves some out."""

    line: str
    detail: str = ""


def explain(error: BaseException, options: Options) -> Explained:
    """What happened, in the words of whoever knows most of it."""
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
            words = {"topic": options.kafka_topic, "root": options.dfs_root, "checkpoint": options.checkpoint_dir}
            return Explained(advice.format(*found.groups(), **words))
    causes = _CAUSE.findall(text)
    last = f"{causes[-1][0]}: {causes[-1][1]}" if causes else _first_line(text) or type(error).__name__
    batch = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    what = "Spark failed" if isinstance(error, PySparkException | Py4JError) else type(error).__name__
    shown = "\n".join(kafka_keys.shown("", line) for line in text.strip().splitlines())
    return Explained(f"{what}: {last} (the full text is above{batch})", shown)


def exit_code(error: BaseException) -> int:
    """The exit code for a supervisor: 1 a failure that a restart may cure, 2 wrong use, 3 a fault that stays until a person
    has changed something. A store that refuses is not among these: its tokens change, and a restart gets new ones.
    """
    if isinstance(error, ConfigError):
        return 2
    stays = isinstance(error, OSError) and not isinstance(error, TagstreamError) and error.errno in _STAYS
    return 3 if stays or isinstance(error, LastingError) else 1


def note_batch(error: BaseException, root: Storage) -> None:
    """Note on an error which batch it leaves unfinished, if there is one; ``root``: of the checkpoint's query."""
    batch_id = unfinished_batch(root)
    if batch_id is not None:
        error.add_note(f"batch {batch_id} did not come to its end, and the next start does it again")


def _of_files(error: OSError) -> str:
    """An error of the system about a file, with what is usually behind it."""
    where = f"{error.filename}: " if error.filename else ""
    advice = {
        errno.EACCES: f"user {os.geteuid()} may not; change the file's owner or mode, or run the job as its owner",
        errno.EPERM: f"user {os.geteuid()} may not; change the file's owner or mode, or run the job as its owner",
        errno.EROFS: "give a folder on a file system that can be written",
        errno.ENOTDIR: "a part of that path is a file where a folder is needed; correct the path",
        errno.EISDIR: "that path is a folder where a file is needed; correct the path",
        errno.ENOENT: "it is gone, or part of the path was never there; correct the path, or start again",
        errno.EADDRINUSE: "another program has this port; give another one",
    }.get(error.errno or 0, "what the system says of it is all that is known")
    return f"{where}{error.strerror}; {advice}"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def own_errors(error: BaseException) -> list[tuple[str, str]]:
    """(class name, text) of the project's own errors that a failure stands for, also of those raised in a task."""
    if isinstance(error, TagstreamError):
        return [(type(error).__name__, str(error))]
    return [(name, text) for name, text in _OWN.findall(_full_text(error))]


_KNOWN = (
    (
        r"CONCURRENT_STREAM_LOG_UPDATE",
        "the checkpoint {checkpoint} was taken over by another process while this one stood still, and it has gone on from "
        "there; nothing is lost, and this one must end",
    ),
    (
        r'Cannot run program "([^"]+)"',
        "Spark can't run the program {0} on one of its hosts; PYSPARK_PYTHON (or spark.pyspark.python) must name a Python "
        "that every host has at that path, with this project's dependencies",
    ),
    (
        r"ModuleNotFoundError: No module named '(tagstream(?:\.[\w.]+)?)'",
        "Spark's workers have no module {0}, which the driver has: they find another version of this program, or none; "
        "install the driver's in their Python on every host, or ship it with spark-submit --py-files",
    ),
    (
        r"\[PYTHON_VERSION_MISMATCH\]",
        "Spark's workers run another Python than the driver; PYSPARK_PYTHON must name the same version on every host",
    ),
    (
        r"UnknownTopicOrPartitionException|This server does not host this topic-partition",
        "Kafka topic {topic} does not exist on this broker; make it, or correct hoodie.streamer.source.kafka.topic",
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
        "Spark's JVM ended before it was ready, and said why above; check JAVA_HOME, spark.driver.memory and what else is "
        "set of the driver",
    ),
    (
        r"Failed to find data source: kafka",
        "Spark's Kafka connector is not on the class path; run through .venv/bin/python, which fetches it, or give "
        "spark-submit the jars with --jars (tagstream/conf/poms/kafka-connector.xml names them)",
    ),
    (
        r"Some data may have been lost because they are not available in Kafka any more|KAFKA_DATA_LOSS|"
        r"OffsetOutOfRangeException",
        "topic {topic} no longer has offsets the checkpoint needs (expired, or the topic was made anew); restore them, "
        "or accept the loss with hoodie.streamer.source.kafka.enable.failOnDataLoss=false",
    ),
    (
        r"\[PATH_NOT_FOUND\]|Path does not exist",
        "source folder {root} does not exist; correct hoodie.streamer.source.dfs.root",
    ),
    (
        r"FileNotFoundException: File (file:\S+/tagstream/source/\S+) does not exist",
        "a host of Spark's sees no {0}: the checkpoint must lie where all hosts see it, under the same path or on a store "
        "(S3, HDFS, ...)",
    ),
    (
        r"Multiple streaming queries are concurrently using",
        "another job uses checkpoint {checkpoint} (end it first), or a file was taken out of its logs by hand without the "
        ".crc file beside it (remove that too)",
    ),
    (
        r"shuffle map stage with indeterminate output",
        "an executor or a part of its local disk was lost while the batch was being written, and Spark can't repeat half a "
        "batch; nothing of the batch was committed, a restart does it again",
    ),
    (
        r"No space left on device",
        "a disk is full (table, checkpoint or spark.local.dir); make room and start again, nothing is lost",
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
        except Exception:  # the JVM may be gone; what was gathered so far must do
            break
    return "\n".join(parts)
