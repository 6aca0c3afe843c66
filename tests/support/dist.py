"""What is handed to others: a wheel, the same as a zip for ``spark-submit --py-files``, and the job's program.

``python -m tests.support.dist --out dist``. Built from a copy of the sources, so that nothing which an earlier build left
in the tree gets in; the same sources make the same bytes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.paths import ROOT

_SOURCES = ("pyproject.toml", "README.md", "LICENSE")
_EPOCH = "315532800"  # 1980, where zip files begin


def build(out: Path) -> tuple[Path, Path]:
    """The wheel and the zip, in `out` with a copy of ``run_stream.py``."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tagstream-dist-") as scratch:
        tree, wheels = Path(scratch, "tree"), Path(scratch, "wheels")
        shutil.copytree(ROOT / "tagstream", tree / "tagstream", ignore=shutil.ignore_patterns("__pycache__"))
        for name in _SOURCES:
            shutil.copy(ROOT / name, tree)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        command = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(tree)]
        subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": _EPOCH})
        (built,) = wheels.glob("*.whl")
        wheel = Path(shutil.copy(built, out))
    # Spark takes a zip by its name only; a wheel is one.
    zipped = Path(shutil.copy(wheel, out / f"{'-'.join(wheel.name.split('-')[:2])}.zip"))
    shutil.copy(ROOT / "run_stream.py", out)
    return wheel, zipped


def main(argv: Sequence[str]) -> int:
    """Build and say what is where."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.dist", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist"))
    out = parser.parse_args(argv).out
    build(out)
    for path in sorted(out.iterdir()):
        print(f"{path.stat().st_size:>10,}  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
