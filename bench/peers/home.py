"""Where the peers are: Hudi's own Spark with the bundles of two releases, Hudi's own Flink, Paimon's Flink, delta-rs.

``python -m bench.peers.home`` makes what is missing of the first two in ``.peers/`` (or the folder TAGSTREAM_PEERS names),
``... spark`` leaves Flink out: the bundles are some 100 MB each and come by Maven, Flink's jars are 220 MB and come from
PyPI. Of the others a comparison makes what it needs.
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
FLINK_SOURCES = Path(__file__).resolve().parent / "flink"
# Hudi needs the planner's own classes, which the loader hides; the planner comes with Hudi's jars.
_NOT_WANTED = "flink-table-planner-loader"


@dataclass(frozen=True)
class FlinkPeer:
    """A writer on Flink. ``pom``: names its jars; ``sources``: folder of its programs; ``main``: the one that writes."""

    flink: str
    version: str
    pom: str
    sources: str
    main: str


# 0.14.0 is the newest release of Hudi whose Flink bundle can be had.
HUDI_ON_FLINK = FlinkPeer("1.17.2", "0.14.0", "hudi-flink-0.14.0", "hudi", "HudiJob")
PAIMON = FlinkPeer("1.20.5", "1.3.1", "paimon-flink-1.3.1", "paimon", "PaimonJob")


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


def s3a_jars() -> list[Path]:
    """What Hudi's Spark needs to read and write ``s3a://``, fetched the first time."""
    return fetch_jars(PROJECT / "conf" / "poms" / "hudi-s3a.xml", home() / "jars")


def flink_class_path(peer: FlinkPeer) -> list[Path]:
    """Folders and jars that run our program on Flink: itself, Flink, the peer. Made the first time."""
    own = fetch_jars(PROJECT / "conf" / "poms" / f"{peer.pom}.xml", home() / "jars")
    jars = [*_flink_jars(peer.flink), *own]
    return [_compiled(home() / f"{peer.sources}-classes", FLINK_SOURCES / peer.sources, jars), *jars]


def delta_python() -> Path:
    """The interpreter that has delta-rs, made the first time."""
    return _environment(home() / "delta", [DELTA, "pyarrow"])


def set_up(flink: Iterable[FlinkPeer] = (), *, delta: bool = False) -> None:
    """Make what is missing; a step that was cut off is done again."""
    _environment(home() / "venv", [PYSPARK])
    for version in HUDI_VERSIONS:
        bundle(version)
    for peer in flink:
        flink_class_path(peer)
    if delta:
        delta_python()


def _environment(folder: Path, packages: Sequence[str]) -> Path:
    """The interpreter of a virtual environment with these packages, of the versions that this project pins where it does."""
    interpreter, done = folder / "bin" / "python", folder / f".{packages[0]}"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *packages], check=True)
        done.touch()
    return interpreter


def _flink_jars(version: str) -> list[Path]:
    """Flink's jars out of the package that PyFlink has them from, its hash checked by pip."""
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
        raise SourceError("the Flink peer is compiled here and there is no javac on the PATH: install a JDK 17")
    command = [javac, "-nowarn", "-d", str(folder), "-cp", os.pathsep.join(map(str, jars)), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SourceError(f"javac failed on {own}: {done.stderr or done.stdout}")
    shutil.copy(FLINK_SOURCES / "log4j2.properties", folder)
    return folder


if __name__ == "__main__":
    set_up([] if "spark" in sys.argv[1:] else [HUDI_ON_FLINK])
    print(f"the peers are in {home()}")
