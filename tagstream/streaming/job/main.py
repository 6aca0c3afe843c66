"""The command: options, checks, one run of the stream, exit code (0 done, 1 failed, 2 wrong use, 3 will fail again)."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence

import pyspark

from tagstream.streaming.clock import clock_from_env
from tagstream.streaming.job.bootstrap_explain import explain_start
from tagstream.streaming.job.bootstrap_only import run_bootstrap
from tagstream.streaming.job.failure import exit_code, explain
from tagstream.streaming.job.job import run_job
from tagstream.streaming.job.session import take_store_settings
from tagstream.streaming.options.cli import PROGRAM, load_options
from tagstream.table.errors import ConfigError, TagstreamError
from tagstream.version import VERSION


def main(argv: Sequence[str], program: str = PROGRAM) -> int:
    """Run the job that the command line describes; ``program`` is how the help calls it."""
    if list(argv) == ["--version"]:
        print(version_line())
        return 0
    try:
        options = load_options(argv, program)
    except ConfigError as e:
        return fail(str(e), 2)
    try:
        take_store_settings(options, os.environ)
        if options.dry_run:
            now_ms = clock_from_env(os.environ)()
            return 0 if explain_start(options, sys.stdout, os.environ, now_ms) else 1
        run = run_bootstrap if options.bootstrap_only else run_job
        run(options, env=os.environ, clock_ms=clock_from_env(os.environ))
    except TagstreamError as e:
        return fail(str(e), exit_code(e))
    except Exception as e:
        if os.environ.get("TAGSTREAM_TRACE"):
            raise
        told = explain(e, options)
        if told.detail:
            print(told.detail, file=sys.stderr)
        return fail(told.line, exit_code(e))
    return 0


def console() -> int:
    """Entry point of the console script ``tagstream``."""
    return main(sys.argv[1:])


def version_line() -> str:
    """What runs: this program, Spark, Python."""
    return f"tagstream {VERSION} (pyspark {pyspark.__version__}, Python {platform.python_version()})"


def fail(text: str, code: int) -> int:
    """Say why the command ends, in one line; the exit code."""
    print(f"tagstream: error: {text}", file=sys.stderr)
    return code
