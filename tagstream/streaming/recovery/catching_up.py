"""The index catches up with commits that it did not make, as an epoch of its generation."""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from tagstream.bootstrap.catch_up import CatchUpPlan, catch_up_index
from tagstream.state.durable.epoch import complete_epochs
from tagstream.streaming.batch.context import JobContext

LOG = logging.getLogger("tagstream")


def catch_up(job: JobContext, spark: SparkSession, plan: CatchUpPlan, first_batch: int) -> int:
    """Make the next epoch of the job's generation; its number. ``first_batch``: the first batch that will know of it."""
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
            "%s keys are live in two of these file groups; the slice with the newest base instant counts, and the next "
            "record of such a key replaces or deletes all of its rows. All are listed in %s/*.twice.jsonl; `tagstream table "
            "dedup` keeps the newest row of each",
            f"{report.twice:,}",
            job.layout.durable.where(job.layout.epoch_dir(job.generation, epoch)),
        )
    return epoch
