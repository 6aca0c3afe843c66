"""Properties files as HoodieStreamer reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.streaming.options.cli import read_properties
from tagstream.table.errors import ConfigError


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_lines_comments_backslashes_and_continuation(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a.properties",
        "\ufeff# comment\r\n\r\n! another\nbootstrap.servers = h1:9092,h2:9092 \na=b=c\nempty=\n"
        'sasl.jaas.config=x.PlainLoginModule required \\\n   username="u" \\\n   password="a\\b";\nlast=1',
    )
    entries = {e.key: e for e in read_properties(path)}
    assert {k: e.value for k, e in entries.items()} == {
        "bootstrap.servers": "h1:9092,h2:9092",
        "a": "b=c",
        "empty": "",
        "sasl.jaas.config": 'x.PlainLoginModule required username="u" password="a\\b";',
        "last": "1",
    }
    assert entries["sasl.jaas.config"].origin == f"{path}:7"
    assert entries["last"].origin == f"{path}:10"


def test_include_stands_where_it_is_written(tmp_path: Path) -> None:
    write(tmp_path, "base.properties", "a=1\nb=1\n")
    path = write(tmp_path, "job.properties", "a=0\ninclude=base.properties\nb=2\n")
    assert [(e.key, e.value) for e in read_properties(path)] == [("a", "0"), ("a", "1"), ("b", "1"), ("b", "2")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1\nhunter2\n", "job.properties:2: expected key=value"),
        ("=x\n", "job.properties:1: expected key=value"),
        ("include=job.properties\n", "includes itself"),
        ("include=none.properties\n", "cannot read properties file"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, "job.properties", text)
    with pytest.raises(ConfigError) as e:
        read_properties(path)
    assert message in str(e.value)
    assert "hunter2" not in str(e.value)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.properties"
    path.write_bytes(b"a=\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_properties(path)
