"""The wheel is the whole product: used from another folder, by an interpreter that has only it and its dependencies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tagstream.version import VERSION
from tests.streaming.test_kafka_stream import send
from tests.support import events as ev
from tests.support.cluster import Cluster, bare_python
from tests.support.compare import compare
from tests.support.dist import build
from tests.support.environment import build_environment
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker
from tests.support.machine import SPARK_HOME
from tests.support.paths import PACKAGE, ROOT
from tests.support.process import Process

SECONDS = 180.0
EVENTS = [ev.Event(f"k{i % 5}", f"p{i % 3}", i, name=f"n{i}") for i in range(20)]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def python(dist: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the wheel installed."""
    found = bare_python(tmp_path_factory.mktemp("venv") / "installed")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(found),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--ignore-installed",
    ]
    subprocess.run([*pip, str(dist[0])], check=True)
    return found


def run(command: list[str | Path], folder: Path, **env: str) -> str:
    """The output of a command that must end well, run where nothing of this project is."""
    folder.mkdir(exist_ok=True)
    apart = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME")
    kept = {k: v for k, v in os.environ.items() if k not in apart}
    with Process(command, folder / "log", cwd=folder, env={**kept, **env}) as process:
        assert process.wait(SECONDS) == 0, process.output()
        return process.output()


@pytest.mark.extended("it looks at the whole of the sources, as `make check` does")
def test_the_same_sources_make_the_same_bytes(dist: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, zipped = build(tmp_path)
    assert wheel.read_bytes() == dist[0].read_bytes() == zipped.read_bytes()


@pytest.mark.extended("packs the whole environment")
def test_the_environment_runs_where_it_is_unpacked_and_has_neither_this_project_nor_spark(tmp_path: Path) -> None:
    with tarfile.open(build_environment(tmp_path)) as packed:
        packed.extractall(tmp_path / "there")
    program = "import importlib.util as u; print([n for n in {} if u.find_spec(n) is None])"
    asked = ("fastavro", "hdfs_native", "obstore", "pandas", "pyarrow", "pyspark", "rocksdict", "tagstream")
    python = tmp_path / "there" / "bin" / "python"
    assert run([python, "-c", program.format(asked)], tmp_path / "elsewhere").strip() == "['pyspark', 'tagstream']"
    assert run([python, "-c", "import numpy, obstore, pyarrow, rocksdict; print(1)"], tmp_path / "elsewhere").endswith(
        "1\n"
    )


def test_only_the_package_is_installed(dist: tuple[Path, Path]) -> None:
    names = zipfile.ZipFile(dist[0]).namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"tagstream"}
    there = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {name for name in names if name.startswith("tagstream/")} == {
        path.relative_to(ROOT).as_posix() for path in there
    }
    assert "tagstream/conf/poms/kafka-connector.xml" in names


WRONG = """
import tagstream

query = tagstream.upsert("a table", path="t", checkpoint="c", key=1, partition_by={"day"}, trigger=10)
rows: int = query
tagstream.opne_table("t")
"""


@pytest.mark.extended("checks the types of a program and of all that it imports")
def test_the_types_of_a_users_program_are_checked(python: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guide" / "dataframes.md").read_text("utf-8")
    program = page.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "wrong.py").write_text(WRONG)

    def checked(name: str) -> tuple[int, str]:
        mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir", tmp_path / "cache"]
        command = [*mypy, "--python-executable", python, "--no-error-summary", name]
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "MYPY"))}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    assert "tagstream.upsert(" in program
    assert checked("program.py") == (0, "")
    code, said = checked("wrong.py")
    assert code == 1
    kinds = [line.rpartition("[")[2].rstrip("]") for line in said.splitlines() if ": error:" in line]
    assert kinds == ["arg-type"] * 4 + ["assignment", "attr-defined"], said


