"""The table version that the tests' own tables get: one place, so that the same tests run on every version.

The environment variable ``TAGSTREAM_TEST_TABLE_VERSION`` sets it for a whole run. A test with the mark ``table_versions``
runs once on each of those that it names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_chosen = [int(os.environ.get("TAGSTREAM_TEST_TABLE_VERSION", "6"))]


def table_version() -> int:
    """The version that a new table of a test has."""
    return _chosen[-1]


@contextmanager
def using(version: int) -> Iterator[int]:
    """New tables have this version from here on."""
    _chosen.append(version)
    try:
        yield version
    finally:
        _chosen.pop()


def write_properties() -> dict[str, str]:
    """What tells a job the version of a table that it is to make."""
    return {"hoodie.write.table.version": str(table_version())}


def timeline_of(table: Path | str) -> Path:
    """The folder of a table's timeline."""
    meta = Path(table, ".hoodie")
    own = meta / "timeline"
    return own if own.is_dir() else meta


def completed_file(table: Path | str, instant: str) -> Path:
    """The file of a completed write."""
    (found,) = timeline_of(table).glob(f"{instant}*.*commit")
    return found
