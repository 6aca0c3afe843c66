"""The one table whose events a stream of changes reads where its options name none: the first that it has seen.

It is kept in the checkpoint, at ``C/tagstream/source_table.json``, from the first batch on: an event of another table, which
a topic may have as well, is then bad and named.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import CheckpointError
from tagstream.streaming.source.decode.messages.tables import seen_table
from tagstream.table.storage.create import create
from tagstream.table.storage.storage import Storage

LOG = logging.getLogger("tagstream")
_FILE = "tagstream/source_table.json"
_VERSION = 1


def read_table(checkpoint: Storage) -> str | None:
    """The table that the stream reads; None where it has seen none yet."""
    try:
        doc = json.loads(checkpoint.read(_FILE))
        return str(doc["table"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(
            f"{checkpoint.where(_FILE)} is damaged ({e!r}); restore it, or delete it: the stream is then of the first table "
            "that it sees"
        ) from e


def take_table(job: JobContext, why: str) -> None:
    """Keep the table that a task has seen, if that is `why` the query has ended; it counts from the next query on."""
    seen = seen_table(why)
    if seen is None:
        return
    doc = {"version": _VERSION, "table": seen}
    create(job.checkpoint, _FILE, json.dumps(doc).encode())
    pinned = read_table(job.checkpoint)
    LOG.info(
        "the stream reads table %s; an event of another one is a bad record (tagstream.source.tables names others)",
        pinned,
    )
    job.decode = replace(
        job.decode, format=replace(job.decode.format, tables=replace(job.decode.format.tables, pinned=pinned))
    )
