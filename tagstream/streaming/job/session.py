"""The Spark session of the job: found (spark-submit) or made (python), with the settings the index depends on.

Spark writes five checkpoint files a batch, each by a temporary file and a rename, through a manager that is chosen
here. Spark's own choice of a manager, on Hadoop's ``FileContext``, asks the shell for links, owners and modes
where Hadoop's native library is missing, as in pyspark: twenty processes and threads, 45 ms a file on a local
disk. The manager on ``FileSystem`` starts four (14 ms), but is only right where a rename replaces what is there:
it takes a refusal for success, and after a kill a state file would be that of an attempt which was never
committed. Hadoop's local file system replaces. Hive's refuses (``ProxyLocalFileSystem``), which Spark finds first
for local files where Hive's jars are. So Hadoop's is named, and the manager is tried before each query, on the
checkpoint itself.

An object store has no rename: Spark's own manager copies and deletes, 20 requests a file. On S3A the manager of
``spark-hadoop-cloud`` opens a stream that becomes an object when it is closed, and that can be aborted: 9
requests.
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

QUICK_CHECKPOINT_FILES = {
    _MANAGER: f"{_PACKAGE}.FileSystemBasedCheckpointFileManager",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    # Otherwise a JVM that has used local files before goes on with the file system of that time.
    "spark.hadoop.fs.file.impl.disable.cache": "true",
}


def choose_checkpoint_files(spark: SparkSession, checkpoint: str) -> bool:
    """Set the manager of checkpoint files: the first that replaces files in ``checkpoint``, else Spark's own.

    True when it is not Spark's own. A session that has another manager keeps it.
    """
    quick = QUICK_CHECKPOINT_FILES[_MANAGER]
    if spark.conf.get(_MANAGER, None) not in (quick, _ABORTABLE):
        return False
    spark.conf.set(_MANAGER, _ABORTABLE if checkpoint.startswith("s3a://") else quick)
    try:
        if _replaces(spark, checkpoint):
            return True
        reason = "a file that was there was not replaced"
    except Py4JError as e:
        reason = str(e).strip().split("\n", 1)[0]
    _CHECKPOINT_LOG.info("checkpoint files of %s are written in Spark's own way: %s", checkpoint, reason)
    spark.conf.unset(_MANAGER)
    return False


def _replaces(spark: SparkSession, checkpoint: str) -> bool:
    """Write a file twice as Spark's state stores do, and look at which one is there."""
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

# Python workers keep the memory of a batch for the next one, up to 256 MiB: given back to the system between two batches,
# each of its pages would be cleared and mapped again.
_WORKER_MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}
# What a context says that was given up because no master answered.
_NO_MASTER = ("Cannot call methods on a stopped SparkContext", "All masters are unresponsive")
# On one host a shuffle's files are read from the system's cache a moment after they were written: packing them, and a
# checksum that only tells what broke a file on its way, take a third of the time of Java's part of a task.
_ON_ONE_HOST = {"spark.shuffle.compress": "false", "spark.shuffle.checksum.enabled": "false"}
_HADOOP = "spark.hadoop."
_SOCKET_FOLDER = "/tmp"
_LITTLE_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DEFAULT_MASTER = "local[*,4]"  # the second number is how often a failed task is tried in local mode


def under_spark_submit(env: Mapping[str, str]) -> bool:
    """True when a JVM started this process and its settings are already fixed."""
    return "PYSPARK_GATEWAY_PORT" in env


