"""The jars of each release of Spark: their versions, where they come from without Maven, and a user's folder of them.

The poms of ``conf/poms/`` are for the newest release that they fit. The versions here take the place of theirs for
the running Spark; each was fetched and run with that release (docs/operations/platforms.md). The patch of a release makes no
difference.

The lists in ``conf/jars/`` are what Maven resolved once: the jars' paths in a repository and their SHA-256.
``python -m tests.support.jar_lists`` writes them from the poms. With a list Maven is not needed: Python fetches
the jars by their paths from a repository of Maven's layout, and a jar counts only with the SHA-256 of its list.
``TAGSTREAM_MAVEN_URL`` names a mirror, with ``user:password@`` before its host where it wants a login; else Maven
Central is asked. A proxy is taken from ``https_proxy``, as everywhere in Python.

``TAGSTREAM_JARS`` names a folder that is used in place of the cache; all jars are directly in it. ``tagstream
fetch-jars``, the first start that needs a jar, or a user's copy fills it. Jars that are not on a list do not
matter there.
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
    """``path``: in a repository of Maven's layout."""

    path: str
    sha256: str

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]


def list_name(pom: str, release: tuple[int, int], scala: str) -> str:
    """The name of the list for a pom ("kafka-connector") and a release of Spark."""
    return f"{pom}-spark-{release[0]}.{release[1]}-scala-{scala}.txt"


def listed(pom: str, release: tuple[int, int] = RELEASE, scala: str | None = None) -> list[Jar]:
    """The jars of a pom, by default for the running Spark. SourceError where there is no list."""
    path = _LISTS / list_name(pom, release, scala or scala_version())
    if not path.is_file():
        raise SourceError(f"{path} is missing: it lists the jars that are needed. Install the project again.")
    pairs = (line.split() for line in path.read_text("utf-8").splitlines())
    return [Jar(where, sha256) for sha256, where in pairs]


CENTRAL = "https://repo1.maven.org/maven2"
MIRROR = "TAGSTREAM_MAVEN_URL"
_SECONDS = 60  # without a byte from the repository


