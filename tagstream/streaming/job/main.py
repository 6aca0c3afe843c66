"""The command: options, checks, one run of the stream, and the exit code (0 done, 1 failed, 2 wrong use, 3 will fail
again).

``--bootstrap-only`` loads the index from a table into a checkpoint, for a stream that is started later. It takes the
table's lease and changes nothing else of the table. So the table may also be one that this version can read but not
write.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Callable, MutableMapping, Sequence

import pyspark
from pyspark.sql import SparkSession

from tagstream.index.registry import IndexOptions
from tagstream.state.index_loads import read_marker
from tagstream.streaming.job.dry_run import explain_start
from tagstream.streaming.job.failure import exit_code, explain
from tagstream.streaming.job.job import run_job
from tagstream.streaming.job.preflight import check_start, stream_problem
from tagstream.streaming.job.run_context import make_context
from tagstream.streaming.job.session import session_conf, spark_needs, start_session, take_store_settings
from tagstream.streaming.job.table_match import check_options, share_of, table_lock
from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.streaming.monitor.progress import Progress
from tagstream.streaming.options.cli import PROGRAM, load_options
from tagstream.streaming.options.options import Options
from tagstream.streaming.process import CrashPlan, StopFlag, clock_from_env
from tagstream.streaming.recovery.cover import cover_table
from tagstream.streaming.recovery.same_table import check_table
from tagstream.streaming.recovery.takeover import read_query_index_load
from tagstream.table.errors import ConfigError, TagstreamError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import listed_by_metadata
from tagstream.table.storage.opening import open_storage
from tagstream.version import VERSION

LOG = logging.getLogger("tagstream")


def run_bootstrap(options: Options, env: MutableMapping[str, str], clock_ms: Callable[[], int]) -> None:
    """Load the index and end. Raises the error that made it fail."""
    with Progress.open(options) as progress:
        progress.without_batches()
        for warning in options.warnings:
            LOG.warning(warning)
        LOG.info("options:\n  %s", "\n  ".join(options.describe()))
        table = check_start(options, env, clock_ms(), spark_needs(options, env)).table
        _warn_of_stream(table)
        if table.timeline().newest_completed is None:
            LOG.info("table %s has no commit, so the index needs no load", table.base_path)
            return
        spark = start_session(
            f"tagstream {table.config.name}", jars=[], conf=session_conf(options, env), env=env, little_java=True
        )
        stop = StopFlag()
        stop.install()
        try:
            load_only(spark, options, table, progress, stop, clock_ms)
        finally:
            spark.stop()


def open_existing(options: Options) -> HoodieTable:
    """Open the table that the options name, and check the options against it. Warns when a stream to it would not
    start.
    """
    check_table(open_storage(options.run.checkpoint_dir), options.table.base_path)
    table = listed_by_metadata(HoodieTable.open(options.table.base_path))
    check_options(options, table.config)
    _warn_of_stream(table)
    return table


def _warn_of_stream(table: HoodieTable) -> None:
    problem = stream_problem(table, IndexOptions())
    if problem is not None:
        LOG.warning("the index can be loaded, but a stream will not start: %s", problem)


def load_only(
    spark: SparkSession,
    options: Options,
    table: HoodieTable,
    progress: Progress,
    stop: StopFlag,
    clock_ms: Callable[[], int],
) -> None:
    """Load the index with an existing session, unless the checkpoint's index covers the table already."""
    lock = table_lock(options, table, clock_ms)
    lease = LeaseKeeper(table.storage, clock_ms, share=share_of(options, lock))
    try:
        lease.acquire("loading of an index")
        job = make_context(options, table, spark, lease, stop, CrashPlan(), clock_ms, lock)
        job.hooks.loading = progress.loading
        before = read_query_index_load(job.query_folder.files)
        cover_table(job, spark)
        taken = read_query_index_load(job.query_folder.files)
        if taken is None or taken == before:
            marker = None if taken is None else read_marker(job.layout, taken.index_load)
            what = "" if marker is None else f" (loaded as of {marker.instant}: {marker.live:,} keys)"
            LOG.info("the index in %s already covers table %s%s", job.env.checkpoint.root, table.base_path, what)
            return
        LOG.info(
            "a stream with checkpoint %s continues with this index (%d key groups, %d shuffle partitions)",
            job.env.checkpoint.root,
            job.env.meta.key_groups,
            job.env.meta.shuffle_partitions,
        )
    finally:
        lock.close()
        lease.release()


def main(argv: Sequence[str], program: str = PROGRAM) -> int:
    """Run the job that the command line describes. Returns the exit code. ``program``: the command's name in the help
    text.
    """
    if list(argv) == ["--version"]:
        print(version_line())
        return 0
    try:
        options = load_options(argv, program)
    except ConfigError as e:
        return fail(str(e), 2)
    try:
        take_store_settings(options, os.environ)
        if options.run.dry_run:
            now_ms = clock_from_env(os.environ)()
            return 0 if explain_start(options, sys.stdout, os.environ, now_ms) else 1
        run = run_bootstrap if options.run.bootstrap_only else run_job
        run(options, env=os.environ, clock_ms=clock_from_env(os.environ))
    except TagstreamError as e:
        return fail(str(e), exit_code(e))
    except Exception as e:
        if os.environ.get("TAGSTREAM_TRACE"):
            raise
        explained = explain(e, options)
        if explained.detail:
            print(explained.detail, file=sys.stderr)
        return fail(explained.line, exit_code(e))
    return 0


def version_line() -> str:
    """The versions of this program, Spark and Python."""
    return f"tagstream {VERSION} (pyspark {pyspark.__version__}, Python {platform.python_version()})"


def fail(text: str, code: int) -> int:
    """Print in one line why the command ends. Returns the exit code."""
    print(f"tagstream: error: {text}", file=sys.stderr)
    return code