def arguments(folder: Path, source: str) -> list[str | Path]:
    folder.mkdir()
    (folder / "events.avsc").write_text(json.dumps(ev.AVRO_SCHEMA))
    return [
        *("--source-class", source, "--target-base-path", folder / "t", "--target-table", "t"),
        *("--checkpoint-dir", folder / "c", "--source-ordering-field", "ts"),
        *("--hoodie-conf", f"hoodie.streamer.schemaprovider.source.schema.file={folder}/events.avsc"),
        *("--hoodie-conf", "hoodie.datasource.write.recordkey.field=id"),
        *("--hoodie-conf", "hoodie.datasource.write.partitionpath.field=part"),
    ]


@pytest.mark.platform("the wheel, installed")
@pytest.mark.extended("builds the distribution and runs it in processes")
@pytest.mark.spark
def test_files_are_streamed_and_looked_at(python: Path, tmp_path: Path) -> None:
    source = tmp_path / "in"
    ev.write_files(EVENTS, source, 20)
    console = python.with_name("tagstream")
    given = arguments(tmp_path / "out", "JsonDFSSource")
    run([console, "stream", *given, "--hoodie-conf", f"hoodie.streamer.source.dfs.root={source}"], tmp_path / "cwd")
    expected = ev.rows(ev.oracle(EVENTS).values())
    assert not compare(expected, read_table(tmp_path / "out" / "t", meta_columns=False), ["id"])
    for command in (
        ["index", "verify", "--checkpoint-dir", tmp_path / "out" / "c"],
        ["table", "validate"],
        ["table", "page", "--out", tmp_path / "page.html"],
    ):
        run([console, *command, "--target-base-path", tmp_path / "out" / "t"], tmp_path / "cwd")


def another_copy(folder: Path, file: str, text: str) -> Path:
    """A copy of the package in ``folder``, one of whose files is another."""
    copied = shutil.copytree(PACKAGE, folder / "tagstream", ignore=shutil.ignore_patterns("__pycache__"))
    (Path(copied) / file).write_text(text)
    return folder


FRAME = """
import sys
import pyspark.sql
import tagstream
events, out = sys.argv[1:]
spark = pyspark.sql.SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
columns = "id string, part string, ts long, name string, amount double, _hoodie_is_deleted boolean"
options = {
    "hoodie.table.name": "t",
    "spark.sql.shuffle.partitions": 2,
}
rows = spark.readStream.schema(columns).json(events)
columns = {"key": "id", "partition_by": "part", "order_by": "ts"}
tagstream.upsert(
    rows, f"{out}/t", f"{out}/c", **columns, options=options, trigger="availableNow"
).awaitTermination()
spark.stop()
"""


