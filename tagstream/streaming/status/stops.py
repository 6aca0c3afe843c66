"""``tagstream/stops.json`` in the checkpoint: how its runs ended that ended by an error, or were killed.

The process that stops takes its counters with it. So the next one, and whoever scrapes it, learns from here how often that
was, and that nothing was committed since. A process that is killed can note nothing: so each run notes that it has begun,
and takes that out at its end. A run that finds the note of another one knows that it was killed, by the kernel for want of
memory or by an operator. It decides nothing: a file that cannot be read counts as none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from tagstream.streaming.status.snapshot import Stop
from tagstream.table.storage.storage import Storage

STOPS_FILE = "tagstream/stops.json"
KILLED = "Killed"  # stands where other stops have the class of their error
_NEXT = (
    "Look for it in the kernel's log (dmesg), for OOMKilled of the pod, for exit code 137. A batch that is planned stays as "
    "large as it is: give the job more memory, or fewer tasks at a time"
)
_VERSION = 1
_LONGEST = 1_000


@dataclass(frozen=True)
class Begun:
    """A run that is at work, or was killed: ``owner`` tells it from every other. ``committed``: it has a commit."""

    owner: str
    at_ms: int
    host: str
    pid: int
    committed: bool = False


@dataclass(frozen=True)
class Stops:
    """``counts``: runs by error class; ``in_row``: since the last commit, ``killed_in_row`` of them without an error.

    ``begun``: the newest run, None once it has come to its end. ``end``: how the one before it ended, ``error`` empty where
    that was in order.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    in_row: int = 0
    last: Stop | None = None
    killed_in_row: int = 0
    begun: Begun | None = None
    end: Stop | None = None

    def one_more(self, error: str, text: str, at_ms: int) -> Stops:
        """With a run that has just ended by this error."""
        counts = {**self.counts, error: self.counts.get(error, 0) + 1}
        last = Stop(at_ms, error, text[:_LONGEST])
        return replace(self, counts=counts, in_row=self.in_row + 1, last=last, begun=None, end=last)

    def killed(self, batch_id: int | None, seen_ms: int | None) -> Stops:
        """With the run that has begun and left no word; ``batch_id`` (None: between two) and ``seen_ms`` are its last."""
        begun = self.begun
        assert begun is not None
        at_ms = max(begun.at_ms, seen_ms or 0)
        so_far = self.after_commit() if begun.committed else self
        where = "between two batches" if batch_id is None else f"in batch {batch_id}"
        text = f"killed {where}; out of memory? {_NEXT} (process {begun.pid} on {begun.host})"
        return replace(so_far.one_more(KILLED, text, at_ms), killed_in_row=so_far.killed_in_row + 1)

    def in_order(self, text: str, at_ms: int) -> Stops:
        """With a run that has come to its end."""
        return replace(self, begun=None, end=Stop(at_ms, "", text[:_LONGEST]))

    def after_commit(self) -> Stops:
        """With a commit: what stopped the run before is overcome."""
        begun = None if self.begun is None else replace(self.begun, committed=True)
        return replace(self, in_row=0, killed_in_row=0, begun=begun)

    @property
    def knows_commit(self) -> bool:
        """Whether a commit of the run that has begun changes nothing here."""
        return self.in_row == 0 and (self.begun is None or self.begun.committed)


def read_stops(checkpoint: Storage) -> Stops:
    """What is noted; nothing where the file is missing, damaged or of another version."""
    try:
        doc = json.loads(checkpoint.read(STOPS_FILE))
        if doc["version"] != _VERSION:
            return Stops()
        last, begun, end = doc["last"], doc.get("begun"), doc.get("end")  # earlier versions noted errors alone
        return Stops(
            counts={str(error): int(count) for error, count in doc["counts"].items()},
            in_row=int(doc["in_row"]),
            last=None if last is None else Stop(**last),
            killed_in_row=int(doc.get("killed_in_row", 0)),
            begun=None if begun is None else Begun(**begun),
            end=None if end is None else Stop(**end),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Stops()


def write_stops(checkpoint: Storage, stops: Stops) -> None:
    """Note it. Only the holder of the table's lease does so."""
    checkpoint.replace(STOPS_FILE, json.dumps({"version": _VERSION, **asdict(stops)}).encode())