def repository(env: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The repository's URL without a login, and the headers of a request. SourceError where it is not a URL."""
    url = (env.get(MIRROR) or CENTRAL).rstrip("/")
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = url.rpartition("@")[2]
        raise SourceError(f"{MIRROR} must be a URL as https://host/path, and ends in {shown!r}")
    login, at, host = parts.netloc.rpartition("@")
    headers = {"User-Agent": "tagstream"}
    if at:
        told = base64.b64encode(urllib.parse.unquote(login).encode()).decode("ascii")
        headers["Authorization"] = f"Basic {told}"
    return urllib.parse.urlunsplit(parts._replace(netloc=host)), headers


def download(jars: Iterable[Jar], folder: Path, env: Mapping[str, str]) -> list[Path]:
    """Fetch the jars into a folder that is there. Each appears by a rename when it is whole.

    SourceError when one can't be had; those before it stay, so the next call fetches the rest.
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
                    f"before it, gives another file. Name another repository by {MIRROR}."
                )
            os.chmod(scratch.name, 0o644)
            os.replace(scratch.name, folder / jar.name)
        except urllib.error.HTTPError as e:
            raise SourceError(
                f"{where} was answered with {e.code} {e.reason}: name a repository that has it by {MIRROR}, "
                f"or copy the file to {folder}"
            ) from e
        except (OSError, http.client.HTTPException) as e:
            reason = e.reason if isinstance(e, urllib.error.URLError) else e
            raise SourceError(
                f"{where} could not be fetched: {reason}. Name a mirror by {MIRROR} or a proxy by https_proxy, or fill "
                "a folder by `tagstream fetch-jars --out FOLDER` on a host with network and name it by TAGSTREAM_JARS"
            ) from e
        finally:
            Path(scratch.name).unlink(missing_ok=True)
    return folder / jar.name


FOLDER = "TAGSTREAM_JARS"


def given_folder(env: Mapping[str, str]) -> Path | None:
    """What ``TAGSTREAM_JARS`` names, made absolute; None where it says nothing."""
    return Path(env[FOLDER]).absolute() if env.get(FOLDER) else None


def check_folder(folder: Path, jars: Sequence[Jar], env: Mapping[str, str]) -> None:
    """SourceError when jars are neither in the folder nor could be put there; nothing is fetched."""
    missing = [jar for jar in jars if not (folder / jar.name).is_file()]
    if missing and not _can_be_made(folder):
        raise SourceError(_missing(folder, missing, env))


def jars_in(folder: Path, jars: Sequence[Jar], env: Mapping[str, str]) -> list[Path]:
    """Those jars in the folder, sorted; what is missing is fetched into it.

    SourceError when one is missing and can't be fetched, or is not the file of the list.
    """
    missing = [jar for jar in jars if not (folder / jar.name).is_file()]
    for jar in jars:
        if jar not in missing and hashlib.sha256((folder / jar.name).read_bytes()).hexdigest() != jar.sha256:
            raise SourceError(
                f"{folder / jar.name} is not the released file: half of it, or another build. Delete it and run "
                "`tagstream fetch-jars`, or give Spark your own jars with --jars"
            )
    if missing:
        check_folder(folder, missing, env)
        folder.mkdir(parents=True, exist_ok=True)
        download(missing, folder, env)
    return sorted(folder / jar.name for jar in jars)


def _can_be_made(folder: Path) -> bool:
    """Whether files can be put there: it, or the nearest folder above that there is, takes new names."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _missing(folder: Path, missing: Sequence[Jar], env: Mapping[str, str]) -> str:
    url, _ = repository(env)
    names = "".join(f"\n  {url}/{jar.path}" for jar in missing)
    return (
        f"{folder} lacks {len(missing)} jars and can't be written to. Run `tagstream fetch-jars` as a user who may, or name "
        f"by {FOLDER} a folder that has these files:{names}"
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
# Not in the repository that the others come from: spark-hadoop-cloud.
NO_S3A = {((3, 5), "2.13")}


def kafka_versions() -> dict[str, str]:
    """Of Kafka's connector. SourceError for a release of Spark that none is known for."""
    name = ".".join(map(str, RELEASE))
    if RELEASE not in KAFKA:
        raise SourceError(
            f"no connector for Kafka is known for Spark {name}: give one with --packages "
            f"org.apache.spark:spark-sql-kafka-0-10_{scala_version()}:<the version of Spark>"
        )
    return _of_scala(KAFKA[RELEASE])


def s3a_versions() -> dict[str, str]:
    """Of S3A. SourceError for a release of Spark that none are known for."""
    name = ".".join(map(str, RELEASE))
    if not knows_s3a():
        raise SourceError(
            f"the jars for a checkpoint on s3a:// are not fetched for Spark {name} with Scala {scala_version()}: give those "
            "that its Hadoop needs with --packages (hadoop-aws, spark-hadoop-cloud), or keep the checkpoint on another store"
        )
    return _of_scala(S3A[RELEASE])


def s3a_pom(release: tuple[int, int] = RELEASE) -> str:
    """The name of S3A's pom: Spark 3.5 has Hadoop 3.3, and that another version of AWS's SDK."""
    return "s3a-3.5" if release == (3, 5) else "s3a"


def running() -> tuple[str, str]:
    """The release of the Spark that is installed, and the version of its Scala."""
    return ".".join(map(str, RELEASE)), scala_version()


def knows_s3a() -> bool:
    """Whether jars of S3A are known for the running Spark."""
    return RELEASE in S3A and (RELEASE, scala_version()) not in NO_S3A


def _of_scala(versions: dict[str, str]) -> dict[str, str]:
    """With Scala's version, where it is not the one of the poms."""
    scala = scala_version()
    return versions if scala == "2.13" else {**versions, "scala": scala}
