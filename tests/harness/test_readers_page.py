"""docs/reference/readers.md is what the recorded results give."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import readers_page
from tests.support.readers_page import SHAPES, page


def test_the_page_is_not_stale() -> None:
    assert readers_page.main(["--check"]) == 0


def test_a_stale_page_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers_page, "PAGE", tmp_path / "readers.md")
    (tmp_path / "readers.md").write_text("old")
    assert readers_page.main(["--check"]) == 1
    assert readers_page.main() == 0
    assert readers_page.main(["--check"]) == 0


def test_every_result_has_its_words() -> None:
    all_rows = {"reads": "all", "rows": 9, "there": 9}
    found = {shape.name: all_rows for shape in SHAPES}
    found["cow_v6"] = {"reads": "nothing", "says": "no way"}
    found["cow_v6_metadata"] = {"reads": "wrong", "rows": 8, "there": 9, "missing": 2, "extra": 1}
    found["mor_v9"] = found["mor_v9_metadata"] = {"reads": "base", "rows": 8, "there": 9, "missing": 2, "extra": 1}
    text = page({"an engine": found})
    (copy_on_write, merge_on_read) = (line for line in text.splitlines() if line.startswith("| an engine |"))
    numbers = "7 of 9 rows, 1 old"
    assert copy_on_write == f"| an engine | error 1; with a metadata table: **wrong**: {numbers} | all rows |"
    assert merge_on_read == f"| an engine | all rows | all rows | **base files alone**: {numbers} | all rows |"
    assert "1. `no way`" in text
