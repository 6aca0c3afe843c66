"""What a pull-type index needs before the first batch, and again when others have changed the table."""

from __future__ import annotations

import logging
import time

from pyspark.sql import SparkSession

from tagstream.bootstrap.errors import IndexCoverageError
from tagstream.index.family.fill import fill, unknown_keys
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.commit.pull import table_as_of

LOG = logging.getLogger("tagstream")


def start_index(job: JobContext, spark: SparkSession) -> None:
    """Load what the index holds in memory; an index with a storage of its own that lacks keys of the table is filled.

    IndexCoverageError where it lacks some and ``index.bootstrap.enabled`` is false.
    """
    index = job.index
    if index is None:
        return
    job.timeline = job.table.timeline()
    look = table_as_of(job, spark)
    index.start(look)
    if not index.update_in_tasks:
        return
    missing = unknown_keys(index, look)
    if not missing:
        return
    what = f"the {index.name} index does not know key {missing[0]!r} of table {job.table.base_path}"
    if not job.options.index_bootstrap_enabled:
        raise IndexCoverageError(
            f"{what}, and index.bootstrap.enabled=false: rows that it does not know would be written a second time. Set it "
            "to true, or name the index that the table was written with"
        )
    LOG.warning("%s (and %d more of a sample): it is filled from the table", what, len(missing) - 1)
    began = time.monotonic()
    keys = fill(index, look)
    LOG.warning("the %s index was filled with %s keys in %.1f s", index.name, f"{keys:,}", time.monotonic() - began)
