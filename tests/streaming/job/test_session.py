"""The session that a job makes."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.job.session import add_to_class_path, fix_state_settings, little_java
from tagstream.streaming.options.cli import load_options

PATHS = ["--target-base-path", "/t", "--target-table", "t", "--checkpoint-dir", "/c"]


@pytest.mark.parametrize(
    ("source", "little"),
    [
        (["--source-class", "JsonDFSSource", "--hoodie-conf", "hoodie.streamer.source.dfs.root=/d"], True),
        (
            [
                *["--source-class", "JsonDFSSource", "--hoodie-conf", "hoodie.streamer.source.dfs.root=/d"],
                *["--transformer-class", "SqlQueryBasedTransformer"],
                *["--hoodie-conf", "hoodie.streamer.transformer.sql=SELECT * FROM <SRC>"],
                *["--hoodie-conf", "hoodie.streamer.schemaprovider.source.schema.file=/x.avsc"],
            ],
            False,
        ),
        (["--hoodie-conf", "hoodie.streamer.source.kafka.topic=t", "--hoodie-conf", "bootstrap.servers=h:1"], False),
    ],
)
def test_java_has_little_to_do_where_python_reads_the_files(source: list[str], little: bool) -> None:
    options = load_options([*PATHS, *source, "--hoodie-conf", "hoodie.datasource.write.recordkey.field=a"])
    assert little_java(options) is little


def test_workers_of_a_session_are_spoken_to_without_tcp(spark: SparkSession) -> None:
    def family(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"unix": [os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "")]})

    (row,) = spark.range(1, numPartitions=1).mapInArrow(family, "unix string").collect()
    assert row.unix.lower() == "true"
    assert spark.conf.get("spark.shuffle.compress") == "false"


def test_hadoop_finds_what_is_in_a_jar_that_a_running_jvm_is_given(spark: SparkSession, tmp_path: Path) -> None:
    """As a checkpoint on S3 needs it under spark-submit; ADD JAR alone leaves Hadoop without."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    given = {}
    for name in ("by-sql", "by-us"):
        given[name] = tmp_path / f"{name}.jar"
        with zipfile.ZipFile(given[name], "w") as jar:
            jar.writestr(f"{name}.txt", "")
    spark.sql(f"ADD JAR '{given['by-sql']}'")
    add_to_class_path([str(given["by-us"])])
    assert hadoop.getResource("by-us.txt") is not None
    assert hadoop.getResource("by-sql.txt") is None


@pytest.mark.spark
def test_cores_that_a_checkpoint_leaves_without_work_are_told(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    before = {key: spark.conf.get(key) for key in ("spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled")}
    try:
        fix_state_settings(spark, 2)
        assert caplog.messages == []
        fix_state_settings(spark, 1)
        (line,) = caplog.messages
        assert line.startswith("Spark has 2 cores here, but the checkpoint has 1 shuffle partitions")
        assert "tagstream rescale --shuffle-partitions 2" in line
    finally:
        for key, value in before.items():
            spark.conf.set(key, value or "")
