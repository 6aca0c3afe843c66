"""The source folder or table of a job: planned before its query starts, and with ``--continuous`` also while it runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from functools import partial

from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.spark_checkpoint import (
    file_log,
    follow_moved_plans,
    newest_batch,
    raw_offset,
    unfinished_batch,
    whole_file_log,
)
from tagstream.streaming.job.schema_match import schema_columns
from tagstream.streaming.options.options import Options
from tagstream.streaming.source.file_cleaner import CleanOptions, SourceCleaner
from tagstream.streaming.source.file_forms import make_form
from tagstream.streaming.source.file_lister import FileLister, ListerOptions, ListerThread, list_files
from tagstream.streaming.source.file_plans import PlanLog, Positions, Split, plan_number, read_plan
from tagstream.streaming.source.file_reader import FilesSpec, PlanReader
from tagstream.streaming.source.incr_planner import IncrPlanner, IncrPlanOptions
from tagstream.streaming.source.incr_reader import IncrSpec
from tagstream.streaming.source.source_file import FileForm, position_of
from tagstream.table.storage.opening import is_supported, open_storage, path_of
from tagstream.table.storage.storage import Storage

LOG = logging.getLogger("tagstream")


class SourceFiles:
    """The plans for a query's source folder or table: made once, or in the background until :meth:`close`."""

    def __init__(self, folder: str, spec: PlanReader, thread: ListerThread | None) -> None:
        self.folder = folder
        self.spec = spec
        self._thread = thread

    @classmethod
    def open(cls, spark: SparkSession, job: JobContext) -> SourceFiles | None:
        """Plan new files, or new commits of the source table. With ``--continuous`` this is repeated until :meth:`close`.

        None for Kafka, and for a folder on a store that only Spark reads: then Spark lists and reads the files.
        """
        options = job.options
        if options.source.kind == "hudi":
            return cls._of_table(spark, job)
        if options.source.kind != "dfs" or not is_supported(options.files.root or ""):
            return None
        source = open_storage(options.files.root or "")
        follow_moved_plans(job.query_folder.files)
        log = PlanLog(job.query_folder.files)
        clean = clean_options(options)
        cleaner = None
        if clean is not None:
            unfinished = partial(unfinished_paths, job.query_folder.files, log)
            cleaner = SourceCleaner(source, clean, job.env.clock_ms, job.env.lease.check, unfinished)
        form = file_form_of(options)
        lister = FileLister(
            source,
            log,
            ListerOptions(options.source.limit, spark.sparkContext.defaultParallelism, options.files.changed, form),
            job.env.clock_ms,
            job.env.lease.check,
            positions_before(job.query_folder.files, source) if log.is_new else None,
            unfinished_files(job.query_folder.files, log),
            cleaner,
        )
        lister.look()
        folder = log.folder if not names_data(job.query_folder.files) else log.folder[:-1] + "[s]"
        spec = FilesSpec(source, options.files.changed, frozenset(lister.redone), form)
        if not options.run.continuous:
            lister.report_waiting()
            return cls(folder, spec, None)
        return cls(
            folder,
            spec,
            ListerThread(lister, to_come(job.query_folder.files, log), options.run.min_sync_interval_seconds),
        )

    @classmethod
    def _of_table(cls, spark: SparkSession, job: JobContext) -> SourceFiles:
        options, incr = job.options, job.options.incr
        source, query_folder = open_storage(incr.path or ""), job.query_folder.files
        follow_moved_plans(query_folder)
        log = PlanLog(query_folder)
        plans = IncrPlanOptions(
            options.source.limit,
            spark.sparkContext.defaultParallelism,
            incr.instants,
            latest=incr.begin == "READ_LATEST",
            full_scan=incr.full_scan,
        )
        planner = IncrPlanner(source, query_folder, log, plans, job.env.lease.check)
        if planner.is_new and job.table.timeline().completed_writes and incr.begin != "READ_LATEST":
            LOG.warning(
                "checkpoint %s is new, and table %s has commits: all rows of source table %s are read; rows that the source "
                "has lost since stay in the table",
                job.env.checkpoint.root,
                job.table.base_path,
                source.root,
            )
        planner.look()
        planner.report_waiting()
        spec = IncrSpec(source, None if options.source.transformers else job.decode.place_columns)
        if not options.run.continuous:
            return cls(log.folder, spec, None)
        interval = options.run.min_sync_interval_seconds
        return cls(log.folder, spec, ListerThread(planner, to_come(query_folder, log), interval))

    def start(self, batches: Callable[[], tuple[int, bool]]) -> None:
        """Start the background listing, with ``--continuous``. ``batches``: returns how many batches the query has
        begun, and whether one is running.
        """
        if self._thread is not None:
            self._thread.start(batches)

    def check(self) -> None:
        """Raise the error of the background listing, if it has failed."""
        if self._thread is not None:
            self._thread.check()

    def close(self) -> None:
        """Stop the background listing."""
        if self._thread is not None:
            self._thread.close()


