"""``tagstream fetch-jars`` for the Spark that is installed; the repository is one on loopback, with the real jars."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from tagstream.cli.main import main
from tagstream.spark_release import RELEASE
from tagstream.streaming.source.connector import check_connector, connector_jars
from tagstream.streaming.source.jars import listed
from tests.support.kafka_broker import free_ports
from tests.support.repository import Repository, running

KAFKA = listed("kafka-connector")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    monkeypatch.delenv("TAGSTREAM_JARS", raising=False)
    there = connector_jars()
    with running(Repository(tmp_path / "repository")) as out:
        out.link(KAFKA, there)
        monkeypatch.setenv("TAGSTREAM_MAVEN_URL", out.url)
        yield out


def fetch(*argv: object) -> dict[str, object]:
    out = StringIO()
    assert main(["fetch-jars", "--json", *map(str, argv)], out) == 0, out.getvalue()
    answer: dict[str, object] = json.loads(out.getvalue())
    return answer


def test_the_jars_of_kafka_are_fetched_to_a_folder_where_a_job_finds_them(
    repository: Repository, tmp_path: Path
) -> None:
    answer = fetch("--kafka", "--out", tmp_path / "jars")
    there = {path.name: path for path in (tmp_path / "jars").iterdir()}
    assert answer["jars"] == [
        {"kind": "kafka", "name": name, "bytes": path.stat().st_size} for name, path in sorted(there.items())
    ]
    assert answer["folders"] == str(tmp_path / "jars") and answer["spark"] == f"{RELEASE[0]}.{RELEASE[1]}"
    assert {(jar.name, jar.sha256) for jar in KAFKA} == {
        (name, hashlib.sha256(path.read_bytes()).hexdigest()) for name, path in there.items()
    }
    # A job there has neither a network nor Maven, and the cache is not asked.
    env = {"TAGSTREAM_JARS": str(tmp_path / "jars"), "TAGSTREAM_MAVEN_URL": f"http://127.0.0.1:{free_ports(1)[0]}"}
    check_connector(env=env)
    assert connector_jars(env=env) == sorted(there.values())


def test_the_folder_of_the_environment_is_filled(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAGSTREAM_JARS", str(tmp_path / "mine"))
    assert fetch("--kafka")["folders"] == str(tmp_path / "mine")
    assert len(list((tmp_path / "mine").iterdir())) == len(KAFKA)


@pytest.mark.skipif(RELEASE == (3, 5), reason="no jars of S3A are known for Spark 3.5")
def test_what_can_not_be_had_is_one_error_and_what_was_fetched_stays(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fetch-jars", "--out", str(tmp_path / "jars")], StringIO()) == 1
    said = capsys.readouterr().err
    assert said.startswith("tagstream: error: ") and len(said.splitlines()) == 1
    assert "/hadoop-aws-3.5.0.jar: the repository answered 404" in said
    assert len(list((tmp_path / "jars").iterdir())) == len(KAFKA)


def test_a_cache_without_maven_is_filled_by_python(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tagstream.streaming.source.connector.PROJECT", tmp_path / "installed")
    env = {"PATH": "", "HOME": str(tmp_path / "home"), "TAGSTREAM_MAVEN_URL": repository.url}
    check_connector(env=env)
    assert not (tmp_path / "home").exists(), "a check fetches nothing"
    found = connector_jars(env=env)
    assert found[0].parent.parent == tmp_path / "home" / ".cache" / "tagstream" / "jars"
    assert [path.name for path in found[0].parent.parent.iterdir()] == [found[0].parent.name], "no scratch is left"
    assert [jar.name for jar in found] == sorted(jar.name for jar in KAFKA)
    repository.asked.clear()
    assert connector_jars(env=env) == found and repository.asked == []
