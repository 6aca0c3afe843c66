"""The folder of files that a job reads: looked at before its query starts, and while it runs if it is to go on."""

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
from tagstream.streaming.options.options import Options
from tagstream.streaming.source.file_cleaner import CleanOptions, SourceCleaner
from tagstream.streaming.source.file_lister import FileLister, ListerOptions, ListerThread, list_files
from tagstream.streaming.source.file_plans import PlanLog, Positions, Split, plan_number, read_plan
from tagstream.streaming.source.file_reader import FilesSpec
from tagstream.streaming.source.source_file import position_of
from tagstream.table.storage.opening import is_ours, open_storage, path_of
from tagstream.table.storage.storage import Storage

LOG = logging.getLogger("tagstream")


class SourceFiles:
    """The plans of a query's folder: made once, or in the background until :meth:`close`."""

    def __init__(self, folder: str, spec: FilesSpec, thread: ListerThread | None) -> None:
        self.folder = folder
        self.spec = spec
        self._thread = thread

    @classmethod
    def open(cls, spark: SparkSession, job: JobContext) -> SourceFiles | None:
        """Look at the folder, plan what is new, and go on looking with ``--continuous``.

        None for Kafka, and for a folder on a store that only Spark reads: there it lists and reads the files itself.
        """
        options = job.options
        if options.source_class != "dfs" or not is_ours(options.dfs_root or ""):
            return None
        source = open_storage(options.dfs_root or "")
        follow_moved_plans(job.root.files)
        log = PlanLog(job.root.files)
        clean = clean_options(options)
        cleaner = None
        if clean is not None:
            unfinished = partial(unfinished_paths, job.root.files, log)
            cleaner = SourceCleaner(source, clean, job.env.clock_ms, job.env.lease.check, unfinished)
        lister = FileLister(
            source,
            log,
            ListerOptions(options.source_limit, spark.sparkContext.defaultParallelism, options.changed_files),
            job.env.clock_ms,
            job.env.lease.check,
            positions_before(job.root.files, source) if log.is_new else None,
            unfinished_files(job.root.files, log),
            cleaner,
        )
        lister.look()
        folder = log.folder if not names_data(job.root.files) else log.folder[:-1] + "[s]"
        spec = FilesSpec(source, options.changed_files, frozenset(lister.redone))
        if not options.continuous:
            lister.tell_waiting()
            return cls(folder, spec, None)
        return cls(folder, spec, ListerThread(lister, to_come(job.root.files, log), options.min_sync_interval_seconds))

    def start(self, batches: Callable[[], tuple[int, bool]]) -> None:
        """Go on looking, with ``--continuous``. ``batches``: how many the query has begun, and whether one is running."""
        if self._thread is not None:
            self._thread.start(batches)

    def check(self) -> None:
        """Raise what looking at the folder has failed with."""
        if self._thread is not None:
            self._thread.check()

    def close(self) -> None:
        """Look no more."""
        if self._thread is not None:
            self._thread.close()


def to_come(root: Storage, log: PlanLog) -> int:
    """How many batches the query will begin without a new plan: one of each plan not taken yet, and one that is repeated."""
    taken = {plan_number(e["path"]) for e in whole_file_log(root)}
    repeated = unfinished_batch(root) is not None
    return sum(number not in taken for number in log.numbers) + repeated


def names_data(root: Storage) -> bool:
    """Whether Spark's newest batch has files of data in it: an earlier version of this program planned it.

    It may run again. Spark refuses files that are not below the folder it is given, but not where that is a pattern.
    """
    planned = newest_batch(root, "offsets")
    offset = None if planned is None else raw_offset(root, planned)
    return offset is not None and any(
        plan_number(e["path"]) is None for e in file_log(root, int(offset["logOffset"]), int(offset["logOffset"]))
    )


def clean_options(options: Options) -> CleanOptions | None:
    """What becomes of files that are in the table; None: they stay."""
    if options.source_clean == "off":
        return None
    return CleanOptions(
        options.source_clean_after_ms, open_storage(options.source_archive) if options.source_archive else None
    )


def unfinished_files(root: Storage, log: PlanLog) -> frozenset[str]:
    """The files that only plans of unfinished batches have, from their beginning on."""
    return frozenset(split.path for split in _unfinished_splits(root, log) if split.start == 0)


def unfinished_paths(root: Storage, log: PlanLog) -> frozenset[str]:
    """The files of which a plan of an unfinished batch has anything."""
    return frozenset(split.path for split in _unfinished_splits(root, log))


def _unfinished_splits(root: Storage, log: PlanLog) -> Iterator[Split]:
    finished = newest_batch(root, "commits")
    offset = None if finished is None else raw_offset(root, finished)
    last = -1 if offset is None else int(offset["logOffset"])
    numbers = log.numbers
    taken = {plan_number(e["path"]) for e in whole_file_log(root) if int(e["batchId"]) <= last} if numbers else set()
    return (split for n in numbers if n not in taken for split in read_plan(root, n).splits)


def positions_before(root: Storage, source: Storage) -> Positions:
    """What a query has read that an earlier version of this program began: whole files, by Spark's own log.

    A file that has another time now was changed behind that version's back: it is read again from its beginning, since
    nobody knows how far it was read.
    """
    taken = {e["path"]: int(e["timestamp"]) for e in whole_file_log(root) if plan_number(e["path"]) is None}
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
            "source file %s has changed since it was read; it is read again from its beginning, and what the table has of "
            "it already is late or the same",
            source.where(file.path),
        )
    return found
