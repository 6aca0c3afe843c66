"""The jars for each release of Spark: their versions, how to download them without Maven, and a user's folder with
them.

The poms in ``conf/poms/`` are for the newest release that they fit. For other releases the versions here replace
theirs. Each was downloaded and run with its release (docs/operations/platforms.md). The patch version of a release
makes no difference.

The lists in ``conf/jars/`` are the result of a Maven run: the jars' paths in a repository and their SHA-256. ``python
-m tests.support.jar_lists`` writes them from the poms. With a list Maven is not needed: Python downloads the jars by
their paths from a repository with Maven's layout, and accepts a jar only with the SHA-256 of its list.
``TAGSTREAM_MAVEN_URL`` names a mirror, with ``user:password@`` before its host where it needs a login. Without it Maven
Central is used. ``https_proxy`` sets a proxy, as usual in Python.

``TAGSTREAM_JARS`` names a folder that is used instead of the cache, with all jars directly in it. It is filled by
``tagstream fetch-jars``, by the first start that needs a jar, or by the user. Other jars in it are ignored.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tagstream.spark_release import RELEASE, scala_version
from tagstream.streaming.errors import SourceError

_LISTS = files("tagstream") / "conf" / "jars"


@dataclass(frozen=True)
class Jar:
    """One jar. ``path``: in a repository with Maven's layout."""

    path: str
    sha256: str

    @property
    def name(self) -> str:
        """The file name."""
        return self.path.rpartition("/")[2]


def list_name(pom: str, release: tuple[int, int], scala: str) -> str:
    """The file name of the list for a pom ("kafka-connector") and a release of Spark."""
    return f"{pom}-spark-{release[0]}.{release[1]}-scala-{scala}.txt"


def listed(pom: str, release: tuple[int, int] = RELEASE, scala: str | None = None) -> list[Jar]:
    """The jars of a pom, by default for the running Spark. SourceError where the list is missing."""
    path = _LISTS / list_name(pom, release, scala or scala_version())
    if not path.is_file():
        raise SourceError(f"{path} is missing: it lists the needed jars. Install the project again.")
    pairs = (line.split() for line in path.read_text("utf-8").splitlines())
    return [Jar(where, sha256) for sha256, where in pairs]


CENTRAL = "https://repo1.maven.org/maven2"
MIRROR = "TAGSTREAM_MAVEN_URL"
_SECONDS = 60  # timeout for each read from the repository


