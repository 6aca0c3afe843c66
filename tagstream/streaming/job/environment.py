"""What Spark needs from its environment: Java, a master that answers, and jars for the checkpoint's store.

Java is searched for in the same way as Spark's launcher does, and its version is checked. A connection to a standalone
master is tried first, since Spark itself tries for a minute and then reports another error.

A checkpoint on another file system needs jars, settings, and variables for the workers. Spark writes only the
checkpoint: the table and the files of a source are read and written in Python.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from tagstream.spark_release import oldest_java
from tagstream.streaming.errors import EnvironmentProblemError, UnfitMachineError
from tagstream.streaming.source.connector import JAR_SETTINGS, check_jars, spark_jars
from tagstream.streaming.source.jars import s3a_pom, s3a_versions
from tagstream.table.errors import ConfigError
from tagstream.table.storage.settings import S3, SCHEMES, object_options, parse_object_url

OLDEST = oldest_java()
_SECONDS = 60
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ADVICE = "install Java 17 (openjdk-17-jre-headless), and put it on the PATH or name its folder with JAVA_HOME"


def check_java(env: Mapping[str, str]) -> None:
    """UnfitMachineError unless JAVA_HOME, or the PATH where that is not set, has a Java that Spark can use."""
    home = env.get("JAVA_HOME")
    if home:
        program = shutil.which("java", path=str(Path(home, "bin")))
        if program is None:
            raise UnfitMachineError(f"Spark needs Java {OLDEST}, but JAVA_HOME={home} has no bin/java; {_ADVICE}")
    else:
        program = shutil.which("java", path=env.get("PATH"))
        if program is None:
            raise UnfitMachineError(
                f"Spark needs Java {OLDEST}, but JAVA_HOME is not set and the PATH has no java; {_ADVICE}"
            )
    version, said = _ask(program, env)
    if version is None or version < OLDEST:
        raise UnfitMachineError(f"Spark needs Java {OLDEST} or newer, but {program} is {said}; {_ADVICE}")


def _ask(program: str, env: Mapping[str, str]) -> tuple[int | None, str]:
    """The number of the Java release (None: it does not run), and a description of the program."""
    try:
        done = subprocess.run(
            [program, "-version"], env=dict(env), capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return None, f"not a program that runs ({e})"
    said = (done.stderr + done.stdout).strip()
    found = _VERSION.search(said)
    if done.returncode or found is None:
        return (
            None,
            f"not a Java that runs (exit code {done.returncode}: {said.splitlines()[0] if said else 'no output'})",
        )
    return int(found.group(1)), f"Java {found.group(1)}"


CONNECT_S = 5.0
_SCHEME = "spark://"
_FORM = re.compile(r"local$|local\[|local-cluster\[|spark://.|yarn$|k8s://.")


def check_master(master: str | None) -> None:
    """EnvironmentProblemError when none of the hosts of a ``spark://`` master accepts a connection. Other masters are
    not checked.

    ConfigError for a text that is not a Spark master.
    """
    if master is None:
        return
    if not _FORM.match(master):
        raise ConfigError(
            f"--spark-master {master} is not a Spark master; set it to local[N,retries], spark://HOST:PORT, yarn or k8s://URL"
        )
    if not master.startswith(_SCHEME):
        return
    failures = []
    for place in master.removeprefix(_SCHEME).split(","):
        host, _, port = place.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S):
                return
        except (OSError, ValueError) as e:
            failures.append(f"{place} ({e})")
    raise EnvironmentProblemError(
        f"the Spark master {master} does not answer: {', '.join(failures)}; check that it runs, its address and port "
        "(--spark-master, or spark-submit's --master), and the network"
    )


_JARS = "hadoop-aws"
_POM = files("tagstream") / "conf" / "poms" / f"{s3a_pom()}.xml"
# Without these checks S3A makes fewer requests: no checkpoint has a file with the name of a folder, or the reverse.
_QUICK = {"fs.s3a.performance.flags": "create,mkdir,delete"}


def needs_s3a(checkpoint: str, settings: Mapping[str, str]) -> bool:
    """Whether Spark must get the jars of S3A. Spark's settings (``--packages``, ``--jars``) may name them already."""
    places = (*JAR_SETTINGS, "spark.driver.extraClassPath")
    return _scheme(checkpoint) == S3 and not any(_JARS in settings.get(key, "") for key in places)


def s3a_jars(*, env: Mapping[str, str] = os.environ) -> list[Path]:
    """The jars of S3A, downloaded at the first call (13 MB; 7 MB for Spark 3.5). SourceError when that fails."""
    return spark_jars(_POM, s3a_versions(), env=env)


def check_s3a(*, env: Mapping[str, str] = os.environ) -> None:
    """SourceError when the jars neither exist nor can be downloaded. Nothing is downloaded."""
    check_jars(_POM, env, s3a_versions())


def store_conf(checkpoint: str, settings: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for the checkpoint's store that follow from the environment, where Hadoop's ``settings`` do not
    have them.

    Keys are not included: Hadoop reads the same environment variables itself.
    """
    if _scheme(checkpoint) != S3:
        return {}
    made = dict(object_options(parse_object_url(checkpoint)[0], settings, env))
    wanted = {**_QUICK, "fs.s3a.endpoint.region": made["region"]}
    if "endpoint" in made:
        plain = made["endpoint"].startswith("http://")
        wanted["fs.s3a.endpoint"] = made["endpoint"]
        wanted["fs.s3a.connection.ssl.enabled"] = str(not plain).lower()
        wanted["fs.s3a.path.style.access"] = str(made["virtual_hosted_style_request"] == "false").lower()
    return {f"spark.hadoop.{name}": value for name, value in wanted.items() if name not in settings}


def _scheme(url: str) -> str:
    return SCHEMES.get(url.partition("://")[0], "") if "://" in url else ""
