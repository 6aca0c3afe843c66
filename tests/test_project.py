"""The project file says what is there: packages, pins, the console script."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import tagstream
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
TOP_LEVEL = ("admin", "bench", "bootstrap", "index", "state", "streaming", "table")


def requirements() -> list[str]:
    extras = PROJECT["project"]["optional-dependencies"].values()
    return [*PROJECT["project"]["dependencies"], *(each for extra in extras for each in extra)]


def test_the_package_links_every_folder_of_the_product() -> None:
    """One import name: `tagstream.state` is `state/`, in a checkout and in a wheel, and nothing else is installed."""
    links = {path.name: path.readlink() for path in (ROOT / "tagstream").iterdir() if path.is_symlink()}
    assert links == {name: Path("..") / name for name in (*TOP_LEVEL, "conf") if name != "bench"}
    assert PROJECT["tool"]["setuptools"]["packages"]["find"]["include"] == ["tagstream*"]


def test_the_program_says_the_version_of_the_project() -> None:
    assert tagstream.__version__ == PROJECT["project"]["version"]


def test_every_folder_of_sources_is_a_package() -> None:
    folders = {path.parent for top in (*TOP_LEVEL, "tests") for path in (ROOT / top).rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_direct_dependencies_are_pinned_as_in_the_constraints() -> None:
    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    constraints = (ROOT / "conf" / "constraints.txt").read_text("utf-8").split()
    pinned = {normal(name): number for name, _, number in (line.partition("==") for line in constraints)}
    for requirement in requirements():
        name, _, number = requirement.partition("==")
        assert pinned.get(normal(name)) == number, requirement
        assert version(name) == number, f"{requirement}: installed is {version(name)}; run make install"


def test_the_package_folders_hold_one_docstring_and_no_logic() -> None:
    for top in TOP_LEVEL:
        text = (ROOT / top / "__init__.py").read_text("utf-8")
        assert text.startswith('"""'), top


def test_no_file_grew_over_400_lines() -> None:
    sources = [path for top in (*TOP_LEVEL, "tests") for path in (ROOT / top).rglob("*.py")]
    assert {path.name: n for path in sources if (n := len(path.read_text("utf-8").splitlines())) > 400} == {}
