"""Follow other writers between two batches: the index learns their commits, and the query continues.

Where writers share a table, each of them commits all the time. A new query for each of these commits would take longer
than the commits do. A commit that changes the schema or has removed rows of this stream still ends the query.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from tagstream.bootstrap.catch_up import plan_catch_up
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.metadata_keeper import MetadataKeeper
from tagstream.streaming.errors import StopRequested
from tagstream.streaming.job.pull_index import start_index
from tagstream.streaming.recovery.cover import catch_up
from tagstream.streaming.recovery.foreign_commits import is_of_another_stream, work_of
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.timeline import FileGroupId, Timeline

LOG = logging.getLogger("tagstream")
_WAIT_S, _LONGEST_TURN_MS = 0.1, 120_000
_IN_DRIVER_BYTES = 32 << 20  # of files: reading them here takes less time than starting tasks


def follow(
    job: JobContext, spark: SparkSession, timeline: Timeline, commits: Mapping[Instant, CommitMetadata], batch_id: int
) -> bool:
    """Bring the index up to date with ``commits``, which are completed. False where the index must be loaded again.

    ``batch_id``: the batch that begins.
    """
    times = tuple(
        commit.time
        for commit, metadata in commits.items()
        if not metadata.is_compaction and not has_other_keys(job, metadata)
    )
    if job.env.index is not None:
        start_index(job, spark)
    elif times:
        plan = plan_catch_up(job.table, times, job.options.state.partition_regex)
        if plan.too_big(len(job.env.meta.labels), job.layout.ordering):
            return False
        large = plan.plan.size > _IN_DRIVER_BYTES
        job.position.catch_up = catch_up(job, spark if large else None, plan, batch_id, job.position.catch_up + 1)
    groups: set[FileGroupId] = set()
    for metadata in commits.values():
        groups |= work_of(metadata).groups
    job.small_files.reload(job.table.view(timeline), groups)
    if job.metadata is not None:
        overlooked = job.metadata.overlooked
        opened = open_keeper(job)
        job.metadata = opened and replace(opened, overlooked=overlooked).after(timeline, commits)
    return True


def open_keeper(job: JobContext) -> MetadataKeeper | None:
    """The table's metadata table as it is now; None where the table has none."""
    return MetadataKeeper.open(job.table, job.decode.stored, job.options.metadata.record_index_groups)


def has_other_keys(job: JobContext, metadata: CommitMetadata) -> bool:
    """Whether a commit has none of this stream's keys, as the user says: it is a batch of another stream."""
    return job.options.lock.has_disjoint_keys and is_of_another_stream(metadata, job.env.meta.stream_id)


def wait_for_turn(job: JobContext) -> None:
    """Wait while another stream finishes a batch that it had to repeat, so that it does not have to again.

    StopRequested when the job is stopped. The wait ends after two minutes: that stream may be waiting for this one.
    """
    _wait_while(job, job.env.lease.must_wait)


def ask_for_turn(job: JobContext) -> None:
    """Ask the other streams to let this one finish the batch that it repeats. Waits for one that has asked before."""
    _wait_while(job, lambda: not job.env.lease.take_turn())


def _wait_while(job: JobContext, busy: Callable[[], bool]) -> None:
    began: int | None = None
    while busy():
        began = job.env.clock_ms() if began is None else began
        if job.env.clock_ms() - began >= _LONGEST_TURN_MS:
            return
        if job.env.stop.wait(_WAIT_S):
            raise StopRequested(f"stopped by {job.env.stop.signal_name} while it waited for another stream's batch")
