"""The Python that Spark's workers run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tagstream.streaming.job.workers import prepare_environment, worker_environment
from tagstream.table.storage.settings import VARIABLE, keep_settings

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


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.archives": "/x/other.zip,/x/packed.tar.gz#environment"},
        {"spark.yarn.dist.archives": "hdfs://nn/packed.tar.gz#environment"},
        {"spark.archives": "/x/environment"},
    ],
)
def test_a_python_in_an_archive_is_not_taken_for_the_folder_that_the_archive_was_made_of(
    conf: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "environment" / "bin").mkdir(parents=True)
    (tmp_path / "environment" / "bin" / "python").touch()
    env = {WORKERS: "./environment/bin/python", DRIVER: "python3"}
    prepare_environment(env, conf)
    assert env[WORKERS] == "./environment/bin/python"
    prepare_environment(env, {})
    assert env[WORKERS] == str(tmp_path / "environment" / "bin" / "python")


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


def test_workers_are_to_a_store_who_the_driver_is() -> None:
    env = {"HOME": "/home/a", "AWS_PROFILE": "a", "AWS_SECRET_ACCESS_KEY": "of nobody", "HADOOP_USER_NAME": ""}
    assert worker_environment(env) == {}
    keep_settings({"fs.s3a.endpoint.region": "x"}, env)
    env |= {"AWS_ACCESS_KEY_ID": "id", "HADOOP_USER_NAME": "lake"}
    names = {VARIABLE, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "HADOOP_USER_NAME"}
    assert worker_environment(env) == {name: env[name] for name in names}
