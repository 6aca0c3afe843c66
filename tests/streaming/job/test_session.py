"""The Python that Spark's workers run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.job.session import little_java, prepare_environment
from tagstream.streaming.options.cli import load_options

WORKERS, DRIVER = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"


def test_a_relative_path_is_made_absolute_and_one_in_an_archive_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    env = {WORKERS: "bin/python", DRIVER: "./bin/python"}
    prepare_environment(env, {})
    assert (env[WORKERS], env[DRIVER]) == (str(tmp_path / "bin" / "python"),) * 2
    env = {WORKERS: "./environment/bin/python", DRIVER: "python3"}
    prepare_environment(env, {})
    assert (env[WORKERS], env[DRIVER]) == ("./environment/bin/python", "python3")


def test_sparks_own_settings_count_where_the_environment_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "py").touch()
    env: dict[str, str] = {}
    prepare_environment(env, {"spark.pyspark.python": "./py"})
    assert (env[WORKERS], env[DRIVER]) == (os.path.abspath("py"),) * 2
    env = {WORKERS: "/usr/bin/python3"}
    prepare_environment(env, {"spark.pyspark.python": "./py", "spark.pyspark.driver.python": "python3"})
    assert (env[WORKERS], env[DRIVER]) == ("/usr/bin/python3", "python3")
    env = {}
    prepare_environment(env, {})
    assert env[WORKERS] == sys.executable


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
