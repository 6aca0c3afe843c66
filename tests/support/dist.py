"""What is handed to others: a wheel, the same as a zip for ``spark-submit --py-files``, the sources, and the job's program.

``python -m tests.support.dist --out dist``. Built from a copy of the sources, so that nothing which an earlier build left
in the tree gets in; the same sources make the same bytes. The wheel of the unpacked sources is the same wheel.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.paths import ROOT

_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
_EPOCH = "315532800"  # 1980, where zip files begin
_BACKEND = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"


def build(out: Path) -> tuple[Path, Path]:
    """The wheel and the zip, in `out` with a copy of ``run_stream.py``."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tagstream-dist-") as scratch:
        wheel = build_wheel(_tree(Path(scratch)), out)
    # Spark takes a zip by its name only; a wheel is one.
    zipped = Path(shutil.copy(wheel, out / f"{'-'.join(wheel.name.split('-')[:2])}.zip"))
    shutil.copy(ROOT / "run_stream.py", out)
    return wheel, zipped


def build_wheel(tree: Path, out: Path) -> Path:
    """The wheel of the project in ``tree``, in ``out``. The build leaves files in ``tree``."""
    with tempfile.TemporaryDirectory(prefix="tagstream-wheel-") as wheels:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        command = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, str(tree)]
        subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": _EPOCH})
        (built,) = Path(wheels).glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(built, out))


def build_sdist(out: Path) -> Path:
    """The sources that a wheel can be built of, as ``tagstream-<version>.tar.gz`` in ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tagstream-sdist-") as scratch:
        tree = _tree(Path(scratch))
        # Else setuptools takes what its own lists name, and the changes are not on them.
        (tree / "MANIFEST.in").write_text("include CHANGELOG.md\n")
        command = [sys.executable, "-c", _BACKEND, scratch]
        subprocess.run(command, check=True, cwd=tree, stdout=subprocess.DEVNULL)
        (built,) = Path(scratch).glob("*.tar.gz")
        made = out / built.name
        _pack_again(built, made)
    return made


def _tree(scratch: Path) -> Path:
    tree = scratch / "tree"
    shutil.copytree(ROOT / "tagstream", tree / "tagstream", ignore=shutil.ignore_patterns("__pycache__"))
    for name in _SOURCES:
        shutil.copy(ROOT / name, tree)
    return tree


def _pack_again(built: Path, made: Path) -> None:
    """The same members in the order of their names, without the time of the build and its user."""
    with (
        tarfile.open(built) as found,
        made.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for member in sorted(found.getmembers(), key=lambda each: each.name):
            entry = tarfile.TarInfo(member.name)
            entry.type, entry.size, entry.mtime = member.type, member.size, int(_EPOCH)
            entry.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            archive.addfile(entry, found.extractfile(member) if member.isfile() else None)


def main(argv: Sequence[str]) -> int:
    """Build and say what is where."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.dist", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist"))
    out = parser.parse_args(argv).out
    build(out)
    build_sdist(out)
    for path in sorted(out.iterdir()):
        print(f"{path.stat().st_size:>10,}  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
