"""The lists of the jars that a user's Spark is given (``tagstream/conf/jars/``): ``python -m tests.support.jar_lists``.

Maven resolves each pom once for each release of Spark, and what it gave is written down: the path of each jar in a
repository, and its SHA-256. It takes the network, Maven and a minute. To be run when a pom or a version has changed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tagstream.streaming.source.jars import KAFKA, NO_S3A, S3A, list_name, s3a_pom
from tests.support.paths import PACKAGE

OLD_SCALA = (3, 5)  # the one release that comes with two versions of Scala


def lists() -> Iterator[tuple[str, tuple[int, int], str, dict[str, str]]]:
    """Of each list: the pom's name, the release of Spark, Scala's version, the properties of the pom."""
    each = [("kafka-connector", release, versions) for release, versions in KAFKA.items()]
    each += [(s3a_pom(release), release, versions) for release, versions in S3A.items()]
    for pom, release, versions in each:
        for scala in ("2.12", "2.13") if release == OLD_SCALA else ("2.13",):
            if pom != s3a_pom(release) or (release, scala) not in NO_S3A:
                yield pom, release, scala, {**versions, "scala": scala}


def resolve(pom: str, versions: dict[str, str]) -> list[str]:
    """The lines of a list, by Maven. Raises CalledProcessError where it fails."""
    maven = shutil.which("mvn")
    assert maven is not None, "mvn is not on the PATH"
    with tempfile.TemporaryDirectory(prefix="tagstream-jars-") as scratch:
        copy, out = Path(scratch, f"{pom}.xml"), Path(scratch, "out")
        shutil.copy(PACKAGE / "conf" / "poms" / copy.name, copy)
        command = [maven, "-q", "-B", "-f", str(copy), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += ["-Dmdep.useRepositoryLayout=true", f"-DoutputDirectory={out}"]
        subprocess.run([*command, *(f"-D{name}={value}" for name, value in versions.items())], check=True)
        found = sorted(out.rglob("*.jar"))
        return [f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.relative_to(out).as_posix()}" for jar in found]


def main() -> int:
    """Write all lists."""
    for pom, release, scala, versions in lists():
        lines = resolve(pom, versions)
        path = PACKAGE / "conf" / "jars" / list_name(pom, release, scala)
        path.write_text("\n".join(lines) + "\n", "utf-8")
        print(f"{len(lines):>4} jars  {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
