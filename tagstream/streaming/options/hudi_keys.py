"""Hudi's own keys, as its classes declare them, for what is said of a properties file that was brought along.

``hudi_keys.tsv`` is made by ``python -m bench.peers.options``: a key, and the releases that have it. A key of the list that
no key table names has no effect on this job; those with which rows or files would be others are in ``keys.refused``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tagstream.streaming.options.keys.refused import OTHER
from tagstream.table.config import Concern, ConfigKey, Kind, Status

KEYS_FILE = Path(__file__).with_name("hudi_keys.tsv")


@cache
def hudi_keys() -> Mapping[str, str]:
    """The releases that have a key, as text, by key."""
    lines = KEYS_FILE.read_text("utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines)


def without_effect(name: str) -> ConfigKey | None:
    """A key of Hudi's that this job does nothing with; None for a key that is none of Hudi's."""
    releases = hudi_keys().get(name)
    if releases is None:
        return None
    reason = "known to Hudi, and nothing here looks at it"
    return ConfigKey(
        name, Kind.STRING, reason, section=OTHER, status=Status.IGNORED, reason=reason, concern=Concern.ANYWAY
    )
