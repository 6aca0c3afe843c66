"""The Spark session of the job: an existing one (spark-submit) or a new one (python), with the settings that the index
needs.

Spark writes five checkpoint files per batch. Each is written to a temporary file and renamed, by a file manager that is
chosen here. Spark's default manager uses Hadoop's ``FileContext``. Without Hadoop's native library, as in pyspark, it
runs shell commands for links, owners and modes: twenty processes and threads, 45 ms per file on a local disk. The
manager on ``FileSystem`` starts four (14 ms). It is only correct where a rename replaces an existing file: it treats a
refused rename as success, and after a kill a state file could be that of an attempt which was never committed. Hadoop's
local file system replaces the file. Hive's (``ProxyLocalFileSystem``) refuses, and Spark finds it first for local files
where Hive's jars are on the class path. So Hadoop's file system is set, and the manager is tried before each query, on
the checkpoint itself.

An object store has no rename: Spark's default manager copies and deletes, with 20 requests per file. On S3A the manager
of ``spark-hadoop-cloud`` opens a stream that becomes an object when it is closed, and that can be aborted: 9 requests.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tagstream.spark_release import checkpoint_package
from tagstream.streaming.errors import EnvironmentProblemError
from tagstream.streaming.job.environment import needs_s3a, s3a_jars, store_conf
from tagstream.streaming.job.failure import quiet_jvm, quiet_python
from tagstream.streaming.job.preflight import SparkNeeds
from tagstream.streaming.job.workers import check_workers, prefer_this_copy, prepare_environment, worker_environment
from tagstream.streaming.options.keys.kafka import is_secret
from tagstream.streaming.options.options import Options
from tagstream.streaming.source.connector import brings_connector, connector_jars
from tagstream.streaming.source.packed import ROWS_PER_BATCH
from tagstream.table.storage.settings import keep_settings, kept_settings, store_settings
from tagstream.version import PACKAGE

_CHECKPOINT_LOG = logging.getLogger(__name__)

_PACKAGE = checkpoint_package()
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_ABORTABLE = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"

# A key of Hadoop: a session passes its settings on to Hadoop as they are.
_LOCAL, _LOCAL_FILES = "fs.file.impl", "tagstream.LocalFiles"
_LOCAL_FILES_JAR = PACKAGE / "conf" / "java" / "local-files.jar"

QUICK_CHECKPOINT_FILES = {
    _MANAGER: f"{_PACKAGE}.FileSystemBasedCheckpointFileManager",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    # Otherwise a JVM that has used local files before continues with the cached file system.
    "spark.hadoop.fs.file.impl.disable.cache": "true",
}


def choose_checkpoint_files(spark: SparkSession, checkpoint: str) -> bool:
    """Set the manager of checkpoint files: the quick one if it replaces files in ``checkpoint``, else Spark's default.

    True when it is not Spark's default. A session with another manager keeps it.
    """
    quick = QUICK_CHECKPOINT_FILES[_MANAGER]
    if spark.conf.get(_MANAGER, None) not in (quick, _ABORTABLE):
        return False
    spark.conf.set(_MANAGER, _ABORTABLE if checkpoint.startswith("s3a://") else quick)
    if _starts_no_process(spark, checkpoint):
        return True
    reason = _why_not(spark, checkpoint)
    if reason is None:
        return True
    _CHECKPOINT_LOG.info("checkpoint files of %s are written with Spark's default manager: %s", checkpoint, reason)
    spark.conf.unset(_MANAGER)
    return False


def _starts_no_process(spark: SparkSession, checkpoint: str) -> bool:
    """Let local files be written without a process for each of them, where that works in this JVM.

    Only with a local master: other executors would not find the class.
    """
    if not (spark.sparkContext.master or "").startswith("local") or spark.conf.get(_LOCAL, None) is not None:
        return False
    add_to_class_path([str(_LOCAL_FILES_JAR)])
    spark.conf.set(_LOCAL, _LOCAL_FILES)
    reason = _why_not(spark, checkpoint)
    if reason is None:
        return True
    _CHECKPOINT_LOG.debug("checkpoint files of %s are written with Hadoop's local file system: %s", checkpoint, reason)
    spark.conf.unset(_LOCAL)
    return False


def _why_not(spark: SparkSession, checkpoint: str) -> str | None:
    """Why the manager and the file system of the session cannot write the files of a checkpoint; None where they can."""
    try:
        return None if _replaces(spark, checkpoint) else "an existing file was not replaced"
    except Py4JError as e:
        return str(e).strip().split("\n", 1)[0]


def _replaces(spark: SparkSession, checkpoint: str) -> bool:
    """Write a file twice as Spark's state stores do, and check that it has the second content."""
    jvm: Any = spark._jvm  # noqa: SLF001 (Spark has no public way to its file managers)
    session: Any = spark._jsparkSession  # noqa: SLF001
    folder = jvm.org.apache.hadoop.fs.Path(checkpoint)
    companion = jvm.java.lang.Class.forName(f"{_PACKAGE}.CheckpointFileManager$").getField("MODULE$").get(None)
    files = companion.create(folder, session.sessionState().newHadoopConf())
    probe = jvm.org.apache.hadoop.fs.Path(folder, f".replaced.{os.getpid()}")
    try:
        for value in (1, 2):
            out = files.createAtomic(probe, True)
            out.write(value)
            out.close()
        data = files.open(probe)
        try:
            return bool(data.read() == 2)
        finally:
            data.close()
    finally:
        files.delete(probe)


