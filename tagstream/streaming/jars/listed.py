"""The jars of each release of Spark, as Maven resolved them once: their paths in a repository and their SHA-256.

The lists lie in ``conf/jars/``; ``python -m tests.support.jar_lists`` writes them from the poms of ``conf/poms/``. A
list makes Maven unnecessary: the jars are fetched by their paths, and a folder is checked against the checksums.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

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
