"""docs/reference/configuration.md is what the key table gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.streaming.options.keys import docs as keys_docs
from tagstream.streaming.options.keys.registry import REGISTRY


def test_the_page_is_not_stale() -> None:
    assert keys_docs.main(["--check"]) == 0


def test_a_stale_page_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_docs, "PAGE", tmp_path / "docs" / "configuration.md")
    assert keys_docs.main(["--check"]) == 1
    assert keys_docs.main([]) == 0
    assert keys_docs.main(["--check"]) == 0


def test_every_key_is_on_the_page() -> None:
    text = keys_docs.page()
    for key in REGISTRY.keys:
        assert f"`{key.name}`" in text or f"`{key.flag}`" in text
        assert key.doc
