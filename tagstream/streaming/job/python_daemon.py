"""Spark's Python daemon, which imports this job's modules before it forks its workers.

Spark starts it instead of ``pyspark.daemon`` (``spark.python.daemon.module``). Every worker is a fork. Without this,
each worker imports NumPy, pandas, Arrow and our modules again, which takes a second of processor time. With it, the
workers share the imported modules and their memory.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import sys
import traceback
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
    """Import the modules, then run pyspark's daemon."""
    for name in PRELOADED:
        importlib.import_module(name)
    this_copy()  # compute it now: when a worker is forked, the files may be of another version
    # A worker collects garbage after each task: 50 ms with so many modules, and each page that it visits is copied.
    gc.collect()
    gc.freeze()
    hush()
    daemon.manager()


def hush() -> None:
    """Drop the daemon's traceback of a worker whose JVM has closed the connection.

    The JVM then needs nothing more of the worker, or reports the task's error itself. Successful runs had two such
    tracebacks. The daemon prints one in its worker, or in its loop where the worker ends by the error (Spark's default
    since 4.1).
    """
    setattr(daemon, "print", _say)  # noqa: B010 (a name that the module does not have)
    setattr(daemon, "traceback", _Traceback)  # noqa: B010 (the module's name for another module)


def _hung_up() -> bool:
    return isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError)


def _say(*texts: Any, **more: Any) -> None:
    if not _hung_up():
        builtins.print(*texts, **more)


class _Traceback:
    """What the daemon uses of the module ``traceback``."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        """Print the error that is being handled, unless the JVM has closed the connection."""
        if not _hung_up():
            traceback.print_exc()


if __name__ == "__main__":
    main()
