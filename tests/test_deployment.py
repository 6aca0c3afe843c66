"""The image, the manifests and the unit of ``conf/run/``: each is read whole, and started by a user without rights.

A container runtime, Kubernetes and systemd do not run here. What they would do with files, ids and the environment is done
by :class:`~tests.support.container.Container`; the command, the environment and the volumes are those of the file.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from itertools import count
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from kafka import KafkaProducer

from tagstream.streaming.source.connector import connector_jars
from tests.support.cluster import Cluster
from tests.support.container import IMAGE, Container, install
from tests.support.dockerfile import Dockerfile
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker, free_ports
from tests.support.manifests import Manifests, of_kind, reader, written
from tests.support.paths import ROOT
from tests.support.process import Process, wait_for
from tests.support.spark_application import problems as application_problems
from tests.test_project import PROJECT

RUN = ROOT / "conf" / "run"
UNIT = RUN / "tagstream@.service"
SECONDS = 180.0
BUILDS = pytest.mark.extended("builds the distribution and runs it in processes")
NAMELESS, NAMED = 10001, 64001  # uids: the image's, which no system knows, and the one that useradd makes here
ORDERS = [
    {"id": "o-1", "day": "2026-01-06", "ts": 7, "state": "new"},
    {"id": "o-2", "day": "2026-01-06", "ts": 7, "state": "new"},
    {"id": "o-1", "day": "2026-01-06", "ts": 9, "state": "sent"},
    {"id": "o-2", "day": "2026-01-06", "ts": 8, "state": "lost", "_hoodie_is_deleted": True},
]
SMALL = ["--hoodie-conf=index.key.groups=4", "--hoodie-conf=spark.sql.shuffle.partitions=2"]  # for a small machine
ROWS = [("o-1", "2026-01-06", 9, "sent")]


@pytest.fixture(scope="module")
def dockerfile() -> Dockerfile:
    return Dockerfile.read(RUN / "Dockerfile")


@pytest.fixture(scope="module")
def manifests() -> Iterator[Manifests]:
    with reader() as out:
        yield out


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the Dockerfile puts below /opt/tagstream. Kafka's jars come from the cache of the tests."""
    folder = install(tmp_path_factory.mktemp("image") / "tagstream")
    shutil.copy(RUN / "entry.sh", folder)
    (folder / "jars").mkdir()
    for jar in connector_jars():
        shutil.copy(jar, folder / "jars")
    return folder


def command_of(dockerfile: Dockerfile) -> list[str]:
    """The image's entry. Without tini where this host has none: it passes signals on, and reaps."""
    words = dockerfile.words("ENTRYPOINT")
    if shutil.which(words[0]):
        return ["/usr/bin/env", "TINI_SUBREAPER=1", *words]  # here it is not process 1
    return words[words.index("--") + 1 :]


def needs_a_name() -> None:
    if not list(Path("/usr/lib").glob("*/libnss_wrapper.so")) and not os.geteuid():
        pytest.fail("libnss-wrapper is not on this host: install it, the image's user has no name without it")


def send_orders(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "1.json").write_text("".join(json.dumps(order) + "\n" for order in ORDERS))


def from_files(folder: str) -> list[str]:
    """The source in place of a topic."""
    return ["--source-class=JsonDFSSource", f"--hoodie-conf=hoodie.streamer.source.dfs.root={folder}", *SMALL]


def from_topic(broker: KafkaBroker, properties: Path) -> list[str]:
    """The orders are in the topic that the properties name, of this broker."""
    (topic,) = re.findall(r"^hoodie.streamer.source.kafka.topic=(.+)$", properties.read_text("utf-8"), re.M)
    broker.create_topic(topic, 1)
    producer = KafkaProducer(**broker.python_client())
    for order in ORDERS:
        producer.send(topic, json.dumps(order).encode())
    producer.close()
    return [f"--hoodie-conf=bootstrap.servers={broker.address()}", "--hoodie-conf=auto.offset.reset=earliest", *SMALL]


def rows(table: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in ("id", "day", "ts", "state")) for row in read_table(table).to_pylist())


def committed(table: Path) -> bool:
    return any((table / ".hoodie").rglob("*commit"))


def wait_and_end(process: Process, table: Path) -> None:
    """Until the first commit; then SIGTERM, which must end the job well."""
    wait_for(lambda: committed(table) or process.returncode is not None, SECONDS, "a commit")
    assert process.returncode is None, process.output()
    process.send(signal.SIGTERM)
    assert process.wait(SECONDS) == 0, process.output()


