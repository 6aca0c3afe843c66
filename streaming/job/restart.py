"""Which failures of a query are mended by bringing index and table together again and starting it anew."""

from __future__ import annotations

from dataclasses import dataclass

from tagstream.state.errors import IndexDamagedError
from tagstream.streaming.commit.sink import BatchSink
from tagstream.streaming.job.failure import own_errors
from tagstream.table.errors import ForeignCommitError, InstantConflictError, PendingClusteringError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
_OTHERS = (ForeignCommitError.__name__, InstantConflictError.__name__, PendingClusteringError.__name__)


@dataclass(frozen=True)
class Restart:
    """``rebuild``: the index is to be loaded anew. ``count``: restarts in a row without a batch in between.

    ``clustering``: the instant of a clustering to be waited for.
    """

    why: str
    rebuild: bool
    count: int
    clustering: str | None = None

    @property
    def pause_s(self) -> float:
        """How long to leave the table to other writers before the next try: none after the first, then doubling."""
        return 0.0 if self.count <= 1 else min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** (self.count - 2))


def restart_after(error: Exception, sink: BatchSink, before: Restart | None) -> Restart | None:
    """What to do about an error that ended the query; None where it is final, or where a rebuilt index has not helped.

    Other writers may come in between as often as they like: the pauses grow, the tries have no limit.
    """
    found = own_errors(error)
    text = str(error)
    names = {name for name, _ in found}
    texts = dict(found)
    if IndexDamagedError.__name__ in names:
        rebuild, why = True, texts[IndexDamagedError.__name__]
    elif names & set(_OTHERS):
        rebuild, why = False, next(t for n, t in found if n in _OTHERS)
    else:
        return None
    count = 1 if before is None or sink.committed else before.count + 1
    tried = before is not None and before.rebuild and not sink.committed
    if rebuild and tried:
        return None
    clustering = sink.failure.instant if isinstance(sink.failure, PendingClusteringError) else None
    return Restart(why or text, rebuild, count, clustering)