def to_come(query_folder: Storage, log: PlanLog) -> int:
    """How many batches the query will begin without a new plan: one per plan that was not taken, and one for a replay."""
    taken = {plan_number(e["path"]) for e in whole_file_log(query_folder)}
    repeated = unfinished_batch(query_folder) is not None
    return sum(number not in taken for number in log.numbers) + repeated


def names_data(query_folder: Storage) -> bool:
    """Whether Spark's newest batch contains data files, because an earlier version of this program planned it.

    Spark may run it again. Spark refuses files that are outside the folder that it gets, unless that is a pattern.
    """
    planned = newest_batch(query_folder, "offsets")
    offset = None if planned is None else raw_offset(query_folder, planned)
    return offset is not None and any(
        plan_number(e["path"]) is None
        for e in file_log(query_folder, int(offset["logOffset"]), int(offset["logOffset"]))
    )


def file_form_of(options: Options) -> FileForm | None:
    """The form of the source's files; None for lines of JSON."""
    return make_form(options.files.form, options.csv, schema_columns(options))


def clean_options(options: Options) -> CleanOptions | None:
    """What to do with files that the table has; None: they stay."""
    if options.files.clean == "off":
        return None
    return CleanOptions(
        options.files.clean_after_ms, open_storage(options.files.archive) if options.files.archive else None
    )


def unfinished_files(query_folder: Storage, log: PlanLog) -> frozenset[str]:
    """The files that only plans of unfinished batches have, from their beginning on."""
    return frozenset(split.path for split in _unfinished_splits(query_folder, log) if split.start == 0)


def unfinished_paths(query_folder: Storage, log: PlanLog) -> frozenset[str]:
    """The files that a plan of an unfinished batch reads, or a part of them."""
    return frozenset(split.path for split in _unfinished_splits(query_folder, log))


def _unfinished_splits(query_folder: Storage, log: PlanLog) -> Iterator[Split]:
    finished = newest_batch(query_folder, "commits")
    offset = None if finished is None else raw_offset(query_folder, finished)
    last = -1 if offset is None else int(offset["logOffset"])
    numbers = log.numbers
    taken = (
        {plan_number(e["path"]) for e in whole_file_log(query_folder) if int(e["batchId"]) <= last}
        if numbers
        else set()
    )
    return (split for n in numbers if n not in taken for split in read_plan(query_folder, n).splits)


def positions_before(query_folder: Storage, source: Storage) -> Positions:
    """What a query has read that an earlier version of this program started: whole files, according to Spark's log.

    A file with another modification time was changed meanwhile. It is read again from its beginning, since the position
    is unknown.
    """
    taken = {e["path"]: int(e["timestamp"]) for e in whole_file_log(query_folder) if plan_number(e["path"]) is None}
    if not taken:
        return {}
    there = {file.path: file for file in list_files(source)}
    found: Positions = {}
    for uri, mtime_ms in taken.items():
        file = there.get(os.path.relpath(path_of(uri), source.root))
        if file is None:
            continue
        if file.mtime_ms == mtime_ms:
            found[file.path] = position_of(source, file, file.size)
            continue
        LOG.warning(
            "source file %s has changed since it was read; it is read again from its beginning, and records that the table "
            "already has are late or change nothing",
            source.where(file.path),
        )
    return found