@pytest.mark.extended("runs what is installed in processes", second=("submit",))
@pytest.mark.spark
@pytest.mark.parametrize("how", ["stream", "submit", "upsert"])
def test_a_job_that_is_started_beside_another_copy_runs_what_is_installed(
    how: str, dist: tuple[Path, Path], python: Path, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    ev.write_files(EVENTS, source, 20)
    checkout = another_copy(tmp_path / "checkout", "__init__.py", 'raise RuntimeError("the code of the checkout")\n')
    given = arguments(tmp_path / "out", "JsonDFSSource")
    given += ["--hoodie-conf", f"hoodie.streamer.source.dfs.root={source}"]
    if how == "stream":
        run([python.with_name("tagstream"), "stream", *given], checkout)
    elif how == "submit":
        submit = [SPARK_HOME / "bin" / "spark-submit", "--master", "local[2,4]", "--py-files", dist[1]]
        bare = str(bare_python(tmp_path / "bare"))
        run([*submit, dist[1].with_name("run_stream.py"), *given], checkout, PYSPARK_PYTHON=bare)
    else:
        (tmp_path / "program.py").write_text(FRAME)
        run([python, tmp_path / "program.py", source, tmp_path / "out"], checkout, PYSPARK_PYTHON=str(python))
    expected = ev.rows(ev.oracle(EVENTS).values()).drop_columns(["_hoodie_is_deleted"])
    found = read_table(tmp_path / "out" / "t", meta_columns=False).select(expected.column_names)
    assert not compare(expected, found, ["id"])


@pytest.mark.extended("starts a cluster")
@pytest.mark.spark
def test_a_cluster_that_has_another_version_is_refused(python: Path, tmp_path: Path) -> None:
    source = tmp_path / "in"
    ev.write_files(EVENTS, source, 20)
    version = (PACKAGE / "version.py").read_text().replace(VERSION, "0.0.9")
    other = another_copy(tmp_path / "older", "version.py", version)
    given = arguments(tmp_path / "out", "JsonDFSSource")
    given += ["--hoodie-conf", f"hoodie.streamer.source.dfs.root={source}"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONPATH", "PYSPARK_"))}
    (tmp_path / "cwd").mkdir()
    with Cluster(tmp_path / "cluster", workers=1, installed=other) as cluster:
        given += ["--spark-master", cluster.master]
        given += [word for pair in cluster.conf().items() for word in ("--hoodie-conf", "=".join(pair))]
        command = [python.with_name("tagstream"), "stream", *given]
        with Process(command, tmp_path / "log", cwd=tmp_path / "cwd", env=env) as process:
            assert process.wait(SECONDS) == 1, process.output()
            said = [line for line in process.output().splitlines() if line.startswith("tagstream: error: ")]
    packages = next(python.parents[1].glob("lib/python3.*/site-packages"))
    assert len(said) == 1
    assert (
        f"they found {other}/tagstream (version 0.0.9), the driver {packages}/tagstream (version {VERSION})" in said[0]
    )
    assert not (tmp_path / "out" / "t").exists()


@pytest.mark.platform("the wheel, installed")
@pytest.mark.extended("builds the distribution and runs it in processes")
@pytest.mark.kafka
@pytest.mark.spark
def test_a_topic_is_streamed(python: Path, tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("installed", partitions=2)
    send(kafka_broker, "installed", EVENTS, 2)
    (tmp_path / "cache" / "tagstream").mkdir(parents=True)
    (tmp_path / "cache" / "tagstream" / "jars").symlink_to(ROOT / ".jars")
    given = [
        *arguments(tmp_path / "out", "JsonKafkaSource"),
        "--hoodie-conf",
        f"bootstrap.servers={kafka_broker.address()}",
    ]
    given += ["--hoodie-conf", "hoodie.streamer.source.kafka.topic=installed"]
    run([python, "-m", "tagstream", "stream", *given], tmp_path / "cwd", XDG_CACHE_HOME=str(tmp_path / "cache"))
    expected = ev.rows(ev.oracle(EVENTS).values())
    assert not compare(expected, read_table(tmp_path / "out" / "t", meta_columns=False), ["id"])


@pytest.mark.platform("a cluster with --py-files")
@pytest.mark.extended("a cluster of its own, to which the distribution is submitted")
@pytest.mark.spark
def test_a_cluster_gets_it_with_the_job(dist: tuple[Path, Path], tmp_path: Path) -> None:
    source, given = tmp_path / "in", arguments(tmp_path / "out", "JsonDFSSource")
    ev.write_files(EVENTS, source, 5)
    given += ["--source-limit", "1", "--hoodie-conf", f"hoodie.streamer.source.dfs.root={source}"]
    with Cluster(tmp_path / "cluster", installed=False) as cluster:
        submit: list[str | Path] = [Path(sys.executable).with_name("spark-submit"), "--master", cluster.master]
        submit += ["--driver-memory", "512m", "--py-files", dist[1]]
        for key, value in cluster.conf().items():
            submit += ["--conf", f"{key}={value}"]
        env = {
            "PYSPARK_PYTHON": str(bare_python(tmp_path / "bare")),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(SPARK_HOME),
        }
        told = run([*submit, dist[1].with_name("run_stream.py"), *given], tmp_path / "cwd", **env)
    assert "batches 4, records 20" in told
    expected = ev.rows(ev.oracle(EVENTS).values())
    assert not compare(expected, read_table(tmp_path / "out" / "t", meta_columns=False), ["id"])
