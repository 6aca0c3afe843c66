"""Which tier a test is in, and that a mark without a reason or for no variant is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

MODULE = """
import pytest

def test_plain(): ...

@pytest.mark.extended("takes long")
def test_long(): ...

@pytest.mark.extended("more kinds", first=("b",))
@pytest.mark.parametrize("kind", ["a", "b"])
def test_kinds(kind): ...

@pytest.mark.extended("very many kinds", first=("b",), second=("c", "d"))
@pytest.mark.parametrize("kind", ["a", "b", "c", "d", "e"])
def test_many_kinds(kind): ...

@pytest.mark.hbase
def test_server(): ...

@pytest.fixture
def hdfs_server(): ...

@pytest.fixture
def topic(kafka_broker): ...

def test_by_fixture(hdfs_server): ...

def test_by_what_a_fixture_needs(topic): ...

@pytest.mark.table_versions(6, 8, 9)
def test_versions(version): ...
"""
FIRST = ["test_plain", "test_kinds[b]", "test_many_kinds[b]", "test_versions[v6]", "test_versions[v9]"]
SECOND = [
    "test_long",
    "test_kinds[a]",
    "test_many_kinds[c]",
    "test_many_kinds[d]",
    "test_server",
    "test_by_fixture",
    "test_by_what_a_fixture_needs",
]


def collected(folder: Path, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A collection of one module under the project's own conftest.py."""
    (folder / "conftest.py").write_text(
        "from tests.conftest import *  # noqa: F403\nfrom tests.conftest import _of_version\n"
    )
    (folder / "pytest.ini").write_text(
        "[pytest]\ntestpaths = .\naddopts = -m 'not between and not drill'\n"
        "markers =\n    extended\n    between\n    drill\n    hbase\n    matrix\n    platform\n    table_versions\n"
    )
    (folder / "test_it.py").write_text(module)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *words]
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "SPARK_SUBMIT_OPTS": "-Dnone"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def names(output: str) -> list[str]:
    return [line.partition("::")[2] for line in output.splitlines() if "::" in line]


@pytest.mark.extended("it looks at the whole of the sources, as `make check` does")
def test_each_test_is_in_one_tier(tmp_path: Path) -> None:
    assert names(collected(tmp_path, MODULE, "--tier", "first").stdout) == FIRST
    second = collected(tmp_path, MODULE, "--tier", "second").stdout
    assert names(second) == SECOND
    assert "1  takes long" in second and "2  very many kinds" in second
    assert len(names(collected(tmp_path, MODULE).stdout)) == len(FIRST) + len(SECOND)
    matrix = collected(tmp_path, MODULE, "-m", "matrix").stdout
    assert names(matrix) == ["test_many_kinds[a]", "test_many_kinds[e]"]


def test_one_variant_of_each_function_of_a_platform(tmp_path: Path) -> None:
    marked = MODULE.replace("@pytest.mark.parametrize", '@pytest.mark.platform("kinds")\n@pytest.mark.parametrize')
    done = collected(tmp_path, marked, "--platform", "--tier", "second", "--one-variant")
    assert names(done.stdout) == ["test_kinds[a]", "test_many_kinds[c]"], done.stdout
    everything = names(collected(tmp_path, marked, "--platform").stdout)
    assert everything == [f"test_kinds[{k}]" for k in "ab"] + [f"test_many_kinds[{k}]" for k in "bcd"]


@pytest.mark.parametrize("mark", ["extended", "extended()", "extended(' ')"])
def test_a_mark_without_a_reason_is_refused(tmp_path: Path, mark: str) -> None:
    done = collected(tmp_path, f"import pytest\n\n@pytest.mark.{mark}\ndef test_it(): ...\n")
    assert done.returncode == 4
    assert "the mark extended takes one argument, the reason" in done.stderr


def test_a_variant_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = collected(tmp_path, MODULE.replace('first=("b",)', 'first=("c",)'), "--tier", "first")
    assert done.returncode == 4
    assert "names no such variant: " in done.stderr and "test_kinds: c" in done.stderr
