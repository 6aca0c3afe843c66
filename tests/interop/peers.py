"""The peers: a virtual environment with Hudi's own Spark and the bundles of two Hudi releases.

``python -m tests.interop.peers`` makes what is missing in ``.peers/`` (or the folder TAGSTREAM_PEERS names); the bundles
are some 100 MB each and come by Maven.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from streaming.connector import fetch_jars

PROJECT = Path(__file__).resolve().parents[2]
PYSPARK = "pyspark==3.5.9"  # the newest Spark line that both Hudi releases were built for
HUDI_VERSIONS = ("0.15.0", "1.2.0")


def home() -> Path:
    """Where the peers are."""
    return Path(os.environ.get("TAGSTREAM_PEERS") or PROJECT / ".peers").absolute()


def python() -> Path:
    """The interpreter that has Spark of the peers."""
    return home() / "venv" / "bin" / "python"


def bundle(version: str) -> Path:
    """The bundle of a Hudi release, fetched the first time."""
    (jar,) = fetch_jars(PROJECT / "conf" / "poms" / f"hudi-spark-{version}.xml", home() / "jars")
    return jar


def set_up() -> None:
    """Make what is missing; a step that was cut off is done again."""
    done = home() / "venv" / f".{PYSPARK}"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home() / "venv")], check=True)
        pip = [str(python()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PYSPARK]
        subprocess.run(pip, check=True)
        done.touch()
    for version in HUDI_VERSIONS:
        print(f"Hudi {version}: {bundle(version)}")


if __name__ == "__main__":
    set_up()