def repository(env: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The repository's URL without its login, and the headers for a request. SourceError where it is not a URL."""
    url = (env.get(MIRROR) or CENTRAL).rstrip("/")
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = url.rpartition("@")[2]
        raise SourceError(f"{MIRROR} must be a URL like https://host/path, but ends in {shown!r}")
    login, at, host = parts.netloc.rpartition("@")
    headers = {"User-Agent": "tagstream"}
    if at:
        told = base64.b64encode(urllib.parse.unquote(login).encode()).decode("ascii")
        headers["Authorization"] = f"Basic {told}"
    return urllib.parse.urlunsplit(parts._replace(netloc=host)), headers


def download(jars: Iterable[Jar], folder: Path, env: Mapping[str, str]) -> list[Path]:
    """Download the jars to an existing folder. Each appears by a rename when it is complete.

    SourceError when one is not available. The jars before it stay, so the next call downloads the others.
    """
    url, headers = repository(env)
    return [_one(jar, folder, url, headers) for jar in jars]


def _one(jar: Jar, folder: Path, url: str, headers: Mapping[str, str]) -> Path:
    where = f"{url}/{jar.path}"
    found = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{jar.name}-", delete=False) as scratch:
        try:
            request = urllib.request.Request(where, headers=dict(headers))
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                while data := answer.read(1 << 16):
                    found.update(data)
                    scratch.write(data)
            scratch.flush()
            if found.hexdigest() != jar.sha256:
                raise SourceError(
                    f"{where} has the SHA-256 {found.hexdigest()} and not {jar.sha256}: the repository, or a proxy "
                    f"before it, returns another file. Set {MIRROR} to another repository."
                )
            os.chmod(scratch.name, 0o644)
            os.replace(scratch.name, folder / jar.name)
        except urllib.error.HTTPError as e:
            raise SourceError(
                f"{where}: the repository answered {e.code} {e.reason}: set {MIRROR} to a repository that has the file, "
                f"or copy the file to {folder}"
            ) from e
        except (OSError, http.client.HTTPException) as e:
            reason = e.reason if isinstance(e, urllib.error.URLError) else e
            raise SourceError(
                f"{where} could not be downloaded: {reason}. Set {MIRROR} to a mirror or https_proxy to a proxy, or fill a "
                "folder with `tagstream fetch-jars --out FOLDER` on a host with network and set TAGSTREAM_JARS to it"
            ) from e
        finally:
            Path(scratch.name).unlink(missing_ok=True)
    return folder / jar.name


FOLDER = "TAGSTREAM_JARS"


def given_folder(env: Mapping[str, str]) -> Path | None:
    """The absolute path of the folder in ``TAGSTREAM_JARS``; None where that is not set."""
    return Path(env[FOLDER]).absolute() if env.get(FOLDER) else None


def check_folder(folder: Path, jars: Sequence[Jar], env: Mapping[str, str]) -> None:
    """SourceError when jars are neither in the folder nor can be written there. Nothing is downloaded."""
    missing = [jar for jar in jars if not (folder / jar.name).is_file()]
    if missing and not _can_be_made(folder):
        raise SourceError(_missing(folder, missing, env))


def jars_in(folder: Path, jars: Sequence[Jar], env: Mapping[str, str]) -> list[Path]:
    """These jars in the folder, sorted. Missing ones are downloaded to it.

    SourceError when one is missing and can't be downloaded, or is not the listed file.
    """
    missing = [jar for jar in jars if not (folder / jar.name).is_file()]
    for jar in jars:
        if jar not in missing and hashlib.sha256((folder / jar.name).read_bytes()).hexdigest() != jar.sha256:
            raise SourceError(
                f"{folder / jar.name} is not the released file: it is incomplete or another build. Delete it and run "
                "`tagstream fetch-jars`, or pass your jars to Spark with --jars"
            )
    if missing:
        check_folder(folder, missing, env)
        folder.mkdir(parents=True, exist_ok=True)
        download(missing, folder, env)
    return sorted(folder / jar.name for jar in jars)


def _can_be_made(folder: Path) -> bool:
    """Whether files can be created there: the folder, or its nearest existing parent, is writable."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _missing(folder: Path, missing: Sequence[Jar], env: Mapping[str, str]) -> str:
    url, _ = repository(env)
    names = "".join(f"\n  {url}/{jar.path}" for jar in missing)
    return (
        f"{folder} lacks {len(missing)} jars and can't be written to. Run `tagstream fetch-jars` as a user with write "
        f"access, or set {FOLDER} to a folder with these files:{names}"
    )


KAFKA: dict[tuple[int, int], dict[str, str]] = {
    (3, 5): {"spark": "3.5.7", "token": "3.5.4", "kafka": "3.4.1", "pool": "2.11.1"},
    (4, 0): {"spark": "4.0.4", "token": "4.0.0", "kafka": "3.9.1", "pool": "2.12.0"},
    (4, 1): {"spark": "4.1.3", "token": "4.1.1", "kafka": "3.9.1", "pool": "2.12.1"},
    (4, 2): {},
}
S3A: dict[tuple[int, int], dict[str, str]] = {
    (3, 5): {},
    (4, 0): {"hadoop": "3.4.1", "cloud": "4.0.0"},
    (4, 1): {"hadoop": "3.4.1", "cloud": "4.1.1"},
    (4, 2): {},
}
# The repository has no spark-hadoop-cloud for it.
NO_S3A = {((3, 5), "2.13")}


def kafka_versions() -> dict[str, str]:
    """Versions for Kafka's connector. SourceError for a release of Spark without a known one."""
    name = ".".join(map(str, RELEASE))
    if RELEASE not in KAFKA:
        raise SourceError(
            f"no connector for Kafka is known for Spark {name}: set one with --packages "
            f"org.apache.spark:spark-sql-kafka-0-10_{scala_version()}:<the version of Spark>"
        )
    return _of_scala(KAFKA[RELEASE])


def s3a_versions() -> dict[str, str]:
    """Versions for S3A. SourceError for a release of Spark without known ones."""
    name = ".".join(map(str, RELEASE))
    if not knows_s3a():
        raise SourceError(
            f"no jars for a checkpoint on s3a:// are known for Spark {name} with Scala {scala_version()}: set those that "
            "its Hadoop needs with --packages (hadoop-aws, spark-hadoop-cloud), or put the checkpoint on another store"
        )
    return _of_scala(S3A[RELEASE])


def s3a_pom(release: tuple[int, int] = RELEASE) -> str:
    """The name of S3A's pom. Spark 3.5 has Hadoop 3.3, which needs another version of AWS's SDK."""
    return "s3a-3.5" if release == (3, 5) else "s3a"


def running() -> tuple[str, str]:
    """The release of the installed Spark, and its version of Scala."""
    return ".".join(map(str, RELEASE)), scala_version()


def knows_s3a() -> bool:
    """Whether jars of S3A are known for the running Spark."""
    return RELEASE in S3A and (RELEASE, scala_version()) not in NO_S3A


def _of_scala(versions: dict[str, str]) -> dict[str, str]:
    """The versions with that of Scala, where it is not the one of the poms."""
    scala = scala_version()
    return versions if scala == "2.13" else {**versions, "scala": scala}
