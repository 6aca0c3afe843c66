"""docs/reference/configuration.md is what the key table gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.streaming.options.registry import REGISTRY
from tests.support import configuration_page


def test_the_page_is_not_stale() -> None:
    assert configuration_page.main(["--check"]) == 0


def test_a_stale_page_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration_page, "PAGE", tmp_path / "docs" / "configuration.md")
    assert configuration_page.main(["--check"]) == 1
    assert configuration_page.main([]) == 0
    assert configuration_page.main(["--check"]) == 0


def test_every_key_is_on_the_page() -> None:
    text = configuration_page.page()
    for key in REGISTRY.keys:
        assert f"`{key.name}`" in text or f"`{key.flag}`" in text
        assert key.doc
