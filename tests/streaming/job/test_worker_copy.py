"""Workers that find another copy of the package than the driver: prevented on one host, refused where it happens."""

from __future__ import annotations

import os
import re
import shutil
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.errors import EnvironmentProblemError
from tagstream.streaming.job.workers import PROJECT, check_workers, prefer_this_copy
from tagstream.version import VERSION
from tests.support.paths import PACKAGE


def test_the_folder_of_the_start_comes_last_on_one_host() -> None:
    environment = {"PYTHONPATH": os.pathsep.join(["/mine", str(PROJECT), "."])}
    prefer_this_copy(environment, "local[2]")
    prefer_this_copy(environment, "local[2]")
    assert environment == {"PYTHONPATH": os.pathsep.join([str(PROJECT), "/mine", "."]), "PYTHONSAFEPATH": "1"}
    on_cluster: dict[str, str] = {}
    prefer_this_copy(on_cluster, "spark://host:7077")
    assert on_cluster == {}


@pytest.fixture
def environment(spark: SparkSession) -> Iterator[dict[str, str]]:
    """What workers are started with; as it was after the test. Another environment means other workers."""
    given = spark.sparkContext.environment
    before = dict(given)
    yield given
    given.clear()
    given.update(before)


@pytest.mark.spark
def test_this_copy_is_taken(spark: SparkSession) -> None:
    check_workers(spark)


def other_copy(folder: Path) -> Path:
    """A whole copy, whose daemon starts as quickly as Spark's own."""
    other = Path(shutil.copytree(PACKAGE, folder / "tagstream", ignore=shutil.ignore_patterns("__pycache__")))
    (other / "streaming" / "job" / "python_daemon.py").write_text("from pyspark.daemon import manager\n\nmanager()\n")
    return other


@pytest.mark.spark
def test_a_changed_copy_is_refused(spark: SparkSession, environment: dict[str, str], tmp_path: Path) -> None:
    other = other_copy(tmp_path)
    (other / "version.py").write_text((other / "version.py").read_text().replace(VERSION, "0.0.9"))
    environment["PYTHONPATH"] = str(tmp_path)
    with pytest.raises(EnvironmentProblemError) as refused:
        check_workers(spark)
    both = f"they found {other} (version 0.0.9), the driver {PACKAGE} (version {VERSION})"
    assert both in str(refused.value)


@pytest.mark.spark
@pytest.mark.extended("starts workers of another Python")
def test_a_python_of_the_workers_that_lacks_packages_is_one_error(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    bare = str(tmp_path / "bare" / "bin" / "python")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", bare)
    with pytest.raises(EnvironmentProblemError) as refused:
        check_workers(spark)
    said = str(refused.value)
    # The daemon of these tests' session imports pandas itself, before any task.
    assert re.match(rf"Spark's workers run {bare}, which has no p[a-z]+(, [a-z]+)*: set PYSPARK_PYTHON", said), said
    assert "\n" not in said


@pytest.mark.spark
def test_no_python_for_the_workers_is_one_error(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "none"))
    with pytest.raises(
        EnvironmentProblemError, match="^Spark's workers run .*none, which does not exist there: set PYSPARK_PYTHON"
    ):
        check_workers(spark)


@pytest.mark.spark
@pytest.mark.extended("starts another daemon of Spark's")
def test_a_copy_that_cannot_say_what_it_is_is_refused(
    spark: SparkSession, environment: dict[str, str], tmp_path: Path
) -> None:
    other = other_copy(tmp_path)
    (other / "streaming" / "copy_print.py").unlink()
    environment["PYTHONPATH"] = str(tmp_path)
    with pytest.raises(EnvironmentProblemError, match=f"they found {other}"):
        check_workers(spark)
