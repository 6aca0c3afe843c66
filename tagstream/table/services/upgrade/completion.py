"""When the actions of a version 6 table were completed: a timeline of layout 1 does not say so, and layout 2 needs it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from tagstream.table.timeline.instant import SAVEPOINT

ActionKey = tuple[str, str]
_FORMAT = "%Y%m%d%H%M%S"


def completion_times(wanted: Mapping[ActionKey, str | None], begun: Iterable[str], now: str) -> dict[ActionKey, str]:
    """The completion time of each completed action by (time, action), as 17 digits.

    ``wanted``: when its file was written by the store's clock, which is what Hudi takes; ``begun``: the times of all
    actions.

    A file's time is no more than a hint: a table that was copied has that of the copy. From version 8 on a log file
    belongs to the newest base file that was begun before the log's action was completed. So an action is completed after
    it was begun and before the next one was begun, whatever its file says: the slices are then those that the names say.
    (Two writers at once that overtook each other are put in the order they began in, which is the one that version 6
    knows.) A savepoint has the time of its commit and changes no slice: only its file tells when it was made.
    """
    order = sorted({_millis(time) for time in begun} | {_millis(time) for time, _ in wanted})
    found = {}
    for (time, action), file_time in wanted.items():
        own = _millis(time)
        least, guess = _shift(own, 1), min(_millis(file_time or own), now)
        chosen = max(guess, least)
        if action != SAVEPOINT:
            chosen = _before_next(order, own, chosen)
        found[time, action] = chosen
    return found


def _before_next(order: Sequence[str], own: str, chosen: str) -> str:
    at = bisect_right(order, own)
    return chosen if at == len(order) else max(own, min(chosen, _shift(order[at], -1)))


def _millis(instant: str) -> str:
    """17 digits; a 14-digit instant of an old table stands for the last millisecond of its second."""
    return (instant + "999")[:17]


def _shift(instant: str, millis: int) -> str:
    if not instant.isdigit():
        return instant
    try:
        moment = datetime.strptime(instant[:14], _FORMAT) + timedelta(milliseconds=int(instant[14:]) + millis)
    except ValueError:  # no date (the first instants of a metadata table): the digits are all there is
        return f"{int(instant) + millis:017d}"
    return f"{moment:{_FORMAT}}{moment.microsecond // 1000:03d}"