# The image


def test_the_image_takes_what_the_context_has(dockerfile: Dockerfile) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")]
    copied = [word for rest in dockerfile.all("COPY") for word in rest.split()[:-1]]
    assert copied, "nothing is copied"
    for name in copied:
        assert any(fnmatch(name, pattern) for pattern in allowed), f"{name} is not in the context"
        assert name.startswith("dist/") or (ROOT / name).is_file()  # `make dist` makes the former
    assert {name for name in allowed if any(fnmatch(each, name) for each in copied)} == set(allowed)


def test_the_steps_of_the_image_are_shell_and_fit_the_project(dockerfile: Dockerfile) -> None:
    for step in dockerfile.all("RUN"):
        subprocess.run(["sh", "-n", "-c", step], check=True)
    subprocess.run(["sh", "-n", RUN / "entry.sh"], check=True)
    (given,) = [rest.partition("=")[2] for rest in dockerfile.all("ARG") if rest.startswith("EXTRAS=")]
    assert set(given.split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    uid, _, gid = dockerfile.one("USER").partition(":")
    assert (int(uid), int(gid)) == (NAMELESS, 0), "a number, so that a platform sees that it is not root"
    assert os.access(RUN / "entry.sh", os.X_OK)
    env = dockerfile.env()
    assert env["TAGSTREAM_JARS"] == f"{IMAGE}/jars" and env["PATH"].startswith(f"{IMAGE}/venv/bin:")
    names = [name for name, _ in dockerfile.instructions]
    assert names.index("ENV") < dockerfile.instructions.index(("RUN", "tagstream fetch-jars"))


def test_a_folder_that_takes_nothing_is_named_and_nothing_is_started(dockerfile: Dockerfile) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": "/proc/nowhere", "SPARK_LOCAL_DIRS": "/tmp"}
    done = subprocess.run(["sh", RUN / "entry.sh", "help"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "/proc/nowhere can't be written to: mount a volume there" in done.stderr


@BUILDS
def test_the_image_is_run_by_a_user_without_a_name_on_a_root_that_is_read_only(
    dockerfile: Dockerfile, image: Path, tmp_path: Path
) -> None:
    needs_a_name()
    volumes = {"/tmp": tmp_path / "tmp", "/local": tmp_path / "local"}
    container = Container(tmp_path / "root", {IMAGE: image}, volumes, uid=NAMELESS, gid=0)

    def said(*argv: str) -> str:
        command = container.command([*command_of(dockerfile), *argv], folder=dockerfile.one("WORKDIR"))
        with Process(command, tmp_path / "log", cwd=tmp_path, env=dockerfile.env()) as process:
            assert process.wait(SECONDS) == 0, process.output()
            return process.output()

    assert "tagstream fetch-jars" in said(*dockerfile.words("CMD"))
    assert f"folder  {IMAGE}/jars" in said("fetch-jars", "--kafka"), "they are there, and nothing is fetched"
    told = {**dockerfile.env(), "WRITE": f"{IMAGE}/x"}
    tried = container.command(["sh", "-c", 'id -u; id -g; ! touch "$WRITE" && ! touch /x && touch /tmp/x'])
    with Process(tried, tmp_path / "tried", cwd=tmp_path, env=told) as process:
        assert process.wait(SECONDS) == 0, process.output()
        if not os.geteuid():
            assert process.output().split()[:2] == [str(NAMELESS), "0"]


# Kubernetes


@pytest.mark.extended("starts a JVM that reads the manifests")
def test_the_manifests_are_taken_by_the_classes_of_kubernetes(manifests: Manifests) -> None:
    documents = manifests.read("deployment.yaml")
    assert [each["kind"] for each in documents] == ["ConfigMap", "PersistentVolumeClaim", "Deployment"]
    assert [text for each in documents for text in manifests.problems(each)] == []
    (application,) = manifests.read("spark-application.yaml")
    assert application_problems(application, manifests) == []
    # What is wrong is seen.
    pod = documents[2]["spec"]["template"]["spec"]
    pod["securityContext"]["runAsUsr"] = 1
    application["spec"]["driver"]["volumeMounts"][0]["mountPth"] = "/x"
    application["spec"]["restartPolicy"]["type"] = "Sometimes"
    assert [text for each in documents for text in manifests.problems(each)] == [
        "Deployment.spec.template.spec.securityContext.runAsUsr: PodSecurityContext has no such field"
    ]
    assert len(application_problems(application, manifests)) == 2
    pod["securityContext"]["runAsUser"] = "nobody"
    assert "runAsUser" in "".join(manifests.problems(documents[2]))


def volumes_of(mounts: Sequence[Mapping[str, Any]], spec: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    """Folders in place of a Pod's volumes that may be written to, by where they are mounted."""
    kinds = {each["name"]: each for each in spec["volumes"]}
    found = {each["mountPath"]: folder / each["name"] for each in mounts if "configMap" not in kinds[each["name"]]}
    assert {each["name"] for each in mounts} <= set(kinds)
    return found


@pytest.mark.spark
@pytest.mark.parametrize(
    "source", [pytest.param("files", marks=BUILDS), pytest.param("kafka", marks=pytest.mark.deployment)]
)
def test_the_pod_streams_and_ends_on_sigterm(
    source: str,
    dockerfile: Dockerfile,
    manifests: Manifests,
    image: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """From files, or from the topic that the manifest names, with the jars of the image and no network but the broker's."""
    needs_a_name()
    documents = manifests.read("deployment.yaml")
    pod = of_kind(documents, "Deployment")["spec"]["template"]["spec"]
    (main,) = pod["containers"]
    etc = written(of_kind(documents, "ConfigMap"), tmp_path / "etc")
    volumes = volumes_of(main["volumeMounts"], pod, tmp_path)
    if source == "kafka":
        broker: KafkaBroker = request.getfixturevalue("kafka_broker")
        more = from_topic(broker, etc / "orders.properties")
    else:
        send_orders(volumes["/data"] / "in")
        more = from_files("/data/in")
    who = pod["securityContext"]
    assert main["securityContext"]["readOnlyRootFilesystem"] and who["runAsNonRoot"]
    files = {IMAGE: image, "/etc/tagstream": etc}
    container = Container(tmp_path / "root", files, volumes, uid=who["runAsUser"], gid=who["runAsGroup"])
    (port,) = free_ports(1)
    given = [re.sub(r"^--status-port=.*", f"--status-port={port}", each) for each in main["args"]]
    assert f"--status-port={port}" in given
    command = [*command_of(dockerfile), *given, *more]
    table = volumes["/data"] / "tables" / "orders"
    with Process(
        container.command(command, folder="/tmp"), tmp_path / "log", cwd=tmp_path, env=dockerfile.env()
    ) as process:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            path = main[probe]["httpGet"]["path"]
            wait_for(lambda p=path: answers(port, p), SECONDS, f"{probe}\n{process.output()}")
        wait_and_end(process, table)
    assert rows(table) == ROWS
    if not os.geteuid():
        owners = {path.stat().st_uid for path in (*table.rglob("*"), *volumes["/local"].rglob("*"))}
        assert owners == {who["runAsUser"]}


def answers(port: int, path: str) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


@pytest.mark.deployment
@pytest.mark.spark
def test_driver_and_executor_of_the_operator_stream_files(
    dockerfile: Dockerfile, manifests: Manifests, image: Path, tmp_path: Path
) -> None:
    """As Spark on Kubernetes starts the image: with a master of Spark's own, and a volume in place of the store."""
    needs_a_name()
    (application,) = manifests.read("spark-application.yaml")
    spec = application["spec"]
    etc = written(of_kind(manifests.read("deployment.yaml"), "ConfigMap"), tmp_path / "etc")
    lake = {"/lake": tmp_path / "lake"}
    send_orders(lake["/lake"] / "in")
    program = spec["mainApplicationFile"].removeprefix("local://")
    assert program == f"{IMAGE}/run_stream.py"
    given = [each.replace("s3a://", "/") for each in spec["arguments"] if each != "--continuous"]

    def start(role: str, name: str, files: dict[str, Path], argv: Sequence[str], env: Mapping[str, str]) -> Process:
        pod, folder = spec[role], tmp_path / name
        volumes = {**volumes_of(pod["volumeMounts"], spec, folder), **lake}
        who = pod["podSecurityContext"]["runAsUser"]
        container = Container(folder / "root", {IMAGE: image, **files}, volumes, uid=who, gid=0)
        (scratch,) = [each["mountPath"] for each in pod["volumeMounts"] if each["name"].startswith("spark-local-dir")]
        command = container.command([*command_of(dockerfile), role, *argv], folder="/tmp")
        env = {**dockerfile.env(), "SPARK_LOCAL_DIRS": scratch, **env}
        return Process(command, folder / "log", cwd=tmp_path, env=env)

    with Cluster(tmp_path / "cluster", workers=0) as cluster:
        wait_for(lambda: connects(int(cluster.master.rpartition(":")[2])), SECONDS, "the master")
        (port,) = free_ports(1)
        conf = {"spark.driver.host": "127.0.0.1", "spark.driver.port": str(port), "spark.ui.enabled": "false"}
        confs = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        submit = ["--master", cluster.master, *confs, program, *given, *from_files("/lake/in")]
        driver = start("driver", "driver", {"/etc/tagstream": etc}, submit, {"SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1"})
        with driver:
            wait_for(lambda: connects(port) or driver.returncode is not None, SECONDS, "the driver")
            for number in count(1):  # as Kubernetes does when one ends
                told = executor_environment(port, number, spec["executor"], manifests.java_options())
                with start("executor", f"executor-{number}", {}, [], told) as executor:
                    ended = lambda e=executor: driver.returncode is not None or e.returncode is not None  # noqa: E731
                    wait_for(ended, SECONDS, "driver or executor to end")
                    said = executor.output()
                if driver.returncode is not None:
                    break
            assert driver.returncode == 0, f"{driver.output()}\n{said}"
    assert rows(lake["/lake"] / "orders") == ROWS


def executor_environment(
    port: int, number: int, executor: Mapping[str, Any], java_options: Sequence[str]
) -> dict[str, str]:
    """What Spark on Kubernetes tells an executor."""
    options = [f"-Dspark.driver.port={port}", *java_options]
    return {
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
        "SPARK_EXECUTOR_ID": str(number),
        "SPARK_EXECUTOR_CORES": str(executor["cores"]),
        "SPARK_EXECUTOR_MEMORY": executor["memory"],
        "SPARK_APPLICATION_ID": "spark-0",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": f"tagstream-orders-exec-{number}",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        **{f"SPARK_JAVA_OPT_{place}": option for place, option in enumerate(options)},
    }


def connects(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 5):
            return True
    except OSError:
        return False


# systemd


def unit() -> dict[str, list[str]]:
    """The settings of the unit, for the instance "orders"."""
    text = UNIT.read_text("utf-8").replace("\\\n", " ").replace("%i", "orders")
    out: dict[str, list[str]] = {}
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            out.setdefault(name, []).append(value)
    return out


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this host")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text("utf-8").replace(f"{IMAGE}/venv/bin/tagstream", sys.executable)
    (tmp_path / UNIT.name).write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT.name.replace("@", "@orders"))]
    (tmp_path / UNIT.name.replace("@", "@orders")).symlink_to(tmp_path / UNIT.name)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@BUILDS
@pytest.mark.spark
def test_the_unit_streams_files_and_ends_on_sigterm(image: Path, tmp_path: Path) -> None:
    told = unit()
    state, cache = f"/var/lib/{told['StateDirectory'][0]}", f"/var/cache/{told['CacheDirectory'][0]}"
    volumes = {state: tmp_path / "state", cache: tmp_path / "cache", "/tmp": tmp_path / "tmp"}
    assert told["ProtectSystem"] == ["strict"] and told["PrivateTmp"] == ["yes"]
    send_orders(volumes[state] / "in")
    etc = tmp_path / "etc"
    etc.mkdir()
    shutil.copy(ROOT / "conf" / "orders.avsc", etc)
    lines = (
        (ROOT / "conf" / "orders.properties")
        .read_text("utf-8")
        .replace("conf/orders.avsc", "/etc/tagstream/orders.avsc")
    )
    lines += f"hoodie.base.path={state}/tables/orders\nhoodie.table.name=orders\n"
    (etc / "orders.properties").write_text(lines)
    files = {IMAGE: image, "/etc/tagstream": etc}
    container = Container(tmp_path / "root", files, volumes, uid=NAMED, gid=NAMED)
    with (tmp_path / "root" / "etc" / "passwd").open("a") as names:  # as useradd --system does
        names.write(f"{told['User'][0]}:x:{NAMED}:{NAMED}::/nonexistent:/usr/sbin/nologin\n")
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8"}  # what systemd gives
    env |= dict(pair.split("=", 1) for line in told["Environment"] for pair in shlex.split(line))
    command = [*shlex.split(told["ExecStart"][0]), *from_files(f"{state}/in")]
    start = container.command(command, folder=told["WorkingDirectory"][0])
    with Process(start, tmp_path / "log", cwd=tmp_path, env=env) as process:
        wait_and_end(process, volumes[state] / "tables" / "orders")
    assert rows(volumes[state] / "tables" / "orders") == ROWS
