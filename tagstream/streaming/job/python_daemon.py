"""Spark's Python daemon with this job's modules imported before it forks its workers.

Spark starts it in place of ``pyspark.daemon`` (``spark.python.daemon.module``). Every worker is a fork: without this each
one imports NumPy, pandas, Arrow and our own modules again, a second of processor time; with it they are there at once
and their memory is shared.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import sys
from typing import Any

from pyspark import daemon

from tagstream.streaming.copy_print import this_copy

PRELOADED = (
    "pandas",
    "pyarrow.parquet",
    "tagstream.bootstrap.tasks",
    "tagstream.streaming.source.transformation",
    "tagstream.streaming.batch.tag",
    "tagstream.streaming.batch.write",
)


def main() -> None:
    """Import, then serve as pyspark's own daemon."""
    for name in PRELOADED:
        importlib.import_module(name)
    this_copy()  # what is imported: the files may be another version's when a worker is forked
    # A worker collects garbage after each of its tasks: 50 ms with so many modules, and each page looked at is copied.
    gc.collect()
    gc.freeze()
    hush()
    daemon.manager()


def hush() -> None:
    """Keep the daemon's trace of a worker to itself whose JVM had hung up: that has all it wanted of the worker, or tells
    of the task itself, and a run in which all was well showed two of them."""
    setattr(daemon, "print", _say)  # noqa: B010 (a name that the module does not have)


def _say(*texts: Any, **more: Any) -> None:
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        builtins.print(*texts, **more)


if __name__ == "__main__":
    main()
