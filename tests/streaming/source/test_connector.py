"""Finding and fetching jars, against stand-ins for Maven: no network is used here."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.connector import brings_connector, fetch_jars, jar_cache


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
    with pytest.raises(SourceError, match=r"the PATH has no Maven \(mvn\).*Install Maven, or copy"):
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
    with pytest.raises(SourceError, match="has no jars. Delete that folder"):
        fetch_jars(pom, tmp_path / "cache", env=env)


def test_a_missing_pom_says_so(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="kafka-connector.xml is missing"):
        fetch_jars(tmp_path / "kafka-connector.xml", tmp_path)


def test_a_checkout_keeps_its_jars_and_an_installed_package_uses_the_users_cache(tmp_path: Path) -> None:
    assert jar_cache(tmp_path, {"HOME": "/h"}) == Path("/h/.cache/tagstream/jars")
    assert jar_cache(tmp_path, {"HOME": "/h", "XDG_CACHE_HOME": "/c"}) == Path("/c/tagstream/jars")
    (tmp_path / "pyproject.toml").touch()
    assert jar_cache(tmp_path, {"HOME": "/h"}) == tmp_path / ".jars"


def test_a_pom_inside_a_zip_is_used_too(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as out:
        out.writestr("conf/some-jars.xml", "<project/>")
    env = stand_in(
        tmp_path, 'while [ "$1" != -f ]; do shift; done; grep -q "<project/>" "$2" && mkdir "$OUT"; touch "$OUT/a.jar"'
    )
    pom = zipfile.Path(tmp_path / "p.zip", "conf/some-jars.xml")
    assert [jar.name for jar in fetch_jars(pom, tmp_path / "cache", env=env)] == ["a.jar"]
    assert len(list((tmp_path / "cache").iterdir())) == 1, "nothing of Maven's work is left"


def test_a_connector_that_the_user_brings_is_seen() -> None:
    assert brings_connector({"spark.jars.packages": "a:b:1,org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"})
    assert brings_connector({"spark.jars": "file:/x/spark-sql-kafka-0-10_2.13-4.2.0.jar"})
    assert brings_connector({"spark.yarn.dist.jars": "file:/x/spark-sql-kafka-0-10_2.13-4.2.0.jar"})
    assert not brings_connector({"spark.jars": "file:/x/other.jar", "spark.app.name": "spark-sql-kafka-0-10"})
