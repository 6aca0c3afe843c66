"""``--deploy-mode cluster``: the driver runs on a host that has nothing of the one that submits. The page's command."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path

import pyspark
import pytest
from pyarrow.fs import S3FileSystem

from tagstream.streaming.job.environment import s3a_jars
from tests.support.cluster import bare_python
from tests.support.dist import build
from tests.support.hudi_rs import read_table
from tests.support.machine import SPARK_HOME
from tests.support.paths import ROOT
from tests.support.process import Process
from tests.support.s3_server import KEY, SECRET, S3Server
from tests.support.yarn import SPARK, STAGING, Yarn
from tests.test_deployment import ORDERS, ROWS
from tests.test_readme import blocks

PAGE = "docs/operations/operations.md"
SECONDS = 300.0


@pytest.mark.extended("starts spark-submit")
def test_spark_refuses_python_in_cluster_mode_on_its_own_clusters() -> None:
    command = [SPARK_HOME / "bin" / "spark-submit", "--master", "spark://127.0.0.1:7077", "--deploy-mode", "cluster"]
    done = subprocess.run([*command, ROOT / "run_stream.py"], capture_output=True, text=True, check=False)
    said = "Cluster deploy mode is currently not supported for python applications on standalone clusters."
    assert done.returncode != 0 and said in done.stdout + done.stderr
    assert said in (ROOT / PAGE).read_text("utf-8")


def project(folder: Path) -> Path:
    """What `make dist environment` and `fetch-jars` leave, with the packages of this host in place of copies."""
    build(folder / "dist")
    (folder / "dist" / "jars").mkdir()
    for jar in s3a_jars():
        shutil.copy(jar, folder / "dist" / "jars")
    environment = bare_python(folder / "environment").parents[1]
    with tarfile.open(folder / "dist" / "environment.tar.gz", "w:gz") as tar:
        tar.add(environment, ".")
    shutil.rmtree(environment)
    shutil.copytree(ROOT / "conf", folder / "conf")
    return folder


def command(place: str, settings: dict[str, str]) -> list[str]:
    """The page's command for YARN, with a place on the store, and what this small cluster needs."""
    (block,) = [block for block in blocks(PAGE) if "--deploy-mode cluster" in block]
    text = block[block.index("$SPARK_HOME/bin/spark-submit") :].replace("\\\n", " ").replace("s3a://lake", place)
    jars = ",".join(f"dist/jars/{jar.name}" for jar in s3a_jars())
    program, *given = shlex.split(text.replace("\"$(echo dist/jars/*.jar | tr ' ' ,)\"", jars))
    own = {
        "spark.yarn.jars": f"local:{SPARK}/jars/*",
        "spark.yarn.stagingDir": f"file://{STAGING}",
        "spark.executor.instances": "1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        **{f"spark.hadoop.{name}": value for name, value in settings.items()},
    }
    confs = [word for name, value in own.items() for word in ("--conf", f"{name}={value}")]
    return [program.replace("$SPARK_HOME", SPARK), *confs, *given]


@pytest.mark.s3
@pytest.mark.spark
def test_the_driver_runs_on_a_host_of_yarn(s3_folder: str, s3_server: S3Server, tmp_path: Path) -> None:
    store = S3FileSystem(
        access_key=KEY, secret_key=SECRET, endpoint_override=f"127.0.0.1:{s3_server.port}", scheme="http"
    )
    with store.open_output_stream(f"{s3_folder.removeprefix('s3a://')}/orders-in/1.json") as out:
        out.write("".join(json.dumps(order) + "\n" for order in ORDERS).encode())
    with Yarn(tmp_path / "yarn") as yarn:
        checkout = project(tmp_path / "yarn" / "client" / "data")
        archives = [f"/data/{path.name}" for path in yarn.archives(checkout)]
        env = {**yarn.environment(), "PYSPARK_ARCHIVES_PATH": ",".join(archives)}
        submit = yarn.host("client", {}).command(command(s3_folder, s3_server.settings()), folder="/data")
        with Process(submit, tmp_path / "submit.log", cwd=tmp_path, env=env) as process:
            assert process.wait(SECONDS) == 0, f"{process.output()}\n{yarn.logs()}"
        said = yarn.logs()
    assert "end of run: batches 1, records 4" in said
    found = read_table(f"{s3_folder}/orders", options=s3_server.reader)
    assert sorted(tuple(row[name] for name in ("id", "day", "ts", "state")) for row in found.to_pylist()) == ROWS
    assert pyspark.__version__ in (ROOT / PAGE).read_text("utf-8")
