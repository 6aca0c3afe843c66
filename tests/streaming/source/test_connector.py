"""Finding and fetching jars, against stand-ins for Maven: no network is used here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.connector import connector_jars, fetch_jars


@pytest.fixture
def pom(tmp_path: Path) -> Path:
    path = tmp_path / "some-jars.xml"
    path.write_text("<project/>")
    return path


def stand_in(tmp_path: Path, script: str) -> dict[str, str]:
    """Environment whose only mvn is `script`; $OUT is the output folder it was given."""
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nfor a in "$@"; do OUT=${{a#-DoutputDirectory=}}; done\n{script}\n')
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:/bin:/usr/bin"}


def test_jars_are_fetched_once_and_then_found(pom: Path, tmp_path: Path) -> None:
    env = stand_in(tmp_path, f'echo x >> {tmp_path}/calls; mkdir "$OUT"; touch "$OUT/b.jar" "$OUT/a.jar"')
    first = fetch_jars(pom, tmp_path / "cache", env=env)
    assert [jar.name for jar in first] == ["a.jar", "b.jar"]
    assert fetch_jars(pom, tmp_path / "cache", env={"PATH": ""}) == first
    assert (tmp_path / "calls").read_text() == "x\n"


def test_an_edited_pom_is_fetched_again(pom: Path, tmp_path: Path) -> None:
    env = stand_in(tmp_path, 'mkdir "$OUT"; touch "$OUT/a.jar"')
    first = fetch_jars(pom, tmp_path / "cache", env=env)
    pom.write_text("<project><version>2</version></project>")
    assert fetch_jars(pom, tmp_path / "cache", env=env) != first


def test_no_maven_says_so(pom: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no Maven \(mvn\) on the PATH.*Install Maven, or copy"):
        fetch_jars(pom, tmp_path / "cache", env={"PATH": str(tmp_path)})


def test_offline_says_so(pom: Path, tmp_path: Path) -> None:
    env = stand_in(tmp_path, "echo '[ERROR] Could not transfer artifact x from central: Unknown host repo'; exit 1")
    with pytest.raises(SourceError, match="could not reach a repository.*Unknown host repo.*with network"):
        fetch_jars(pom, tmp_path / "cache", env=env)


def test_a_failed_fetch_leaves_nothing_behind(pom: Path, tmp_path: Path) -> None:
    env = stand_in(tmp_path, 'mkdir "$OUT"; touch "$OUT/half.jar"; echo "[ERROR] broken pom"; exit 1')
    with pytest.raises(SourceError, match=r"exit code 1\): broken pom"):
        fetch_jars(pom, tmp_path / "cache", env=env)
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_emptied_folder_says_what_to_delete(pom: Path, tmp_path: Path) -> None:
    env = stand_in(tmp_path, 'mkdir "$OUT"; touch "$OUT/a.jar"')
    (jar,) = fetch_jars(pom, tmp_path / "cache", env=env)
    jar.unlink()
    with pytest.raises(SourceError, match="holds no jars. Delete that folder"):
        fetch_jars(pom, tmp_path / "cache", env=env)


def test_a_missing_pom_says_so(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="kafka-connector.xml is missing"):
        connector_jars(tmp_path)
