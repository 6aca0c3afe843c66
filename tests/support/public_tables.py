"""Tables that public projects keep as test data (tests/fixtures/public), unpacked for a test."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.support.paths import ROOT

PLACE = ROOT / "tests" / "fixtures" / "public"
NAMES = sorted(path.name.removesuffix(".tar.gz") for path in PLACE.glob("*.tar.gz"))


def unpack(name: str, folder: Path) -> Path:
    """The table ``name`` as ``folder/table``."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(PLACE / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return (folder / name).rename(folder / "table")
