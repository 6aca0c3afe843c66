"""Make the index cover the table before a query starts, whatever has happened to either since the last one.

The index is loaded from the table as a new generation, or catches up, as an epoch of its generation, with commits
that it did not make. ``streaming.recovery.cover_plan`` says which is done when.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from tagstream.bootstrap.catch_up import CatchUpPlan, catch_up_index, knows_order_alone, plan_catch_up
from tagstream.bootstrap.errors import IndexCoverageError
from tagstream.bootstrap.plan import plan_bootstrap
from tagstream.bootstrap.report import BootstrapProgress, BootstrapReport
from tagstream.bootstrap.run import bootstrap_index
from tagstream.bootstrap.tasks import TWICE_SUFFIX
from tagstream.state.checkpoint import next_root, root_at, root_numbers
from tagstream.state.errors import IndexDamagedError
from tagstream.state.index_loads import complete_epochs, next_generation, read_marker
from tagstream.state.index_view import IndexHeads, heads_as_of
from tagstream.state.layout import StateLayout
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.report import size
from tagstream.streaming.errors import StopRequested
from tagstream.streaming.options.options import Options
from tagstream.streaming.recovery.cover_plan import CoverStep, next_step
from tagstream.streaming.recovery.coverage import CheckpointState, IndexPlace
from tagstream.streaming.recovery.pending_writes import settle
from tagstream.streaming.recovery.same_source import changed_topic, keep_table, keep_topic, look_at_topic
from tagstream.streaming.recovery.takeover import (
    Takeover,
    finish_retiring,
    forget_resume,
    read_resume,
    read_takeover,
    starting_offsets,
    write_begins,
    write_resume,
    write_takeover,
)
from tagstream.table.timeline.timeline import Timeline

LOG = logging.getLogger("tagstream")


def catch_up(job: JobContext, spark: SparkSession, plan: CatchUpPlan, first_batch: int) -> int:
    """Make the next epoch of the job's generation; its number. ``first_batch``: the first batch that will know of it."""
    epoch = len(complete_epochs(job.layout, job.position.generation)) + 1
    report = catch_up_index(
        job.table,
        plan,
        job.layout,
        job.env.meta.labels,
        job.position.generation,
        epoch,
        clock_ms=job.env.clock_ms,
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
            "%s keys are live in two of these file groups; the slice with the newest base instant counts, and the next "
            "record of such a key replaces or deletes all of its rows. All are listed in %s/*.twice.jsonl; `tagstream table "
            "dedup` keeps the newest row of each",
            f"{report.twice:,}",
            job.layout.durable.where(job.layout.epoch_dir(job.position.generation, epoch)),
        )
    return epoch


_NO_FORMER = "the orders of rows and of deleted keys cannot be taken from the former index: %s"
_SHOWN = 20  # lines of one kind; all are in the generation's complete.json


def load_index(
    job: JobContext, spark: SparkSession, generation: int, first_batch: int, *, damaged: bool = False
) -> BootstrapReport:
    """Load `generation` as the job's options say, for batches from `first_batch` on. `damaged`: the index that there was
    cannot be read.

    A stop that is asked for ends it; the next start goes on there.
    """
    options = job.options
    plan = plan_bootstrap(job.table, options.index_partition_regex)
    former = None if damaged else _former(job, plan.timeline)
    LOG.info(
        "loading the index from table %s as of %s: %s slices, %s files, %s",
        job.table.base_path,
        plan.instant,
        f"{len(plan.slices):,}",
        f"{plan.files:,}",
        size(plan.size),
    )

    def progress(at: BootstrapProgress) -> None:
        if job.env.stop.requested:
            raise StopRequested(
                f"stopped by {job.env.stop.signal_name} while the index was loaded; the next start goes on there"
            )
        job.hooks.loading(at)

    load = partial(
        bootstrap_index,
        job.table,
        job.layout,
        job.env.meta.labels,
        generation,
        clock_ms=job.env.clock_ms,
        ordering_type=job.decode.ordering_type,
        partition_regex=options.index_partition_regex,
        corrupt=options.index_bootstrap_corrupt,
        first_batch=first_batch,
        spark=spark,
        progress=progress,
        plan=plan,
    )
    try:
        report = load(former=former)
    except IndexDamagedError as error:
        if former is None:
            raise
        LOG.warning(_NO_FORMER, error)
        former = None
        report = load()
    tell(report, job.layout, former is not None)
    if report.live and former is None and knows_order_alone(job.table, job.layout.ordering):
        LOG.warning(
            "the order of this stream's events (a position in the source's log) is in no column of table %s, so the order "
            "of its rows is not known after the load: the first event of a key counts as the newer one. Where events may "
            "come out of order, give the table an ordering field (hoodie.table.ordering.fields)",
            job.table.base_path,
        )
    return report


