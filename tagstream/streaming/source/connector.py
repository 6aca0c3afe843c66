"""The jars Spark needs, to read Kafka for example: found in the project's cache, fetched by Maven the first time."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.jar_versions import kafka_versions
from tagstream.version import PACKAGE

PROJECT = PACKAGE.parent
CACHE_FOLDER = ".jars"
_CONNECTOR = "spark-sql-kafka-0-10"
FETCH_SECONDS = 600
_POM = files("tagstream") / "conf" / "poms" / "kafka-connector.xml"

# What Maven says when it reached no repository, in the words of its resolver and of Java's sockets.
_OFFLINE = (
    "Unknown host",
    "Network is unreachable",
    "Connection refused",
    "Connection timed out",
    "connect timed out",
    "No route to host",
    "Temporary failure in name resolution",
    "in offline mode",
)


def connector_jars(*, env: Mapping[str, str] = os.environ) -> list[Path]:
    """Jars of Spark's Kafka connector, sorted. Raises SourceError when they can't be had."""
    return fetch_jars(_POM, jar_cache(PROJECT, env), env=env, versions=kafka_versions())


def brings_connector(settings: Mapping[str, str]) -> bool:
    """True where Spark's own settings (``--packages``, ``--jars``) name its Kafka connector already."""
    return any(_CONNECTOR in settings.get(key, "") for key in ("spark.jars", "spark.jars.packages"))


def jar_cache(project: Path, env: Mapping[str, str]) -> Path:
    """Where fetched jars are kept: ``.jars/`` of a checkout, else the user's cache folder."""
    if (project / "pyproject.toml").is_file():
        return project / CACHE_FOLDER
    home = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".cache")
    return Path(home) / "tagstream" / "jars"


def check_connector(*, env: Mapping[str, str] = os.environ) -> None:
    """SourceError when the connector's jars are neither there nor could be fetched; nothing is fetched."""
    check_jars(_POM, env, kafka_versions())


def check_jars(pom: Traversable, env: Mapping[str, str], versions: Mapping[str, str]) -> None:
    """SourceError when the jars that `pom` names are neither there nor could be fetched; nothing is fetched."""
    folder = _folder(pom, jar_cache(PROJECT, env), versions)
    if not folder.is_dir():
        _maven(pom, folder, env)


def fetch_jars(
    pom: Traversable, cache: Path, *, env: Mapping[str, str] = os.environ, versions: Mapping[str, str] | None = None
) -> list[Path]:
    """Jars that `pom` names, from `cache` or by Maven. ``versions``: in place of properties of the pom.

    A pom's jars have a folder of their own named by its content, so an edited pom is fetched again. The folder appears
    by one rename when all jars are there: a fetch that was killed leaves nothing that looks complete, and of two
    processes fetching at once one wins.
    """
    told = versions or {}
    folder = _folder(pom, cache, told)
    if not folder.is_dir():
        _fetch(pom, folder, env, told)
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise SourceError(f"{folder} holds no jars. Delete that folder and start again, they are fetched anew.")
    return jars


def _folder(pom: Traversable, cache: Path, versions: Mapping[str, str]) -> Path:
    if not pom.is_file():
        raise SourceError(f"{pom} is missing: it says which jars to fetch. Install the project anew.")
    content = pom.read_bytes() + "".join(_defines(versions)).encode()
    return cache / f"{pom.name.removesuffix('.xml')}-{hashlib.sha256(content).hexdigest()[:12]}"


def _defines(versions: Mapping[str, str]) -> list[str]:
    return [f"-D{name}={version}" for name, version in sorted(versions.items())]


def _maven(pom: Traversable, folder: Path, env: Mapping[str, str]) -> str:
    maven = shutil.which("mvn", path=env.get("PATH"))
    if maven is None:
        raise SourceError(
            f"the jars of {pom.name} are not in {folder} and there is no Maven (mvn) on the PATH to fetch them. "
            f"Install Maven, or copy {folder.parent} from a machine that has it."
        )
    return maven


def _fetch(pom: Traversable, folder: Path, env: Mapping[str, str], versions: Mapping[str, str]) -> None:
    maven = _maven(pom, folder, env)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as scratch:
        target, copy = Path(scratch) / "jars", Path(scratch) / pom.name
        copy.write_bytes(pom.read_bytes())  # the package may be a zip, and Maven leaves things beside its file
        _run_maven(maven, copy, target, env, versions)
        try:
            target.rename(folder)
        except OSError:
            if not folder.is_dir():  # anything but another process having been first
                raise


def _run_maven(maven: str, pom: Path, target: Path, env: Mapping[str, str], versions: Mapping[str, str]) -> None:
    command = [maven, "-q", "-B", "-Dstyle.color=never", "-f", str(pom), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={target}", *_defines(versions)]
    try:
        done = subprocess.run(
            command, env=dict(env), capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise SourceError(
            f"Maven did not fetch the jars of {pom.name} within {FETCH_SECONDS} s. Try `{' '.join(command)}` by hand."
        ) from error
    if done.returncode == 0 and target.is_dir():
        return
    said = done.stdout + done.stderr
    lines = [line for line in said.splitlines() if line.startswith("[ERROR]")] or said.splitlines() or ["(nothing)"]
    what = lines[0].removeprefix("[ERROR]").strip()
    if any(sign in said for sign in _OFFLINE):
        raise SourceError(
            f"Maven could not reach a repository to fetch the jars of {pom.name}: {what}. Start once with network, or "
            f"copy {target.parent.parent} from a machine that has them; a proxy or mirror goes in ~/.m2/settings.xml."
        )
    raise SourceError(
        f"Maven failed on {pom} (exit code {done.returncode}): {what}. Run `{' '.join(command)}` to see all."
    )