LOG = logging.getLogger("tagstream")

# Python workers keep the memory of a batch for the next one, up to 256 MiB. If they returned it to the system between two
# batches, each of its pages would be cleared and mapped again.
_WORKER_MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}
# Errors of a context that has stopped because no master answered.
_NO_MASTER = ("Cannot call methods on a stopped SparkContext", "All masters are unresponsive")
# On one host a shuffle's files are read from the system's cache soon after they were written. Compressing them, and a
# checksum that only diagnoses a corrupt file, take a third of the time of Java's part of a task.
_ON_ONE_HOST = {"spark.shuffle.compress": "false", "spark.shuffle.checksum.enabled": "false"}
_HADOOP = "spark.hadoop."
_SOCKET_FOLDER = "/tmp"
_LITTLE_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DEFAULT_MASTER = "local[*,4]"  # the second number is how often a failed task is tried in local mode


def under_spark_submit(env: Mapping[str, str]) -> bool:
    """True when a JVM started this process, so its settings are already fixed."""
    return "PYSPARK_GATEWAY_PORT" in env


def start_session(
    app_name: str,
    *,
    jars: list[str],
    conf: Mapping[str, str],
    env: MutableMapping[str, str],
    little_java: bool = False,
) -> SparkSession:
    """The session with ``jars`` on its class path and ``conf``, where the user set nothing else.

    ``little_java``: see :func:`little_java`; then the quick compiler and a small heap are enough. Under spark-submit
    the JVM already exists: its master, memory and jars stay, and missing ``jars`` are added. EnvironmentProblemError
    when the master does not answer or the workers do not fit.
    """
    submitted = under_spark_submit(env) or SparkContext._active_spark_context is not None  # noqa: SLF001
    prepare_environment(env, given_settings(conf, env))
    if submitted:
        add_to_class_path(jars)
    log4j = PACKAGE / "conf" / "log4j2.properties"
    quiet_python()
    builder = SparkSession.builder.appName(app_name)
    defaults = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_PER_BATCH),
        "spark.sql.streaming.stopTimeout": "60s",
        **{f"spark.executorEnv.{name}": value for name, value in _WORKER_MEMORY.items()},
        **QUICK_CHECKPOINT_FILES,
        "spark.scheduler.mode": "FAIR",  # a table service that runs in parallel shares the cores with the batches
        # A file of some MiB is split evenly over the cores: with a high cost for opening it, the first part would be larger.
        "spark.sql.files.openCostInBytes": str(64 << 10),
        **_worker_sockets(),
    }
    if not _ships_files(env):
        defaults["spark.python.daemon.module"] = "tagstream.streaming.job.python_daemon"
    if not submitted:
        env.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        env.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
        terminal = str(sys.stderr.isatty()).lower()
        defaults |= {
            "spark.master": DEFAULT_MASTER,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "2g",
            **(_ON_ONE_HOST if conf.get("spark.master", DEFAULT_MASTER).startswith("local") else {}),
            "spark.driver.extraJavaOptions": " ".join(
                [
                    *(
                        [f"-Dlog4j2.configurationFile=file:{log4j} -Dtagstream.terminal={terminal}"]
                        if log4j.exists()
                        else []
                    ),
                    *([_LITTLE_JAVA] if little_java else []),
                ]
            ),
        }
        if jars:  # in addition to the user's
            given = conf.get("spark.jars", "")
            conf = {**conf, "spark.jars": ",".join([*([given] if given else []), *jars])}
    # Spark would write them on the command line of its JVM, which everybody on the machine can read.
    keys = {name: value for name, value in conf.items() if name.startswith(_HADOOP) and is_secret(name)}
    for key, value in (defaults | {name: value for name, value in conf.items() if name not in keys}).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Py4JError as e:
        if not any(sign in str(e) for sign in _NO_MASTER):
            raise
        master = conf.get("spark.master") or SparkConf().get("spark.master", "") or DEFAULT_MASTER
        raise EnvironmentProblemError(
            f"the Spark master {master} did not answer, or did not accept the job; check that it runs, its address and "
            f"port, and that it runs Spark {pyspark.__version__} as here"
        ) from e
    for key, value in keys.items():
        spark.sparkContext._jsc.hadoopConfiguration().set(key.removeprefix(_HADOOP), value)  # noqa: SLF001
    spark.sparkContext.environment.update(worker_environment(env))
    prefer_this_copy(spark.sparkContext.environment, spark.sparkContext.master)
    if under_spark_submit(env):
        quiet_jvm(log4j)
    if submitted and jars:
        have = spark.sparkContext.getConf().get("spark.jars", "") or ""
        for jar in jars:
            if Path(jar).name not in have:
                spark.sql(f"ADD JAR '{jar}'")
    try:
        check_workers(spark)
    except BaseException:
        end_session(spark)
        raise
    return spark


