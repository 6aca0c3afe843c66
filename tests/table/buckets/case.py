"""Tables with consistent hashing for tests: real Hudi's, and new ones with given rings."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.support import paths

RESIZED = "20260101000000500"


def hudis_table(folder: Path) -> HoodieTable:
    """The table of tests/fixtures/buckets."""
    with tarfile.open(paths.FIXTURES / "buckets/consistent_v9.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return HoodieTable.open(str(folder / "table"))


def hudis_rows() -> list[dict[str, Any]]:
    """The rows of that table, from how it was made."""
    rows = [{"id": f"k{n}", "ver": 1, "name": f"n{n}", "part": f"p{n % 2}"} for n in range(120)]
    for count, ver, name in ((10, 2, "u"), (5, 3, "u3"), (5, 4, "u4")):
        for row in rows[:count]:
            row |= {"ver": ver, "name": name}
    return sorted(rows, key=lambda row: str(row["id"]))
