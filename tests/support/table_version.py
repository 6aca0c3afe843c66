"""What kind of table the tests' own tables are: one place, so that the same tests run on every kind.

Environment variables set it for a whole run: ``TAGSTREAM_TEST_TABLE_VERSION`` the table version (6, 8 or 9),
``TAGSTREAM_TEST_METADATA`` whether tables have a metadata table (true or false; unset: jobs do as the version's default
says, and tables that no job makes have none). A test with the mark ``table_versions`` runs once on each version that it
names; if that variable is set, on its version alone where that is not outside of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_INDEX, _METADATA = "hoodie.index.type", "hoodie.metadata.enable"
_IN_METADATA = ("RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX", "RECORD_LEVEL_INDEX")
_CHOICES = {"": None, "true": True, "false": False}
_VERSION = "TAGSTREAM_TEST_TABLE_VERSION"
_chosen = [int(os.environ.get(_VERSION) or "6")]
_metadata = [_CHOICES[os.environ.get("TAGSTREAM_TEST_METADATA", "")]]


def table_version() -> int:
    """The version that a new table of a test has."""
    return _chosen[-1]


def asked_for() -> bool:
    """Whether the run is for tables of one version."""
    return bool(os.environ.get(_VERSION))


def versions_of(named: Sequence[int], also: Sequence[int] = ()) -> Sequence[int]:
    """The versions that a test runs on whose mark has these names; ``also``: those that it runs on if they are asked for."""
    asked = _chosen[0] if os.environ.get(_VERSION) else None
    return [asked] if asked is not None and (min(named) <= asked <= max(named) or asked in also) else named


def metadata_wanted() -> bool | None:
    """Whether the tables of a test have a metadata table; None where nobody says."""
    return _metadata[-1]


def has_metadata() -> bool:
    """Whether a table that a job makes has a metadata table, if its test says nothing else."""
    wanted = metadata_wanted()
    return table_version() >= 8 if wanted is None else wanted


@contextmanager
def using(version: int) -> Iterator[int]:
    """New tables have this version from here on."""
    _chosen.append(version)
    try:
        yield version
    finally:
        _chosen.pop()


@contextmanager
def metadata(wanted: bool | None) -> Iterator[None]:
    """New tables have a metadata table, or none, from here on."""
    _metadata.append(wanted)
    try:
        yield
    finally:
        _metadata.pop()


def write_properties(own: Mapping[str, Any] | None = None) -> dict[str, str]:
    """What tells a job what kind of table it is to make. ``own``: the test's own properties, whose index may need one."""
    return {"hoodie.write.table.version": str(table_version()), **metadata_properties(own)}


def metadata_properties(own: Mapping[str, Any] | None = None) -> dict[str, str]:
    """What tells a job of any table whether it has a metadata table."""
    wanted = metadata_wanted()
    needed = (own or {}).get(_INDEX) in _IN_METADATA
    return {} if wanted is None or (needed and not wanted) else {_METADATA: str(wanted).lower()}


def ordering_key() -> str:
    """The table's property that names the ordering fields."""
    return "hoodie.table.precombine.field" if table_version() <= 8 else "hoodie.table.ordering.fields"


def timeline_of(table: Path | str) -> Path:
    """The folder of a table's timeline."""
    meta = Path(table, ".hoodie")
    own = meta / "timeline"
    return own if own.is_dir() else meta


def completed_file(table: Path | str, instant: str) -> Path:
    """The file of a completed write."""
    (found,) = timeline_of(table).glob(f"{instant}*.*commit")
    return found
