"""A driver that is succeeded while it stands still: what it is fed, and what it must say when it wakes up."""

from __future__ import annotations

from dataclasses import replace

from tests.drills.stream_job import DEADLINE_S, error_line
from tests.support.events import Mix
from tests.support.process import Process

MIX = Mix(keys=600, partitions=300, tombstones=0.02)  # every batch has keys and file groups that no batch had before
# No deletes: what of Spark's state was written over is mended by a load of the index, which forgets some of them.
WITHOUT_DELETES = replace(MIX, deletes=0.0, late_deletes=0.0, deletes_without_partition=0.0, tombstones=0.0)
LEASE_MS = 60_000
GONE = (
    "taken over by another process",
    "rolled back by another process",
    "another process took the lease",
    "was written by another run of this stream",
)


def is_told(old: Process) -> None:
    """The woken driver ends with an error that says that it came too late."""
    message = error_line(old, old.wait(DEADLINE_S))
    assert any(text in message for text in GONE), message
