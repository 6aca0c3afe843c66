"""The jars that Spark needs, for example to read Kafka: from a cache, or from the folder that ``TAGSTREAM_JARS`` names.

Missing jars are downloaded: by Maven where it is on the PATH, so that a user's ``~/.m2/settings.xml`` applies, else by
Python from a list (``jars.py``). A ``TAGSTREAM_JARS`` folder is filled by Python only.
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
# The settings that --jars and --packages of spark-submit set; YARN has a separate one.
JAR_SETTINGS = ("spark.jars", "spark.jars.packages", "spark.yarn.dist.jars")
_CONNECTOR = "spark-sql-kafka-0-10"
FETCH_SECONDS = 600
_POM = files("tagstream") / "conf" / "poms" / "kafka-connector.xml"

# Maven's errors when it cannot reach a repository, from its resolver and from Java's sockets.
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
    """Jars of Spark's Kafka connector, sorted. SourceError when they are not available."""
    return spark_jars(_POM, kafka_versions(), env=env)


def brings_connector(settings: Mapping[str, str]) -> bool:
    """Whether Spark's settings (``--packages``, ``--jars``) already name its Kafka connector."""
    return any(_CONNECTOR in settings.get(key, "") for key in JAR_SETTINGS)


def jar_cache(project: Path, env: Mapping[str, str]) -> Path:
    """The folder for downloaded jars: ``.jars/`` of a checkout, else the user's cache folder."""
    if (project / "pyproject.toml").is_file():
        return project / CACHE_FOLDER
    home = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".cache")
    return Path(home) / "tagstream" / "jars"


def check_connector(*, env: Mapping[str, str] = os.environ) -> None:
    """SourceError when the connector's jars neither exist nor can be downloaded. Nothing is downloaded."""
    check_jars(_POM, env, kafka_versions())


def check_jars(pom: Traversable, env: Mapping[str, str], versions: Mapping[str, str]) -> None:
    """SourceError when the jars that `pom` names neither exist nor can be downloaded. Nothing is downloaded."""
    folder = given_folder(env)
    if folder is not None:
        check_folder(folder, listed(_name(pom)), env)
    elif not (place := _folder(pom, jar_cache(PROJECT, env), versions)).is_dir() and not _with_maven(env):
        check_folder(place, listed(_name(pom)), env)


def spark_jars(pom: Traversable, versions: Mapping[str, str], *, env: Mapping[str, str] = os.environ) -> list[Path]:
    """The jars that `pom` names for the running Spark, sorted. Missing ones are downloaded.

    ``versions``: replace properties of the pom. SourceError when a jar is not available.
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
    """The jars that `pom` names, from `cache` or by Maven. ``versions``: replace properties of the pom.

    The jars of a pom are in a folder whose name has the hash of the pom's content, so an edited pom is downloaded
    again. The folder appears by one rename when all jars are complete. So an interrupted download leaves no folder that
    looks complete, and of two parallel downloads one wins.
    """
    told = versions or {}
    folder = _folder(pom, cache, told)
    if not folder.is_dir():
        _fetch(pom, folder, env, told)
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise SourceError(f"{folder} has no jars. Delete that folder and start again: then they are downloaded again.")
    return jars


def _folder(pom: Traversable, cache: Path, versions: Mapping[str, str]) -> Path:
    if not pom.is_file():
        raise SourceError(f"{pom} is missing: it lists the jars to download. Install the project again.")
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
            f"the jars of {pom.name} are not in {folder}, and the PATH has no Maven (mvn) to download them. "
            f"Install Maven, or copy {folder.parent} from a machine that has it."
        )
    return maven


def _with_maven(env: Mapping[str, str]) -> bool:
    """Whether Maven downloads the jars. If the environment names a mirror, Python does."""
    return not env.get(MIRROR) and shutil.which("mvn", path=env.get("PATH")) is not None


def _download(pom: Traversable, target: Path, env: Mapping[str, str]) -> None:
    target.mkdir()
    download(listed(_name(pom)), target, env)


def _fetch(pom: Traversable, folder: Path, env: Mapping[str, str], versions: Mapping[str, str]) -> None:
    maven = _maven(pom, folder, env)

    def by_maven(target: Path) -> None:
        copy = target.parent / pom.name
        copy.write_bytes(pom.read_bytes())  # the package may be a zip, and Maven writes other files next to the pom
        _run_maven(maven, copy, target, env, versions)

    _make(folder, by_maven)


def _make(folder: Path, fill: Callable[[Path], None]) -> None:
    """Let ``fill`` make the folder under another name, then rename it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.mkdtemp(dir=folder.parent, prefix="fetch-")
    except OSError as e:
        raise SourceError(
            f"{folder.parent}, the folder for Spark's jars, can't be written to: {e.strerror}. Set {FOLDER} to another "
            "folder, or fill one with `tagstream fetch-jars --out FOLDER`"
        ) from e
    try:
        target = Path(scratch) / "jars"
        fill(target)
        try:
            target.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster
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
            f"Maven did not download the jars of {pom.name} within {FETCH_SECONDS} s. Run `{' '.join(command)}` by hand."
        ) from error
    if done.returncode == 0 and target.is_dir():
        return
    said = done.stdout + done.stderr
    lines = [line for line in said.splitlines() if line.startswith("[ERROR]")] or said.splitlines() or ["(nothing)"]
    what = lines[0].removeprefix("[ERROR]").strip()
    if any(sign in said for sign in _OFFLINE):
        raise SourceError(
            f"Maven could not reach a repository to download the jars of {pom.name}: {what}. Start once with network, or "
            f"copy {target.parent.parent} from a machine that has them; set a proxy or mirror in ~/.m2/settings.xml."
        )
    raise SourceError(
        f"Maven failed on {pom} (exit code {done.returncode}): {what}. Run `{' '.join(command)}` to see the full output."
    )
