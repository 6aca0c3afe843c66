"""Whether a table can still be read as of an earlier instant: a clean deletes what such a read needs."""

from __future__ import annotations

from tagstream.table.errors import CleanedPastError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.cleaning.last_clean import clean_of, completed_cleans
from tagstream.table.timeline.instant import SAVEPOINT, Instant
from tagstream.table.timeline.timeline import Timeline


def check_past(table: HoodieTable, timeline: Timeline, as_of: str) -> None:
    """CleanedPastError for an instant time (17 digits) whose file slices a completed clean may have deleted.

    A clean tells the earliest commit that it retained. One that keeps numbers of file versions has none: what was the
    newest when it began is sure. What a savepoint keeps can be read as of the savepoint's write.
    """
    if as_of >= (timeline.newest_completed or ""):
        return
    earliest = max((_kept_from(table, timeline, clean) for clean in completed_cleans(timeline)), default="")
    if as_of >= earliest:
        return
    seen = max((i.time for i in timeline.completed_writes if i.time <= as_of), default=None)
    saved = [i.time for i in timeline.instants if i.action == SAVEPOINT and i.is_completed]
    if seen in saved:
        return
    also = f", and the savepoints {', '.join(saved)}" if saved else ""
    raise CleanedPastError(
        f"table {table.config.name} at {table.base_path} can't be read as of {as_of}: a clean has deleted files of that "
        f"time. It can be read as of {earliest} and later{also}; hoodie.clean.commits.retained and "
        "hoodie.clean.hours.retained say how long files are kept"
    )


def _kept_from(table: HoodieTable, timeline: Timeline, clean: Instant) -> str:
    """The first instant whose slices this clean has left; empty where it deleted nothing that is known."""
    told = clean_of(table.storage, timeline, clean)
    if not told.deleted:
        return ""
    return told.earliest or max((i.time for i in timeline.completed_writes if i.time < clean.time), default=clean.time)
