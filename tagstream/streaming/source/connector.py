"""The jars Spark needs, to read Kafka for example: found in a cache, or in the folder that ``TAGSTREAM_JARS`` names.

What is not there is fetched: by Maven where it is on the PATH, so that a user's ``~/.m2/settings.xml`` counts,
else by Python from a list (``jars.py``). A folder of ``TAGSTREAM_JARS`` is filled by Python alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.jars import (
    FOLDER,
    MIRROR,
    check_folder,
    download,
    given_folder,
    jars_in,
    kafka_versions,
    listed,
)
from tagstream.version import PACKAGE

PROJECT = PACKAGE.parent
CACHE_FOLDER = ".jars"
# Where --jars and --packages of spark-submit arrive; on YARN by a name of its own.
JAR_SETTINGS = ("spark.jars", "spark.jars.packages", "spark.yarn.dist.jars")
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
    return spark_jars(_POM, kafka_versions(), env=env)


def brings_connector(settings: Mapping[str, str]) -> bool:
    """True where Spark's own settings (``--packages``, ``--jars``) name its Kafka connector already."""
    return any(_CONNECTOR in settings.get(key, "") for key in JAR_SETTINGS)


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
    folder = given_folder(env)
    if folder is not None:
        check_folder(folder, listed(_name(pom)), env)
    elif not (place := _folder(pom, jar_cache(PROJECT, env), versions)).is_dir() and not _with_maven(env):
        check_folder(place, listed(_name(pom)), env)


def spark_jars(pom: Traversable, versions: Mapping[str, str], *, env: Mapping[str, str] = os.environ) -> list[Path]:
    """The jars that `pom` names for the running Spark, sorted; what is not there is fetched.

    ``versions``: in place of properties of the pom. SourceError when they can't be had.
    """
    folder = given_folder(env)
    if folder is not None:
        return jars_in(folder, listed(_name(pom)), env)
    cache = jar_cache(PROJECT, env)
    place = _folder(pom, cache, versions)
    if not place.is_dir() and not _with_maven(env):
        _make(place, lambda target: _download(pom, target, env))
    return fetch_jars(pom, cache, env=env, versions=versions)


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
        raise SourceError(f"{folder} holds no jars. Delete that folder and start again: they are fetched again.")
    return jars


def _folder(pom: Traversable, cache: Path, versions: Mapping[str, str]) -> Path:
    if not pom.is_file():
        raise SourceError(f"{pom} is missing: it says which jars to fetch. Install the project again.")
    content = pom.read_bytes() + "".join(_defines(versions)).encode()
    return cache / f"{_name(pom)}-{hashlib.sha256(content).hexdigest()[:12]}"


def _name(pom: Traversable) -> str:
    return pom.name.removesuffix(".xml")


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


def _with_maven(env: Mapping[str, str]) -> bool:
    """Whether Maven fetches: a mirror that the environment names is asked by Python."""
    return not env.get(MIRROR) and shutil.which("mvn", path=env.get("PATH")) is not None


def _download(pom: Traversable, target: Path, env: Mapping[str, str]) -> None:
    target.mkdir()
    download(listed(_name(pom)), target, env)


def _fetch(pom: Traversable, folder: Path, env: Mapping[str, str], versions: Mapping[str, str]) -> None:
    maven = _maven(pom, folder, env)

    def by_maven(target: Path) -> None:
        copy = target.parent / pom.name
        copy.write_bytes(pom.read_bytes())  # the package may be a zip, and Maven leaves things beside its file
        _run_maven(maven, copy, target, env, versions)

    _make(folder, by_maven)


def _make(folder: Path, fill: Callable[[Path], None]) -> None:
    """The folder appears by one rename when ``fill`` has made it under another name."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.mkdtemp(dir=folder.parent, prefix="fetch-")
    except OSError as e:
        raise SourceError(
            f"{folder.parent} can't be written to, where jars for Spark are kept: {e.strerror}. Name another folder by "
            f"{FOLDER}, or fill one by `tagstream fetch-jars --out FOLDER`"
        ) from e
    try:
        target = Path(scratch) / "jars"
        fill(target)
        try:
            target.rename(folder)
        except OSError:
            if not folder.is_dir():  # anything but another process having been first
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


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
