"""The number of a start of a checkpoint: one that no other start has, whoever else starts at the same moment."""

from __future__ import annotations

from tagstream.table.storage.create import create
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.lease import LeaseOwner

_RUNS = "tagstream/runs"


def claim_run(checkpoint: Storage, owner: str) -> int:
    """A number from 1, claimed by an exclusive create. ``owner`` is a text that no other start gives."""
    runs = checkpoint.below(_RUNS)
    number = max(_numbers(runs), default=0) + 1
    while not create(runs, str(number), owner.encode()):
        number += 1
    runs.delete_many(str(old) for old in _numbers(runs) if old < number)
    return number


def _numbers(runs: Storage) -> list[int]:
    return [int(name) for name in runs.names("") if name.isdigit()]


def run_owner(now_ms: int) -> str:
    """Tells this start of a checkpoint from every other."""
    me = LeaseOwner.this_process()
    return f"{me.host} {me.boot_id} {me.pid} {me.process_start} {now_ms}"