def add_to_class_path(jars: Iterable[str]) -> None:
    """Add the jars to Hadoop's class loader in the running JVM. A loader that accepts none is skipped.

    Hadoop searches only this loader for its file systems, and SQL's ADD JAR uses another one. Before a context exists,
    it is the thread's loader.
    """
    SparkContext._ensure_initialized()  # noqa: SLF001 (connects to the JVM)
    context, java = SparkContext._active_spark_context, SparkContext._jvm.java  # type: ignore[union-attr]  # noqa: SLF001
    if context is None:
        loader = java.lang.Thread.currentThread().getContextClassLoader()
    else:
        loader = context._jsc.hadoopConfiguration().getClassLoader()  # noqa: SLF001
    for jar in jars:
        with suppress(Py4JError):
            loader.addURL(java.io.File(jar).toURI().toURL())


def _worker_sockets() -> dict[str, str]:
    """Settings that let Spark talk to its Python workers by Unix domain sockets, where the system has them.

    By TCP every task waits 40 ms more: the JVM's last bytes of a task are delayed until the worker's system has
    acknowledged the bytes before them (Nagle's algorithm), and that system delays its acknowledgement. The folder's
    name is short, since the name of a socket may have at most 107 bytes, and on YARN the JVM's temporary folder has a
    long path.
    """
    if not hasattr(socket, "AF_UNIX") or not os.access(_SOCKET_FOLDER, os.W_OK | os.X_OK):
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": _SOCKET_FOLDER,
    }


