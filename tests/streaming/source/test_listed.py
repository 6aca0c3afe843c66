"""The lists of jars, held against the poms that they come from and against the jars that Maven has fetched here."""

from __future__ import annotations

import hashlib
import re

import pytest

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.connector import connector_jars
from tagstream.streaming.source.jars import list_name, listed
from tests.support.jar_lists import lists
from tests.support.paths import PACKAGE


def test_there_is_a_list_for_each_release_and_no_other() -> None:
    wanted = {list_name(pom, release, scala) for pom, release, scala, _ in lists()}
    assert {path.name for path in (PACKAGE / "conf" / "jars").iterdir()} == wanted


@pytest.mark.parametrize(("pom", "release", "scala", "versions"), list(lists()))
def test_a_list_has_what_its_pom_names(
    pom: str, release: tuple[int, int], scala: str, versions: dict[str, str]
) -> None:
    text = (PACKAGE / "conf" / "poms" / f"{pom}.xml").read_text("utf-8")
    told = dict(re.findall(r"<(\w+)>([^<>]+)</\1>", text.partition("<properties>")[2].partition("</properties>")[0]))
    for name, value in {**told, **versions}.items():
        text = text.replace(f"${{{name}}}", value)
    named = re.findall(r"<groupId>([^<]+)</groupId>\s*<artifactId>([^<]+)</artifactId>\s*<version>([^<]+)<", text)[1:]
    there = {jar.path for jar in listed(pom, release, scala)}
    direct = {f"{group.replace('.', '/')}/{a}/{v}/{a}-{v}.jar" for group, a, v in named}
    assert len(direct) >= 4 and direct <= there
    assert pom != "kafka-connector" or direct == there, "its pom leaves out all that the jars ask for"


def test_what_lies_in_the_cache_is_what_is_listed() -> None:
    found = {(jar.name, hashlib.sha256(jar.read_bytes()).hexdigest()) for jar in connector_jars()}
    assert {(jar.name, jar.sha256) for jar in listed("kafka-connector")} == found


def test_a_list_that_is_missing_is_named() -> None:
    with pytest.raises(SourceError, match=r"kafka-connector-spark-9\.9-scala-2\.13\.txt is missing"):
        listed("kafka-connector", (9, 9), "2.13")
