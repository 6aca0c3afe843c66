"""Every engine that can be had here reads what docs/reference/readers.md says of it, on every kind of table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.interop.readers import measure
from tests.support.readers_page import FOUND

pytestmark = pytest.mark.hudi_jar


def test_engines_read_what_the_page_says(tmp_path: Path) -> None:
    """Another result than the recorded one: look at it, then run ``python -m tests.interop.readers`` and write the page."""
    assert measure(tmp_path) == json.loads(FOUND.read_text())
