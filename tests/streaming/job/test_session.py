"""The Python that Spark's workers run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tagstream.streaming.job.session import prepare_environment

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