def given_settings(conf: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings as the user gave them: the job's, then those of spark-submit."""
    if not under_spark_submit(env):
        return dict(conf)
    SparkContext._ensure_initialized()  # noqa: SLF001 (the gateway of spark-submit, so that its settings can be read)
    return dict(SparkConf().getAll()) | dict(conf)


def spark_conf(options: Options) -> dict[str, str]:
    """Spark's settings from the options."""
    conf = dict(options.run.spark_conf)
    if options.run.spark_master:
        conf["spark.master"] = options.run.spark_master
    return conf


def session_conf(options: Options, env: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings from the options and, for the checkpoint's file system, from the environment."""
    return store_conf(options.run.checkpoint_dir, kept_settings(env), env) | spark_conf(options)


def little_java(options: Options) -> bool:
    """Whether Java only plans and passes on the data of a batch: Python reads the files, and no SQL is involved.

    Then Java's second compiler would use a tenth of a batch's processor time for an hour, without a benefit. For a
    topic it has one: a sixth more records. With the serial collector the JVM needs 0.7 GiB instead of 1.2, and no more
    time.
    """
    return options.source.kind not in ("kafka", "frame") and not options.source.transformers


def spark_needs(options: Options, env: Mapping[str, str]) -> SparkNeeds:
    """What the session of a run with these options needs. Spark's settings may already name Kafka's connector."""
    settings = given_settings(spark_conf(options), env)
    reads_topic = options.source.kind == "kafka" and not options.run.bootstrap_only
    return SparkNeeds(
        java=not under_spark_submit(env),
        connector=reads_topic and not brings_connector(settings),
        master=settings.get("spark.master"),
        s3a=not options.run.bootstrap_only and needs_s3a(options.run.checkpoint_dir, settings),
    )


def take_store_settings(options: Options, env: MutableMapping[str, str]) -> None:
    """Use the file system settings of Spark for the storages of this process. Call it before the first one is opened."""
    keep_settings(store_settings(given_settings(spark_conf(options), env)), env)


def needed_jars(needs: SparkNeeds, env: Mapping[str, str]) -> list[str]:
    """The jars that Spark needs, downloaded at the first call."""
    jars = [*(connector_jars(env=env) if needs.connector else ()), *(s3a_jars(env=env) if needs.s3a else ())]
    return [str(jar) for jar in jars]


def _ships_files(env: Mapping[str, str]) -> bool:
    """True when ``--py-files`` ships the packages: a worker finds them, but not the daemon that forks it."""
    return under_spark_submit(env) and bool(given_settings({}, env).get("spark.submit.pyFiles", ""))


def has_ended(spark: SparkSession) -> bool:
    """True when Spark was stopped, or its JVM is gone."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001
    except (Py4JError, ConnectionError):
        return True


def end_session(spark: SparkSession) -> None:
    """Stop Spark. It is not an error when the signal that ends this job has also ended the JVM."""
    with suppress(Py4JError, ConnectionError):
        spark.stop()


def fix_state_settings(spark: SparkSession, shuffle_partitions: int) -> None:
    """Set the settings that the state's layout depends on, from the checkpoint and not from the session.

    Warns where cores stay unused: only as many tasks tag and write as there are shuffle partitions.
    """
    cores = spark.sparkContext.defaultParallelism
    if cores > shuffle_partitions:
        LOG.warning(
            "Spark has %d cores here, but the checkpoint has %d shuffle partitions: only so many cores tag and write. For "
            "more, end the job and make a checkpoint with tagstream rescale --shuffle-partitions %d (a new checkpoint uses "
            "spark.sql.shuffle.partitions)",
            cores, shuffle_partitions, cores,
        )  # fmt: skip
    spark.conf.set("spark.sql.shuffle.partitions", str(shuffle_partitions))
    spark.conf.set("spark.sql.adaptive.enabled", "false")
