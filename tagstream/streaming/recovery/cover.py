"""Make the index cover the table before a query starts.

Either the index is loaded from the table again, or it catches up with commits that it lacks.
``streaming.recovery.cover_plan`` decides which.
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
from tagstream.state.checkpoint import next_query_folder, query_folder_at, query_folder_numbers
from tagstream.state.errors import IndexDamagedError
from tagstream.state.index_loads import complete_catch_ups, next_index_load, read_marker
from tagstream.state.index_view import IndexHeads, heads_as_of
from tagstream.state.layout import StateLayout
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.report import size
from tagstream.streaming.errors import StopRequested
from tagstream.streaming.options.options import Options
from tagstream.streaming.recovery.append_guard import append_problem, without_older_copy
from tagstream.streaming.recovery.cover_plan import CoverStep, next_step
from tagstream.streaming.recovery.coverage import CheckpointState, IndexPlace
from tagstream.streaming.recovery.pending_writes import settle
from tagstream.streaming.recovery.same_source import changed_topic, keep_table, keep_topic, look_at_topic
from tagstream.streaming.recovery.takeover import (
    QueryIndexLoad,
    finish_retiring,
    forget_resume,
    read_query_index_load,
    read_resume,
    starting_offsets,
    write_begins,
    write_query_index_load,
    write_resume,
)
from tagstream.table.errors import FileGoneError
from tagstream.table.timeline.timeline import Timeline

LOG = logging.getLogger("tagstream")
_NO_FORMER = "cannot read the ordering values of rows and of deleted keys from the previous index: %s"
_SHOWN = 20  # lines of one kind; all are in complete.json of the index load
_TRIES = 10


def catch_up(
    job: JobContext, spark: SparkSession | None, plan: CatchUpPlan, first_batch: int, number: int | None = None
) -> int:
    """Catch up the index with the commits of ``plan``. Returns the number of this catch-up.

    ``first_batch``: the first batch that will use it. ``spark`` None: the files are read in this process.
    ``number``: of this catch-up, where the last one is known.
    """
    number = number or len(complete_catch_ups(job.layout, job.position.index_load)) + 1
    report = catch_up_index(
        job.table,
        plan,
        job.layout,
        job.env.meta.labels,
        job.position.index_load,
        number,
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
            "%s keys have rows in two of these file groups; the slice with the newest base instant counts, and the next "
            "record of such a key replaces or deletes all of its rows. All are listed in %s/*.twice.jsonl; `tagstream table "
            "dedup` keeps the newest row of each",
            f"{report.twice:,}",
            job.layout.durable.where(job.layout.catch_up_dir(job.position.index_load, number)),
        )
    return number


def load_index(
    job: JobContext, spark: SparkSession, index_load: int, first_batch: int, *, damaged: bool = False
) -> BootstrapReport:
    """Load the index from the table as the job's options say.

    `index_load`: number of the load. `first_batch`: the first batch that will use it. `damaged`: the previous index
    cannot be read. Returns the report of the load. StopRequested when the job is stopped; the next start continues the
    load.
    """
    options = job.options
    plan = plan_bootstrap(job.table, options.state.partition_regex)
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
                f"stopped by {job.env.stop.signal_name} while the index was loaded; the next start continues the load"
            )
        job.hooks.loading(at)

    load = partial(
        bootstrap_index,
        job.table,
        job.layout,
        job.env.meta.labels,
        index_load,
        clock_ms=job.env.clock_ms,
        ordering_type=job.decode.ordering_type,
        partition_regex=options.state.partition_regex,
        corrupt=options.state.corrupt_files,
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
    report_load(report, job.layout, former is not None)
    if report.live and former is None and knows_order_alone(job.table, job.layout.ordering):
        LOG.warning(
            "this stream orders events by their position in the source's log, which is in no column of table %s. So the "
            "ordering values of its rows are unknown after the load: the next event of a key counts as newer. If events may "
            "come out of order, give the table an ordering field (hoodie.table.ordering.fields)",
            job.table.base_path,
        )
    return report


def _former(job: JobContext, timeline: Timeline) -> IndexHeads | None:
    """The index that this checkpoint used before, as of the newest of its batches that is still in the table.

    Ordering values of events that were undone must not be used: when the events are read again, they would be late.
    None where events have no ordering value, and where there was no index.
    """
    if job.layout.ordering == "none":
        return None
    for number in reversed(query_folder_numbers(job.env.checkpoint)):
        if number > job.query_folder.number:
            continue  # a killed run began this folder
        try:
            heads = heads_as_of(query_folder_at(job.env.checkpoint, number), job.env.meta, "", timeline.is_valid)
        except IndexDamagedError as error:
            LOG.warning(_NO_FORMER, error)
            return None
        if heads.index_load or heads.batch_id is not None:
            return heads
    return None


def report_load(report: BootstrapReport, layout: StateLayout, deletes_known: bool) -> None:
    """Log the results of an index load: unusual findings first, then a summary line.

    ``deletes_known``: deleted keys were read from the previous index.
    """
    folder = layout.durable.where(layout.index_load_dir(report.index_load))
    _list("left out", report.left_out, logging.INFO)
    _list("skipped", report.skipped, logging.WARNING)
    _list(
        f"key found twice ({report.twice_policy})", [_places(found) for found in report.twice_examples], logging.WARNING
    )
    if report.twice:
        LOG.warning(
            "loading the index: the next record of a key that was found twice replaces or deletes all of its rows (except "
            "a second one in the same base file of a merge-on-read table); `tagstream table dedup` keeps the newest row of "
            "each key"
        )
    _list("another number of rows than its commit says", report.mismatched, logging.WARNING)
    if report.damaged_blocks:
        LOG.warning(
            "loading the index: skipped %d damaged log blocks, as readers do (from a writer that died while it wrote them)",
            report.damaged_blocks,
        )
    if not deletes_known and layout.ordering != "none":
        LOG.warning(
            "loading the index: deletes that are not in the table's log files any more are unknown: an event that is older "
            "than such a delete brings the row back"
        )
    LOG.info("%s", summary_line(report, folder))


def _places(found: Mapping[str, Any]) -> str:
    kept, *others = (f"{place[0]}/{place[1]} of {place[2]}" for place in [found["kept"], *found["others"]])
    return f"{found['key']}: kept is {kept}, not {', '.join(others)}"


def summary_line(report: BootstrapReport, folder: str) -> str:
    """The summary line of an index load. ``folder``: of the load."""
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


def is_as_asked(layout: StateLayout, options: Options, index_load: int) -> bool:
    """Whether an index load matches the options: same partitions, and no corrupt file skipped unless the options skip
    them.
    """
    marker = read_marker(layout, index_load)
    if marker is None:
        return False
    report = BootstrapReport.from_dict(marker.report)
    if report.carried:
        return True
    if report.partition_regex != options.state.partition_regex:
        return False
    return not report.skipped or options.state.corrupt_files == "skip"


def _list(what: str, items: Sequence[str], level: int) -> None:
    for item in items[:_SHOWN]:
        LOG.log(level, "loading the index: %s: %s", what, item)
    if len(items) > _SHOWN:
        LOG.log(level, "loading the index: %s: and %d more", what, len(items) - _SHOWN)


def cover_table(job: JobContext, spark: SparkSession, *, rebuild: str | None = None, doubt: str | None = None) -> None:
    """Make the index cover the table, with as many steps as that takes.

    ``rebuild``: why the index must be loaded again (one of its files is damaged). ``doubt``: why it must be loaded
    again even if it lacks no commit. IndexCoverageError when the user must decide, or when other writers commit faster
    than the index is updated.
    """
    job.use_query_folder(finish_retiring(job.env.checkpoint))
    if not job.options.run.bootstrap_only:  # which leaves the table as it is, also one that cannot be written
        settle(job)
    look_at_topic(job, spark)
    caught_up = False
    for _ in range(_TRIES):
        query_folder = job.query_folder.files
        state = CheckpointState.read(query_folder)
        taken = read_query_index_load(query_folder)
        job.position.index_load = taken.index_load if taken is not None else 0
        timeline = job.table.timeline()
        index = IndexPlace(
            query_folder,
            job.layout,
            job.position.index_load,
            job.env.retain_batches,
            job.decode.files,
            job.env.meta.stream_id,
            pull=job.env.index is not None,
            resuming=read_resume(job.env.checkpoint) is not None,
            rows=job.options.source.kind == "frame",
            disjoint=job.options.lock.has_disjoint_keys and job.env.lease.is_shared,
        )
        new = state.query_id is None or state.planned is None
        other_topic = None if new else changed_topic(job, query_folder)
        if other_topic is not None:
            step = CoverStep("retire", other_topic)
        elif rebuild is not None and job.env.index is None:
            step, rebuild = CoverStep("load", rebuild, damaged=True), None
        elif (
            job.env.index is None
            and taken is not None
            and new
            and not is_as_asked(job.layout, job.options, taken.index_load)
        ):
            step = CoverStep("load", f"the index in {query_folder.root} was loaded with other options")
        else:
            step = next_step(index, job.table, timeline, state, taken)
            if step.kind == "nothing" and doubt is not None and job.env.index is None:
                step = CoverStep("load", doubt)
            doubt = None
        step = without_older_copy(
            job.options, job.table, timeline, step, query_folder, stream_id=index.stream_id, new=new
        )
        why = append_problem(job.options, job.table, timeline, step, stream_id=index.stream_id, new=new)
        if why is not None:
            raise IndexCoverageError(why)
        # Streams that share the table commit all the time, and the query follows their commits.
        is_close = caught_up and step.kind == "catch up" and job.env.lease.is_shared
        if is_close or step.kind == "nothing" or (job.env.index is not None and step.kind not in ("retire", "reread")):
            # A pull-type index reads the table, so it has all commits, also those of other writers.
            job.position.catch_up = len(complete_catch_ups(job.layout, job.position.index_load))
            missing = step.found.uncovered if is_close else ()
            job.position.covered = frozenset(i.time for i in timeline.completed_writes).difference(missing)
            job.position.loaded, job.position.batches = step.found.loaded, step.found.batches
            if not new:
                forget_resume(job.env.checkpoint)
            begins, job.position.starting_offsets = (
                starting_offsets(job, spark, timeline) if new and job.position.covered else (None, None)
            )
            if new:
                write_begins(query_folder, begins)
            keep_topic(job, query_folder)
            keep_table(job)
            return
        try:
            _do(job, spark, state, step)
        except FileGoneError as error:
            if not job.env.lease.is_shared:
                raise
            LOG.info("%s. Another stream has rolled it back: the table is read again", error)
            continue
        caught_up = caught_up or step.kind == "catch up"
    raise IndexCoverageError(
        f"table {job.table.base_path} changed {_TRIES} times while the index caught up with it: other writers commit "
        "faster than the index can read; stop them for a while and start again"
    )


def _do(job: JobContext, spark: SparkSession, state: CheckpointState, step: CoverStep) -> None:
    if not job.options.state.bootstrap_enabled:
        raise IndexCoverageError(
            f"{step.why}, and index.bootstrap.enabled=false: rows that the index lacks would be written a second time. Set "
            "it to true, or start with the checkpoint that wrote the table"
        )
    if step.kind in ("retire", "reread") and job.options.source.kind == "frame":
        why = step.why.partition(". The records of those commits")[0].partition(". They are read")[0]
        raise IndexCoverageError(
            f"{why}. The source is a DataFrame, and only the code that made it can read from an earlier position: start it "
            "with a new checkpoint. The index is then loaded from the table, and the stream starts where the options of its "
            "readers say; records that the table already has are late or change nothing"
        )
    if step.kind == "reread":
        write_resume(job.env.checkpoint, step.since)
        if state.query_id is None:  # there is no query to retire
            LOG.warning("%s", step.why)
            return
    if step.kind in ("retire", "reread"):
        job.env.lease.check()
        before = job.query_folder.files.root
        job.use_query_folder(next_query_folder(job.env.checkpoint, job.query_folder, step.why))
        LOG.warning(
            "%s. The query in %s was retired, and a new query starts in %s",
            step.why,
            before,
            job.query_folder.files.root,
        )
        return
    first_batch = 0 if state.finished is None else state.finished + 1
    if step.kind == "catch up":
        plan = plan_catch_up(job.table, step.found.uncovered, job.options.state.partition_regex)
        LOG.info("%s; they wrote to %s file groups", step.why, f"{len(plan.touched):,}")
        if not plan.too_big(len(job.env.meta.labels), job.layout.ordering):
            catch_up(job, spark, plan, first_batch)
            return
    level = logging.INFO if state.query_id is None else logging.WARNING  # for a new checkpoint this is normal
    LOG.log(level, "%s: the index is loaded from the table", step.why)
    # The takeover files do not count here. A run that died before it wrote one may have made an index load that is outdated.
    index_load = next_index_load(job.layout)
    load_index(job, spark, index_load, first_batch, damaged=step.damaged)
    job.env.lease.check()
    write_query_index_load(job.query_folder.files, QueryIndexLoad(index_load))
