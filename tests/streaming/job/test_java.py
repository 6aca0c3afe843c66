"""No Java, none in JAVA_HOME, one that is too old: said before Spark is asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tagstream.streaming.errors import EnvironmentProblemError
from tagstream.streaming.job.environment import check_java


def a_java(folder: Path, says: str, code: int = 0) -> Path:
    """A program that answers ``-version`` as a Java would."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return folder


def test_the_java_of_this_machine_is_right() -> None:
    check_java(os.environ)


@pytest.mark.parametrize("says", ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023-09-19 LTS'])
def test_versions_that_will_do(tmp_path: Path, says: str) -> None:
    home = a_java(tmp_path / "jdk", says)
    check_java({"JAVA_HOME": str(home)})
    check_java({"PATH": str(home / "bin")})


def test_none_on_the_path(tmp_path: Path) -> None:
    with pytest.raises(
        EnvironmentProblemError, match=r"Java 17, but JAVA_HOME is not set and the PATH has no java; inst"
    ):
        check_java({"PATH": str(tmp_path)})


def test_java_home_goes_before_the_path_and_is_named(tmp_path: Path) -> None:
    good = a_java(tmp_path / "good", 'openjdk version "17.0.1"')
    with pytest.raises(EnvironmentProblemError, match=rf"JAVA_HOME={tmp_path / 'none'} has no bin/java"):
        check_java({"JAVA_HOME": str(tmp_path / "none"), "PATH": str(good / "bin")})


@pytest.mark.parametrize(
    ("says", "code", "words"),
    [
        ('openjdk version "1.8.0_392"', 0, "is Java 8; install Java 17"),
        ('openjdk version "11.0.2"', 0, "is Java 11;"),
        ("cannot open shared object", 127, "is not a Java that runs (exit code 127: cannot open shared object)"),
    ],
)
def test_one_that_will_not_do(tmp_path: Path, says: str, code: int, words: str) -> None:
    home = a_java(tmp_path / "jdk", says, code)
    with pytest.raises(EnvironmentProblemError) as e:
        check_java({"JAVA_HOME": str(home)})
    assert words in str(e.value)
    assert str(home / "bin" / "java") in str(e.value)
