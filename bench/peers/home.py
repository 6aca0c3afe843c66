"""Where the peers are: Hudi's own Spark with the bundles of two releases, and Hudi's own Flink.

``python -m bench.peers.home`` makes what is missing in ``.peers/`` (or the folder TAGSTREAM_PEERS names), ``... spark``
leaves Flink out: the bundles are some 100 MB each and come by Maven, Flink's jars are 220 MB and come from PyPI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.connector import fetch_jars

PROJECT = Path(__file__).resolve().parents[2]
PYSPARK = "pyspark==3.5.9"  # the newest Spark line that both Hudi releases were built for
HUDI_VERSIONS = ("0.15.0", "1.2.0")
FLINK = "1.17.2"
FLINK_HUDI = "0.14.0"  # the newest release whose Flink bundle can be had
FLINK_SOURCES = Path(__file__).resolve().parent / "flink"
# Hudi needs the planner's own classes, which the loader hides; the planner comes with Hudi's jars.
_NOT_WANTED = "flink-table-planner-loader"


def home() -> Path:
    """Where the peers are."""
    return Path(os.environ.get("TAGSTREAM_PEERS") or PROJECT / ".peers").absolute()


def python() -> Path:
    """The interpreter that has Spark of the peers."""
    return home() / "venv" / "bin" / "python"


def bundle(version: str) -> Path:
    """The bundle of a Hudi release for Spark, fetched the first time."""
    (jar,) = fetch_jars(PROJECT / "conf" / "poms" / f"hudi-spark-{version}.xml", home() / "jars")
    return jar


def flink_class_path() -> list[Path]:
    """Folders and jars that run our Flink program: itself, Flink, Hudi. Made the first time."""
    hudi = fetch_jars(PROJECT / "conf" / "poms" / f"hudi-flink-{FLINK_HUDI}.xml", home() / "jars")
    flink = _flink_jars(home() / f"flink-{FLINK}")
    jars = [*flink, *hudi]
    return [_compiled(home() / "flink-classes", jars), *jars]


def set_up(*, flink: bool = False) -> None:
    """Make what is missing; a step that was cut off is done again."""
    done = home() / "venv" / f".{PYSPARK}"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home() / "venv")], check=True)
        pip = [str(python()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PYSPARK]
        subprocess.run(pip, check=True)
        done.touch()
    for version in HUDI_VERSIONS:
        bundle(version)
    if flink:
        flink_class_path()


def _flink_jars(folder: Path) -> list[Path]:
    """Flink's jars out of the package that PyFlink has them from, its hash checked by pip."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as scratch:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            pip += ["--require-hashes", "--requirement", str(PROJECT / "conf" / "peer-flink.txt"), "--dest", scratch]
            subprocess.run(pip, check=True)
            (package,) = Path(scratch).glob("*.tar.gz")
            jars = Path(scratch) / "jars"
            jars.mkdir()
            with tarfile.open(package) as archive:
                for member in archive:
                    if member.isfile() and "/deps/lib/" in member.name and member.name.endswith(".jar"):
                        source = archive.extractfile(member)
                        assert source is not None
                        with (jars / Path(member.name).name).open("wb") as f:
                            shutil.copyfileobj(source, f)
            jars.rename(folder)
    return sorted(jar for jar in folder.glob("*.jar") if not jar.name.startswith(_NOT_WANTED))


def _compiled(folder: Path, jars: Sequence[Path]) -> Path:
    """Our Flink program's classes, compiled again when a source is newer."""
    sources = sorted(FLINK_SOURCES.glob("*.java"))
    main = folder / "PeerJob.class"
    if main.exists() and main.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return folder
    javac = shutil.which("javac")
    if javac is None:
        raise SourceError("the Flink peer is compiled here and there is no javac on the PATH: install a JDK 17")
    command = [javac, "-nowarn", "-d", str(folder), "-cp", os.pathsep.join(map(str, jars)), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SourceError(f"javac failed on {FLINK_SOURCES}: {done.stderr or done.stdout}")
    shutil.copy(FLINK_SOURCES / "log4j2.properties", folder)
    return folder


if __name__ == "__main__":
    set_up(flink="spark" not in sys.argv[1:])
    print(f"the peers are in {home()}")
