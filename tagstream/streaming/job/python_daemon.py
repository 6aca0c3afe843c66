"""Spark's Python daemon with this job's modules imported before it forks its workers.

Spark starts it in place of ``pyspark.daemon`` (``spark.python.daemon.module``). Every worker is a fork: without this each
one imports NumPy, pandas, Arrow and our own modules again, a second of processor time; with it they are there at once
and their memory is shared.
"""

from __future__ import annotations

import gc
import importlib

from pyspark.daemon import manager

from tagstream.streaming.copy_print import this_copy

PRELOADED = (
    "pandas",
    "pyarrow.parquet",
    "tagstream.bootstrap.tasks",
    "tagstream.streaming.source.transform.stage",
    "tagstream.streaming.tag.tag",
    "tagstream.streaming.write.write",
)


def main() -> None:
    """Import, then serve as pyspark's own daemon."""
    for name in PRELOADED:
        importlib.import_module(name)
    this_copy()  # what is imported: the files may be another version's when a worker is forked
    # A worker collects garbage after each of its tasks: 50 ms with so many modules, and each page looked at is copied.
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
