"""The sources as they are handed out, and as they arrive where a file system has no links: the same wheel comes of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.cluster import bare_python
from tests.support.dist import build, build_sdist, build_wheel
from tests.support.paths import ROOT

LINKS = ("bootstrap", "state", "streaming")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))[0]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is committed and what is changed since, as git brings it to a file system without links."""
    folder = tmp_path_factory.mktemp("clones") / "clone"
    plain = ["git", "-c", "core.symlinks=false"]
    subprocess.run([*plain, "clone", "--quiet", "--no-local", "--depth", "1", f"file://{ROOT}", folder], check=True)
    changed = subprocess.run(["git", "diff", "--binary", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    if changed:
        subprocess.run([*plain, "apply", "--whitespace=nowarn", "-"], cwd=folder, input=changed, check=True)
    return folder


@pytest.mark.extended("builds the sources twice and a wheel of them")
def test_the_wheel_of_the_unpacked_sources_is_the_wheel(wheel: Path, tmp_path: Path) -> None:
    sdist = build_sdist(tmp_path / "one")
    assert sdist.read_bytes() == build_sdist(tmp_path / "two").read_bytes()
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path / "unpacked", filter="data")
    top = sdist.name.removesuffix(".tar.gz")
    assert {f"{top}/{name}" for name in ("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml")} <= set(names)
    assert {name.split("/")[1] for name in names if name.endswith(".py")} == {"tagstream"}
    again = build_wheel(tmp_path / "unpacked" / top, tmp_path / "wheels")
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


@pytest.mark.extended("clones the checkout and builds it")
def test_a_clone_without_links_makes_the_same_wheel(wheel: Path, clone: Path, tmp_path: Path) -> None:
    assert {name: (clone / name).read_text() for name in LINKS} == {name: f"tagstream/{name}" for name in LINKS}
    command = [sys.executable, "-m", "tests.support.dist", "--out", str(tmp_path / "dist")]
    subprocess.run(command, cwd=clone, env={**os.environ, "PYTHONPATH": str(clone)}, check=True)
    assert (tmp_path / "dist" / wheel.name).read_bytes() == wheel.read_bytes()
    # As `pip wheel .` and `pip install .` make it, of the folder itself.
    assert build_wheel(clone, tmp_path / "pip").read_bytes() == wheel.read_bytes()


@pytest.mark.extended("clones the checkout and installs it")
def test_a_clone_without_links_is_installed(clone: Path, tmp_path: Path) -> None:
    python = bare_python(tmp_path / "environment")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "--ignore-installed", str(clone)], check=True)
    (tmp_path / "elsewhere").mkdir()
    asked = subprocess.run(
        [python, "-m", "tagstream", "stream", "--version"],
        cwd=tmp_path / "elsewhere",
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert asked.stdout.startswith("tagstream 0.")


@pytest.mark.extended("clones the checkout and checks it")
def test_a_clone_without_links_is_checked(clone: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(clone)}
    for command in (
        ["ruff", "check", "--quiet", "--no-cache", "."],
        ["ruff", "format", "--check", "--quiet", "--no-cache", "."],
        ["pytest", "--quiet", "-p", "no:cacheprovider", "tests/test_project.py", "tests/test_layers.py"],
        # The tests' own folders of the links' names.
        ["pytest", "--collect-only", "-qq", "-p", "no:cacheprovider", *(f"tests/{name}" for name in LINKS)],
    ):
        done = subprocess.run([sys.executable, "-m", *command], cwd=clone, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"


@pytest.mark.extended("processes that are started, killed or paused")
def test_the_wheel_is_typed(wheel: Path) -> None:
    assert "tagstream/py.typed" in zipfile.ZipFile(wheel).namelist()