def _former(job: JobContext, timeline: Timeline) -> IndexHeads | None:
    """The index that this checkpoint used before, as of the newest of its batches that are still in the table.

    The order of an event that was undone must not be taken: those between it and the row would be late when they are read
    again. None where events have no order, and where there was no index.
    """
    if job.layout.ordering == "none":
        return None
    for number in reversed(root_numbers(job.env.checkpoint)):
        if number > job.root.number:
            continue  # a killed run had only begun it
        try:
            heads = heads_as_of(root_at(job.env.checkpoint, number), job.env.meta, "", timeline.is_valid)
        except IndexDamagedError as error:
            LOG.warning(_NO_FORMER, error)
            return None
        if heads.generation or heads.batch_id is not None:
            return heads
    return None


def tell(report: BootstrapReport, layout: StateLayout, deletes_known: bool) -> None:
    """Log what came of a load: what is odd first, then everything in one line. ``deletes_known``: by the index before."""
    folder = layout.durable.where(layout.generation_dir(report.generation))
    _list("left out", report.left_out, logging.INFO)
    _list("skipped", report.skipped, logging.WARNING)
    _list(
        f"key found twice ({report.twice_policy})", [_places(found) for found in report.twice_examples], logging.WARNING
    )
    if report.twice:
        LOG.warning(
            "loading the index: the next record of a key found twice replaces or deletes all of its rows (but for a second "
            "one in the same base file of a merge-on-read table); `tagstream table dedup` keeps the newest row of each key"
        )
    _list("other rows than its commit says", report.mismatched, logging.WARNING)
    if report.damaged_blocks:
        LOG.warning(
            "loading the index: passed over %d damaged log blocks, as readers do (a writer that died leaves such)",
            report.damaged_blocks,
        )
    if not deletes_known and layout.ordering != "none":
        LOG.warning(
            "deletes whose records no log of the table holds are not known any more: an event that is older than such a "
            "delete brings the row back"
        )
    LOG.info("%s", summary_line(report, folder))


def _places(found: Mapping[str, Any]) -> str:
    kept, *others = (f"{place[0]}/{place[1]} of {place[2]}" for place in [found["kept"], *found["others"]])
    return f"{found['key']}: kept is {kept}, not {', '.join(others)}"


def summary_line(report: BootstrapReport, folder: str) -> str:
    """The one line at the end; ``folder`` is the generation's."""
    where = f"{folder}/*{TWICE_SUFFIX}"
    twice = f" ({report.twice_policy}; listed with all places in {where})" if report.twice else ""
    archived = f", those of {report.uncounted:,} files are archived" if report.uncounted else ""
    resumed = f"; {report.resumed:,} tasks were done by an earlier run" if report.resumed else ""
    skipped = f"; {len(report.skipped):,} files skipped" if report.skipped else ""
    return (
        f"index loaded in {report.seconds:.1f} s: {report.live:,} keys ({report.keys_per_second:,.0f} keys/s) and "
        f"{report.tombstones:,} tombstones, {size(report.index_bytes)}, {report.bytes_per_key:.1f} bytes a key; "
        f"{report.rows:,} rows scanned in {report.files:,} files ({report.expected_rows:,} by the commits{archived}); "
        f"{report.twice:,} keys found twice{twice}{skipped}{resumed}"
    )


def is_as_asked(layout: StateLayout, options: Options, generation: int) -> bool:
    """Whether a loaded generation is what the options would load: same partitions, no corrupt file passed over."""
    marker = read_marker(layout, generation)
    if marker is None:
        return False
    report = BootstrapReport.from_dict(marker.report)
    if report.carried:
        return True
    if report.partition_regex != options.index_partition_regex:
        return False
    return not report.skipped or options.index_bootstrap_corrupt == "skip"


