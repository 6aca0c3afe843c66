"""Make the index cover the table before a query starts, whatever has happened to either since the last one.

What is done when is in ``streaming.recovery.cover_plan``.
"""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from tagstream.bootstrap.catch_up import plan_catch_up
from tagstream.bootstrap.errors import IndexCoverageError
from tagstream.state.durable.epoch import complete_epochs
from tagstream.state.durable.generation import next_generation
from tagstream.state.durable.root import next_root
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.recovery.catching_up import catch_up
from tagstream.streaming.recovery.cover_plan import CoverStep, next_step
from tagstream.streaming.recovery.coverage import CheckpointState, IndexPlace
from tagstream.streaming.recovery.loading import is_as_asked, load_index
from tagstream.streaming.recovery.retire import finish_retiring
from tagstream.streaming.recovery.same_topic import changed_topic, keep_topic, look_at_topic
from tagstream.streaming.recovery.settle import settle
from tagstream.streaming.recovery.source_table import keep_table
from tagstream.streaming.recovery.takeover import (
    Takeover,
    forget_resume,
    read_resume,
    read_takeover,
    starting_offsets,
    write_begins,
    write_resume,
    write_takeover,
)

LOG = logging.getLogger("tagstream")
_TRIES = 10


def cover_table(job: JobContext, spark: SparkSession, *, rebuild: str | None = None, doubt: str | None = None) -> None:
    """Bring index and table together. ``rebuild``: why the index is to be loaded anew (a file of it is damaged).
    ``doubt``: why it is to be loaded anew if it lacks no commit.

    IndexCoverageError when that must not be done without a person.
    """
    job.go_on_at(finish_retiring(job.checkpoint))
    if not job.options.bootstrap_only:  # which leaves the table as it is, also one that cannot be written
        settle(job)
    look_at_topic(job, spark)
    for _ in range(_TRIES):
        root = job.root.files
        state = CheckpointState.read(root)
        taken = read_takeover(root)
        job.generation = taken.generation if taken is not None else 0
        timeline = job.table.timeline()
        index = IndexPlace(
            root,
            job.layout,
            job.generation,
            job.retain_batches,
            job.decode.files,
            job.meta.stream_id,
            pull=job.index is not None,
            resuming=read_resume(job.checkpoint) is not None,
            rows=job.options.source_class == "frame",
        )
        new = state.query_id is None or state.planned is None
        other_topic = None if new else changed_topic(job, root)
        if other_topic is not None:
            step = CoverStep("retire", other_topic)
        elif rebuild is not None and job.index is None:
            step, rebuild = CoverStep("load", rebuild, damaged=True), None
        elif (
            job.index is None
            and taken is not None
            and new
            and not is_as_asked(job.layout, job.options, taken.generation)
        ):
            step = CoverStep("load", f"the index in {root.root} was loaded with other options")
        else:
            step = next_step(index, job.table, timeline, state, taken)
            if step.kind == "nothing" and doubt is not None and job.index is None:
                step = CoverStep("load", doubt)
            doubt = None
        if step.kind == "nothing" or (job.index is not None and step.kind not in ("retire", "reread")):
            # A pull-type index asks the table itself, whoever wrote it.
            job.index_epoch = len(complete_epochs(job.layout, job.generation))
            job.covered = frozenset(i.time for i in timeline.completed_writes)
            job.loaded, job.batches = step.found.loaded, step.found.batches
            if not new:
                forget_resume(job.checkpoint)
            begins, job.starting_offsets = (
                starting_offsets(job, spark, timeline) if new and job.covered else (None, None)
            )
            if new:
                write_begins(root, begins)
            keep_topic(job, root)
            keep_table(job)
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
    if step.kind in ("retire", "reread") and job.options.source_class == "frame":
        why = step.why.partition(". What those commits")[0].partition(". They are read")[0]
        raise IndexCoverageError(
            f"{why}. The source is a DataFrame, and only the code that made it can read from an earlier place: start it "
            "with a new checkpoint. The index is then loaded from the table, and the stream begins where the options of its "
            "readers say; what the table has already is late or the same"
        )
    if step.kind == "reread":
        write_resume(job.checkpoint, step.since)
        if state.query_id is None:  # there is no query to put aside
            LOG.warning("%s", step.why)
            return
    if step.kind in ("retire", "reread"):
        job.lease.check()
        before = job.root.files.root
        job.go_on_at(next_root(job.checkpoint, job.root, step.why))
        LOG.warning(
            "%s. The query in %s was retired, and a new one begins in %s", step.why, before, job.root.files.root
        )
        return
    first_batch = 0 if state.finished is None else state.finished + 1
    if step.kind == "catch up":
        plan = plan_catch_up(job.table, step.found.uncovered, job.options.index_partition_regex)
        LOG.info("%s; they touched %s file groups", step.why, f"{len(plan.touched):,}")
        if not plan.too_big(len(job.meta.labels), job.layout.ordering):
            catch_up(job, spark, plan, first_batch)
            return
    level = logging.INFO if state.query_id is None else logging.WARNING  # a new checkpoint is nothing to worry about
    LOG.log(level, "%s: the index is loaded from the table", step.why)
    # Not counted from the takeover files: a death before one was written leaves a generation that the table may have left.
    generation = next_generation(job.layout)
    load_index(job, spark, generation, first_batch, damaged=step.damaged)
    job.lease.check()
    write_takeover(job.root.files, Takeover(generation))
