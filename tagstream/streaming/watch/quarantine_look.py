"""A look at the quarantine: how many bad records the checkpoint keeps, and the newest reasons."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from tagstream.state.durable.root import QUARANTINE, current_root
from tagstream.streaming.status.run_status import RunStatus
from tagstream.streaming.status.snapshot import Quarantine
from tagstream.streaming.write.quarantine import quarantined_batches, read_quarantine
from tagstream.table.storage.opening import private
from tagstream.table.storage.storage import Storage

BATCHES_A_LOOK, REASONS = 16, 5


class QuarantineLook:
    """A batch is read once, newest batches first, and again while it is the newest: its attempt may begin again.

    ``records``: bad records of this run so far; while they do not change there is nothing new.
    """

    def __init__(self, status: RunStatus, checkpoint: Storage, records: Callable[[], int]) -> None:
        self._status, self._checkpoint, self._records = status, checkpoint, records
        self._found: dict[int, int] = {}
        self._reasons: dict[str, int] = {}
        self._seen: int | None = None
        self._root = ""

    def __call__(self) -> None:
        """Read what is new."""
        records = self._records()
        if self._seen == records:
            return
        root = current_root(self._checkpoint).files
        if root.root != self._root:  # another query, with batches of its own
            self._root, self._found, self._reasons = root.root, {}, {}
        quarantine = private(root.below(QUARANTINE))
        batches = quarantined_batches(quarantine)
        settled = set(batches[:-1])
        self._found = {batch: count for batch, count in self._found.items() if batch in settled}
        due = [batch for batch in reversed(batches) if batch not in self._found]
        for batch in islice(due, BATCHES_A_LOOK):
            self._found[batch] = 0
            for _, _, record in read_quarantine(quarantine, batch):  # a row loop: bad records are few
                self._found[batch] += 1
                self._reasons[record["reason"]] = max(batch, self._reasons.get(record["reason"], batch))
        newest = sorted(self._reasons.items(), key=lambda one: (-one[1], one[0]))[:REASONS]
        whole = len(due) <= BATCHES_A_LOOK
        self._seen = records if whole else None
        self._reasons = dict(newest)
        told = tuple((batch, reason) for reason, batch in newest)
        self._status.quarantine(Quarantine(sum(self._found.values()), whole, told))
