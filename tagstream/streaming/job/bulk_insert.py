"""The plan of a batch of BULK_INSERT: which shuffles its sort mode needs, and the action that writes its files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from tagstream.spark_release import apply_in_arrow, repartition_by_id, to_arrow
from tagstream.state.layout import partition_labels
from tagstream.streaming.batch.bulk_insert import (
    KEYED_SQL,
    LANES_SQL,
    BulkSpec,
    by_partition,
    make_bulk_function,
    make_combine_function,
    make_lane_function,
    make_row_bytes,
)
from tagstream.streaming.batch.bulk_ranges import SAMPLE_SQL, by_range, make_sample_function, ranges_of
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.write import RESULT_SCHEMA
from tagstream.streaming.job.commit import Outcome
from tagstream.streaming.options.operation_options import BulkInsertSortMode

_KEYED = pa.schema([("kg", pa.int32()), ("rows", pa.binary())])
_WITHOUT_SHUFFLE = (BulkInsertSortMode.NONE, BulkInsertSortMode.PARTITION_SORT)


def keeps_records(job: JobContext) -> bool:
    """Whether the records of a batch that appends must be kept until its files are written.

    A global sort takes a sample of them first. Other code made the rows of a DataFrame: if Spark made them again, those of
    one key might come in another order.
    """
    samples = job.bulk_inserts and job.options.operation.sort_mode is BulkInsertSortMode.GLOBAL_SORT
    return samples or (job.options.appends and job.options.source.kind == "frame")


def kept_rows(job: JobContext, rows: DataFrame) -> DataFrame:
    """``rows``, which Spark makes only once. Those of a bulk insert are kept on disk alone: a load may have many times more
    than the heap has room for.
    """
    return rows.persist(StorageLevel.DISK_ONLY) if job.bulk_inserts else rows.persist()


def bulk_stage(job: JobContext, rows: DataFrame, batch_id: int, instant: str) -> Outcome:
    """Write the rows (``streaming.source.source.keyed_records``) to new file groups."""
    options = job.options.operation
    spec = BulkSpec(
        job.write_spec(batch_id, instant, replay=False),
        job.read_profile(),
        options.sort_mode,
        job.options.file_sizes.max_file_bytes,
    )
    if options.combine:
        rows = apply_in_arrow(rows.groupBy("kg"), make_combine_function(spec, job.task_files), KEYED_SQL, _KEYED)
    tasks = options.bulk_tasks or job.env.meta.shuffle_partitions
    if options.sort_mode not in _WITHOUT_SHUFFLE:
        lanes = partial(by_partition, count=tasks)
        if options.sort_mode is BulkInsertSortMode.GLOBAL_SORT:
            sample = to_arrow(rows.mapInArrow(make_sample_function(make_row_bytes(spec)), SAMPLE_SQL))
            ranges = ranges_of(sample, max_file_bytes=spec.max_file_bytes, most=tasks)
            spec, tasks = replace(spec, row_bytes=ranges.row_bytes), len(ranges.bounds) + 1
            lanes = partial(by_range, bounds=ranges.bounds)
        sent = rows.mapInArrow(make_lane_function(lanes, job.task_files), LANES_SQL)
        rows = repartition_by_id(sent, partition_labels(tasks), "lane")
    result: Iterable[Any] = rows.mapInArrow(make_bulk_function(spec), RESULT_SCHEMA).collect()
    return Outcome.of(result, replay=False)
