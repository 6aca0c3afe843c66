"""``tagstream/stops.json`` in the checkpoint: how its runs ended that ended by an error.

The process that stops takes its counters with it. So the next one, and whoever scrapes it, learns from here how often that
was, and that nothing was committed since. It decides nothing: a file that cannot be read counts as none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from tagstream.streaming.status.snapshot import Stop
from tagstream.table.storage.storage import Storage

STOPS_FILE = "tagstream/stops.json"
_VERSION = 1
_LONGEST = 1_000


@dataclass(frozen=True)
class Stops:
    """``counts``: runs by error class; ``in_row``: since the last commit."""

    counts: Mapping[str, int] = field(default_factory=dict)
    in_row: int = 0
    last: Stop | None = None

    def one_more(self, error: str, text: str, at_ms: int) -> Stops:
        """With a run that has just ended by this error."""
        counts = {**self.counts, error: self.counts.get(error, 0) + 1}
        return Stops(counts, self.in_row + 1, Stop(at_ms, error, text[:_LONGEST]))

    def after_commit(self) -> Stops:
        """With a commit: what stopped the run before is overcome."""
        return replace(self, in_row=0)


def read_stops(checkpoint: Storage) -> Stops:
    """What is noted; nothing where the file is missing, damaged or of another version."""
    try:
        doc = json.loads(checkpoint.read(STOPS_FILE))
        if doc["version"] != _VERSION:
            return Stops()
        last = doc["last"]
        counts = {str(error): int(count) for error, count in doc["counts"].items()}
        return Stops(counts, int(doc["in_row"]), None if last is None else Stop(**last))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Stops()


def write_stops(checkpoint: Storage, stops: Stops) -> None:
    """Note it. Only the holder of the table's lease does so."""
    checkpoint.replace(STOPS_FILE, json.dumps({"version": _VERSION, **asdict(stops)}).encode())
