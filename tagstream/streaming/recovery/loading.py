"""Load the index from the table for a job: which of the options count, and what is said at the end."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from tagstream.bootstrap.catch_up import knows_order_alone
from tagstream.bootstrap.plan import plan_bootstrap
from tagstream.bootstrap.report import BootstrapProgress, BootstrapReport
from tagstream.bootstrap.run import bootstrap_index
from tagstream.bootstrap.tasks import TWICE_SUFFIX
from tagstream.state.durable.generation import read_marker
from tagstream.state.durable.heads import IndexHeads, heads_as_of
from tagstream.state.durable.root import root_at, root_numbers
from tagstream.state.errors import IndexDamagedError
from tagstream.state.layout import StateLayout
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import StopRequested
from tagstream.streaming.options.options import Options
from tagstream.streaming.progress.report import size
from tagstream.table.timeline.timeline import Timeline

LOG = logging.getLogger("tagstream")
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
        if job.stop.requested:
            raise StopRequested(
                f"stopped by {job.stop.signal_name} while the index was loaded; the next start goes on there"
            )
        job.loading(at)

    load = partial(
        bootstrap_index,
        job.table,
        job.layout,
        job.meta.labels,
        generation,
        clock_ms=job.clock_ms,
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
    for number in reversed(root_numbers(job.checkpoint)):
        if number > job.root.number:
            continue  # a killed run had only begun it
        try:
            heads = heads_as_of(root_at(job.checkpoint, number), job.meta, "", timeline.is_valid)
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
