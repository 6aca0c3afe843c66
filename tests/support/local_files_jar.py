"""The jar of ``tagstream/conf/java/LocalFiles.java``: ``python -m tests.support.local_files_jar`` compiles it again.

It takes a JDK. The jar has the checksum of its source, so a test finds a jar that is older than the source.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark

from tests.support.paths import PACKAGE

FOLDER = PACKAGE / "conf" / "java"
SOURCE, JAR = FOLDER / "LocalFiles.java", FOLDER / "local-files.jar"
CHECKSUM = "tagstream/LocalFiles.java.sha256"
_JAVA = "17"  # the oldest that Spark 4 runs on, and that this project supports
_TIME = (1980, 1, 1, 0, 0, 0)


def compiled() -> dict[str, bytes]:
    """The classes by their path in the jar. Raises CalledProcessError where the source is wrong."""
    compiler = shutil.which("javac")
    assert compiler is not None, "javac is not on the PATH: install a JDK"
    (hadoop,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    with tempfile.TemporaryDirectory(prefix="tagstream-java-") as scratch:
        subprocess.run([compiler, "--release", _JAVA, "-cp", str(hadoop), "-d", scratch, str(SOURCE)], check=True)
        return {str(p.relative_to(scratch)): p.read_bytes() for p in sorted(Path(scratch).rglob("*.class"))}


def checksum() -> bytes:
    """SHA-256 of the source, in hexadecimal digits."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest().encode()


def packed(classes: dict[str, bytes]) -> bytes:
    """The jar of these classes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as jar:
        for name, data in {**classes, CHECKSUM: checksum()}.items():
            jar.writestr(zipfile.ZipInfo(name, _TIME), data)
    return out.getvalue()


def main() -> int:
    """Write the jar."""
    JAR.write_bytes(packed(compiled()))
    print(JAR)
    return 0


if __name__ == "__main__":
    sys.exit(main())
