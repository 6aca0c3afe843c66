"""Make the index cover the table before a query starts, whatever has happened to either since the last one.

What is done when is in ``streaming.recovery.cover_plan``.
"""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from tagstream.bootstrap.catch_up import CatchUpPlan, catch_up_index, plan_catch_up
from tagstream.bootstrap.errors import IndexCoverageError
from tagstream.state.durable.epoch import complete_epochs
from tagstream.state.durable.generation import next_generation
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.recovery.cover_plan import CoverStep, next_step
from tagstream.streaming.recovery.coverage import CheckpointState, IndexPlace
from tagstream.streaming.recovery.loading import is_as_asked, load_index
from tagstream.streaming.recovery.retire import finish_retiring, retire
from tagstream.streaming.recovery.settle import settle
from tagstream.streaming.recovery.takeover import Takeover, read_takeover, starting_offsets, write_takeover

LOG = logging.getLogger("tagstream")
_TRIES = 10


def cover_table(job: JobContext, spark: SparkSession, *, running: bool = False, rebuild: str | None = None) -> None:
    """Bring index and table together. ``running``: the job has been at work already, so what is pending on the timeline
    and not its own may be another writer's work of this moment. ``rebuild``: why the index is
    to be loaded anew (a file of it is damaged).

    IndexCoverageError when that must not be done without a person.
    """
    finish_retiring(job.checkpoint)
    if not job.options.bootstrap_only:  # which leaves the table as it is, also one that cannot be written
        settle(job, running=running)
    for _ in range(_TRIES):
        state = CheckpointState.read(job.checkpoint)
        taken = read_takeover(job.checkpoint)
        job.generation = taken.generation if taken is not None else 0
        timeline = job.table.timeline()
        index = IndexPlace(job.checkpoint, job.layout, job.generation, job.retain_batches, job.decode.files)
        new = state.query_id is None or state.planned is None
        if rebuild is not None and job.index is None:
            step, rebuild = CoverStep("load", rebuild), None
        elif (
            job.index is None
            and taken is not None
            and new
            and not is_as_asked(job.layout, job.options, taken.generation)
        ):
            step = CoverStep("load", f"the index in {job.checkpoint} was loaded with other options")
        else:
            step = next_step(index, job.table, timeline, state, taken)
        if step.kind == "nothing" or (job.index is not None and step.kind != "retire"):
            # A pull-type index asks the table itself, whoever wrote it.
            job.index_epoch = len(complete_epochs(job.layout, job.generation))
            job.covered = frozenset(i.time for i in timeline.completed_writes)
            job.loaded, job.batches = step.found.loaded, step.found.batches
            job.starting_offsets = starting_offsets(job, spark, timeline) if new and job.covered else None
            return
        _do(job, spark, state, step)
    raise IndexCoverageError(
        f"table {job.table.base_path} changed {_TRIES} times while the index was brought up to it: other writers commit "
        "faster than it can be read; stop them for a while"
    )


def _do(job: JobContext, spark: SparkSession, state: CheckpointState, step: CoverStep) -> None:
    if not job.options.index_bootstrap_enabled:
        raise IndexCoverageError(
            f"{step.why}, and index.bootstrap.enabled=false: rows that the index does not know would be written a second "
            "time. Set it to true, or start with the checkpoint that wrote the table"
        )
    if step.kind == "retire":
        folder = retire(job.checkpoint, step.why)
        LOG.warning("%s. The query's checkpoint was put aside in %s, and a new one begins", step.why, folder)
        return
    first_batch = 0 if state.finished is None else state.finished + 1
    if step.kind == "catch up":
        plan = plan_catch_up(job.table, step.found.uncovered, job.options.index_partition_regex)
        LOG.info("%s; they touched %s file groups", step.why, f"{len(plan.touched):,}")
        if not plan.too_big(len(job.meta.labels)):
            _catch_up(job, spark, plan, first_batch)
            return
    level = logging.INFO if state.query_id is None else logging.WARNING  # a new checkpoint is nothing to worry about
    LOG.log(level, "%s: the index is loaded from the table", step.why)
    # Not counted from the takeover file: a death before it was written leaves a generation that the table may have left.
    generation = next_generation(job.layout)
    load_index(job, spark, generation, first_batch)
    write_takeover(job.checkpoint, Takeover(generation))


def _catch_up(job: JobContext, spark: SparkSession, plan: CatchUpPlan, first_batch: int) -> None:
    epoch = len(complete_epochs(job.layout, job.generation)) + 1
    report = catch_up_index(
        job.table,
        plan,
        job.layout,
        job.meta.labels,
        job.generation,
        epoch,
        clock_ms=job.clock_ms,
        ordering_type=job.decode.ordering_type,
        first_batch=first_batch,
        spark=spark,
    )
    LOG.info(
        "caught up in %.1f s: %s keys and %s deletes in %s files",
        report.seconds,
        f"{report.keys:,}",
        f"{report.tombstones:,}",
        f"{report.files:,}",
    )
    if report.twice:
        LOG.warning(
            "%s keys are live in two of these file groups; the slice with the newest base instant counts, all are listed "
            "in %s/*.twice.jsonl",
            f"{report.twice:,}",
            job.layout.epoch_dir(job.generation, epoch),
        )
