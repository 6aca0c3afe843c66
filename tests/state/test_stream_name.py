"""Which spellings of a folder are one stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.state.checkpoint import same_stream


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("orders", "orders", True),
        ("orders", "flights", False),
        ("/data/in", "/data/in/", True),
        ("/data/in", "file:///data/in", True),
        ("/data/a b", "file:///data/a%20b", True),
        ("/home/u/out/in", "out/in", True),
        ("/home/u/out/in", "./out/in/", True),
        ("/home/u/out/in", "t/in", False),
        ("/home/u/out/in", "../out/in", False),
        ("/data/in", "/data/other", False),
        ("/data/orders", "orders", False),  # it may be a topic
        ("out/in", "in", False),
    ],
)
def test_spellings(one: str, other: str, same: bool) -> None:
    assert same_stream(one, other) is same
    assert same_stream(other, one) is same


def test_a_word_is_a_folder_of_the_working_directory_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert same_stream(str(tmp_path / "in"), "in")


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert same_stream(str(tmp_path / "link"), str(tmp_path / "real"))
    assert not same_stream(str(tmp_path / "gone"), str(tmp_path / "real"))
