"""Logs compacted before a column's type is widened: hudi-rs reads no log whose types are narrower than the table's.

Base files of older types it reads, as every engine does. So slices with logs become base files first, with the types that
they have, and the logs that come have the new ones.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.services.spark_tasks import run_in_spark
from tagstream.table.services.compaction.claim import may_take_up
from tagstream.table.services.compaction.execute import compact
from tagstream.table.services.compaction.options import Strategy
from tagstream.table.services.compaction.plan import schedule_compaction
from tagstream.table.services.compaction.task import CompactionTask
from tagstream.table.timeline.instant import COMPACTION
from tagstream.table.timeline.write_status import WriteStatus

LOG = logging.getLogger("tagstream")


def compact_logs(job: JobContext, spark: SparkSession) -> list[str]:
    """Compact every slice that has logs, pending plans first; the instants, none where there was nothing to do.

    A plan that another process is carrying out stays: until it is done hudi-rs cannot read its slices.
    """
    options = replace(job.options.services.compaction, strategy=Strategy.UNBOUNDED)

    def execute(tasks: Sequence[CompactionTask]) -> list[WriteStatus]:
        return run_in_spark(spark, tasks)

    done: list[str] = []
    pending = [i.time for i in job.table.timeline().pending if i.action == COMPACTION]
    for instant in pending:
        if may_take_up(job.table, instant, job.clock_ms()):
            compact(
                job.table, instant, job.clock_ms, job.lease.check, execute=execute, options=options, files=job.writer
            )
            done.append(instant)
        else:
            LOG.warning(
                "compaction %s of table %s is another process's: until it is done hudi-rs cannot read its file groups, "
                "since their logs have narrower types than the table has from now on",
                instant,
                job.table.base_path,
            )
    new = schedule_compaction(job.table, options, job.clock_ms, job.lease.check, force=True, look_at_all=True)
    if new is not None:
        compact(job.table, new, job.clock_ms, job.lease.check, execute=execute, options=options, files=job.writer)
        done.append(new)
    if done:
        LOG.warning(
            "table %s: all logs were compacted before column types are widened (%s)",
            job.table.base_path,
            ", ".join(done),
        )
        job.table = job.table.reload()
    return done
