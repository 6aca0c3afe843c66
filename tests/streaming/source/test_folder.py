"""A folder of jars that a user names, filled by a repository on loopback or by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.jars import Jar, check_folder, given_folder, jars_in
from tests.support.kafka_broker import free_ports
from tests.support.repository import Repository, running

CONTENT = {"org/a/a/1/a-1.jar": b"first", "org/b/b/2/b-2.jar": b"second" * 100_000}
JARS = [Jar(path, hashlib.sha256(content).hexdigest()) for path, content in CONTENT.items()]


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    with running(Repository(tmp_path / "repository")) as out:
        for path, content in CONTENT.items():
            out.put(path, content)
        yield out


def test_what_is_missing_is_fetched_and_only_that(repository: Repository, tmp_path: Path) -> None:
    folder, env = tmp_path / "a" / "jars", {"TAGSTREAM_MAVEN_URL": f"{repository.url}/"}
    found = jars_in(folder, JARS, env)
    assert [(jar.name, jar.read_bytes()) for jar in found] == [("a-1.jar", b"first"), ("b-2.jar", b"second" * 100_000)]
    assert sorted(path.name for path in folder.iterdir()) == ["a-1.jar", "b-2.jar"]
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in found), "a job may run as another user"
    found[0].unlink()
    repository.asked.clear()
    assert jars_in(folder, JARS, env) == found
    assert repository.asked == ["/maven2/org/a/a/1/a-1.jar"]


def test_a_folder_that_was_filled_by_hand_needs_no_network(tmp_path: Path) -> None:
    for path, content in CONTENT.items():
        (tmp_path / path.rpartition("/")[2]).write_bytes(content)
    (tmp_path / "of-something-else.jar").touch()
    env = {"TAGSTREAM_MAVEN_URL": f"http://127.0.0.1:{free_ports(1)[0]}"}
    check_folder(tmp_path, JARS, env)
    assert [jar.name for jar in jars_in(tmp_path, JARS, env)] == ["a-1.jar", "b-2.jar"]


def test_half_a_jar_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "b-2.jar").write_bytes(b"second")
    with pytest.raises(
        SourceError, match=r"b-2\.jar is not the released file.*Delete it and run `tagstream fetch-jars`"
    ):
        jars_in(tmp_path, JARS, {})


def test_a_folder_that_takes_nothing_lists_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "jars"  # where root makes no files either
    for call in (check_folder, jars_in):
        with pytest.raises(SourceError) as e:
            call(folder, JARS, {})
        assert str(e.value).splitlines()[1:] == [f"  https://repo1.maven.org/maven2/{path}" for path in CONTENT]
        assert f"{folder} lacks 2 jars and can't be written to. Run `tagstream fetch-jars`" in str(e.value)


def test_a_file_that_differs_is_not_kept(repository: Repository, tmp_path: Path) -> None:
    repository.put("org/b/b/2/b-2.jar", b"<html>log in, please</html>")
    env = {"TAGSTREAM_MAVEN_URL": repository.url}
    with pytest.raises(SourceError, match=r"b-2\.jar has the SHA-256 .* and not .*Set TAGSTREAM_MAVEN_URL to another"):
        jars_in(tmp_path / "jars", JARS, env)
    assert [path.name for path in (tmp_path / "jars").iterdir()] == ["a-1.jar"], "what was whole stays"


def test_what_a_repository_lacks_is_named(repository: Repository, tmp_path: Path) -> None:
    jars = [Jar("org/c/c/3/c-3.jar", "0" * 64)]
    with pytest.raises(
        SourceError, match=r"org/c/c/3/c-3\.jar: the repository answered 404 .*or copy the file to .*jars"
    ):
        jars_in(tmp_path / "jars", jars, {"TAGSTREAM_MAVEN_URL": repository.url})


def test_no_network_says_what_to_do(tmp_path: Path) -> None:
    env = {"TAGSTREAM_MAVEN_URL": f"http://127.0.0.1:{free_ports(1)[0]}"}
    with pytest.raises(
        SourceError, match=r"a-1\.jar could not be downloaded: .*refused.*fetch-jars --out FOLDER.*_JARS"
    ):
        jars_in(tmp_path / "jars", JARS, env)
    assert list((tmp_path / "jars").iterdir()) == []


def test_a_mirror_with_a_login_is_asked_with_it_and_the_password_is_not_shown(
    repository: Repository, tmp_path: Path
) -> None:
    repository.login = "me:p@ss"
    url = f"http://me:p%40ss@{repository.host}/maven2"
    assert len(jars_in(tmp_path / "jars", JARS, {"TAGSTREAM_MAVEN_URL": url})) == 2
    repository.login = "me:other"
    with pytest.raises(SourceError, match="the repository answered 401") as e:
        jars_in(tmp_path / "others", JARS, {"TAGSTREAM_MAVEN_URL": url})
    assert "p%40ss" not in str(e.value) and "p@ss" not in str(e.value)


@pytest.mark.parametrize("url", ["repo.example/maven2", "ftp://me:secret@repo.example/maven2"])
def test_what_is_not_a_url_is_refused_and_no_password_shown(tmp_path: Path, url: str) -> None:
    with pytest.raises(
        SourceError, match=r"TAGSTREAM_MAVEN_URL must be a URL like https://host/path.*repo\.example"
    ) as e:
        jars_in(tmp_path, JARS, {"TAGSTREAM_MAVEN_URL": url})
    assert "secret" not in str(e.value)


def test_an_empty_name_of_a_folder_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert given_folder({"TAGSTREAM_JARS": ""}) is None
    assert given_folder({"TAGSTREAM_JARS": "j"}) == tmp_path / "j", "Spark's own folder may be another one"