def _list(what: str, items: Sequence[str], level: int) -> None:
    for item in items[:_SHOWN]:
        LOG.log(level, "loading the index: %s: %s", what, item)
    if len(items) > _SHOWN:
        LOG.log(level, "loading the index: %s: and %d more", what, len(items) - _SHOWN)


_TRIES = 10


def cover_table(job: JobContext, spark: SparkSession, *, rebuild: str | None = None, doubt: str | None = None) -> None:
    """Bring index and table together. ``rebuild``: why the index is to be loaded anew (a file of it is damaged).
    ``doubt``: why it is to be loaded anew if it lacks no commit.

    IndexCoverageError when that must not be done without a person.
    """
    job.go_on_at(finish_retiring(job.env.checkpoint))
    if not job.options.bootstrap_only:  # which leaves the table as it is, also one that cannot be written
        settle(job)
    look_at_topic(job, spark)
    for _ in range(_TRIES):
        root = job.root.files
        state = CheckpointState.read(root)
        taken = read_takeover(root)
        job.position.generation = taken.generation if taken is not None else 0
        timeline = job.table.timeline()
        index = IndexPlace(
            root,
            job.layout,
            job.position.generation,
            job.env.retain_batches,
            job.decode.files,
            job.env.meta.stream_id,
            pull=job.env.index is not None,
            resuming=read_resume(job.env.checkpoint) is not None,
            rows=job.options.source_class == "frame",
        )
        new = state.query_id is None or state.planned is None
        other_topic = None if new else changed_topic(job, root)
        if other_topic is not None:
            step = CoverStep("retire", other_topic)
        elif rebuild is not None and job.env.index is None:
            step, rebuild = CoverStep("load", rebuild, damaged=True), None
        elif (
            job.env.index is None
            and taken is not None
            and new
            and not is_as_asked(job.layout, job.options, taken.generation)
        ):
            step = CoverStep("load", f"the index in {root.root} was loaded with other options")
        else:
            step = next_step(index, job.table, timeline, state, taken)
            if step.kind == "nothing" and doubt is not None and job.env.index is None:
                step = CoverStep("load", doubt)
            doubt = None
        if step.kind == "nothing" or (job.env.index is not None and step.kind not in ("retire", "reread")):
            # A pull-type index asks the table itself, whoever wrote it.
            job.position.epoch = len(complete_epochs(job.layout, job.position.generation))
            job.position.covered = frozenset(i.time for i in timeline.completed_writes)
            job.position.loaded, job.position.batches = step.found.loaded, step.found.batches
            if not new:
                forget_resume(job.env.checkpoint)
            begins, job.position.starting_offsets = (
                starting_offsets(job, spark, timeline) if new and job.position.covered else (None, None)
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
        write_resume(job.env.checkpoint, step.since)
        if state.query_id is None:  # there is no query to put aside
            LOG.warning("%s", step.why)
            return
    if step.kind in ("retire", "reread"):
        job.env.lease.check()
        before = job.root.files.root
        job.go_on_at(next_root(job.env.checkpoint, job.root, step.why))
        LOG.warning(
            "%s. The query in %s was retired, and a new one begins in %s", step.why, before, job.root.files.root
        )
        return
    first_batch = 0 if state.finished is None else state.finished + 1
    if step.kind == "catch up":
        plan = plan_catch_up(job.table, step.found.uncovered, job.options.index_partition_regex)
        LOG.info("%s; they touched %s file groups", step.why, f"{len(plan.touched):,}")
        if not plan.too_big(len(job.env.meta.labels), job.layout.ordering):
            catch_up(job, spark, plan, first_batch)
            return
    level = logging.INFO if state.query_id is None else logging.WARNING  # a new checkpoint is nothing to worry about
    LOG.log(level, "%s: the index is loaded from the table", step.why)
    # Not counted from the takeover files: a death before one was written leaves a generation that the table may have left.
    generation = next_generation(job.layout)
    load_index(job, spark, generation, first_batch, damaged=step.damaged)
    job.env.lease.check()
    write_takeover(job.root.files, Takeover(generation))
