"""Which failures of a query end in a new one, after index and table were brought together again."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tagstream.state.errors import IndexDamagedError
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.commit.sink import BatchSink
from tagstream.streaming.errors import PartitionDepthError, SchemaChangedError, TableSeenError, TopicChangedError
from tagstream.streaming.job.failure import own_errors
from tagstream.streaming.job.schema_changes import take_notes
from tagstream.streaming.recovery.source_table import take_table
from tagstream.table.errors import (
    ForeignCommitError,
    InstantConflictError,
    MissingSliceError,
    PendingClusteringError,
)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
_RESTARTED = (
    IndexDamagedError, MissingSliceError, ForeignCommitError, InstantConflictError, PendingClusteringError,
    PartitionDepthError, SchemaChangedError, TopicChangedError, TableSeenError,
)  # fmt: skip


@dataclass(frozen=True)
class Restart:
    """``rebuild``: the index is loaded from the table again; ``doubt``: only if it lacks no commit of the table.

    ``error``: class of what ended the query.
    ``count``: restarts in a row without a batch in between. ``clustering``: the instant of one to be waited for.
    """

    why: str
    rebuild: bool
    count: int
    doubt: bool = False
    clustering: str | None = None
    error: str = ""

    @property
    def level(self) -> int:
        """Of the log: that a new stream has seen its table is nothing to worry about."""
        return logging.INFO if self.error == TableSeenError.__name__ else logging.WARNING

    @property
    def pause_s(self) -> float:
        """How long to leave the table to other writers before the next try: none after the first, then doubling."""
        return 0.0 if self.count <= 1 else min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(self.count - 2, 20))


def take_noticed(job: JobContext, why: str) -> None:
    """Keep what the tasks of a query have noticed of schemas and of the source's table; ``why`` it ended."""
    take_table(job, why)
    take_notes(job)


def restart_after(error: Exception, sink: BatchSink, before: Restart | None) -> Restart | None:
    """What to do about an error that ended the query; None where it is final, or where a rebuilt index has not helped.

    Other writers may come in between as often as they like: the pauses grow, the tries have no limit.
    """
    texts = dict(own_errors(error))
    name = next((kind.__name__ for kind in _RESTARTED if kind.__name__ in texts), None)
    if name is None:
        return None
    if sink.committed:
        before = None
    rebuild, doubt = name == IndexDamagedError.__name__, name == MissingSliceError.__name__
    if doubt and before is not None and before.doubt:
        rebuild, doubt = True, False  # what the table has more was caught up with, and that was not it
    if rebuild and before is not None and before.rebuild:
        return None
    count = 1 if before is None else before.count + 1
    clustering = sink.failure.instant if isinstance(sink.failure, PendingClusteringError) else None
    return Restart(texts[name] or str(error), rebuild, count, doubt, clustering, name)