def start_session(
    app_name: str,
    *,
    jars: list[str],
    conf: Mapping[str, str],
    env: MutableMapping[str, str],
    little_java: bool = False,
) -> SparkSession:
    """Session with ``jars`` on its class path and ``conf`` where the user set nothing else.

    ``little_java``: no records go through Java's code (``little_java``), so its quick compiler and a small heap are enough.

    Under spark-submit the JVM exists already: its master, memory and jars stay; ``jars`` are added if they are missing.
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
        "spark.scheduler.mode": "FAIR",  # a service beside the batches shares the cores with them
        # A file of some MiB is cut evenly over the cores: what Spark takes opening one for makes the first part larger.
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
        if jars:
            defaults["spark.jars"] = ",".join(jars)
    # Spark would write them on the command line of its JVM, where everybody on the machine reads them.
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
            f"the Spark master {master} did not answer, or did not take the job; check that it runs, its address and port, "
            f"and that it is Spark {pyspark.__version__} as here"
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
    """Let Hadoop's class loader in the running JVM know the jars; where it takes none, SQL's ADD JAR is all there is.

    Hadoop looks for its file systems there and nowhere else, and ADD JAR has a loader of its own. Before there is a context
    that loader is the thread's.
    """
    SparkContext._ensure_initialized()  # noqa: SLF001 (the JVM is there, whoever started it)
    context, java = SparkContext._active_spark_context, SparkContext._jvm.java  # type: ignore[union-attr]  # noqa: SLF001
    if context is None:
        loader = java.lang.Thread.currentThread().getContextClassLoader()
    else:
        loader = context._jsc.hadoopConfiguration().getClassLoader()  # noqa: SLF001
    for jar in jars:
        with suppress(Py4JError):
            loader.addURL(java.io.File(jar).toURI().toURL())


def _worker_sockets() -> dict[str, str]:
    """Spark talks to its Python workers by sockets in a folder where the system has them.

    By TCP every task waits 40 ms more: the JVM's last bytes of a task are held back until the worker's system has
    acknowledged those before (Nagle's algorithm), and that one puts its acknowledgement off. The folder's name is
    short, since a socket's may have 107 bytes: the JVM's own temporary folder lies deep on YARN.
    """
    if not hasattr(socket, "AF_UNIX") or not os.access(_SOCKET_FOLDER, os.W_OK | os.X_OK):
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": _SOCKET_FOLDER,
    }


def given_settings(conf: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings as the user gave them: the job's, over those of spark-submit."""
    if not under_spark_submit(env):
        return dict(conf)
    SparkContext._ensure_initialized()  # noqa: SLF001 (the gateway of spark-submit, so that its settings can be read)
    return dict(SparkConf().getAll()) | dict(conf)


def spark_conf(options: Options) -> dict[str, str]:
    """What the options set of Spark's own settings."""
    conf = dict(options.spark_conf)
    if options.spark_master:
        conf["spark.master"] = options.spark_master
    return conf


def session_conf(options: Options, env: Mapping[str, str]) -> dict[str, str]:
    """The same, and what the environment says of the checkpoint's file system."""
    return store_conf(options.checkpoint_dir, kept_settings(env), env) | spark_conf(options)


def little_java(options: Options) -> bool:
    """Whether Java's part of a batch is planning and handing over: Python reads the files, and no SQL is on the way.

    Then its second compiler costs a tenth of a batch's processor time, for an hour, and gives nothing back. Reading a topic
    it does: a sixth more records. With the serial collector the JVM needs 0.7 GiB where it took 1.2, and no more time.
    """
    return options.source_class not in ("kafka", "frame") and not options.transformers


def spark_needs(options: Options, env: Mapping[str, str]) -> SparkNeeds:
    """What the session of a run with these options has to be given. Spark's settings may name Kafka's connector already."""
    settings = given_settings(spark_conf(options), env)
    reads_topic = options.source_class == "kafka" and not options.bootstrap_only
    return SparkNeeds(
        java=not under_spark_submit(env),
        connector=reads_topic and not brings_connector(settings),
        master=settings.get("spark.master"),
        s3a=not options.bootstrap_only and needs_s3a(options.checkpoint_dir, settings),
    )


def take_store_settings(options: Options, env: MutableMapping[str, str]) -> None:
    """Keep what Spark's settings say of file systems for the storages of this process; before the first is opened."""
    keep_settings(store_settings(given_settings(spark_conf(options), env)), env)


def needed_jars(needs: SparkNeeds, env: Mapping[str, str]) -> list[str]:
    """The jars that Spark has to be given, fetched the first time."""
    jars = [*(connector_jars(env=env) if needs.connector else ()), *(s3a_jars(env=env) if needs.s3a else ())]
    return [str(jar) for jar in jars]


def _ships_files(env: Mapping[str, str]) -> bool:
    """True when ``--py-files`` brings the packages: a worker finds them, the daemon that forks it does not."""
    return under_spark_submit(env) and bool(given_settings({}, env).get("spark.submit.pyFiles", ""))


def has_ended(spark: SparkSession) -> bool:
    """True when Spark was stopped, or its JVM is gone."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001
    except (Py4JError, ConnectionError):
        return True


def end_session(spark: SparkSession) -> None:
    """Stop Spark; a JVM that was ended by the signal that ends this job (sent to all of its processes) is no failure."""
    with suppress(Py4JError, ConnectionError):
        spark.stop()


def fix_state_settings(spark: SparkSession, shuffle_partitions: int) -> None:
    """Settings which the state's layout depends on: taken from the checkpoint, never from the session.

    A warning where that leaves cores without work: only as many tasks tag and write as there are shuffle partitions.
    """
    cores = spark.sparkContext.defaultParallelism
    if cores > shuffle_partitions:
        LOG.warning(
            "Spark has %d cores here, and the checkpoint %d shuffle partitions: only so many cores tag and write. For more, "
            "end the job and make a checkpoint with tagstream rescale --shuffle-partitions %d (a new one takes "
            "spark.sql.shuffle.partitions)",
            cores, shuffle_partitions, cores,
        )  # fmt: skip
    spark.conf.set("spark.sql.shuffle.partitions", str(shuffle_partitions))
    spark.conf.set("spark.sql.adaptive.enabled", "false")
