"""The write step of a batch: Spark's tasks write its rows, or the driver does when they are few.

A batch of one record spends most of its time on starting tasks. So after a batch with few records, the next one is only
tagged by Spark. Its located rows are in task files (``source.task_files``), and what Spark returns is their places. The
driver then writes the rows when they are few again, else it gives their places to write tasks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, Row

from tagstream.spark_release import repartition_by_id
from tagstream.state.layout import partition_labels
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.located import LOCATED_SQL
from tagstream.streaming.batch.write import RESULT_SCHEMA, WriteSpec, make_write_function, write_packed
from tagstream.streaming.job.commit import Outcome

FEW_RECORDS = 1_000
_FEW_LOGS, _FEW_BASE_FILES = 16, 2  # two tasks write more of them faster than the driver alone


def write_stage(job: JobContext, rows: DataFrame, batch_id: int, instant: str, *, replay: bool) -> Outcome:
    """Run the one Spark action that consumes every partition of the stateful plan, and write its located rows."""
    spec = job.write_spec(batch_id, instant, replay=replay)
    if replay or job.task_files is None or job.env.index is not None or not _was_small(job):
        return _by_tasks(job, rows, spec)
    tagged = rows.collect()
    if _records(tagged) > FEW_RECORDS:
        return _by_tasks(job, rows.sparkSession.createDataFrame([tuple(row) for row in tagged], LOCATED_SQL), spec)
    # No task of Spark has this number, so no name of a file is used two times.
    task, attempt = job.env.meta.shuffle_partitions, batch_id
    packed = [bytes(row["rows"]) for row in tagged if row["rows"] is not None]
    statuses = [row["status"] for row in tagged if row["status"] is not None]
    return Outcome.of(write_packed(spec, packed, statuses, task, attempt), replay=False)


def _was_small(job: JobContext) -> bool:
    most = _FEW_LOGS if job.table.config.is_merge_on_read else _FEW_BASE_FILES
    return 0 < job.history.records <= FEW_RECORDS and job.history.file_groups <= most


def _by_tasks(job: JobContext, rows: DataFrame, spec: WriteSpec) -> Outcome:
    write_tasks = repartition_by_id(rows, partition_labels(job.env.meta.shuffle_partitions), "lane")
    result: Iterable[Any] = write_tasks.mapInArrow(make_write_function(spec), RESULT_SCHEMA).collect()
    return Outcome.of(result, replay=spec.replay)


def _records(tagged: Iterable[Row]) -> int:
    return sum(json.loads(row["status"])["stats"]["records"] for row in tagged if row["status"] is not None)
