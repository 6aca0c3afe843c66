"""Which failures of a query are mended by bringing index and table together again and starting it anew."""

from __future__ import annotations

from dataclasses import dataclass

from tagstream.state.errors import IndexDamagedError
from tagstream.streaming.commit.sink import BatchSink
from tagstream.streaming.errors import PartitionDepthError
from tagstream.streaming.job.failure import own_errors
from tagstream.table.errors import ForeignCommitError, InstantConflictError

_MOST = 5
_AGAIN = frozenset(e.__name__ for e in (ForeignCommitError, InstantConflictError, PartitionDepthError))


@dataclass(frozen=True)
class Restart:
    """``rebuild``: the index is to be loaded anew. ``count``: restarts in a row without a batch in between."""

    why: str
    rebuild: bool
    count: int


def restart_after(error: Exception, sink: BatchSink, before: Restart | None) -> Restart | None:
    """What to do about an error that ended the query; None where it is final, or where trying has not helped."""
    found = own_errors(error)
    text = str(error)
    names = {name for name, _ in found}
    texts = dict(found)
    if IndexDamagedError.__name__ in names:
        rebuild, why = True, texts[IndexDamagedError.__name__]
    elif names & _AGAIN:
        rebuild, why = False, next(t for n, t in found if n in _AGAIN)
    else:
        return None
    count = 1 if before is None or sink.committed else before.count + 1
    tried = before is not None and before.rebuild and not sink.committed
    if count > _MOST or (rebuild and tried):
        return None
    return Restart(why or text, rebuild, count)
