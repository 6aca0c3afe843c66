"""A look at the index as the checkpoint has it: the sizes of key groups before any batch has told them."""

from __future__ import annotations

from dataclasses import replace

from tagstream.state.durable.heads import read_heads
from tagstream.state.durable.view import counts_at, sizes_at
from tagstream.state.store.scratch import scratch_folder
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.status.run_status import RunStatus
from tagstream.streaming.status.snapshot import GroupSize

MOST_GROUPS = 1024  # of more, each a few ms, what batches tell must do


class IndexLook:
    """Taken once for each generation of the index, after index and table were brought together."""

    def __init__(self, status: RunStatus, job: JobContext) -> None:
        self._status, self._job = status, job
        self._seen: tuple[str, int] | None = None

    def __call__(self) -> None:
        """Read the counters of every key group, unless that was done."""
        job = self._job
        now = (job.root.files.root, job.generation)
        if self._seen == now or job.index is not None or len(job.meta.labels) > MOST_GROUPS:
            return
        with scratch_folder("tagstream-status-") as scratch:
            heads = read_heads(job.checkpoint, scratch, meta=job.meta)
            layout = replace(heads.layout, lock_wait_s=0.0)
            found = []
            for label in job.meta.labels:  # a step a key group, of which there are few
                pointer = heads.pointers[label]
                counts = counts_at(layout, label, pointer, heads.generation, heads.epoch)
                found.append(GroupSize(label, counts.live, counts.tombstones, sum(sizes_at(layout, label, pointer))))
        self._status.groups(found, whole=True)
        self._seen = now
