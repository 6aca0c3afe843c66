"""The session that a job makes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.job.session import little_java
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
