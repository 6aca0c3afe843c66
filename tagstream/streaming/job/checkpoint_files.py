"""How Spark writes the files of its checkpoint: five a batch, each by a temporary file and a rename.

Its own choice of a manager, on Hadoop's ``FileContext``, asks the shell for links, owners and modes where Hadoop's
native library is missing, as in pyspark: twenty processes and threads, 45 ms a file on a local disk. The manager on
``FileSystem`` starts four (14 ms), but is only right where a rename replaces what is there: it takes a refusal for success,
and after a kill a state file would be that of an attempt which was never committed. Hadoop's local file system
replaces; the one of Hive that Spark finds first for local files where Hive's jars are (``ProxyLocalFileSystem``) refuses. So
Hadoop's is named, and the manager is tried before each query, on the checkpoint itself.

An object store has no rename: Spark's own manager copies and deletes, 20 requests a file. On S3A the manager of
``spark-hadoop-cloud`` opens a stream that becomes an object when it is closed, and that can be aborted: 9 requests.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tagstream.spark_release import checkpoint_package

LOG = logging.getLogger(__name__)

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
    LOG.info("checkpoint files of %s are written in Spark's own way: %s", checkpoint, reason)
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
