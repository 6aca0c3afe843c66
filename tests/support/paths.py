"""Where the checkout and its fixtures are, whatever folder a test stands in."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tagstream"
FIXTURES = ROOT / "tests" / "fixtures"
TABLES = FIXTURES / "tables"
VECTORS = FIXTURES / "vectors"
