"""The project file says what is there: packages, pins, the console script."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

import tagstream
from tagstream.version import VERSION
from tests.support.packages import PRODUCT
from tests.support.paths import PACKAGE, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LINKS = ("bootstrap", "state", "streaming")


def sources() -> list[Path]:
    return [path for top in ("tagstream", "bench", "tests") for path in (ROOT / top).rglob("*.py")]


def requirements() -> list[str]:
    extras = PROJECT["project"]["optional-dependencies"].values()
    return [*PROJECT["project"]["dependencies"], *(each for extra in extras for each in extra)]


def test_the_package_is_real_folders_and_three_links_lead_into_it() -> None:
    for name in LINKS:
        link = ROOT / name
        # Git makes a text file of a link where a file system has none.
        leads_to = str(link.readlink()) if link.is_symlink() else link.read_text("utf-8")
        assert leads_to == f"tagstream/{name}"
    assert [path for path in PACKAGE.rglob("*") if path.is_symlink()] == []
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()} == set(PRODUCT)
    assert PROJECT["tool"]["setuptools"]["packages"]["find"]["include"] == ["tagstream*"]


def test_the_version_stands_in_one_place() -> None:
    assert tagstream.__version__ == VERSION
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "tagstream.version.VERSION"}


def test_lint_leaves_no_folder_of_sources_out() -> None:
    """A pattern without a slash means every folder of that name, wherever it is."""
    names = {pattern for pattern in PROJECT["tool"]["ruff"]["extend-exclude"] if "/" not in pattern}
    assert [path for path in sources() if names.intersection(path.relative_to(ROOT).parts)] == []


def test_every_folder_of_sources_is_a_package() -> None:
    folders = {path.parent for path in sources()}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_direct_dependencies_are_pinned_by_the_constraints() -> None:
    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    constraints = (ROOT / "conf" / "constraints.txt").read_text("utf-8").split()
    pinned = {normal(name): number for name, _, number in (line.partition("==") for line in constraints)}
    for requirement in map(Requirement, requirements()):
        number = pinned.get(normal(requirement.name), "")
        assert requirement.specifier.contains(number), requirement
        assert version(requirement.name) == number, f"{requirement}: installed is not {number}; run make install"


def test_installing_the_package_leaves_a_spark_that_is_there_alone() -> None:
    needed = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    assert not needed & {"pyspark", "pyspark-client", "py4j"}


def test_the_package_folders_hold_one_docstring_and_no_logic() -> None:
    for folder in (*(PACKAGE / name for name in PRODUCT), ROOT / "bench"):
        text = (folder / "__init__.py").read_text("utf-8")
        assert text.startswith('"""'), folder


def test_no_file_grew_over_400_lines() -> None:
    assert {path.name: n for path in sources() if (n := len(path.read_text("utf-8").splitlines())) > 400} == {}
