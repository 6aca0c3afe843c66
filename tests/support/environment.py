"""The packages that this project needs, and a Python to run them, as one file for ``spark-submit --archives``.

``python -m tests.support.environment --out dist`` (``make environment``). They are those of this checkout's own environment,
so of the same versions; this project is not among them, as ``--py-files`` ships it, nor is Spark's own Python code, which
a worker has from Spark. The interpreter is a link to the host's Python 3.11.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAME = "environment.tar.gz"
_PROJECT = "tagstream"
_FROM_SPARK = {"pyspark", "py4j"}
_EXTRAS = ("s3", "hdfs")


def bare_environment(folder: Path) -> Path:
    """A virtual environment of this Python without a package; the folder that they belong in."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"


def build_environment(out: Path, extras: Sequence[str] = _EXTRAS) -> Path:
    """The archive, in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tagstream-environment-") as scratch:
        environment = Path(scratch, "environment")
        packages = bare_environment(environment).relative_to(environment)
        archive = Path(scratch, NAME)
        with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
            tar.add(environment, ".")
            for each in needed(extras):
                for file in each.files or ():
                    if ".." not in file.parts:  # a program of the package
                        tar.add(str(each.locate_file(file)), str(packages / file))
        (out / NAME).write_bytes(archive.read_bytes())
    return out / NAME


def needed(extras: Sequence[str]) -> list[Distribution]:
    """What is installed here of this project's dependencies and of theirs."""
    found: dict[str, Distribution] = {}
    _follow(distribution(_PROJECT), extras, found)
    return [found[name] for name in sorted(found)]


def _follow(each: Distribution, extras: Sequence[str], found: dict[str, Distribution]) -> None:
    for text in each.requires or ():
        wanted = Requirement(text)
        name = canonicalize_name(wanted.name)
        applies = wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if applies and name not in _FROM_SPARK and name not in found:
            found[name] = distribution(name)
            _follow(found[name], sorted(wanted.extras), found)


def main(argv: Sequence[str]) -> int:
    """Build and say what is where."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.environment", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist"))
    parser.add_argument("--extras", default=",".join(_EXTRAS), help="of this project, with commas between them")
    given = parser.parse_args(argv)
    made = build_environment(given.out, given.extras.split(","))
    print(f"{made.stat().st_size:>10,}  {made}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
