"""The one table whose events a stream of changes reads where its options name none: the first that it has seen.

It is kept in the checkpoint, at ``C/tagstream/source_table.json``, from the first batch on: an event of another table, which
a topic may have as well, is then bad and named.
"""

from __future__ import annotations

import logging

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.options.options import Options
from tagstream.streaming.recovery.kept import read_kept, to_keep
from tagstream.streaming.source.decode.messages.tables import seen_table
from tagstream.table.storage.create import create
from tagstream.table.storage.storage import Storage

LOG = logging.getLogger("tagstream")
_FILE = "tagstream/source_table.json"
_VERSION = 1
_CURE = "restore it, or delete it: the stream is then of the first table that it sees"


def read_table(checkpoint: Storage) -> str | None:
    """The table that the stream reads; None where it has seen none yet."""
    return read_kept(checkpoint, _FILE, _VERSION, lambda doc: str(doc["table"]), cure=_CURE)


def source_table(checkpoint: Storage, options: Options) -> str | None:
    """The same, or the table of the record that gave a new table its columns."""
    first = None if options.records.tables or options.first_schema is None else options.first_schema.table
    return read_table(checkpoint) or first


def keep_table(job: JobContext) -> None:
    """Keep the table that the stream reads."""
    pinned = job.decode.format.tables.pinned
    if pinned is not None and not job.options.bootstrap_only and read_table(job.checkpoint) is None:
        _keep(job.checkpoint, pinned)


def take_table(job: JobContext, why: str) -> None:
    """Keep the table that a task has seen, if that is `why` the query has ended; it counts from the next query on."""
    seen = seen_table(why)
    if seen is None:
        return
    job.decode = job.decode.of_table(_keep(job.checkpoint, seen))


def _keep(checkpoint: Storage, table: str) -> str:
    """Keep a table, and tell which one it is: of two that were seen at once the one that is kept."""
    create(checkpoint, _FILE, to_keep(_VERSION, table=table))
    kept = read_table(checkpoint) or table
    LOG.info(
        "the stream reads table %s; an event of another one is a bad record (tagstream.source.tables names others)",
        kept,
    )
    return kept
